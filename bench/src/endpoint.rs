//! The counters of the endpoint process, and its address.

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

/// The path of a front's counters.
pub const COUNTS: &str = "/-/counts";

/// A front of the endpoint, where requests wait for `latency_ms` and are counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Front {
    /// The time that each request waits.
    pub latency_ms: u64,
    /// Its address, such as `http://127.0.0.1:40123`.
    pub url: String,
}

/// The counters of a front, without requests for the counters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Connections with at least one request.
    pub connections: u64,
}

impl Counts {
    /// Returns the increase since earlier counters.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { requests: self.requests - earlier.requests, connections: self.connections - earlier.connections }
    }
}

/// Returns the counters of the front at `url`.
///
/// # Errors
///
/// If it does not respond.
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
