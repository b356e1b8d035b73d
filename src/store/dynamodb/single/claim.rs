//! Claims with one `UpdateItem`, which creates a record or replaces a replaceable one.

use aws_sdk_dynamodb::types::ReturnValue;

use super::{Values, Write, values};
use crate::{
    clock::Timestamp,
    error::Error,
    future::BoxFuture,
    record::Status,
    store::{
        ClaimRequest, Claimed, Grant, Refusal,
        dynamodb::{
            DynamoDbStore,
            item::{Item, NO_STATUS, attempts, newest_known_version, number, text, written_version},
            schema::Schema,
        },
        rules::{self, Judgement},
    },
};

impl DynamoDbStore {
    /// `begun` is the start of the call for the whole batch, from which leases count.
    pub(in crate::store::dynamodb) fn claim_one<'a>(
        &'a self,
        request: &'a ClaimRequest,
        begun: Timestamp,
    ) -> BoxFuture<'a, Result<Claimed, Error>> {
        match request.order() {
            Some(order) => Box::pin(self.claim_ordered(request, order, begun)),
            None => Box::pin(self.claim_unordered(request, begun)),
        }
    }

    async fn claim_unordered(&self, request: &ClaimRequest, begun: Timestamp) -> Result<Claimed, Error> {
        let lease_until = begun.after(request.lease);
        let mut restart = None;
        // A second attempt is made only if the blocking item is gone or expired when it is read afterwards.
        for _ in 0..2 {
            let now = self.clock.now();
            let expression = match restart {
                Some(_) => self.expressions.restart(request),
                None => self.expressions.claim(request),
            };
            let values = claim_values(&self.schema, request, now, begun, restart);
            let item =
                match self.update("claim", &request.key, expression, values, Some(ReturnValue::UpdatedNew)).await? {
                    Write::Applied(updated) => {
                        let (attempt, prior_status) = self.granted(&updated.unwrap_or_default());
                        let grant = Grant { lease_until, attempt, prior_status, has_merged_doubt: false };
                        return Ok(Claimed::Granted(grant));
                    }
                    Write::Refused(Some(item)) => Some(item),
                    // An old emulator may not return the item on which the condition failed.
                    Write::Refused(None) => self.read_item(&request.key, request.result_data, "claim").await?,
                };
            let Some(item) = item else { continue };
            // An expired item counts as absent, whatever it contains.
            restart = self.schema.is_expired(&item, now).then(|| self.next_attempt(&item));
            if restart.is_some() {
                continue;
            }
            let record = self.schema.record(&item, request.result_data, "claim")?;
            match rules::judge(&record, request, now)? {
                Judgement::Free => {}
                Judgement::Mine(grant) => return Ok(Claimed::Granted(grant)),
                Judgement::Refused(refusal) => return Ok(Claimed::Refused(refusal)),
            }
        }
        Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }))
    }

    /// Returns the attempt of a claim that replaces the item. Attempts that cannot be incremented restart.
    pub(super) fn next_attempt(&self, item: &Item) -> u64 {
        item.get(&self.schema.names.attempt).and_then(attempts).unwrap_or(0).saturating_add(1)
    }

    /// Returns the attempt and the prior status of a claim that was applied.
    fn granted(&self, updated: &Item) -> (u64, Option<Status>) {
        let names = &self.schema.names;
        let prior_status = updated.get(&names.prior_status).and_then(|value| Status::from_word(value.as_s().ok()?));
        (updated.get(&names.attempt).and_then(attempts).unwrap_or(1), prior_status)
    }
}

/// Leases count from `begun`. With `restart`, the attempt to write, only an expired item is replaced.
pub(super) fn claim_values(
    schema: &Schema,
    request: &ClaimRequest,
    now: Timestamp,
    begun: Timestamp,
    restart: Option<u64>,
) -> Values {
    let lease_until = begun.after(request.lease);
    let expiration = rules::in_progress_expiration(now, lease_until, request.skew_margin, request.retention);
    let mut values = values([
        (":inprogress", text(Status::InProgress.as_str())),
        (":none", text(NO_STATUS)),
        (":owner", text(request.owner.to_hex())),
        (":lease", number(lease_until.as_millis())),
        (":expiration", number(expiration)),
        (":now", number(now.seconds_rounded_down())),
        (":v", written_version()),
    ]);
    if let Some(attempt) = restart {
        values.insert(":attempt".to_owned(), number(attempt));
    } else {
        values.insert(":zero".to_owned(), number(0));
        values.insert(":one".to_owned(), number(1));
        values.insert(":lapsed".to_owned(), number(now.before(request.skew_margin).as_millis()));
        values.insert(":newest".to_owned(), newest_known_version());
    }
    if let Some(open) = schema.open(&request.key, &request.operation) {
        values.insert(":open".to_owned(), open);
    }
    if let Some(fingerprint) = &request.fingerprint {
        values.insert(":validation".to_owned(), schema.validation(fingerprint));
        if restart.is_none() {
            values.extend(schema.compared(fingerprint));
        }
    }
    if schema.has_details() {
        values.insert(":operation".to_owned(), text(&*request.operation));
        values.insert(":claimed".to_owned(), number(begun.as_millis()));
        if let Some(label) = &request.label {
            values.insert(":label".to_owned(), text(&**label));
        }
        if let Some(order) = request.order() {
            values.insert(":sequence".to_owned(), text(order.sequence.to_digits()));
        }
    }
    values
}
