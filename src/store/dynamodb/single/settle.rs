//! The settle: one conditional `UpdateItem` or `DeleteItem`. It changes a record only while that is INPROGRESS under the
//! request's owner, and never creates one.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    operation::{delete_item::DeleteItemError, update_item::UpdateItemError},
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};

use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    record::{Record, Status, StoredResult},
    store::{
        SettleRequest, Settled, Settlement,
        dynamodb::{
            DynamoDbStore, error,
            item::{Item, data, number, text},
        },
        rules,
    },
};

const STILL_MINE: &str = "#owner = :owner AND #status = :inprogress";
/// Of a claim that took over the record stays.
const STILL_MINE_ALONE: &str = "#owner = :owner AND #status = :inprogress AND #prior <> :inprogress";
/// A renewal lowers nothing.
const STILL_MINE_AND_NO_LATER: &str = "#owner = :owner AND #status = :inprogress \
    AND (attribute_not_exists(#lease) OR #lease <= :lease) \
    AND (attribute_not_exists(#expiration) OR #expiration <= :expiration)";

/// What an attempt to settle found.
enum Attempt {
    Applied,
    /// The condition failed, on this item if there was one (and the emulator says so).
    Refused(Option<Item>),
}

impl DynamoDbStore {
    pub(in crate::store::dynamodb) async fn settle_one(&self, request: &SettleRequest) -> Result<Settled, Error> {
        let now = self.clock.now();
        let attempt = match &request.settlement {
            Settlement::Complete { result, retention } => {
                let expiration = now.after(*retention).seconds_rounded_up();
                self.record_outcome(request, Status::Completed, result, expiration).await?
            }
            Settlement::Fail { result, retention } => {
                let expiration = now.after(*retention).seconds_rounded_up();
                self.record_outcome(request, Status::Failed, result, expiration).await?
            }
            Settlement::Release { took_over: false } => self.delete(request).await?,
            Settlement::Release { took_over: true } => {
                let values = [(":ended", number(Timestamp::EPOCH.as_millis()))];
                self.update(request, "SET #lease = :ended REMOVE #owner", STILL_MINE, &values).await?
            }
            Settlement::Renew { lease, skew_margin, retention } => {
                let lease_until = now.after(*lease);
                let expiration = rules::in_progress_expiration(now, lease_until, *skew_margin, *retention);
                match self.renew(request, lease_until, expiration).await? {
                    Attempt::Applied => return Ok(Settled::Renewed { lease_until }),
                    refused @ Attempt::Refused(_) => refused,
                }
            }
        };
        let item = match attempt {
            Attempt::Applied => return Ok(Settled::Done),
            Attempt::Refused(item) => item,
        };
        self.explain(request, item.as_ref(), now).await
    }

    /// What a refused settle means: it was applied before, or the lease is lost, or a renewal that was made at `now` would
    /// have lowered something. `item` is what stood in the way.
    pub(in crate::store::dynamodb) async fn explain(
        &self,
        request: &SettleRequest,
        item: Option<&Item>,
        now: Timestamp,
    ) -> Result<Settled, Error> {
        let operation = request.settlement.as_str();
        let found = match item {
            Some(item) => self.schema.record(item, operation).map(Some),
            // Nothing is left to release. (Where an emulator keeps the item to itself it may be there, and stays as it is.)
            None if matches!(request.settlement, Settlement::Release { .. }) => return Ok(Settled::Done),
            None => self.read_one(&request.key, operation).await,
        };
        let current = match found {
            // What cannot be understood is not this owner's: a newer deployment has claimed the key since.
            Err(error) if error.kind() == ErrorKind::Format => None,
            found => found?,
        };
        if rules::is_settled(request, current.as_ref()) {
            return Ok(Settled::Done);
        }
        match (&request.settlement, current) {
            (Settlement::Renew { lease, skew_margin, retention }, Some(record))
                if rules::may_settle(request, &record) =>
            {
                let (lease_until, expiration) = rules::renewed(&record, now, *lease, *skew_margin, *retention);
                self.raise(request, &record, lease_until, expiration).await
            }
            (_, current) => Ok(Settled::LeaseLost { current: current.map(Box::new) }),
        }
    }

