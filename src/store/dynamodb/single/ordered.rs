//! Claims, settles and amends ordered operations, with the record and the mark of its entity in one transaction.
//!
//! An applied transaction returns nothing, so a claim's conditions pin the contents of its grant, which are the attempt
//! and the status that it replaces. The first try assumes the likeliest state, a new operation on a free entity. A
//! refusal shows the actual state, on which the next try is based. Both writes state everything that they rely on.

use std::time::Duration;

use aws_sdk_dynamodb::{
    operation::transact_write_items::TransactWriteItemsError,
    types::{CancellationReason, Delete, ReturnValuesOnConditionCheckFailure::AllOld, TransactWriteItem, Update},
};
use tokio::time::sleep;

use super::{Expression, Values, amend::AMEND, claim::claim_values, settle::passing_on};
use crate::{
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::{Entity, Mark, Order},
    record::{KeyHash, Record, Status},
    store::{
        ClaimRequest, Claimed, Grant, Refusal, ResultData, SettleRequest, Settled, Settlement,
        amend::{AmendRequest, Amended},
        dynamodb::{
            DynamoDbStore,
            error::{self, unbuilt},
            item::{Item, attempts},
            mark::Seen,
        },
        ordering,
        rules::{self, Judgement, Renewal, Resolved},
    },
};

/// The maximum number of tries of a claim or a settle while others change the record or the mark.
pub(super) const MAX_TRIES: u32 = 5;

/// The first pause of a claim that meets another transaction. All pauses together take a part of the time that the
/// engine gives a call.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// DynamoDB's reason for cancelling a transaction that conflicts with another on an item.
const CONFLICT: &str = "TransactionConflict";

/// The result of a transaction.
enum Written {
    Applied,
    /// A condition failed, on these items.
    Refused {
        record: Option<Found>,
        mark: Option<Found>,
    },
    /// Another transaction was changing the record or the mark.
    Conflict(Error),
}

/// The item that did not meet a condition, or `None` if there was none, or if an emulator does not return it.
struct Found(Option<Item>);

