//! The role of an HTTP client behind API Gateway: it sends, retries and compares responses.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    charge::header,
    emulator::{CHARGES, Emulator},
    invoke::{Invocation, Span},
};

/// The pause of a client after a 409, and the number of its attempts.
const RETRY: (Duration, usize) = (Duration::from_millis(300), 15);

/// A response of `charges`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A response.
    Response {
        /// The status.
        status: u16,
        /// Whether it has the header `Idempotency-Replayed: true`.
        replayed: bool,
        /// The `Content-Type`.
        content_type: String,
        /// The body.
        body: String,
    },
    /// The function failed, or returned something for which API Gateway returns 502.
    Failed(String),
}

impl Answer {
    fn new(invocation: Invocation) -> Self {
        let payload = match invocation {
            Invocation::Returned(payload) => payload,
            Invocation::Failed(reason) => return Self::Failed(reason),
        };
        let response: Value = serde_json::from_slice(&payload).unwrap_or_default();
        let status = response.get("statusCode").and_then(Value::as_u64);
        let Some(status) = status.and_then(|status| status.try_into().ok()) else {
            return Self::Failed("the answer has no `statusCode`".to_owned());
        };
        Self::Response {
            status,
            replayed: header(&response, "idempotency-replayed") == Some("true"),
            content_type: header(&response, "content-type").unwrap_or_default().to_owned(),
            body: response.get("body").and_then(Value::as_str).unwrap_or_default().to_owned(),
        }
    }

    /// The status, if there was a response.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Response { status, .. } => Some(*status),
            Self::Failed(_) => None,
        }
    }
}

/// The responses to one request and its duplicates.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Two clients that send at once, and one that sends after they have their responses. Each has
    /// the responses that it got, of which all but the last are 409.
    pub(crate) clients: [Vec<Answer>; 3],
    /// Start and end of each of these requests.
    pub(crate) spans: [Vec<Span>; 3],
}

/// Sends a request twice at once, and once more when both have a response.
pub(crate) async fn send(emulator: &Emulator, event: &Value) -> Result<Exchange> {
    let (first, second) = tokio::try_join!(client(emulator, event), client(emulator, event))?;
    let late = client(emulator, event).await?;
    let (first, first_spans) = first;
    let (second, second_spans) = second;
    let (late, late_spans) = late;
    Ok(Exchange { clients: [first, second, late], spans: [first_spans, second_spans, late_spans] })
}

/// A client that tries again while it gets 409, because the first request is still running.
async fn client(emulator: &Emulator, event: &Value) -> Result<(Vec<Answer>, Vec<Span>)> {
    let (pause, tries) = RETRY;
    let (mut answers, mut spans) = (Vec::new(), Vec::new());
    loop {
        let timed = emulator.invoke(CHARGES, event).await?;
        spans.push(timed.span);
        let answer = Answer::new(timed.invocation);
        let running = answer.status() == Some(409);
        answers.push(answer);
        if !running || answers.len() == tries {
            return Ok((answers, spans));
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(payload: &str) -> Answer {
        Answer::new(Invocation::Returned(payload.to_owned().into()))
    }

    #[test]
    fn both_forms_of_headers_are_read() {
        let expected = Answer::Response {
            status: 201,
            replayed: true,
            content_type: "application/json".into(),
            body: "{}".into(),
        };
        assert_eq!(
            answer(
                r#"{"statusCode":201,"headers":{"Idempotency-Replayed":"true","content-type":"application/json"},"body":"{}"}"#
            ),
            expected
        );
        assert_eq!(
            answer(
                r#"{"statusCode":201,"headers":{},"multiValueHeaders":{"idempotency-replayed":["true"],"Content-Type":["application/json"]},"body":"{}"}"#
            ),
            expected
        );
    }

    #[test]
    fn a_payload_without_a_status_is_a_failure() {
        assert_eq!(answer(r#"{"message":"hello"}"#).status(), None);
        assert_eq!(answer("").status(), None);
    }
}
