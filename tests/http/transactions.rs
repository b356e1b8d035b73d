//! Requests whose transactions are not committed. `tests/stores/transactions/http.rs` tests those of databases.

use std::{convert::Infallible, future::ready, slice};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    BoxFuture, Error, ErrorKind, ErrorStatus, Idempotency, MemoryStore, Transactional,
    http::{Caller, IdempotencyKeyLayer},
    store::{ClaimRequest, Claimed, SettleRequest, Settled, Store},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{setup::Got, support::delegate::delegate};

/// A store whose commits fail with this status.
#[derive(Clone, Debug)]
struct Uncommitted {
    records: MemoryStore,
    status: ErrorStatus,
}

/// The handle of its transactions.
#[derive(Clone, Debug)]
struct Opened;

impl Store for Uncommitted {
    delegate!(records: claim, settle, read, limits, id, warm_up);
}

impl Transactional for Uncommitted {
    type Transaction = Opened;

    fn open(&self) -> Opened {
        Opened
    }

    fn claim_within<'a>(&'a self, _: &'a Opened, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claimed, Error>> {
        Box::pin(async move { self.records.claim(slice::from_ref(request)).await.remove(0) })
    }

    fn commit<'a>(&'a self, _: &'a Opened, _: Option<&'a SettleRequest>) -> BoxFuture<'a, Result<Settled, Error>> {
        Box::pin(ready(Err(Error::new(ErrorKind::Unavailable, self.status, "commit", "the database is down"))))
    }

    fn abandon(&self, _: &Opened) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }
}

/// The layer does not cover the method.
#[tokio::test(start_paused = true)]
async fn a_request_that_passes_through_is_refused_if_its_commit_fails() {
    for (status, code) in [(ErrorStatus::Temporary, "not_committed"), (ErrorStatus::Ambiguous, "commit_unknown")] {
        let store = Uncommitted { records: MemoryStore::new(), status };
        let once = Idempotency::builder(store.clone()).scope("tests").build().unwrap();
        let handler = service_fn(|request: Request<Full<Bytes>>| async move {
            assert!(request.extensions().get::<Opened>().is_some(), "it has a transaction");
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
        });
        let layer = IdempotencyKeyLayer::new(once, Caller::shared()).in_transaction(&store).validate().unwrap();
        let request = Request::get("/charges").body(Full::default()).unwrap();
        let (parts, body) = layer.layer(handler).oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let got = Got { status: parts.status.as_u16(), headers: parts.headers, body };
        assert_eq!((got.status, got.code().as_str()), (503, code), "{status:?}");
    }
}

/// Without the store there is no transaction.
#[test]
fn a_layer_with_transactions_cannot_fail_open() {
    let store = Uncommitted { records: MemoryStore::new(), status: ErrorStatus::Temporary };
    let once = Idempotency::builder(store.clone()).scope("tests").build().unwrap();
    let layer = || IdempotencyKeyLayer::new(once.clone(), Caller::shared()).in_transaction(&store);
    assert!(layer().validate().is_ok());
    assert_eq!(layer().fail_open().validate().unwrap_err().kind(), ErrorKind::Config);
}
