//! Hand-written: calls of up to 25 PartiQL statements, one chunk of the batch after another.

use std::collections::{HashMap, HashSet};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, BatchStatementResponse,
    builders::BatchStatementRequestBuilder,
};
use futures_util::{StreamExt, stream};

use super::{
    COMPLETED, IN_PROGRESS, Job, LEASE, RETENTION, SKEW_MARGIN, Table, millis, now, owner, response, seconds, text,
};
use crate::order::{Receipt, handle};

/// DynamoDB's limit for a call.
const CHUNK: usize = 25;
const CONCURRENCY: usize = 10;
const CHUNKS_AT_ONCE: usize = 4;

/// Processes the batch in chunks: claim, run, complete.
pub async fn batched(table: &Table, event: SqsEvent) -> SqsBatchResponse {
    let mut failed = Vec::new();
    let mut messages = event.records.into_iter().peekable();
    while messages.peek().is_some() {
        table.process_chunk(messages.by_ref().take(CHUNK), &mut failed).await;
    }
    response(failed)
}

/// Processes the batch like [`batched`], four chunks at a time.
pub async fn batched_at_once(table: &Table, event: SqsEvent) -> SqsBatchResponse {
    let mut chunks = Vec::new();
    let mut messages = event.records.into_iter().peekable();
    while messages.peek().is_some() {
        chunks.push(messages.by_ref().take(CHUNK).collect::<Vec<_>>());
    }
    let process = async |chunk: Vec<SqsMessage>| {
        let mut failed = Vec::new();
        table.process_chunk(chunk.into_iter(), &mut failed).await;
        failed
    };
    let failed: Vec<_> = stream::iter(chunks).map(process).buffer_unordered(CHUNKS_AT_ONCE).collect().await;
    response(failed.concat())
}

/// A claim that is requested or held.
struct Claim {
    job: Job,
    owner: String,
}

/// The meaning of a blocking record for a claim.
enum Standing {
    Done,
    Expired,
    Lapsed,
    Held,
}

impl Table {
    async fn process_chunk(&self, messages: impl Iterator<Item = SqsMessage>, failed: &mut Vec<String>) {
        let mut claims = Vec::with_capacity(CHUNK);
        // The statements of a call must have different keys. A repeated one is left for its next delivery.
        let mut seen = HashSet::new();
        for message in messages {
            let claim = Job::decode(message).and_then(|job| match owner() {
                Ok(owner) if seen.insert(job.id.clone()) => Ok(Claim { job, owner }),
                Ok(_) => Err((job.message_id, "twice in a chunk".into())),
                Err(error) => Err((job.message_id, error)),
            });
            match claim {
                Ok(claim) => claims.push(claim),
                Err((message_id, _)) => failed.push(message_id),
            }
        }
        let granted = self.claim_all(claims, failed).await;
        let runs = stream::iter(granted).map(async |Claim { job: Job { message_id, id, order }, owner }| {
            (message_id, id, owner, handle(order).await)
        });
        let mut completed = Vec::with_capacity(CHUNK);
        let mut released = Vec::new();
        let mut runs = runs.buffer_unordered(CONCURRENCY);
        while let Some((message_id, id, owner, result)) = runs.next().await {
            match result {
                Ok(receipt) => completed.push((message_id, id, owner, receipt)),
                Err(_) => {
                    failed.push(message_id);
                    released.push((id, owner));
                }
            }
        }
        self.complete_all(completed, failed).await;
        self.release_all(released).await;
    }

    /// Returns the granted claims.
    async fn claim_all(&self, claims: Vec<Claim>, failed: &mut Vec<String>) -> Vec<Claim> {
        let insert = format!(
            r#"INSERT INTO "{}" VALUE {{'id':?,'status':?,'owner':?,'expiration':?,'in_progress_expiration':?}}"#,
            self.name
        );
        let now = now();
        let statements = claims.iter().map(|claim| {
            let values = [
                text(&claim.job.id),
                text(IN_PROGRESS),
                text(&claim.owner),
                seconds(now + RETENTION),
                millis(now + LEASE),
            ];
            statement(&insert, values)
        });
        let answers = self.execute(statements).await;
        let mut granted = Vec::with_capacity(claims.len());
        let mut conflicts = Vec::new();
        for (claim, answer) in claims.into_iter().zip(answers) {
            match answer {
                Ok(_) => granted.push(claim),
                Err(Some(BatchStatementErrorCodeEnum::DuplicateItem)) => conflicts.push(claim),
                Err(_) => failed.push(claim.job.message_id),
            }
        }
        if !conflicts.is_empty() {
            granted.extend(self.resolve(conflicts, failed).await);
        }
        granted
    }

