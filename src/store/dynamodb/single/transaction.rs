//! Transactions of the handler's writes and the operation's outcome in one `TransactWriteItems`.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update};

use super::{
    Expression, Values,
    commit::{COMMIT, Commit, Sent},
    values,
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    order::{Entity, Order},
    record::{Owner, Status, StoredResult},
    store::{
        ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled, Settlement,
        dynamodb::{
            DynamoDbStore,
            item::{Item, NO_STATUS, newest_known_version, number, text, written_version},
            mark::Seen,
            schema::{Schema, Stored},
        },
        ordering,
        rules::{self, Judgement, Resolved},
        transaction::Transactional,
    },
};

/// The maximum number of the handler's writes. DynamoDB accepts 100 in a transaction, one of which records the outcome.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html>
const MAX_WRITES: usize = 99;

/// The maximum number of times that a commit is rebuilt because the mark of its entity has changed.
const MAX_ROUNDS: u32 = 5;

/// The writes of a handler. They are sent when it has succeeded, in one transaction with the operation's outcome. Until
/// then they are visible to nobody, including the handler.
///
/// Clones share one transaction. It accepts no writes once the handler has returned.
#[derive(Clone, Default)]
pub struct Writes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    items: Vec<TransactWriteItem>,
    /// For an operation without a claim before the commit.
    claim: Option<WithoutClaim>,
    has_ended: bool,
}

#[derive(Clone)]
struct WithoutClaim {
    claim: ClaimRequest,
    /// The mark of its entity, if it is ordered.
    mark: Seen,
}

impl Writes {
    /// Adds a `Put`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Request`] for more than 99 writes (an [ordered](crate::Operation::ordered_by) operation accepts 98,
    /// which its commit checks); [`ErrorKind::Config`] once the handler has returned.
    pub fn put(&self, put: Put) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().put(put).build())
    }

    /// Adds an `Update`.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Self::put).
    pub fn update(&self, update: Update) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().update(update).build())
    }

    /// Adds a `Delete`.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Self::put).
    pub fn delete(&self, delete: Delete) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().delete(delete).build())
    }

    /// Adds a condition on an item that is not written.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Self::put).
    pub fn check(&self, check: ConditionCheck) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().condition_check(check).build())
    }

    fn add(&self, item: TransactWriteItem) -> Result<(), Error> {
        let mut state = self.lock();
        if state.has_ended {
            return Err(Error::config("the transaction ended with its handler; clones of it cannot be used any more"));
        }
        if state.items.len() == MAX_WRITES {
            let message = "a transaction takes 99 writes, and the outcome's";
            return Err(Error::new(ErrorKind::Request, ErrorStatus::Permanent, COMMIT, message));
        }
        state.items.push(item);
        Ok(())
    }

    /// Takes the writes, or returns `None` if they were taken before.
    fn end(&self) -> Option<State> {
        let mut state = self.lock();
        (!state.has_ended).then(|| std::mem::replace(&mut *state, State { has_ended: true, ..State::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Omits the items, which belong to the handler.
impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Writes").field("count", &state.items.len()).field("has_ended", &state.has_ended).finish()
    }
}

impl Transactional for DynamoDbStore {
    type Transaction = Writes;

    fn open(&self) -> Writes {
        Writes::default()
    }

    /// Grants a claim without a call, because the condition of the commit decides. For an ordered operation the mark is
    /// read, so that a superseded one does not run.
    fn claim_within<'a>(
        &'a self,
        transaction: &'a Writes,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>> {
        if let Err(error) = self.home.check().and_then(|()| self.schema.check_claim(request)) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let lease_until = self.clock.now().after(request.lease);
        let granted = move |has_merged_doubt| {
            Claimed::Granted(Grant { lease_until, attempt: 1, prior_status: None, has_merged_doubt })
        };
        let claim = |mark| Some(WithoutClaim { claim: request.clone(), mark });
        let Some(order) = request.order() else {
            transaction.lock().claim = claim(Seen::Nothing);
            return Box::pin(std::future::ready(Ok(granted(false))));
        };
        Box::pin(async move {
            let item = self.read_mark(&Entity::of(&request.key), "claim").await?;
            let (now, mark) = (self.clock.now(), Seen::Item(item.clone()));
            if let Judgement::Refused(refusal) = self.judge_claimless(&mark, request, order, now).await? {
                return Ok(Claimed::Refused(refusal));
            }
            let known = self.known_mark(item.as_ref(), &request.key, now, "claim")?;
            let has_merged_doubt = ordering::begins_to_merge(known.as_ref(), now);
            transaction.lock().claim = claim(mark);
            Ok(granted(has_merged_doubt))
        })
    }

    fn commit<'a>(
        &'a self,
        transaction: &'a Writes,
        request: Option<&'a SettleRequest>,
    ) -> BoxFuture<'a, Result<Settled, Error>> {
        Box::pin(async move {
            let Some(State { mut items, claim, .. }) = transaction.end() else {
                return Err(Error::config("the transaction has already ended"));
            };
            let Some(request) = request else {
                if items.is_empty() {
                    return Ok(Settled::Done { found: None });
                }
                return self.commit_writes(items).await;
            };
            self.schema.check_settle(request)?;
            if claim.is_none() && items.is_empty() {
                return self.settle_one(request).await;
            }
            if claim.is_some() && !request.settlement.took_effect() {
                items.clear();
            }
            let commit: BoxFuture<'_, _> = match request.order() {
                None => Box::pin(self.commit_outcome(items, request, claim.map(|claimless| claimless.claim))),
                Some(order) => Box::pin(self.commit_in_order(items, request, order, claim)),
            };
            commit.await
        })
    }

    fn abandon(&self, transaction: &Writes) -> BoxFuture<'static, Result<(), Error>> {
        transaction.end();
        Box::pin(std::future::ready(Ok(())))
    }
}

