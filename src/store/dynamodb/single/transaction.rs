//! Transactions: the handler's writes and the operation's outcome in one `TransactWriteItems`.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Config,
    config::{http::HttpResponse, retry::RetryConfig},
    error::SdkError,
    operation::transact_write_items::TransactWriteItemsError,
    types::{
        AttributeValue, CancellationReason, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure,
        TransactWriteItem, Update,
    },
};
use tokio::time::sleep;

use super::{Expression, Values, values};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{Fingerprint, NEWEST_KNOWN_VERSION, Owner, RECORD_VERSION, Record, Status, StoredResult},
    store::{
        ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled, Settlement, Takeover,
        dynamodb::{
            DynamoDbStore, error,
            item::{Item, NO_STATUS, data, number, text},
        },
        rules,
        transaction::Transactional,
    },
};

const COMMIT: &str = "commit";

/// The most writes of the handler's: DynamoDB takes 100 in a transaction, one of which records the outcome.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html>
const MAX_WRITES: usize = 99;

/// The most attempts of a commit, the first included.
const MAX_ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// The writes of a handler. They are sent when it has succeeded, in one transaction with the operation's outcome. Until then
/// nobody sees them, not even the handler.
///
/// Clones share one transaction. It takes no writes once the handler has returned.
#[derive(Clone, Default)]
pub struct Writes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    items: Vec<TransactWriteItem>,
    /// Of an operation without a claim before the commit.
    claim: Option<ClaimRequest>,
    has_ended: bool,
}

impl Writes {
    /// Adds a `Put`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Request`] for more than 99 writes; [`ErrorKind::Config`] once the handler has returned.
    pub fn put(&self, put: Put) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().put(put).build())
    }

    /// Adds an `Update`.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn update(&self, update: Update) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().update(update).build())
    }

    /// Adds a `Delete`.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
    pub fn delete(&self, delete: Delete) -> Result<(), Error> {
        self.add(TransactWriteItem::builder().delete(delete).build())
    }

    /// Adds a condition on an item that is not written.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put).
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

    /// Takes out what is to be written; `None` if that was done before.
    fn end(&self) -> Option<State> {
        let mut state = self.lock();
        (!state.has_ended).then(|| std::mem::replace(&mut *state, State { has_ended: true, ..State::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows no items: they are the handler's.
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

    /// Grants every claim: the condition of the commit decides.
    fn claim_within<'a>(
        &'a self,
        transaction: &'a Writes,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>> {
        let lease_until = self.clock.now().after(request.lease);
        transaction.lock().claim = Some(request.clone());
        let grant = Grant { lease_until, attempt: 1, prior_status: None };
        Box::pin(std::future::ready(Ok(Claimed::Granted(grant))))
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
            match (request, &claim) {
                (None, _) if items.is_empty() => return Ok(Settled::Done { found: None }),
                (None, _) => {}
                // The handler wrote nothing.
                (Some(request), None) if items.is_empty() => return self.settle_one(request).await,
                (Some(request), None) => items.insert(0, self.record_within(request)?),
                (Some(request), Some(claim)) => {
                    let (status, result, retention) = outcome_of(request)?;
                    if !request.settlement.took_effect() {
                        items.clear();
                    }
                    items.insert(0, self.put_record(claim, status, result, retention)?);
                }
            }
            let token = match request {
                Some(request) => request.owner,
                None => random_token()?,
            };
            Commit { store: self, items, request, token: token.to_hex(), is_claimless: claim.is_some() }.send().await
        })
    }

    fn abandon(&self, transaction: &Writes) -> BoxFuture<'static, ()> {
        transaction.end();
        Box::pin(std::future::ready(()))
    }
}

impl DynamoDbStore {
    /// The write that records the outcome of a claim.
    fn record_within(&self, request: &SettleRequest) -> Result<TransactWriteItem, Error> {
        let (status, result, retention) = outcome_of(request)?;
        let expiration = self.clock.now().after(retention).seconds_rounded_up();
        let (expression, values) = self.outcome(request, status, result, expiration);
        self.update_within(&request.key, expression, values)
    }

