//! The claim: one `UpdateItem` that creates the record, or replaces one that may be replaced.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use crate::{
    clock::Timestamp,
    error::Error,
    record::{NEWEST_KNOWN_VERSION, RECORD_VERSION, Record, Status},
    store::{
        ClaimRequest, Claimed, Grant, Refusal, Takeover,
        dynamodb::{
            DynamoDbStore, error,
            item::{NO_STATUS, number, text},
        },
        rules::{self, Judgement},
    },
};

/// What an attempt to claim found.
enum Attempt {
    Granted(Grant),
    /// The condition failed; an emulator of old may not say on what.
    Refused(Option<Record>),
}

impl DynamoDbStore {
    /// `begun` is when the call for the whole batch began: leases count from there.
    pub(in crate::store::dynamodb) async fn claim_one(
        &self,
        request: &ClaimRequest,
        begun: Timestamp,
    ) -> Result<Claimed, Error> {
        let lease_until = begun.after(request.lease);
        // A second attempt is made only if the record that stood in the way is gone when it is read afterwards.
        for _ in 0..2 {
            let now = self.clock.now();
            let found = match self.try_claim(request, now, lease_until).await? {
                Attempt::Granted(grant) => return Ok(Claimed::Granted(grant)),
                Attempt::Refused(Some(record)) => Some(record),
                Attempt::Refused(None) => self.read_one(&request.key, "claim").await?,
            };
            let Some(record) = found else { continue };
            match rules::judge(&record, request, now)? {
                Judgement::Free => {}
                Judgement::Mine(grant) => return Ok(Claimed::Granted(grant)),
                Judgement::Refused(refusal) => return Ok(Claimed::Refused(refusal)),
            }
        }
        Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }))
    }

    async fn try_claim(
        &self,
        request: &ClaimRequest,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Attempt, Error> {
        let expiration = rules::in_progress_expiration(now, lease_until, request.skew_margin, request.retention);
        let names = &self.schema.names;
        let mut placeholders = HashMap::from(
            [
                ("#id", &names.id),
                ("#status", &names.status),
                ("#expiration", &names.expiration),
                ("#lease", &names.in_progress_expiration),
                ("#data", &names.data),
                ("#validation", &names.validation),
                ("#owner", &names.owner),
                ("#attempt", &names.attempt),
                ("#prior", &names.prior_status),
                ("#dropped", &names.result_dropped),
                ("#v", &names.version),
            ]
            .map(|(placeholder, name)| (placeholder.to_owned(), name.clone())),
        );
        let mut values = HashMap::from([
            (":inprogress".to_owned(), text(Status::InProgress.as_str())),
            (":none".to_owned(), text(NO_STATUS)),
            (":owner".to_owned(), text(request.owner.to_hex())),
            (":lease".to_owned(), number(lease_until.as_millis())),
            (":expiration".to_owned(), number(expiration)),
            (":now".to_owned(), number(now.seconds_rounded_down())),
            (":zero".to_owned(), number(0)),
            (":one".to_owned(), number(1)),
            (":v".to_owned(), number(RECORD_VERSION.into())),
        ]);
        let mut update = "SET #status = :inprogress, #owner = :owner, #lease = :lease, #expiration = :expiration, \
             #attempt = if_not_exists(#attempt, :zero) + :one, #prior = if_not_exists(#status, :none), #v = :v"
            .to_owned();
        let mut condition = "attribute_not_exists(#id) OR #expiration <= :now".to_owned();
        if request.takeover == Takeover::Allowed {
            condition.push_str(
                " OR (#status = :inprogress AND #lease < :lapsed AND (attribute_not_exists(#v) OR #v <= :newest)",
            );
            if request.fingerprint.is_some() {
                condition.push_str(" AND (attribute_not_exists(#validation) OR #validation = :validation)");
            }
            condition.push(')');
            values.insert(":lapsed".to_owned(), number(now.before(request.skew_margin).as_millis()));
            values.insert(":newest".to_owned(), number(NEWEST_KNOWN_VERSION.into()));
        }
        match &request.fingerprint {
            Some(fingerprint) => {
                update.push_str(", #validation = :validation REMOVE #data, #dropped");
                values.insert(":validation".to_owned(), text(fingerprint.to_hex()));
            }
            None => update.push_str(" REMOVE #data, #dropped, #validation"),
        }
        placeholders.retain(|placeholder, _| update.contains(placeholder) || condition.contains(placeholder));

        let answer = self
            .client
            .update_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(&request.key)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(placeholders))
            .set_expression_attribute_values(Some(values))
            .return_values(ReturnValue::UpdatedNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(granted) => {
                let updated = granted.attributes.unwrap_or_default();
                let attempt = updated.get(&names.attempt).and_then(|value| value.as_n().ok()?.parse().ok());
                let prior = updated.get(&names.prior_status).and_then(|value| value.as_s().ok());
                Ok(Attempt::Granted(Grant {
                    lease_until,
                    attempt: attempt.unwrap_or(1),
                    prior_status: prior.and_then(|word| Status::from_word(word)),
                }))
            }
            Err(failure) => match failure.as_service_error() {
                Some(refused) if refused.is_conditional_check_failed_exception() => {
                    let item = refused_item(refused);
                    Ok(Attempt::Refused(item.map(|item| self.schema.record(item, "claim")).transpose()?))
                }
                _ => Err(error::from_sdk(failure, "claim")),
            },
        }
    }
}

fn refused_item(
    error: &aws_sdk_dynamodb::operation::update_item::UpdateItemError,
) -> Option<&HashMap<String, AttributeValue>> {
    use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
    match error {
        UpdateItemError::ConditionalCheckFailedException(failed) => failed.item().filter(|item| !item.is_empty()),
        _ => None,
    }
}