impl DynamoDbStore {
    async fn commit_writes(&self, items: Vec<TransactWriteItem>) -> Result<Settled, Error> {
        let token = random_token()?.to_hex();
        let commit = Commit { store: self, items, request: None, token, of_records: 0, is_claimless: false };
        commit.send().await?.settled()
    }

    async fn commit_outcome(
        &self,
        mut items: Vec<TransactWriteItem>,
        request: &SettleRequest,
        claim: Option<ClaimRequest>,
    ) -> Result<Settled, Error> {
        items.insert(0, self.record_within(request, claim.as_ref())?);
        let (token, is_claimless) = (request.owner.to_hex(), claim.is_some());
        let commit = Commit { store: self, items, request: Some(request), token, of_records: 1, is_claimless };
        self.send_commit(commit, request, claim.as_ref()).await?.settled()
    }

    /// Commits like [`commit_outcome`](Self::commit_outcome), with the mark of the entity.
    async fn commit_in_order(
        &self,
        items: Vec<TransactWriteItem>,
        request: &SettleRequest,
        order: &Order,
        claimless: Option<WithoutClaim>,
    ) -> Result<Settled, Error> {
        if items.len() >= MAX_WRITES {
            let message =
                "a transaction of an ordered operation takes 98 writes, the outcome's and that of its entity's mark";
            return Err(Error::new(ErrorKind::Request, ErrorStatus::Permanent, COMMIT, message));
        }
        let (claim, mut mark) =
            claimless.map_or((None, Seen::Nothing), |WithoutClaim { claim, mark }| (Some(claim), mark));
        for round in 0..MAX_ROUNDS {
            let Some(marked) = self.mark_within(&mark, request, order, claim.as_ref()).await? else {
                let current = self.read_one(&request.key, ResultData::Include, COMMIT).await?;
                return Ok(Settled::LeaseLost { current: current.map(Box::new) });
            };
            let mut items = items.clone();
            items.splice(0..0, [self.record_within(request, claim.as_ref())?, marked]);
            // A different request needs a different token. If both arrive, the record's condition lets one of them
            // pass.
            let token = if round == 0 { request.owner.to_hex() } else { format!("{}{round}", request.owner) };
            let is_claimless = claim.is_some();
            let commit = Commit { store: self, items, request: Some(request), token, of_records: 2, is_claimless };
            match self.send_commit(commit, request, claim.as_ref()).await? {
                Sent::Settled(settled) => return Ok(settled),
                Sent::MarkRefused(found) => {
                    mark = Seen::Item(match found {
                        Some(item) => Some(item),
                        None => self.read_mark(&Entity::of(&request.key), COMMIT).await?,
                    });
                }
            }
        }
        let message = "the mark of the operation's entity was changed each time that this was tried";
        Err(Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, COMMIT, message))
    }

    /// Sends a commit with an outcome. If DynamoDB rejects it as a whole, or the record, for example because of its
    /// size, it is sent once more without the data of the result.
    async fn send_commit(
        &self,
        mut commit: Commit<'_>,
        request: &SettleRequest,
        claim: Option<&ClaimRequest>,
    ) -> Result<Sent, Error> {
        let error = match commit.send().await {
            Err(error) if error.kind() == ErrorKind::Request => error,
            sent => return sent,
        };
        let Settlement::Record { outcome, result: StoredResult { data: Some(_), .. }, retention } = request.settlement
        else {
            return Err(error);
        };
        let settlement = Settlement::Record { outcome, result: StoredResult::DROPPED, retention };
        commit.items[0] = self.record_within(&SettleRequest { settlement, ..request.clone() }, claim)?;
        // A different request needs a different token.
        commit.token.push('d');
        let sent = commit.send().await?;
        if matches!(sent, Sent::Settled(Settled::Done { .. })) {
            tracing::error!(target: "lambda_once", key = %request.key, %error, "DynamoDB rejects the commit with the result, so the result is dropped; the outcome is recorded");
        }
        Ok(sent)
    }

    /// Returns a commit's write to the mark, or `None` if the mark does not allow it.
    async fn mark_within(
        &self,
        seen: &Seen,
        request: &SettleRequest,
        order: &Order,
        claim: Option<&ClaimRequest>,
    ) -> Result<Option<TransactWriteItem>, Error> {
        let now = self.clock.now();
        let Some(claim) = claim else {
            let may_commit = self.may_commit(seen, request, order, now)?;
            return may_commit.then(|| self.schema.settled_mark(seen, request, order, now)).transpose();
        };
        match self.judge_claimless(seen, claim, order, now).await? {
            Judgement::Refused(_) => Ok(None),
            Judgement::Free | Judgement::Mine(_) => {
                self.schema.claimed_and_settled_mark(seen, claim, request, order, now).map(Some)
            }
        }
    }

    /// Returns the write that records the outcome of a claim.
    fn record_within(&self, request: &SettleRequest, claim: Option<&ClaimRequest>) -> Result<TransactWriteItem, Error> {
        let now = self.clock.now();
        let settlement = rules::resolved(&request.settlement, now);
        let Resolved::Record { status, result, expiration, settled_at } = settlement else {
            return Err(Error::config("a transaction commits outcomes, and neither releases nor renews claims"));
        };
        if let Some(claim) = claim {
            return self.put_record(claim, self.attributes(claim, status, result, expiration, settled_at), now);
        }
        let (expression, values) = self.settled_expression(request, &settlement);
        self.update_within(&request.key, expression, values)
    }

    /// Returns the write that records an outcome without a claim before it, if a claim would be granted. Attributes
    /// that are unknown to this version are kept.
    fn put_record(&self, claim: &ClaimRequest, mut item: Item, now: Timestamp) -> Result<TransactWriteItem, Error> {
        let Expression { condition, names, .. } = self.expressions.commit(claim);
        let mut names = names.clone().unwrap_or_default();
        let mut values = replaceable(&self.schema, claim, now);
        let (mut sets, mut removed) = (Vec::new(), Vec::new());
        for (place, name) in self.schema.written().enumerate() {
            let alias = format!("#new_{place}");
            match item.remove(name) {
                Some(value) => {
                    sets.push(format!("{alias} = :new_{place}"));
                    values.insert(format!(":new_{place}"), value);
                }
                None => removed.push(alias.clone()),
            }
            names.insert(alias, name.to_owned());
        }
        let update = Expression {
            update: format!("SET {} REMOVE {}", sets.join(", "), removed.join(", ")),
            condition: condition.clone(),
            names: Some(names),
        };
        self.update_within(&claim.key, &update, values)
    }

    /// Returns the attributes of a record with its outcome, without its key.
    fn attributes(
        &self,
        claim: &ClaimRequest,
        status: Status,
        result: &StoredResult,
        expiration: u64,
        settled_at: Timestamp,
    ) -> Item {
        let names = &self.schema.names;
        let mut item = Item::new();
        let mut set = |name: &String, value: AttributeValue| drop(item.insert(name.clone(), value));
        set(&names.status, text(status.as_str()));
        set(&names.owner, text(claim.owner.to_hex()));
        set(&names.expiration, number(expiration));
        set(&names.attempt, number(1));
        set(&names.prior_status, text(NO_STATUS));
        set(&names.version, written_version());
        if let Some(fingerprint) = &claim.fingerprint {
            set(&names.validation, self.schema.validation(fingerprint));
        }
        match self.schema.stored(result) {
            Stored::Nothing => {}
            Stored::Data(data) => set(&names.data, data),
            Stored::Dropped => set(&names.result_dropped, AttributeValue::Bool(true)),
            Stored::Superseded => set(&names.superseded, AttributeValue::Bool(true)),
        }
        set(&names.operation, text(&*claim.operation));
        // There was no earlier claim.
        set(&names.claimed_at, number(settled_at.as_millis()));
        set(&names.settled_at, number(settled_at.as_millis()));
        if let Some(label) = &claim.label {
            set(&names.label, text(&**label));
        }
        if let Some(open) = self.schema.open(&claim.key, &claim.operation).filter(|_| status != Status::Completed) {
            set(&names.open, open);
        }
        if let Some(order) = claim.order() {
            set(&names.sequence, text(order.sequence.to_digits()));
        }
        item
    }
}

/// Returns the values of the condition under which an item may be replaced.
fn replaceable(schema: &Schema, claim: &ClaimRequest, now: Timestamp) -> Values {
    let mut values = values([(":now", number(now.seconds_rounded_down()))]);
    values.insert(":inprogress".to_owned(), text(Status::InProgress.as_str()));
    values.insert(":lapsed".to_owned(), number(now.before(claim.skew_margin).as_millis()));
    values.insert(":newest".to_owned(), newest_known_version());
    if let Some(fingerprint) = &claim.fingerprint {
        values.extend(schema.compared(fingerprint));
    }
    values
}

/// Returns a token for writes without an operation.
fn random_token() -> Result<Owner, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|source| {
        let message = "the operating system gave no random bytes";
        Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, COMMIT, message).with_source(source.to_string())
    })?;
    Ok(Owner::from_bytes(bytes))
}
