//! Parses requests to DynamoDB and its responses, and builds responses for tests.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Request, faults::Fault, http};

/// Parses a request.
pub(super) fn request(bytes: &[u8]) -> Request {
    let target = http::request_header(bytes, "X-Amz-Target");
    let command = target.rsplit('.').next().unwrap_or_default().to_owned();
    Request { command, arguments: vec![http::request_body(bytes)], round_trip: 0 }
}

/// Returns whether a request, or one of its statements, failed other than by its condition.
pub(super) fn is_error(answer: &[u8]) -> bool {
    let (status, body) = read(answer);
    match body["Responses"].as_array() {
        Some(statements) => statements.iter().any(|statement| {
            let code = &statement["Error"]["Code"];
            !code.is_null() && code != "ConditionalCheckFailed" && code != "DuplicateItem"
        }),
        None => status != 200 && !is_refused(&body),
    }
}

/// Returns the number of writes that were applied.
pub(super) fn count(answer: &[u8]) -> Option<u64> {
    let (status, body) = read(answer);
    match body["Responses"].as_array() {
        Some(statements) => {
            let applied = statements.iter().filter(|statement| statement["Error"].is_null());
            u64::try_from(applied.count()).ok()
        }
        None if status == 200 => Some(1),
        None => is_refused(&body).then_some(0),
    }
}

fn read(answer: &[u8]) -> (u16, Value) {
    let (status, body) = http::read_response(answer);
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn is_refused(body: &Value) -> bool {
    body["__type"].as_str().is_some_and(|code| code.ends_with("#ConditionalCheckFailedException"))
}

impl Request {
    /// Returns the body of a request to DynamoDB, or null if it is not JSON.
    pub fn body(&self) -> Value {
        self.arguments.first().and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
    }
}

/// Faults of DynamoDB.
impl Fault<'_> {
    /// Makes DynamoDB throttle the request, which the client may retry.
    pub fn throttle(self) {
        self.respond(error(400, "ProvisionedThroughputExceededException"));
    }

    /// Makes DynamoDB fail without applying the request, which the client may retry.
    pub fn internal_error(self) {
        self.respond(error(500, "InternalServerError"));
    }

    /// Makes DynamoDB report a failure although it applied the request.
    pub fn internal_error_after(self) {
        let answer = error(500, "InternalServerError");
        self.rewrite(Bytes::clone, move |_| answer.clone());
    }

    /// Denies the client the permission for this request.
    pub fn access_denied(self) {
        self.respond(error(400, "AccessDeniedException"));
    }

    /// Makes DynamoDB reject the request as invalid.
    pub fn validation(self) {
        self.respond(error(400, "ValidationException"));
    }

    /// Makes the condition fail without the item. Old emulators do not return it.
    pub fn refuse_without_the_item(self) {
        self.respond(error(400, "ConditionalCheckFailedException"));
    }

    /// Sends a response with this body without applying the request.
    pub fn respond_json(self, status: u16, body: &Value) {
        self.respond(http::answer(status, &body.to_string()));
    }

    /// Makes DynamoDB cancel the transaction for these reasons, one per item.
    pub fn cancel(self, reasons: &[&str]) {
        let reasons: Vec<Value> = reasons.iter().map(|code| json!({ "Code": code })).collect();
        let code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
        self.respond_json(400, &json!({ "__type": code, "CancellationReasons": reasons }));
    }

    /// Makes the statement at this place of a batch fail with this code without being applied. The others are executed.
    pub fn fail_member(self, place: usize, code: &'static str) {
        let without_it = move |request: &Bytes| {
            let mut batch: Value = serde_json::from_slice(&http::request_body(request)).expect("JSON");
            let statements = batch["Statements"].as_array_mut().expect("a batch of statements");
            assert!(place < statements.len() && statements.len() > 1, "no other statement than {place}, or not it");
            statements.remove(place);
            http::request_with_body(request, &batch.to_string())
        };
        self.rewrite(without_it, move |answer| {
            with_statements(answer, |answers| answers.insert(place, statement_error(code)))
        });
    }

    /// Does the same as `fail_member`, but applies the statement.
    pub fn fail_member_after(self, place: usize, code: &'static str) {
        self.rewrite(Bytes::clone, move |answer| {
            with_statements(answer, |answers| answers[place] = statement_error(code))
        });
    }
}

fn error(status: u16, code: &str) -> Bytes {
    let code = format!("com.amazonaws.dynamodb.v20120810#{code}");
    http::answer(status, &json!({ "__type": code, "message": "injected by the test" }).to_string())
}

fn statement_error(code: &str) -> Value {
    json!({ "Error": { "Code": code, "Message": "injected by the test" } })
}

/// Returns the response to a batch with changed responses of its statements.
fn with_statements(answer: &[u8], change: impl FnOnce(&mut Vec<Value>)) -> Bytes {
    let (status, mut body) = read(answer);
    change(body["Responses"].as_array_mut().expect("an answer for each statement"));
    http::answer(status, &body.to_string())
}
