//! Hand-written: a call for each claim and each completion.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_dynamodb::{operation::put_item::PutItemError, types::ReturnValuesOnConditionCheckFailure};
use futures_util::{StreamExt, stream};
use lambda_once::BoxError;

use super::{
    COMPLETED, IN_PROGRESS, Job, LEASE, RETENTION, SKEW_MARGIN, Table, millis, now, owner, response, seconds, text,
};
use crate::order::handle;

const CONCURRENCY: usize = 10;

/// Processes one message after another.
pub async fn sequential(table: &Table, event: SqsEvent) -> SqsBatchResponse {
    let mut failed = Vec::new();
    for message in event.records {
        if let Err((message_id, _)) = table.process(message).await {
            failed.push(message_id);
        }
    }
    response(failed)
}

/// Processes ten messages at a time.
pub async fn concurrent(table: &Table, event: SqsEvent) -> SqsBatchResponse {
    let results = stream::iter(event.records).map(|message| table.process(message)).buffer_unordered(CONCURRENCY);
    let failed = results.filter_map(async |result| result.err().map(|(message_id, _)| message_id));
    response(failed.collect().await)
}

enum Claim {
    Granted { owner: String },
    Done,
    Held,
}

impl Table {
    async fn process(&self, message: SqsMessage) -> Result<(), (String, BoxError)> {
        let Job { message_id, id, order } = Job::decode(message)?;
        let result = async {
            let owner = match self.claim(&id).await? {
                Claim::Granted { owner } => owner,
                Claim::Done => return Ok(()),
                Claim::Held => return Err("in progress elsewhere".into()),
            };
            match handle(order).await {
                Ok(receipt) => self.complete(&id, owner, serde_json::to_string(&receipt)?).await,
                Err(error) => {
                    self.release(&id, owner).await?;
                    Err(error.into())
                }
            }
        };
        result.await.map_err(|error| (message_id, error))
    }

    async fn claim(&self, id: &str) -> Result<Claim, BoxError> {
        let owner = owner()?;
        let now = now();
        let answer = self
            .client
            .put_item()
            .table_name(&self.name)
            .item("id", text(id))
            .item("status", text(IN_PROGRESS))
            .item("owner", text(&owner))
            .item("expiration", seconds(now + RETENTION))
            .item("in_progress_expiration", millis(now + LEASE))
            .condition_expression(
                "attribute_not_exists(#id) OR #expiration < :now OR (#status = :inprogress AND #lease < :lapsed)",
            )
            .expression_attribute_names("#id", "id")
            .expression_attribute_names("#expiration", "expiration")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#lease", "in_progress_expiration")
            .expression_attribute_values(":now", seconds(now))
            .expression_attribute_values(":inprogress", text(IN_PROGRESS))
            .expression_attribute_values(":lapsed", millis(now - SKEW_MARGIN))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let refused = match answer {
            Ok(_) => return Ok(Claim::Granted { owner }),
            Err(error) => error,
        };
        match refused.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                let found = |name: &str| refused.item()?.get(name)?.as_s().ok();
                if found("status").is_some_and(|status| status == COMPLETED) {
                    return Ok(Claim::Done);
                }
                // The SDK retries when a response is lost, and the first try may have been applied.
                let mine = found("owner") == Some(&owner);
                Ok(if mine { Claim::Granted { owner } } else { Claim::Held })
            }
            _ => Err(refused.into()),
        }
    }

    async fn complete(&self, id: &str, owner: String, result: String) -> Result<(), BoxError> {
        self.client
            .update_item()
            .table_name(&self.name)
            .key("id", text(id))
            .update_expression("SET #status = :completed, #data = :data, #expiration = :expiration")
            .condition_expression("#owner = :owner AND #status = :inprogress")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#data", "data")
            .expression_attribute_names("#expiration", "expiration")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":completed", text(COMPLETED))
            .expression_attribute_values(":data", text(result))
            .expression_attribute_values(":expiration", seconds(now() + RETENTION))
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":inprogress", text(IN_PROGRESS))
            .send()
            .await?;
        Ok(())
    }

    async fn release(&self, id: &str, owner: String) -> Result<(), BoxError> {
        self.client
            .delete_item()
            .table_name(&self.name)
            .key("id", text(id))
            .condition_expression("#owner = :owner AND #status = :inprogress")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":inprogress", text(IN_PROGRESS))
            .send()
            .await?;
        Ok(())
    }
}
