//! Claims, settles and reads with up to 25 keys per request: `BatchExecuteStatement` with one PartiQL statement per
//! key.
//!
//! Statements fail individually in a successful response, which the SDK does not retry, so they are classified here.
//! The engine sends throttled and ambiguous ones again, under the same owner. Only forms that DynamoDB and all its
//! emulators accept are used: comparisons joined by `AND`, values as parameters, no arithmetic and no `OR`.
//! <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html>

use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::{
    error::ProvideErrorMetadata,
    types::{
        AttributeValue, BatchStatementError, BatchStatementErrorCodeEnum as Code, BatchStatementRequest,
        BatchStatementResponse,
    },
};
use futures_util::{StreamExt, stream};

use super::{DynamoDbStore, error, item::Item};
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    record::{KeyHash, Record},
    store::{Answers, ResultData, remote::chunks::chunks},
};

mod claim;
mod settle;
mod statements;

pub(super) use statements::Statements;

/// DynamoDB's limit for the statements of one request.
pub(super) const MAX_STATEMENTS: usize = 25;

/// The maximum size of the statements and values of one request, in bytes. A larger statement is sent alone.
const MAX_BYTES: usize = 1024 * 1024;

/// The maximum number of simultaneous requests of one call.
const CONCURRENCY: usize = 4;

/// The result of one statement.
enum StatementResult {
    /// A write was applied, or a read found this.
    Done(Option<Item>),
    /// The condition failed, on this item if there was one.
    Refused(Option<Item>),
    /// The item already exists.
    Exists,
    /// DynamoDB does not accept this statement, and certainly did not apply it. A request without PartiQL may work.
    Unfit,
    Failed(Error),
}

/// The requests that DynamoDB does not accept in batches, as found so far. Each kind is logged once.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    not_permitted: AtomicBool,
    not_known: AtomicBool,
    not_valid: AtomicBool,
}

impl Fallbacks {
    /// Returns whether batches are refused permanently, at least for the life of the execution environment.
    pub(super) fn are_lasting(&self) -> bool {
        self.not_permitted.load(Ordering::Relaxed) || self.not_known.load(Ordering::Relaxed)
    }

    fn note(&self, code: &str) {
        let is_new = |flag: &AtomicBool| !flag.swap(true, Ordering::Relaxed);
        match code {
            "AccessDenied" | "AccessDeniedException" => {
                if is_new(&self.not_permitted) {
                    tracing::warn!(
                        target: "lambda_once", code,
                        "one request for each key is used from now on: the role needs dynamodb:PartiQLInsert, \
                         PartiQLSelect, PartiQLUpdate and PartiQLDelete on the table"
                    );
                }
            }
            "UnknownOperationException" => {
                if is_new(&self.not_known) {
                    tracing::warn!(
                        target: "lambda_once", code,
                        "one request for each key is used from now on: the endpoint does not support BatchExecuteStatement"
                    );
                }
            }
            _ => {
                if is_new(&self.not_valid) {
                    tracing::warn!(
                        target: "lambda_once", code,
                        "DynamoDB did not take a statement, or a batch of them; refused statements are sent key by key"
                    );
                }
            }
        }
    }
}

impl DynamoDbStore {
    pub(super) async fn read_batched(&self, keys: &[KeyHash], data: ResultData) -> Answers<Option<Record>> {
        let statements = keys.iter().map(|key| self.statements.select(&self.schema, key, data));
        let results = self.execute("read", statements.collect()).await;
        let mut answers = Vec::with_capacity(keys.len());
        for (key, result) in keys.iter().zip(results) {
            answers.push(match result {
                StatementResult::Done(item) => item.map(|item| self.schema.record(&item, data, "read")).transpose(),
                StatementResult::Unfit => self.read_one(key, data, "read").await,
                other => Err(other.unexpected("read")),
            });
        }
        answers
    }

    /// Executes statements in as few requests as possible. Returns the results in their order. The statements must
    /// concern different keys, and must be all reads or all writes.
    async fn execute(
        &self,
        operation: &'static str,
        mut statements: Vec<BatchStatementRequest>,
    ) -> Vec<StatementResult> {
        let sizes: Vec<usize> = statements.iter().map(size).collect();
        let parts = chunks(&sizes, MAX_STATEMENTS, MAX_BYTES);
        // Usually there is one request. A stream of them would move its future, which is large.
        match parts.len() {
            0 => return Vec::new(),
            1 => return self.send(operation, statements).await,
            _ => {}
        }
        let mut requests: Vec<Vec<BatchStatementRequest>> = Vec::with_capacity(parts.len());
        for part in parts.into_iter().rev() {
            requests.push(statements.split_off(part.start));
        }
        let requests = requests.into_iter().rev().map(|part| self.send(operation, part));
        stream::iter(requests).buffered(CONCURRENCY).collect::<Vec<_>>().await.into_iter().flatten().collect()
    }

    async fn send(&self, operation: &'static str, statements: Vec<BatchStatementRequest>) -> Vec<StatementResult> {
        let count = statements.len();
        let answer = self.client.batch_execute_statement().set_statements(Some(statements)).send().await;
        match answer {
            Ok(answer) => {
                let responses = answer.responses.unwrap_or_default();
                if responses.len() != count {
                    let message = "DynamoDB returned a different number of responses than there were statements";
                    return for_each(
                        Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message),
                        count,
                    );
                }
                responses.into_iter().map(|response| self.result(operation, response)).collect()
            }
            Err(failure) => match failure.code() {
                Some(code @ ("AccessDeniedException" | "ValidationException" | "UnknownOperationException")) => {
                    self.fallbacks.note(code);
                    (0..count).map(|_| StatementResult::Unfit).collect()
                }
                _ => for_each(self.failed(failure, operation), count),
            },
        }
    }

    fn result(&self, operation: &'static str, response: BatchStatementResponse) -> StatementResult {
        let Some(BatchStatementError { code, message, item, .. }) = response.error else {
            return StatementResult::Done(response.item);
        };
        match code {
            Some(Code::ConditionalCheckFailed) => StatementResult::Refused(item.filter(|item| !item.is_empty())),
            Some(Code::DuplicateItem) => StatementResult::Exists,
            Some(code @ (Code::AccessDenied | Code::ValidationError)) => {
                self.fallbacks.note(code.as_str());
                StatementResult::Unfit
            }
            code => {
                let code = code.as_ref().map_or("nothing", Code::as_str);
                StatementResult::Failed(error::of_statement(code, message.as_deref(), operation, || self.place()))
            }
        }
    }
}

impl StatementResult {
    /// Returns the error of a statement that failed, or whose result does not fit its kind.
    fn unexpected(self, operation: &'static str) -> Error {
        match self {
            Self::Failed(error) => error,
            _ => {
                let message = "DynamoDB returned the result of a different statement";
                Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message)
            }
        }
    }
}

/// Returns the same error for each statement of a request.
fn for_each(error: Error, count: usize) -> Vec<StatementResult> {
    error.for_each(count).map(StatementResult::Failed).collect()
}

fn size(statement: &BatchStatementRequest) -> usize {
    statement.statement().len() + statement.parameters().iter().map(size_of_value).sum::<usize>()
}

fn size_of_value(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
        AttributeValue::B(bytes) => bytes.as_ref().len().div_ceil(3) * 4,
        AttributeValue::L(values) => values.iter().map(size_of_value).sum(),
        AttributeValue::M(members) => members.iter().map(|(name, value)| name.len() + size_of_value(value)).sum(),
        _ => 8,
    }
}