    /// Renews a claim whose record has a later lease, or a later expiration, than was asked for.
    async fn raise(
        &self,
        request: &SettleRequest,
        record: &Record,
        lease_until: Timestamp,
        expiration: u64,
    ) -> Result<Settled, Error> {
        if record.lease_until == Some(lease_until) && record.expiration == Some(expiration) {
            return Ok(Settled::Renewed { lease_until });
        }
        match self.renew(request, lease_until, expiration).await? {
            Attempt::Applied => Ok(Settled::Renewed { lease_until }),
            Attempt::Refused(_) => {
                let message = "the record was changed while its lease was renewed";
                Err(Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, request.settlement.as_str(), message))
            }
        }
    }

    /// Lowers neither the lease nor the expiration.
    async fn renew(&self, request: &SettleRequest, lease_until: Timestamp, expiration: u64) -> Result<Attempt, Error> {
        let values = [(":lease", number(lease_until.as_millis())), (":expiration", number(expiration))];
        self.update(request, "SET #lease = :lease, #expiration = :expiration", STILL_MINE_AND_NO_LATER, &values).await
    }

    async fn record_outcome(
        &self,
        request: &SettleRequest,
        status: Status,
        result: &StoredResult,
        expiration: u64,
    ) -> Result<Attempt, Error> {
        let mut update = "SET #status = :outcome, #expiration = :expiration".to_owned();
        let mut values = vec![(":outcome", text(status.as_str())), (":expiration", number(expiration))];
        if let Some(stored) = &result.data {
            update.push_str(", #data = :data");
            values.push((":data", data(stored.clone())));
        } else if result.dropped {
            update.push_str(", #dropped = :dropped");
            values.push((":dropped", AttributeValue::Bool(true)));
        }
        self.update(request, &update, STILL_MINE, &values).await
    }

    async fn update(
        &self,
        request: &SettleRequest,
        update: &str,
        condition: &str,
        values: &[(&str, AttributeValue)],
    ) -> Result<Attempt, Error> {
        let mut all = self.condition_values(request);
        all.extend(values.iter().map(|(placeholder, value)| ((*placeholder).to_owned(), value.clone())));
        let answer = self
            .client
            .update_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(&request.key)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(self.placeholders(update)))
            .set_expression_attribute_values(Some(all))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(Attempt::Applied),
            Err(failure) => match failure.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Attempt::Refused(refused.item.clone().filter(|item| !item.is_empty())))
                }
                _ => Err(error::from_sdk(failure, request.settlement.as_str())),
            },
        }
    }

    async fn delete(&self, request: &SettleRequest) -> Result<Attempt, Error> {
        let answer = self
            .client
            .delete_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(&request.key)))
            .condition_expression(STILL_MINE_ALONE)
            .set_expression_attribute_names(Some(self.placeholders(STILL_MINE_ALONE)))
            .set_expression_attribute_values(Some(self.condition_values(request)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(Attempt::Applied),
            Err(failure) => match failure.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Attempt::Refused(refused.item.clone().filter(|item| !item.is_empty())))
                }
                _ => Err(error::from_sdk(failure, request.settlement.as_str())),
            },
        }
    }

    fn condition_values(&self, request: &SettleRequest) -> HashMap<String, AttributeValue> {
        HashMap::from([
            (":owner".to_owned(), text(request.owner.to_hex())),
            (":inprogress".to_owned(), text(Status::InProgress.as_str())),
        ])
    }

    /// The placeholders of [`STILL_MINE`], and those that `more` uses: DynamoDB refuses unused ones.
    fn placeholders(&self, more: &str) -> HashMap<String, String> {
        let names = &self.schema.names;
        [
            ("#owner", &names.owner),
            ("#status", &names.status),
            ("#prior", &names.prior_status),
            ("#expiration", &names.expiration),
            ("#lease", &names.in_progress_expiration),
            ("#data", &names.data),
            ("#dropped", &names.result_dropped),
        ]
        .into_iter()
        .filter(|(placeholder, _)| STILL_MINE.contains(placeholder) || more.contains(placeholder))
        .map(|(placeholder, name)| (placeholder.to_owned(), name.clone()))
        .collect()
    }
}
