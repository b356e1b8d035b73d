//! Lambda's Invoke API, as `cargo lambda watch` serves it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

/// The end of an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// The function returned this payload.
    Returned(Bytes),
    /// The function failed as a whole: an error, a crash or a timeout.
    Failed(String),
}

/// Start and end of an invocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Time at which the event was sent.
    pub(crate) sent: Instant,
    /// Time at which the response arrived.
    pub(crate) answered: Instant,
}

/// An invocation with its times.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    /// The result of the invocation.
    pub(crate) invocation: Invocation,
    /// Its start and end.
    pub(crate) span: Span,
}

/// Invokes `function` with `event` and waits for its response. None in time counts as a timeout: an
/// instance that dies never sends a response to its invocation.
pub(crate) async fn invoke(emulator: SocketAddr, function: &str, event: &Value, at_most: Duration) -> Result<Timed> {
    let sent = Instant::now();
    let invocation = match timeout(at_most, post(emulator, function, event)).await {
        Ok(answer) => answer.with_context(|| format!("{function} could not be invoked"))?,
        Err(_) => Invocation::Failed(format!("no answer within {} s", at_most.as_secs())),
    };
    Ok(Timed { invocation, span: Span { sent, answered: Instant::now() } })
}

async fn post(emulator: SocketAddr, function: &str, event: &Value) -> Result<Invocation> {
    let stream = TcpStream::connect(emulator).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(format!("/2015-03-31/functions/{function}/invocations"))
        .header(header::HOST, emulator.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(event.to_string())))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        drop(sender);
        anyhow::Ok((status, body))
    };
    let (answer, _) = tokio::join!(exchange, connection);
    let (status, body) = answer?;
    if status.is_success() && error_type(&body).is_none() {
        return Ok(Invocation::Returned(body));
    }
    let reason = error_type(&body).unwrap_or_else(|| status.to_string());
    Ok(Invocation::Failed(reason))
}

/// The error's type and message, if the payload is the one that Lambda gives for a failed function.
fn error_type(payload: &[u8]) -> Option<String> {
    let payload: Value = serde_json::from_slice(payload).ok()?;
    let kind = payload.get("errorType")?.as_str()?;
    let message = payload.get("errorMessage")?.as_str()?;
    Some(format!("{kind}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_functions_payload_is_an_error() {
        let error = br#"{"errorType":"Broken","errorMessage":"no"}"#;
        assert_eq!(error_type(error).as_deref(), Some("Broken: no"));
        for payload in ["", "null", "{}", r#"{"batchItemFailures":[]}"#] {
            assert_eq!(error_type(payload.as_bytes()), None, "{payload}");
        }
    }
}
