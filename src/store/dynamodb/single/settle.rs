//! The settle: one conditional `UpdateItem` or `DeleteItem`. It changes a record only while that is INPROGRESS under the
//! request's owner, and never creates one.

use aws_sdk_dynamodb::{
    operation::delete_item::DeleteItemError,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};

use super::{Expression, Values, Write, values};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{Record, Status, StoredResult},
    store::{
        ResultData, SettleRequest, Settled, Settlement,
        dynamodb::{
            DynamoDbStore, error,
            item::{Item, number, text},
        },
        rules,
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
        let write = match &request.settlement {
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
                let ended = number(Timestamp::EPOCH.as_millis());
                self.change(request, &self.expressions.hand_back, [(":ended", ended)]).await?
            }
            Settlement::Renew { lease, skew_margin, retention } => {
                let lease_until = now.after(*lease);
                let expiration = rules::in_progress_expiration(now, lease_until, *skew_margin, *retention);
                match self.renew(request, lease_until, expiration, now.before(*skew_margin)).await? {
                    Write::Applied(_) => return Ok(Settled::Renewed { lease_until }),
                    refused @ Write::Refused(_) => refused,
                }
            }
        };
        let item = match write {
            Write::Applied(_) => return Ok(Settled::Done { found: None }),
            Write::Refused(item) => item,
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
            Some(item) => self.schema.record(item, ResultData::Include, operation).map(Some),
            // Nothing is left to release. (Where an emulator keeps the item to itself it may be there, and stays as it is.)
            None if matches!(request.settlement, Settlement::Release { .. }) => {
                return Ok(Settled::Done { found: None });
            }
            None => self.read_one(&request.key, ResultData::Include, operation).await,
        };
        match (&request.settlement, rules::explain_settle(request, found)?) {
            (Settlement::Renew { lease, skew_margin, retention }, Settled::LeaseLost { current: Some(record) })
                if rules::may_settle(request, &record, now) =>
            {
                let (lease_until, expiration) = rules::renewed(&record, now, *lease, *skew_margin, *retention);
                self.raise(request, &record, lease_until, expiration, now.before(*skew_margin)).await
            }
            (_, settled) => Ok(settled),
        }
    }

    /// Renews a claim whose record has a later lease, or a later expiration, than was asked for.
    async fn raise(
        &self,
        request: &SettleRequest,
        record: &Record,
        lease_until: Timestamp,
        expiration: u64,
        lapsed: Timestamp,
    ) -> Result<Settled, Error> {
        if record.lease_until == Some(lease_until) && record.expiration == Some(expiration) {
            return Ok(Settled::Renewed { lease_until });
        }
        match self.renew(request, lease_until, expiration, lapsed).await? {
            Write::Applied(_) => Ok(Settled::Renewed { lease_until }),
            Write::Refused(_) => {
                let message = "the record was changed while its lease was renewed";
                Err(Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, request.settlement.as_str(), message))
            }
        }
    }

    /// Lowers neither the lease nor the expiration, and revives no claim whose lease ended before `lapsed`.
    async fn renew(
        &self,
        request: &SettleRequest,
        lease_until: Timestamp,
        expiration: u64,
        lapsed: Timestamp,
    ) -> Result<Write, Error> {
        let values = [
            (":lease", number(lease_until.as_millis())),
            (":expiration", number(expiration)),
            (":lapsed", number(lapsed.as_millis())),
        ];
        self.change(request, &self.expressions.renew, values).await
    }

    async fn record_outcome(
        &self,
        request: &SettleRequest,
        status: Status,
        result: &StoredResult,
        expiration: u64,
    ) -> Result<Write, Error> {
        let (expression, values) = self.outcome(request, status, result, expiration);
        self.update(request.settlement.as_str(), &request.key, expression, values, None).await
    }

    /// The update that records an outcome.
    pub(super) fn outcome(
        &self,
        request: &SettleRequest,
        status: Status,
        result: &StoredResult,
        expiration: u64,
    ) -> (&Expression, Values) {
        let mut values = still_mine(request);
        values.insert(":outcome".to_owned(), text(status.as_str()));
        values.insert(":expiration".to_owned(), number(expiration));
        let expression = match result.data.as_ref().map(|data| self.schema.data(data)) {
            // A result that is kept was not dropped.
            Some(Some(stored)) => {
                values.insert(":data".to_owned(), stored);
                &self.expressions.record_with_data
            }
            stored if result.dropped || stored.is_some() => {
                values.insert(":true".to_owned(), AttributeValue::Bool(true));
                &self.expressions.record_dropped
            }
            _ if result.superseded => {
                values.insert(":true".to_owned(), AttributeValue::Bool(true));
                &self.expressions.record_superseded
            }
            _ => &self.expressions.record,
        };
        (expression, values)
    }

    async fn change<const N: usize>(
        &self,
        request: &SettleRequest,
        expression: &Expression,
        more: [(&str, AttributeValue); N],
    ) -> Result<Write, Error> {
        let mut values = still_mine(request);
        values.extend(more.map(|(placeholder, value)| (placeholder.to_owned(), value)));
        self.update(request.settlement.as_str(), &request.key, expression, values, None).await
    }

    async fn delete(&self, request: &SettleRequest) -> Result<Write, Error> {
        let Expression { condition, names, .. } = &self.expressions.delete;
        let answer = self
            .client
            .delete_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(&request.key)))
            .condition_expression(condition)
            .set_expression_attribute_names(names.clone())
            .set_expression_attribute_values(Some(still_mine(request)))
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
            _ => Err(error::from_sdk(failure, request.settlement.as_str())),
        }
    }
}

/// The values of the condition that every settle has.
pub(super) fn still_mine(request: &SettleRequest) -> Values {
    values([(":owner", text(request.owner.to_hex())), (":inprogress", text(Status::InProgress.as_str()))])
}
