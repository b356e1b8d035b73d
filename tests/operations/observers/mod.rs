//! The events of observers, and their CloudWatch metrics, which are the same for each entry point.

mod emf;
mod entry_points;
mod events;
mod spans;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use lambda_once::{
    Builder, ErrorKind, Failure, Idempotency, Key, MemoryStore, OutcomeKind,
    http::{Caller, IdempotencyKeyLayer},
    invocation::InvocationLayer,
    record::KeyHash,
    store::fault::FaultStore,
    telemetry::{EndEvent, EntryPoint, Observer, OperationEvent},
    testing,
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::clock::TokioClock;

/// The duration of this module's handlers.
const HANDLER: Duration = Duration::from_millis(70);

/// A time after the lease of an engine without a deadline, and after the lease of [`testing::TIME_LEFT`].
const LAPSE: Duration = Duration::from_secs(63);

/// The reported events of an operation.
#[derive(Clone, Debug)]
struct Told {
    entry_point: EntryPoint,
    operation: String,
    outcome: Result<OutcomeKind, ErrorKind>,
    key: Option<KeyHash>,
    attempt: u64,
    took_over: bool,
    claim_time: Option<Duration>,
    handler_time: Option<Duration>,
    settle_time: Option<Duration>,
    lease_remaining: Option<Duration>,
    store_calls: u32,
}

/// An end event: the entry point, the numbers of operations and of calls, and whether it was nested.
type End = (EntryPoint, usize, u32, bool);

#[derive(Clone, Default)]
struct Recorder {
    told: Arc<Mutex<Vec<Told>>>,
    ends: Arc<Mutex<Vec<End>>>,
}

impl Observer for Recorder {
    fn on_operation(&self, event: &OperationEvent<'_>) {
        let told = Told {
            entry_point: event.entry_point,
            operation: event.operation.to_owned(),
            outcome: event.outcome,
            key: event.key,
            attempt: event.attempt,
            took_over: event.took_over,
            claim_time: event.claim_time,
            handler_time: event.handler_time,
            settle_time: event.settle_time,
            lease_remaining: event.lease_remaining,
            store_calls: event.store_calls,
        };
        self.told.lock().unwrap().push(told);
    }

    fn on_end(&self, event: &EndEvent<'_>) {
        let end = (event.entry_point, event.operations, event.store_calls, event.is_nested);
        self.ends.lock().unwrap().push(end);
    }
}

impl Recorder {
    fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    fn one(&self) -> Told {
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:?}");
        told[0].clone()
    }

    fn ends(&self) -> Vec<End> {
        std::mem::take(&mut *self.ends.lock().unwrap())
    }
}

/// Returns an engine in memory with tokio's clock and these observers.
fn engine(store: FaultStore<MemoryStore>, settings: impl FnOnce(Builder) -> Builder) -> Idempotency {
    let builder = Idempotency::builder(store).clock(TokioClock::new()).scope("tests").disabled(false);
    settings(builder).build().unwrap()
}

fn store() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::with_clock(TokioClock::new()), 1)
}

/// The behavior of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Succeed,
    Fail,
    /// It ends with an unknown outcome.
    Doubt,
}

async fn act(act: Act) -> Result<u32, Failure> {
    tokio::time::sleep(HANDLER).await;
    match act {
        Act::Succeed => Ok(7),
        Act::Fail => Err(Failure::transient("busy")),
        Act::Doubt => Err(Failure::unknown("timed out")),
    }
}

/// Runs the operation with key `k` on the engine through this entry point.
async fn send(once: &Idempotency, entry_point: EntryPoint, does: Act) {
    match entry_point {
        EntryPoint::Operation => {
            let _ = once.operation("charge", "k").heartbeat(None).run(|| act(does)).await.unwrap();
        }
        EntryPoint::Batch => {
            let service = once.sqs(Key::pointer("/id"), move |_: Value| act(does));
            let batch = testing::sqs::batch([testing::record(&json!({ "id": "k" }))]);
            testing::deliver(&service, &batch).await;
        }
        EntryPoint::Invocation => {
            let handler = service_fn(move |_: LambdaEvent<Value>| act(does));
            let layer = InvocationLayer::new(once.clone(), Key::pointer("/id")).heartbeat(None);
            let _ = layer.layer(handler).oneshot(testing::event(&json!({ "id": "k" }))).await;
        }
        EntryPoint::Http => {
            let handler = service_fn(move |_: http::Request<Full<Bytes>>| async move {
                let decision = match act(does).await {
                    Ok(_) => lambda_once::http::ResponseAction::Store,
                    Err(_) if does == Act::Fail => lambda_once::http::ResponseAction::Release,
                    Err(_) => lambda_once::http::ResponseAction::Keep,
                };
                let mut response = http::Response::new(Full::<Bytes>::from("done"));
                response.extensions_mut().insert(decision);
                Ok::<_, Infallible>(response)
            });
            let scope = Caller::from_fn(|_| Some("alice".to_owned()));
            let layer = IdempotencyKeyLayer::new(once.clone(), scope).heartbeat(None);
            let request = http::Request::post("/").header("idempotency-key", "\"k\"");
            let _ = layer.layer(handler).oneshot(request.body(Full::<Bytes>::from("{}")).unwrap()).await;
        }
        other => panic!("{other:?} is new"),
    }
}

const ALL: [EntryPoint; 4] = [EntryPoint::Operation, EntryPoint::Batch, EntryPoint::Http, EntryPoint::Invocation];
