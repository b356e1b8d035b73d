//! Retries commits until DynamoDB applies or refuses them.

use aws_sdk_dynamodb::{
    Config,
    config::{http::HttpResponse, retry::RetryConfig},
    error::SdkError,
    operation::transact_write_items::TransactWriteItemsError,
    types::{CancellationReason, TransactWriteItem},
};
use tokio::time::sleep;

use crate::{
    backoff::Backoff,
    error::{Error, ErrorKind, ErrorStatus},
    store::{
        ResultData, SettleRequest, Settled,
        dynamodb::{DynamoDbStore, item::Item},
        rules,
    },
};

pub(in crate::store::dynamodb) const COMMIT: &str = "commit";

/// The maximum number of attempts of a commit, including the first.
const MAX_ATTEMPTS: u32 = 4;

/// A commit in progress.
pub(super) struct Commit<'a> {
    pub(super) store: &'a DynamoDbStore,
    /// The record's write, then the mark's.
    pub(super) items: Vec<TransactWriteItem>,
    pub(super) request: Option<&'a SettleRequest>,
    /// For an operation its owner, which is the token of no other request.
    pub(super) token: String,
    /// The number of items that are not the handler's.
    pub(super) of_records: usize,
    pub(super) is_claimless: bool,
}

/// The result of a commit that received a response.
pub(super) enum Sent {
    Settled(Settled),
    /// The mark differs from the state that the commit has read or assumed. This is its item, or `None` if there is
    /// none, or an emulator does not return it.
    MarkRefused(Option<Item>),
}

impl Sent {
    /// Returns the result of a commit without a mark.
    pub(super) fn settled(self) -> Result<Settled, Error> {
        match self {
            Self::Settled(settled) => Ok(settled),
            Self::MarkRefused(_) => Ok(Settled::LeaseLost { current: None }),
        }
    }
}

/// The meaning of a response for a commit.
enum Answer {
    /// The claim may not settle the record, or may not replace it.
    Refused(Option<Item>),
    /// The mark of its entity differs from the assumed state.
    MarkRefused(Option<Item>),
    /// Nothing was applied.
    Undone(Error),
    /// Another attempt may be applied, or find that an earlier one was.
    Again(Error),
}

impl Commit<'_> {
    /// Sends the same request until DynamoDB applies or refuses it. Its token makes a second attempt within ten minutes
    /// harmless.
    pub(super) async fn send(&self) -> Result<Sent, Error> {
        // The SDK reports only the last attempt, and an earlier one may have been applied, so the attempts are made
        // here.
        let once = || Config::builder().retry_config(RetryConfig::disabled());
        let mut is_in_doubt = false;
        let (mut attempts, mut backoff) = (0, Backoff::default());
        let error = loop {
            let call = self.store.client.transact_write_items().set_transact_items(Some(self.items.clone()));
            let call = call.client_request_token(&self.token).customize().config_override(once());
            let Err(failure) = call.send().await else { return Ok(Sent::Settled(Settled::Done { found: None })) };
            match self.answer(failure) {
                Answer::Refused(item) => return self.refused(item).await.map(Sent::Settled),
                Answer::MarkRefused(item) => return Ok(Sent::MarkRefused(item)),
                Answer::Undone(error) => break error,
                Answer::Again(error) => {
                    is_in_doubt |= error.status() == ErrorStatus::Ambiguous;
                    attempts += 1;
                    if attempts == MAX_ATTEMPTS {
                        break error;
                    }
                }
            }
            sleep(backoff.next()).await;
        };
        // There is no claim to release, so an earlier attempt may still be applied.
        if is_in_doubt && (self.is_claimless || self.request.is_none()) {
            let message = "the commit got no response";
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
                let error = self.store.failed(failure, COMMIT);
                let may_pass =
                    matches!(error.kind(), ErrorKind::Throttled | ErrorKind::Timeout | ErrorKind::Unavailable);
                return if may_pass { Answer::Again(error) } else { Answer::Undone(error) };
            }
        };
        let refused = |place: usize| {
            let reason = reasons.get(place).filter(|_| place < self.of_records)?;
            let is_refused = reason.code() == Some("ConditionalCheckFailed");
            is_refused.then(|| reason.item().cloned().filter(|item| !item.is_empty()))
        };
        if let Some(item) = refused(0) {
            return Answer::Refused(item);
        }
        if let Some(item) = refused(1) {
            return Answer::MarkRefused(item);
        }
        // A conflict on the record comes first, because the other transaction may change the outcome of the handler's
        // conditions.
        let may_pass = |reason: &CancellationReason| {
            let codes = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
            reason.code().is_some_and(|code| codes.contains(&code))
        };
        let failed = |reason: &CancellationReason| !matches!(reason.code(), None | Some("None")) && !may_pass(reason);
        if reasons.iter().take(self.of_records).any(may_pass) || !reasons.iter().any(failed) {
            let message = "the transaction conflicted with another, or was throttled";
            let error = Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, COMMIT, message);
            return Answer::Again(error.with_source(failure));
        }
        let write = reasons.iter().position(failed).unwrap_or_default();
        if write == 0 && self.of_records > 0 && reasons[0].code() == Some("ValidationError") {
            // For example because the item would be too large.
            let message = "DynamoDB rejected the write of the record";
            return Answer::Undone(
                Error::new(ErrorKind::Request, ErrorStatus::Permanent, COMMIT, message).with_source(failure),
            );
        }
        let code = reasons.get(write).and_then(CancellationReason::code).unwrap_or_default();
        let message = match write.checked_sub(self.of_records) {
            Some(write) => format!("DynamoDB rejected write {} of the handler: {code}", write + 1),
            None => format!("DynamoDB rejected the write of the record or of the mark: {code}"),
        };
        Answer::Undone(undone(message, failure))
    }

    /// The record's condition failed, because an earlier attempt of this commit was applied, or another claim holds the
    /// key.
    async fn refused(&self, item: Option<Item>) -> Result<Settled, Error> {
        let Some(request) = self.request else { return Ok(Settled::LeaseLost { current: None }) };
        let found = match item {
            Some(item) => self.store.schema.record(&item, ResultData::Include, COMMIT).map(Some),
            None => self.store.read_one(&request.key, ResultData::Include, COMMIT).await,
        };
        rules::explain_settle(request, found)
    }
}

fn undone(
    message: impl Into<std::borrow::Cow<'static, str>>,
    failure: SdkError<TransactWriteItemsError, HttpResponse>,
) -> Error {
    Error::new(ErrorKind::Transaction, ErrorStatus::Temporary, COMMIT, message).with_source(failure)
}
