//! Settles with one conditional `UpdateItem` or `DeleteItem`, which changes a record only while it is INPROGRESS under
//! the request's owner, and never creates one.

use aws_sdk_dynamodb::{
    operation::delete_item::DeleteItemError,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};

use super::{Expression, Values, Write, values};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{KeyHash, Record, Status},
    store::{
        ResultData, SettleRequest, Settled, Settlement,
        dynamodb::{
            DynamoDbStore,
            item::{Item, number, text},
            schema::Stored,
        },
        rules::{self, Renewal, Resolved},
    },
};

impl DynamoDbStore {
    pub(in crate::store::dynamodb) fn settle_one<'a>(
        &'a self,
        request: &'a SettleRequest,
    ) -> BoxFuture<'a, Result<Settled, Error>> {
        match request.order() {
            Some(order) => Box::pin(self.settle_ordered(request, order)),
            None => Box::pin(self.settle_unordered(request)),
        }
    }

    async fn settle_unordered(&self, request: &SettleRequest) -> Result<Settled, Error> {
        let now = self.clock.now();
        let settlement = rules::resolved(&request.settlement, now);
        let item = match self.write_settle(request, &settlement).await? {
            Write::Applied(_) => {
                return Ok(match settlement {
                    Resolved::Renew(Renewal { lease_until, .. }) => Settled::Renewed { lease_until },
                    _ => Settled::Done { found: None },
                });
            }
            Write::Refused(item) => item,
        };
        self.explain(request, item.as_ref()).await
    }

    /// Explains a refused settle: it was applied before, or the lease is lost, or a renewal would have lowered a value,
    /// or a hand-back passes on a release. `item` is the existing item.
    pub(in crate::store::dynamodb) async fn explain(
        &self,
        request: &SettleRequest,
        item: Option<&Item>,
    ) -> Result<Settled, Error> {
        let operation = request.settlement.as_str();
        let found = match item {
            Some(item) => self.schema.record(item, ResultData::Include, operation).map(Some),
            // Nothing is left to release. (If an emulator does not return the item, it may exist and stays unchanged.)
            None if request.settlement == Settlement::Release => return Ok(Settled::Done { found: None }),
            None => self.read_one(&request.key, ResultData::Include, operation).await,
        };
        // Again, because the claim may have lapsed while the refused settle was in progress.
        let now = self.clock.now();
        if let (Settlement::HandBack, Ok(Some(record))) = (&request.settlement, &found)
            && let Some(hand_back) = passing_on(request, record, now)
        {
            return match self.write_settle(request, &hand_back).await? {
                Write::Applied(_) => Ok(Settled::Done { found: None }),
                Write::Refused(_) => Err(changed_meanwhile(request, "the record was changed while it was handed back")),
            };
        }
        match (rules::resolved(&request.settlement, now), rules::explain_settle(request, found)?) {
            (Resolved::Renew(renewal), Settled::LeaseLost { current: Some(record) })
                if rules::may_settle(request, &record, now) =>
            {
                self.raise(request, &record, renewal.raised_to(&record)).await
            }
            (_, settled) => Ok(settled),
        }
    }

    /// Renews a claim whose record has a later lease or expiration than requested.
    async fn raise(&self, request: &SettleRequest, record: &Record, renewal: Renewal) -> Result<Settled, Error> {
        let lease_until = renewal.lease_until;
        if record.lease_until == Some(lease_until) && record.expiration == Some(renewal.expiration) {
            return Ok(Settled::Renewed { lease_until });
        }
        match self.write_settle(request, &Resolved::Renew(renewal)).await? {
            Write::Applied(_) => Ok(Settled::Renewed { lease_until }),
            Write::Refused(_) => Err(changed_meanwhile(request, "the record was changed while its lease was renewed")),
        }
    }

    async fn write_settle(&self, request: &SettleRequest, settlement: &Resolved<'_>) -> Result<Write, Error> {
        let (expression, values) = self.settled_expression(request, settlement);
        match settlement {
            Resolved::Release => self.delete(request.settlement.as_str(), &request.key, expression, values).await,
            _ => self.update(request.settlement.as_str(), &request.key, expression, values, None).await,
        }
    }

    /// Returns the expression of a settle (or, for a deletion, of a release) and its values. Whatever the kind of
    /// write, the record must be in progress under the request's owner.
    pub(super) fn settled_expression(
        &self,
        request: &SettleRequest,
        settlement: &Resolved<'_>,
    ) -> (&Expression, Values) {
        let expressions = &self.expressions;
        let mut values =
            values([(":owner", text(request.owner.to_hex())), (":inprogress", text(Status::InProgress.as_str()))]);
        let mut set = |placeholder: &str, value| drop(values.insert(placeholder.to_owned(), value));
        let has_details = self.schema.has_details();
        let expression = match settlement {
            Resolved::Record { status, result, expiration, settled_at } => {
                set(":outcome", text(status.as_str()));
                set(":expiration", number(*expiration));
                if has_details {
                    set(":settled", number(settled_at.as_millis()));
                }
                let outcomes = if *status == Status::Completed { &expressions.completed } else { &expressions.failed };
                match self.schema.stored(result) {
                    Stored::Nothing => &outcomes.without_data,
                    Stored::Data(data) => {
                        set(":data", data);
                        &outcomes.with_data
                    }
                    Stored::Dropped => {
                        set(":true", AttributeValue::Bool(true));
                        &outcomes.dropped
                    }
                    Stored::Superseded => {
                        set(":true", AttributeValue::Bool(true));
                        &outcomes.superseded
                    }
                }
            }
            Resolved::Release => &expressions.delete,
            Resolved::HandBack { settled_at, release } => {
                set(":ended", number(Timestamp::EPOCH.as_millis()));
                if has_details {
                    set(":settled", number(settled_at.as_millis()));
                }
                match release {
                    None => &expressions.hand_back,
                    Some((attempt, seen, released)) => {
                        set(":attempt", number(*attempt));
                        set(":seen", number(*seen));
                        set(":released", number(*released));
                        &expressions.hand_back_released
                    }
                }
            }
            // Lowers neither the lease nor the expiration, and does not revive a lapsed claim.
            Resolved::Renew(Renewal { lease_until, expiration, lapsed, .. }) => {
                set(":lease", number(lease_until.as_millis()));
                set(":expiration", number(*expiration));
                set(":lapsed", number(lapsed.as_millis()));
                &expressions.renew
            }
        };
        (expression, values)
    }

    pub(super) async fn delete(
        &self,
        operation: &'static str,
        key: &KeyHash,
        Expression { condition, names, .. }: &Expression,
        values: Values,
    ) -> Result<Write, Error> {
        let answer = self
            .client
            .delete_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(key)))
            .condition_expression(condition)
            .set_expression_attribute_names(names.clone())
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let failure = match answer {
            Ok(_) => return Ok(Write::Applied(None)),
            Err(failure) => failure,
        };
        match failure.as_service_error() {
            Some(DeleteItemError::ConditionalCheckFailedException(refused)) => {
                Ok(Write::Refused(refused.item.clone().filter(|item| !item.is_empty())))
            }
            _ => Err(self.failed(failure, operation)),
        }
    }
}

/// Returns the hand-back of a record that has a release, if the request may still make it at `now`.
pub(super) fn passing_on(request: &SettleRequest, record: &Record, now: Timestamp) -> Option<Resolved<'static>> {
    let release = Some((record.attempt, record.released?, rules::release_after_hand_back(record)?));
    rules::may_settle(request, record, now).then_some(Resolved::HandBack { settled_at: now, release })
}

fn changed_meanwhile(request: &SettleRequest, message: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, request.settlement.as_str(), message)
}
