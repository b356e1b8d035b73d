//! HTTP clients.

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Returns a client that sends each request at most once.
pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http()
}