impl DynamoDbStore {
    /// `begun` is the start of the call for the whole batch, from which leases count.
    pub(in crate::store::dynamodb) async fn claim_ordered(
        &self,
        request: &ClaimRequest,
        order: &Order,
        begun: Timestamp,
    ) -> Result<Claimed, Error> {
        let lease_until = begun.after(request.lease);
        let (mut item, mut mark) = (None, Seen::Nothing);
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        for left in (0..=MAX_TRIES).rev() {
            let now = self.clock.now();
            match self.judge_ordered(item.as_ref(), &mut mark, request, order, now).await? {
                Judgement::Free if left == 0 => break,
                Judgement::Free => {}
                Judgement::Mine(grant) => return Ok(Claimed::Granted(grant)),
                Judgement::Refused(refusal) => return Ok(Claimed::Refused(refusal)),
            }
            let (record, mut grant) = self.claimed_record(item.as_ref(), request, begun, now)?;
            let writes = [record, self.schema.claimed_mark(&mark, request, order, &mut grant, now)?];
            match self.write_both("claim", writes).await? {
                Written::Applied => return Ok(Claimed::Granted(grant)),
                Written::Refused { record, mark: found } => {
                    if let Some(found) = record {
                        item = self.item_of(found, &request.key, request.result_data).await?;
                    }
                    if let Some(found) = found {
                        mark = Seen::Item(self.mark_of(found, &request.key, "claim").await?);
                    }
                }
                // The mark is read before the record, so that an operation which completes in between is replayed, and
                // not superseded by itself. The record also shows whether an earlier attempt of this request was
                // applied.
                Written::Conflict(_) => {
                    let pause = backoff.next_poll();
                    if self.clock.now().after(pause) >= lease_until {
                        break;
                    }
                    sleep(pause).await;
                    mark = Seen::Item(self.read_mark(&Entity::of(&request.key), "claim").await?);
                    item = self.read_item(&request.key, request.result_data, "claim").await?;
                }
            }
        }
        Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }))
    }

    /// Judges a claim by the known state.
    async fn judge_ordered(
        &self,
        item: Option<&Item>,
        mark: &mut Seen,
        request: &ClaimRequest,
        order: &Order,
        now: Timestamp,
    ) -> Result<Judgement, Error> {
        // An expired item counts as absent, whatever it contains.
        let item = item.filter(|item| !self.schema.is_expired(item, now));
        let record = item.map(|item| self.schema.record(item, request.result_data, "claim")).transpose()?;
        loop {
            let known = match &*mark {
                Seen::Item(item) => self.known_mark(item.as_ref(), &request.key, now, "claim"),
                Seen::Nothing => Ok(None),
            };
            let judgement = ordering::judge_found(record.as_ref(), &known, request, order, now)?;
            // Superseded takes precedence over abandoned, and only the mark shows it.
            let is_open = matches!(judgement, Judgement::Refused(Refusal::Abandoned { .. }));
            if !(is_open && matches!(mark, Seen::Nothing)) {
                return Ok(judgement);
            }
            *mark = Seen::Item(self.read_mark(&Entity::of(&request.key), "claim").await?);
        }
    }

    /// Returns a claim's write to its record, and the grant. It creates the record, or replaces the existing one by the
    /// rule that allows it.
    fn claimed_record(
        &self,
        item: Option<&Item>,
        request: &ClaimRequest,
        begun: Timestamp,
        now: Timestamp,
    ) -> Result<(TransactWriteItem, Grant), Error> {
        let lease_until = begun.after(request.lease);
        let names = &self.schema.names;
        let seen = |name: &String| item.and_then(|item| item.get(name));
        let replaced = seen(&names.status).and_then(|value| Status::from_word(value.as_s().ok()?));
        // Attempts that cannot be incremented are another library's, and restart if that is allowed, that is, on an
        // expired item. A claim that has expired is not taken over.
        let counts = seen(&names.attempt).is_none_or(|attempt| attempts(attempt).is_some());
        let has_expired = item.is_some_and(|item| self.schema.is_expired(item, now));
        let restarts = !counts || has_expired && replaced == Some(Status::InProgress);
        let attempt = item.map_or(1, |item| self.next_attempt(item));
        let expression = if restarts { self.expressions.restart(request) } else { self.expressions.claim(request) };
        let mut values = claim_values(&self.schema, request, now, begun, restarts.then_some(attempt));
        let (mut condition, mut aliases) = (format!("({})", expression.condition), expression.names.clone());
        let mut pin = |placeholder: &str, name: &String| {
            let (alias, seen) = (format!("#seen_{placeholder}"), format!(":seen_{placeholder}"));
            condition += &match item.and_then(|item| item.get(name)) {
                Some(value) => {
                    values.insert(seen.clone(), value.clone());
                    format!(" AND {alias} = {seen}")
                }
                None => format!(" AND attribute_not_exists({alias})"),
            };
            aliases.get_or_insert_default().insert(alias, name.clone());
        };
        pin("status", &names.status);
        pin("attempt", &names.attempt);
        if item.is_none() {
            pin("id", &names.id);
        }
        let prior_status = replaced.filter(|_| !restarts);
        let (update, name) = self.expressions.with_sequence(&expression.update);
        if let Some((alias, name)) = name {
            aliases.get_or_insert_default().insert(alias, name);
        }
        let pinned = Expression { update, condition, names: aliases };
        let write = self.update_within(&request.key, &pinned, values)?;
        Ok((write, Grant { lease_until, attempt, prior_status, has_merged_doubt: false }))
    }

    pub(in crate::store::dynamodb) async fn settle_ordered(
        &self,
        request: &SettleRequest,
        order: &Order,
    ) -> Result<Settled, Error> {
        let operation = request.settlement.as_str();
        let (mut mark, mut later): (_, Option<Box<Record>>) = (Seen::Nothing, None);
        for _ in 0..MAX_TRIES {
            let now = self.clock.now();
            if !self.may_settle(&mark, request, now)? {
                let found = self.read_one(&request.key, ResultData::Include, operation).await;
                return rules::explain_settle(request, found);
            }
            // Resolved again for each try, because the claim may have lapsed while the last one was in progress.
            let settlement = match (rules::resolved(&request.settlement, now), &later) {
                (Resolved::Renew(renewal), Some(record)) => Resolved::Renew(renewal.raised_to(record)),
                (Resolved::HandBack { .. }, Some(record)) => {
                    passing_on(request, record, now).unwrap_or_else(|| rules::resolved(&request.settlement, now))
                }
                (settlement, _) => settlement,
            };
            let record = self.settled_record(request, &settlement)?;
            let writes = [record, self.schema.settled_mark(&mark, request, order, now)?];
            let (record, found) = match self.write_both(operation, writes).await? {
                Written::Applied => {
                    return Ok(match settlement {
                        Resolved::Renew(Renewal { lease_until, .. }) => Settled::Renewed { lease_until },
                        _ => Settled::Done { found: None },
                    });
                }
                Written::Refused { record, mark } => (record, mark),
                Written::Conflict(error) => return Err(error),
            };
            if let Some(found) = found {
                mark = Seen::Item(self.mark_of(found, &request.key, operation).await?);
            }
            if let Some(found) = record {
                match self.explain_ordered(request, found).await? {
                    Explained::Settled(settled) => return Ok(settled),
                    Explained::Later(record) => later = Some(record),
                }
            }
        }
        Err(changed_each_time(operation))
    }

    /// Records the outcome of an ordered operation for an operator, and the mark with it.
    pub(super) async fn amend_ordered(&self, request: &AmendRequest) -> Result<Amended, Error> {
        let mut mark = self.read_mark(&Entity::of(&request.key), AMEND).await?;
        for _ in 0..MAX_TRIES {
            let now = self.clock.now();
            let marked = match self.schema.amended_mark(mark.as_ref(), request, now) {
                Ok(marked) => marked,
                // Only an amendment that is applied needs the mark.
                Err(error) => {
                    let item = self.read_item(&request.key, ResultData::Include, AMEND).await?;
                    let record = self.live_record(item, now)?;
                    let (change, answer) = rules::amend_record(record.as_ref(), request, now)?;
                    return if change == rules::Change::Keep { Ok(answer) } else { Err(error) };
                }
            };
            let (expression, values) = self.amending_expression(request, now);
            let writes = [self.update_within(&request.key, &expression, values)?, marked];
            match self.write_both(AMEND, writes).await? {
                Written::Applied => return Ok(Amended::Changed),
                Written::Refused { record: Some(found), .. } => {
                    let item = self.item_of(found, &request.key, ResultData::Include).await?;
                    return rules::explain_amendment(request, self.live_record(item, now)?, now);
                }
                Written::Refused { record: None, mark: Some(found) } => {
                    mark = self.mark_of(found, &request.key, AMEND).await?;
                }
                Written::Refused { record: None, mark: None } => {}
                Written::Conflict(error) => return Err(error),
            }
        }
        Err(changed_each_time(AMEND))
    }

    /// Returns whether the known state of the mark allows an outcome to be committed.
    pub(super) fn may_commit(
        &self,
        mark: &Seen,
        request: &SettleRequest,
        order: &Order,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let Seen::Item(item) = mark else { return Ok(true) };
        let mark = self.known_mark(item.as_ref(), &request.key, now, "commit")?;
        Ok(ordering::may_commit(mark.as_ref(), request, order, now))
    }

    /// Judges a claim whose record the commit will judge. If the mark refuses it or cannot be read, the record is read,
    /// because a completed operation is replayed.
    pub(super) async fn judge_claimless(
        &self,
        mark: &Seen,
        request: &ClaimRequest,
        order: &Order,
        now: Timestamp,
    ) -> Result<Judgement, Error> {
        let mark = match mark {
            Seen::Nothing => Ok(None),
            Seen::Item(item) => self.known_mark(item.as_ref(), &request.key, now, "claim"),
        };
        match ordering::judge_found(None, &mark, request, order, now) {
            Ok(Judgement::Refused(_)) | Err(_) => {
                let record = self.read_one(&request.key, request.result_data, "claim").await?;
                ordering::judge_found(record.as_ref(), &mark, request, order, now)
            }
            judgement => judgement,
        }
    }

    pub(super) fn known_mark(
        &self,
        item: Option<&Item>,
        key: &KeyHash,
        now: Timestamp,
        operation: &'static str,
    ) -> Result<Option<Mark>, Error> {
        self.schema.mark(&Entity::of(key), item, now, operation)
    }

    fn may_settle(&self, mark: &Seen, request: &SettleRequest, now: Timestamp) -> Result<bool, Error> {
        let Seen::Item(item) = mark else { return Ok(true) };
        let mark = self.known_mark(item.as_ref(), &request.key, now, request.settlement.as_str())?;
        Ok(ordering::may_settle(mark.as_ref(), request, now))
    }

    /// Explains a settle whose record's condition failed.
    async fn explain_ordered(&self, request: &SettleRequest, found: Found) -> Result<Explained, Error> {
        let operation = request.settlement.as_str();
        let item = self.item_of(found, &request.key, ResultData::Include).await?;
        let record = item.map(|item| self.schema.record(&item, ResultData::Include, operation)).transpose();
        let now = self.clock.now();
        let passes_on = |record: &Record| passing_on(request, record, now).is_some();
        if matches!(request.settlement, Settlement::HandBack)
            && let Ok(Some(record)) = &record
            && passes_on(record)
        {
            return Ok(Explained::Later(Box::new(record.clone())));
        }
        let settled = rules::explain_settle(request, record)?;
        Ok(match settled {
            // The recorded lease is later than the requested one.
            Settled::LeaseLost { current: Some(record) }
                if matches!(request.settlement, Settlement::Renew { .. })
                    && rules::may_settle(request, &record, self.clock.now()) =>
            {
                Explained::Later(record)
            }
            settled => Explained::Settled(settled),
        })
    }

    /// Returns a settle's write to its record.
    fn settled_record(&self, request: &SettleRequest, settlement: &Resolved<'_>) -> Result<TransactWriteItem, Error> {
        let (expression, values) = self.settled_expression(request, settlement);
        match settlement {
            Resolved::Release => self.delete_within(&request.key, expression, values),
            _ => self.update_within(&request.key, expression, values),
        }
    }

    /// Returns a deletion of a record as part of a transaction.
    fn delete_within(
        &self,
        key: &KeyHash,
        Expression { condition, names, .. }: &Expression,
        values: Values,
    ) -> Result<TransactWriteItem, Error> {
        let delete = Delete::builder()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(key)))
            .condition_expression(condition)
            .set_expression_attribute_names(names.clone())
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(AllOld)
            .build()
            .map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    /// Returns an update of a record as part of a transaction.
    pub(super) fn update_within(
        &self,
        key: &KeyHash,
        expression: &Expression,
        values: Values,
    ) -> Result<TransactWriteItem, Error> {
        let update = Update::builder()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(key)))
            .update_expression(&expression.update)
            .condition_expression(&expression.condition)
            .set_expression_attribute_names(expression.names.clone())
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(AllOld)
            .build()
            .map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// Writes both a record and a mark, or neither.
    async fn write_both(&self, operation: &'static str, writes: [TransactWriteItem; 2]) -> Result<Written, Error> {
        let call = self.client.transact_write_items().set_transact_items(Some(writes.into()));
        let Err(failure) = call.send().await else { return Ok(Written::Applied) };
        let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) = failure.as_service_error() else {
            return Err(self.failed(failure, operation));
        };
        let reasons = canceled.cancellation_reasons();
        let found = |place: usize| {
            let reason = reasons.get(place).filter(|reason| reason.code() == Some("ConditionalCheckFailed"))?;
            Some(Found(reason.item().cloned().filter(|item| !item.is_empty())))
        };
        match (found(0), found(1)) {
            (None, None) => {}
            (record, mark) => return Ok(Written::Refused { record, mark }),
        }
        let mut failed = reasons.iter().filter(|reason| reason.code().is_some_and(|code| code != "None"));
        let is_conflict = |reason: &CancellationReason| reason.code() == Some(CONFLICT);
        // Throttling, for example, is an error of the store.
        let reason = failed.clone().find(|reason| !is_conflict(reason)).or_else(|| failed.next());
        let (code, said) = reason.map_or(("", None), |reason| (reason.code().unwrap_or_default(), reason.message()));
        let error = error::of_statement(code, said, operation, || self.place());
        if reason.is_some_and(is_conflict) {
            return Ok(Written::Conflict(error.with_source(failure)));
        }
        Err(error.with_source(failure))
    }

    async fn item_of(&self, found: Found, key: &KeyHash, data: ResultData) -> Result<Option<Item>, Error> {
        match found {
            Found(Some(item)) => Ok(Some(item)),
            Found(None) => self.read_item(key, data, "read").await,
        }
    }

    async fn mark_of(&self, found: Found, key: &KeyHash, operation: &'static str) -> Result<Option<Item>, Error> {
        match found {
            Found(Some(item)) => Ok(Some(item)),
            Found(None) => self.read_mark(&Entity::of(key), operation).await,
        }
    }

    pub(super) async fn read_mark(&self, entity: &Entity, operation: &'static str) -> Result<Option<Item>, Error> {
        let get = self.client.get_item().table_name(&self.schema.table);
        let get = get.set_key(Some(self.schema.mark_key(entity))).consistent_read(true);
        Ok(get.send().await.map_err(|failure| self.failed(failure, operation))?.item)
    }
}

pub(super) fn changed_each_time(operation: &'static str) -> Error {
    let message = "the record or the mark of its entity was changed each time that this was tried";
    Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, operation, message)
}

/// The meaning of a settle whose record's condition failed.
enum Explained {
    Settled(Settled),
    /// The recorded lease or expiration is later than the renewal's, and must not be lowered.
    Later(Box<Record>),
}