    /// Reads the blocking records, and takes over those that allow it.
    async fn resolve(&self, conflicts: Vec<Claim>, failed: &mut Vec<String>) -> Vec<Claim> {
        let select = format!(r#"SELECT * FROM "{}" WHERE "id"=?"#, self.name);
        let statements = conflicts.iter().map(|claim| {
            BatchStatementRequest::builder().statement(&select).parameters(text(&claim.job.id)).consistent_read(true)
        });
        let answers = self.execute(statements).await;
        let take_over = format!(
            r#"UPDATE "{}" SET "status"=? SET "owner"=? SET "expiration"=? SET "in_progress_expiration"=? REMOVE "data""#,
            self.name
        );
        let expired = format!(r#"{take_over} WHERE "id"=? AND "expiration"<?"#);
        let lapsed = format!(r#"{take_over} WHERE "id"=? AND "status"=? AND "in_progress_expiration"<?"#);
        let now = now();
        let mut statements = Vec::new();
        let mut takeovers = Vec::new();
        let mut granted = Vec::new();
        for (claim, answer) in conflicts.into_iter().zip(answers) {
            let item = answer.ok().and_then(|answer| answer.item).unwrap_or_default();
            // The SDK retries when a response is lost, and the first try may have been applied.
            if item.get("owner") == Some(&text(&claim.owner)) {
                granted.push(claim);
                continue;
            }
            let mut values = vec![
                text(IN_PROGRESS),
                text(&claim.owner),
                seconds(now + RETENTION),
                millis(now + LEASE),
                text(&claim.job.id),
            ];
            match standing(&item) {
                Standing::Done => continue,
                Standing::Held => {
                    failed.push(claim.job.message_id);
                    continue;
                }
                Standing::Expired => {
                    values.push(seconds(now));
                    statements.push(statement(&expired, values));
                }
                Standing::Lapsed => {
                    values.extend([text(IN_PROGRESS), millis(now - SKEW_MARGIN)]);
                    statements.push(statement(&lapsed, values));
                }
            }
            takeovers.push(claim);
        }
        if takeovers.is_empty() {
            return granted;
        }
        let answers = self.execute(statements).await;
        for (claim, answer) in takeovers.into_iter().zip(answers) {
            match answer {
                Ok(_) => granted.push(claim),
                Err(_) => failed.push(claim.job.message_id),
            }
        }
        granted
    }

    async fn complete_all(&self, done: Vec<(String, String, String, Receipt)>, failed: &mut Vec<String>) {
        if done.is_empty() {
            return;
        }
        let update = format!(
            r#"UPDATE "{}" SET "status"=? SET "data"=? SET "expiration"=? WHERE "id"=? AND "owner"=? AND "status"=?"#,
            self.name
        );
        let expiration = seconds(now() + RETENTION);
        let mut message_ids = Vec::with_capacity(done.len());
        let mut statements = Vec::with_capacity(done.len());
        for (message_id, id, owner, receipt) in done {
            let Ok(data) = serde_json::to_string(&receipt) else {
                failed.push(message_id);
                continue;
            };
            let values = [text(COMPLETED), text(data), expiration.clone(), text(id), text(owner), text(IN_PROGRESS)];
            statements.push(statement(&update, values));
            message_ids.push(message_id);
        }
        let answers = self.execute(statements).await;
        let lost = message_ids.into_iter().zip(answers).filter(|(_, answer)| answer.is_err());
        failed.extend(lost.map(|(message_id, _)| message_id));
    }

    async fn release_all(&self, claims: Vec<(String, String)>) {
        if claims.is_empty() {
            return;
        }
        let delete = format!(r#"DELETE FROM "{}" WHERE "id"=? AND "owner"=? AND "status"=?"#, self.name);
        let statements =
            claims.into_iter().map(|(id, owner)| statement(&delete, [text(id), text(owner), text(IN_PROGRESS)]));
        self.execute(statements).await;
    }

    /// Returns one result per statement, or the error's code if the call as a whole failed.
    async fn execute(
        &self,
        statements: impl IntoIterator<Item = BatchStatementRequestBuilder>,
    ) -> Vec<Result<BatchStatementResponse, Option<BatchStatementErrorCodeEnum>>> {
        let statements: Vec<_> = statements.into_iter().map(BatchStatementRequestBuilder::build).collect();
        let count = statements.len();
        let answer = match statements.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(statements) => self.client.batch_execute_statement().set_statements(Some(statements)).send().await.ok(),
            Err(_) => None,
        };
        match answer.and_then(|answer| answer.responses) {
            Some(answers) => answers
                .into_iter()
                .map(|mut answer| match answer.error.take() {
                    None => Ok(answer),
                    Some(error) => Err(error.code),
                })
                .collect(),
            None => (0..count).map(|_| Err(None)).collect(),
        }
    }
}

fn statement(statement: &str, values: impl Into<Vec<AttributeValue>>) -> BatchStatementRequestBuilder {
    BatchStatementRequest::builder().statement(statement).set_parameters(Some(values.into()))
}

fn standing(item: &HashMap<String, AttributeValue>) -> Standing {
    let now = now();
    let number = |name: &str| item.get(name)?.as_n().ok()?.parse::<u128>().ok();
    if number("expiration").is_some_and(|expiration| expiration < u128::from(now.as_secs())) {
        return Standing::Expired;
    }
    match item.get("status").and_then(|status| status.as_s().ok()).map(String::as_str) {
        Some(COMPLETED) => Standing::Done,
        Some(IN_PROGRESS) if number("in_progress_expiration").is_some_and(|l| l < (now - SKEW_MARGIN).as_millis()) => {
            Standing::Lapsed
        }
        _ => Standing::Held,
    }
}
