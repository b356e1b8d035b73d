//! Settings of an operation or service that override the engine's, the same for each entry point.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use lambda_once::{
    AfterUnknown, ErrorKind, Failure, Idempotency, Key, MemoryStore, MissingKey, OperationSettings, Outcome, Results,
    Store,
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer},
    invocation::InvocationLayer,
    record::{KeyHash, Record, Status},
    store::{ResultData, fault::FaultStore},
    testing,
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use crate::support::{clock::TokioClock, collector::Collector};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);

/// An engine with a retention of one day, and its store.
struct World {
    clock: TokioClock,
    store: MemoryStore,
    once: Idempotency,
}

impl World {
    fn new() -> Self {
        let clock = TokioClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let builder = Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").disabled(false);
        let once = builder.retention(DAY).failed_retention(2 * DAY).build().unwrap();
        Self { clock, store, once }
    }

    /// Returns the only record of the store.
    async fn record(&self, key: KeyHash) -> Record {
        self.store.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap()
    }

    /// Returns the retention of a record, to the second.
    fn kept(&self, record: &Record) -> Duration {
        Duration::from_secs(record.expiration.unwrap() - self.clock.now().seconds_rounded_up())
    }
}

const MONTHLY: OperationSettings = OperationSettings::new().retention(MONTH).results(Results::Discard);

#[tokio::test(start_paused = true)]
async fn an_operations_own_settings_hold_for_it_and_for_no_other() {
    let world = World::new();
    let work = || async { Ok::<_, Failure>(7) };
    let _ = world.once.operation("monthly", "k").with_settings(MONTHLY).run(work).await.unwrap();
    let _ = world.once.operation("daily", "k").run(work).await.unwrap();
    let monthly = world.record(world.once.key_hash("monthly", "k").unwrap()).await;
    let daily = world.record(world.once.key_hash("daily", "k").unwrap()).await;
    assert_eq!((world.kept(&monthly), monthly.result.data.is_some()), (MONTH, false));
    assert_eq!((world.kept(&daily), daily.result.data.is_some()), (DAY, true));
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_not_set_stay_as_the_engines() {
    let world = World::new();
    let fails = || async { Err::<(), _>(Failure::permanent("declined")) };
    let _ = world.once.operation("charge", "k").with_settings(MONTHLY).run(fails).await.unwrap();
    let record = world.record(world.once.key_hash("charge", "k").unwrap()).await;
    assert_eq!((record.status, world.kept(&record)), (Status::Failed, 2 * DAY));

    let settings = MONTHLY.failed_retention(HOUR);
    let _ = world.once.operation("refund", "k").with_settings(settings).run(fails).await.unwrap();
    let record = world.record(world.once.key_hash("refund", "k").unwrap()).await;
    assert_eq!(world.kept(&record), HOUR);
}

#[tokio::test(start_paused = true)]
async fn an_operation_has_its_own_lease_and_policy_after_an_unknown_outcome() {
    let world = World::new();
    let settings = OperationSettings::new().lease(5 * HOUR).after_unknown(AfterUnknown::Refuse);
    let doubtful = || async { Err::<(), _>(Failure::unknown("timed out")) };
    let run = |settings| world.once.operation("charge", "k").heartbeat(None).with_settings(settings).run(doubtful);
    assert!(matches!(run(settings).await.unwrap(), Outcome::Failed(_)));
    let record = world.record(world.once.key_hash("charge", "k").unwrap()).await;
    assert_eq!(record.lease_until.unwrap().since(world.clock.now()), 5 * HOUR);
    tokio::time::advance(5 * HOUR + Duration::from_secs(2)).await;
    assert!(matches!(run(settings).await.unwrap(), Outcome::Abandoned { .. }));
    assert!(matches!(run(OperationSettings::new()).await.unwrap(), Outcome::Failed(_)), "the engine's policy: it runs");
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused_before_any_claim() {
    let world = World::new();
    for bad in [
        OperationSettings::new().retention(Duration::from_secs(30)),
        OperationSettings::new().lease(Duration::from_millis(10)),
        OperationSettings::new().lease(3 * DAY),
        OperationSettings::new().after_unknown(AfterUnknown::Refuse).in_progress_retention(HOUR),
    ] {
        let work = || async { Ok::<_, Failure>(()) };
        let error = world.once.operation("charge", "k").with_settings(bad).run(work).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let handler = |_: Value| async { Ok::<_, Failure>(()) };
        let service = world.once.sqs(Key::message_id(), handler).with_settings(bad);
        assert_eq!(service.validate().unwrap_err().kind(), ErrorKind::Config);
        let layer = InvocationLayer::<Value>::new(world.once.clone(), Key::pointer("/id")).with_settings(bad);
        assert_eq!(layer.validate().unwrap_err().kind(), ErrorKind::Config);
        let scope = Caller::from_fn(|_| Some("alice".to_owned()));
        let layer = IdempotencyKeyLayer::new(world.once.clone(), scope).with_settings(bad);
        assert_eq!(layer.validate().unwrap_err().kind(), ErrorKind::Config);
    }
    let key = world.once.key_hash("charge", "k").unwrap();
    assert_eq!(world.store.read(&[key], ResultData::Omit).await.remove(0).unwrap(), None);
}

#[tokio::test]
async fn a_malformed_key_of_an_order_is_refused_before_any_event() {
    let world = World::new();
    let (good, bad) = (|| Key::pointer("/id"), || Key::pointer("id"));
    for (entity, sequence, refused) in
        [(good(), good(), None), (good(), bad(), Some(ErrorKind::Config)), (bad(), good(), Some(ErrorKind::Config))]
    {
        let handler = |_: Value| async { Ok::<_, Failure>(()) };
        let service = world.once.sqs(Key::message_id(), handler).ordered_by(entity.clone(), sequence.clone());
        assert_eq!(service.validate().err().map(|error| error.kind()), refused);
        let layer = IdempotencyKeyLayer::new(world.once.clone(), Caller::from_fn(|_| Some("alice".to_owned())));
        let layer = layer.ordered_by(entity, sequence);
        assert_eq!(layer.validate().err().map(|error| error.kind()), refused);
    }
}

/// Runs again in a process that has the variables.
#[tokio::test]
async fn the_environment_names_the_scope_and_can_disable_all_engines() {
    const IN_CHILD: &str = "TEST_OF_THE_ENVIRONMENT";
    let Ok(disabled) = std::env::var(IN_CHILD) else {
        for disabled in ["0", "1"] {
            let test = "settings::the_environment_names_the_scope_and_can_disable_all_engines";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let again = again.args(["--exact", test]).env(IN_CHILD, disabled);
            let again = again.env("AWS_LAMBDA_FUNCTION_NAME", "payments").env("LAMBDA_ONCE_DISABLED", disabled);
            let output = again.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("1 passed"), "{text}");
        }
        return;
    };
    let store = FaultStore::new(MemoryStore::new(), 1);
    if disabled == "0" {
        let (collector, guard) = Collector::install();
        let _once = Idempotency::new(store);
        drop(guard);
        return assert!(collector.lines().is_empty(), "{:?}", collector.lines());
    }
    let (collector, guard) = Collector::install();
    let [once, _other] = [Idempotency::new(store.clone()), Idempotency::new(store.clone())];
    drop(guard);
    let warnings: Vec<_> = collector.lines().into_iter().filter(|line| line.level == Level::WARN).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].get("message").starts_with("LAMBDA_ONCE_DISABLED is set"), "{warnings:?}");
    for _ in 0..2 {
        let outcome = once.operation("charge", "k").run(|| async { Ok::<_, Failure>(7) }).await.unwrap();
        assert!(matches!(outcome, Outcome::Executed(7)), "{outcome:?}");
    }
    assert!(store.calls().is_empty());
    let named = Idempotency::builder(store).scope("payments").build().unwrap();
    assert_eq!(once.key_hash("charge", "k").unwrap(), named.key_hash("charge", "k").unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_services_own_settings_hold_for_its_records() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(7) };
    let service = world.once.sqs(Key::pointer("/id"), handler).with_settings(MONTHLY);
    testing::deliver_twice(&service, &testing::sqs::batch([testing::record(&json!({ "id": "k" }))]))
        .await
        .assert_once();
    let record = world.record(world.once.key_hash("sqs", "k").unwrap()).await;
    assert_eq!((world.kept(&record), record.result.data.is_some()), (MONTH, false));
}

