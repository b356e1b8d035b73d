//! The counters of the endpoint process, and its address.

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

/// Where a front of the endpoint tells its counters.
pub const COUNTS: &str = "/-/counts";

/// A front of the endpoint: requests wait there for `latency_ms`, and are counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Front {
    /// How long each request waits.
    pub latency_ms: u64,
    /// Its address, such as `http://127.0.0.1:40123`.
    pub url: String,
}

/// What a front has seen, questions for the counters left out.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Connections with at least one request.
    pub connections: u64,
}

impl Counts {
    /// What was added since an earlier look.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { requests: self.requests - earlier.requests, connections: self.connections - earlier.connections }
    }
}

/// What the front at `url` has seen so far.
///
/// # Errors
///
/// If it does not answer.
pub async fn counts(url: &str) -> Result<Counts> {
    let address = url.strip_prefix("http://").context("an address that begins with http://")?;
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(COUNTS).header("host", address).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    connection.abort();
    Ok(serde_json::from_slice(&answer)?)
}