    /// The write that records an outcome without a claim before it, where a claim would be granted.
    fn put_record(
        &self,
        claim: &ClaimRequest,
        status: Status,
        result: &StoredResult,
        retention: Duration,
    ) -> Result<TransactWriteItem, Error> {
        let now = self.clock.now();
        let Expression { condition, names, .. } = self.expressions.commit(claim);
        let put = Put::builder()
            .table_name(&self.schema.table)
            .set_item(Some(self.item(claim, status, result, now.after(retention).seconds_rounded_up())))
            .condition_expression(condition)
            .set_expression_attribute_names(names.clone())
            .set_expression_attribute_values(Some(replaceable(claim, now)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(error::unbuilt)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    fn item(&self, claim: &ClaimRequest, status: Status, result: &StoredResult, expiration: u64) -> Item {
        let names = &self.schema.names;
        let mut item = self.schema.key(&claim.key);
        let mut set = |name: &String, value: AttributeValue| drop(item.insert(name.clone(), value));
        set(&names.status, text(status.as_str()));
        set(&names.owner, text(claim.owner.to_hex()));
        set(&names.expiration, number(expiration));
        set(&names.attempt, number(1));
        set(&names.prior_status, text(NO_STATUS));
        set(&names.version, number(RECORD_VERSION.into()));
        if let Some(fingerprint) = claim.fingerprint.as_ref().map(Fingerprint::to_hex) {
            set(&names.validation, text(fingerprint));
        }
        if let Some(stored) = &result.data {
            set(&names.data, data(stored.clone()));
        } else if result.dropped {
            set(&names.result_dropped, AttributeValue::Bool(true));
        } else if result.superseded {
            set(&names.superseded, AttributeValue::Bool(true));
        }
        item
    }
}

/// A commit under way.
struct Commit<'a> {
    store: &'a DynamoDbStore,
    /// The record's first.
    items: Vec<TransactWriteItem>,
    request: Option<&'a SettleRequest>,
    /// Of an operation its owner, which is the token of no other request.
    token: String,
    is_claimless: bool,
}

/// What an answer means for a commit.
enum Answer {
    /// The record is not the claim's to settle, or not to be replaced.
    Refused(Option<Item>),
    /// Nothing of it was applied.
    Undone(Error),
    /// Another attempt may be applied, or find that an earlier one was.
    Again(Error),
}

impl Commit<'_> {
    /// Sends the same request until DynamoDB applies or refuses it. Its token makes a second attempt within ten minutes harmless.
    async fn send(&self) -> Result<Settled, Error> {
        // The SDK reports only the last attempt, and an earlier one may have been applied. So each attempt is made here.
        let once = || Config::builder().retry_config(RetryConfig::disabled());
        let mut is_in_doubt = false;
        let mut attempts = 0;
        let error = loop {
            let call = self.store.client.transact_write_items().set_transact_items(Some(self.items.clone()));
            let call = call.client_request_token(&self.token).customize().config_override(once());
            let Err(failure) = call.send().await else { return Ok(Settled::Done { found: None }) };
            match self.answer(failure) {
                Answer::Refused(item) => return self.refused(item).await,
                Answer::Undone(error) => break error,
                Answer::Again(error) => {
                    is_in_doubt |= error.status() == ErrorStatus::Ambiguous;
                    attempts += 1;
                    if attempts == MAX_ATTEMPTS {
                        break error;
                    }
                }
            }
            sleep(FIRST_PAUSE.saturating_mul(1 << attempts).mul_f64(fastrand::f64())).await;
        };
        // There is no claim to release, so an earlier attempt may still be applied.
        if is_in_doubt && (self.is_claimless || self.request.is_none()) {
            let message = "the commit was not answered";
            return Err(Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, COMMIT, message).with_source(error));
        }
        Err(error)
    }