#[tokio::test(start_paused = true)]
async fn a_service_has_its_own_word_on_missing_keys() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(7) };
    let open = OperationSettings::new().missing_key(MissingKey::RunUnprotected);
    let batch = testing::sqs::batch([testing::record(&json!({}))]);
    let outcomes = |settings| {
        let service = world.once.sqs(Key::pointer("/id"), handler).with_settings(settings);
        let event = batch.clone();
        async move { testing::deliver(&service, &event).await.outcomes() }
    };
    assert_eq!(outcomes(OperationSettings::new()).await, [Err(ErrorKind::KeyMissing)]);
    assert!(outcomes(open).await[0].is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_invocation_layer_has_its_own_settings() {
    let world = World::new();
    let layer = InvocationLayer::new(world.once.clone(), Key::pointer("/id")).with_settings(MONTHLY);
    let service =
        layer.layer(service_fn(|_: lambda_runtime::LambdaEvent<Value>| async { Ok::<_, lambda_once::BoxError>(()) }));
    service.oneshot(testing::event(&json!({ "id": "k" }))).await.unwrap();
    let record = world.record(world.once.key_hash("invocation", "k").unwrap()).await;
    assert_eq!(world.kept(&record), MONTH);
}

#[tokio::test(start_paused = true)]
async fn an_http_layer_has_its_own_settings() {
    let world = World::new();
    let hash = std::sync::Arc::new(std::sync::Mutex::new(None));
    let seen = std::sync::Arc::clone(&hash);
    let handler = service_fn(move |request: http::Request<Full<Bytes>>| {
        let claim = request.extensions().get::<lambda_once::Claim>().unwrap();
        *seen.lock().unwrap() = Some(claim.key());
        async { Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::from("done"))) }
    });
    let scope = Caller::from_fn(|_| Some("alice".to_owned()));
    let layer = IdempotencyKeyLayer::new(world.once.clone(), scope).with_settings(MONTHLY.results(Results::Store));
    let request = http::Request::post("/").header("idempotency-key", "\"k\"").body(Full::<Bytes>::from("{}")).unwrap();
    let response = layer.layer(handler).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let key = hash.lock().unwrap().take().unwrap();
    assert_eq!(world.kept(&world.record(key).await), MONTH);
}
