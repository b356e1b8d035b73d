//! Results that a codec encodes, keys and payloads, read directly from the store.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    BoxError, Claim, Failure, Idempotency, Outcome, ResultCodec,
    http::{Caller, IdempotencyKeyLayer},
    record::{EncodedData, KeyHash},
};
use tower::{Layer, ServiceExt};

use crate::support::{
    clock::TokioClock,
    stores::{Backend, Records, on_each_store},
};

const SECRET: &str = "4111 1111 1111 1111";

/// Inverts each byte, so that every encoded byte differs from the result.
#[derive(Debug)]
struct Inverting;

impl ResultCodec for Inverting {
    fn encode(&self, _: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError> {
        Ok(EncodedData::new("key-2026", plain.iter().map(|byte| !byte).collect())?)
    }

    fn decode(&self, _: &KeyHash, encoded: &EncodedData) -> Result<Vec<u8>, BoxError> {
        assert_eq!(encoded.codec(), "key-2026");
        Ok(encoded.bytes().iter().map(|byte| !byte).collect())
    }
}

struct World {
    records: Records,
    once: Idempotency,
}

impl World {
    async fn new(backend: Backend) -> Self {
        let clock = TokioClock::new();
        let records = Records::new(backend, clock.clone()).await;
        let builder = Idempotency::builder(records.store().await).clock(clock).scope("tests");
        let once = builder.result_codec(Inverting).build().unwrap();
        Self { records, once }
    }

    async fn assert_hidden(&self, key: KeyHash, bytes: usize) {
        let raw = self.records.raw(&key).await;
        let contains = |needle: &[u8]| raw.windows(needle.len()).any(|window| window == needle);
        let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(raw.len() > bytes && !contains(SECRET.as_bytes()) && !contains(hex.as_bytes()), "{raw:?}");
        assert!(contains(b"key-2026"), "{raw:?}");
    }
}

// Tests P30.
async fn results_and_failures_leave_no_plain_text(backend: Backend) {
    let world = World::new(backend).await;
    for (name, text) in [("short", SECRET.to_owned()), ("long", SECRET.repeat(1_000))] {
        let run = || world.once.operation(name, "k").run(|| async { Ok::<_, Failure>(text.clone()) });
        assert!(matches!(run().await, Ok(Outcome::Executed(_))));
        world.assert_hidden(world.once.key_hash(name, "k").unwrap(), 50).await;
        assert!(matches!(run().await, Ok(Outcome::Replayed(back)) if back == text));
    }
    let fail = || world.once.operation("fail", "k").run(|| async { Err::<(), _>(Failure::permanent(SECRET)) });
    assert!(matches!(fail().await, Ok(Outcome::Failed(_))));
    world.assert_hidden(world.once.key_hash("fail", "k").unwrap(), 50).await;
    assert!(
        matches!(fail().await, Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some(SECRET))
    );
}

async fn responses_leave_no_plain_text(backend: Backend) {
    let world = World::new(backend).await;
    let key = Arc::new(Mutex::new(None));
    let note = Arc::clone(&key);
    let card = tower::service_fn(move |request: Request<Full<Bytes>>| {
        *note.lock().unwrap() = request.extensions().get::<Claim>().map(Claim::key);
        let response = Response::builder().status(201).header("x-card", SECRET).body(Full::<Bytes>::from(SECRET));
        async { Ok::<_, std::convert::Infallible>(response.unwrap()) }
    });
    let service = IdempotencyKeyLayer::new(world.once.clone(), Caller::shared()).layer(card);
    for _ in 0..2 {
        let request = Request::post("/cards").header("idempotency-key", "k").body(Full::<Bytes>::default()).unwrap();
        let (parts, body) = service.clone().oneshot(request).await.unwrap().into_parts();
        assert_eq!((parts.status.as_u16(), parts.headers["x-card"].as_bytes()), (201, SECRET.as_bytes()));
        assert_eq!(body.collect().await.unwrap().to_bytes(), SECRET);
    }
    let key = key.lock().unwrap().take().unwrap();
    world.assert_hidden(key, 100).await;
}

// Tests P28, P29.
async fn keys_and_payloads_leave_no_plain_text(backend: Backend) {
    let world = World::new(backend).await;
    let run = world.once.operation("charge", SECRET).payload(SECRET).run(|| async { Ok::<_, Failure>(7) });
    assert!(matches!(run.await, Ok(Outcome::Executed(_))));
    world.assert_hidden(world.once.key_hash("charge", SECRET).unwrap(), 50).await;
}

on_each_store!(
    results_and_failures_leave_no_plain_text,
    responses_leave_no_plain_text,
    keys_and_payloads_leave_no_plain_text,
);