    fn answer(&self, failure: SdkError<TransactWriteItemsError, HttpResponse>) -> Answer {
        let reasons = match failure.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => canceled.cancellation_reasons(),
            Some(TransactWriteItemsError::IdempotentParameterMismatchException(_)) => {
                let message = "another transaction was sent with the same token";
                let error = Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, COMMIT, message);
                return Answer::Undone(error.with_source(failure));
            }
            _ => {
                let error = error::from_sdk(failure, COMMIT);
                return if error.retry_helps() { Answer::Again(error) } else { Answer::Undone(error) };
            }
        };
        let of_record = usize::from(self.request.is_some());
        let is_refused = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
        if let Some(reason) = reasons.first().filter(|reason| of_record == 1 && is_refused(reason)) {
            return Answer::Refused(reason.item().cloned().filter(|item| !item.is_empty()));
        }
        // A conflict on the record comes first: the other transaction may change the outcome of the handler's conditions.
        let may_pass = |reason: &CancellationReason| {
            let codes = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
            reason.code().is_some_and(|code| codes.contains(&code))
        };
        let failed = |reason: &CancellationReason| !matches!(reason.code(), None | Some("None")) && !may_pass(reason);
        if reasons.iter().take(of_record).any(may_pass) || !reasons.iter().any(failed) {
            let message = "the transaction met another one, or was throttled";
            let error = Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, COMMIT, message);
            return Answer::Again(error.with_source(failure));
        }
        let write = reasons.iter().position(failed).unwrap_or_default();
        let code = reasons.get(write).and_then(CancellationReason::code).unwrap_or_default();
        let message = match write.checked_sub(of_record) {
            Some(write) => format!("DynamoDB rejected write {} of the handler: {code}", write + 1),
            None => format!("DynamoDB rejected the record's write: {code}"),
        };
        Answer::Undone(undone(message, failure))
    }

    /// The record's condition failed: an earlier attempt of this commit was applied, or another claim holds the key.
    async fn refused(&self, item: Option<Item>) -> Result<Settled, Error> {
        let Some(request) = self.request else { return Ok(Settled::LeaseLost { current: None }) };
        let found = match item {
            Some(item) => self.store.schema.record(&item, ResultData::Include, COMMIT).map(Some),
            None => self.store.read_one(&request.key, ResultData::Include, COMMIT).await,
        };
        let current: Option<Record> = match found {
            Err(error) if error.kind() == ErrorKind::Format => None,
            found => found?,
        };
        Ok(if rules::is_settled(request, current.as_ref()) {
            Settled::Done { found: current.map(Box::new) }
        } else {
            Settled::LeaseLost { current: current.map(Box::new) }
        })
    }
}

/// What a request records.
fn outcome_of(request: &SettleRequest) -> Result<(Status, &StoredResult, Duration), Error> {
    match &request.settlement {
        Settlement::Complete { result, retention } => Ok((Status::Completed, result, *retention)),
        Settlement::Fail { result, retention } => Ok((Status::Failed, result, *retention)),
        Settlement::Release { .. } | Settlement::Renew { .. } => {
            Err(Error::config("a transaction commits outcomes, and neither releases nor renews claims"))
        }
    }
}

/// The values of the condition under which an item may be replaced.
fn replaceable(claim: &ClaimRequest, now: Timestamp) -> Values {
    let mut values = values([(":now", number(now.seconds_rounded_down()))]);
    if claim.takeover == Takeover::Allowed {
        values.insert(":inprogress".to_owned(), text(Status::InProgress.as_str()));
        values.insert(":lapsed".to_owned(), number(now.before(claim.skew_margin).as_millis()));
        values.insert(":newest".to_owned(), number(NEWEST_KNOWN_VERSION.into()));
        if let Some(fingerprint) = &claim.fingerprint {
            values.insert(":validation".to_owned(), text(fingerprint.to_hex()));
        }
    }
    values
}

/// For writes without an operation.
fn random_token() -> Result<Owner, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|source| {
        let message = "the operating system gave no random bytes";
        Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, COMMIT, message).with_source(source.to_string())
    })?;
    Ok(Owner::from_bytes(bytes))
}

fn undone(
    message: impl Into<std::borrow::Cow<'static, str>>,
    failure: SdkError<TransactWriteItemsError, HttpResponse>,
) -> Error {
    Error::new(ErrorKind::Transaction, ErrorStatus::Temporary, COMMIT, message).with_source(failure)
}
