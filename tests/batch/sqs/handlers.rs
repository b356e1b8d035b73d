//! The forms of handlers, decoders and keys, and their errors.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use anyhow::Context as _;
use lambda_once::{
    Claim, Classify, Failure, Key, RecordContext, Verdict,
    batch::{Handler, RecordInfo, bulk, sqs::Sqs},
    clock::{Clock, Timestamp},
    record::{KeyHash, Status},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::world::{START, World, batch, invoke, millis, order, seconds, work};

fn by_order() -> Key {
    Key::pointer("/order_id")
}

#[tokio::test(start_paused = true)]
async fn a_plain_async_function_is_a_handler() {
    async fn handle(body: Value) -> Result<String, Failure> {
        Ok(body["order_id"].to_string())
    }
    let world = World::new();
    assert!(world.deliver_to(&world.once.sqs(by_order(), handle), [order("A")]).await.is_empty());
    assert_eq!(world.status("A").await, Some(Status::Completed));
}

/// The context that a handler got for its record.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    message_id: String,
    receive_count: u32,
    sent: Option<String>,
    absent: Option<String>,
    arn: Option<String>,
    claim: Option<(KeyHash, u64, Timestamp)>,
    took_over: bool,
    stop: Timestamp,
    request: String,
}

impl Told {
    fn by(context: &RecordContext) -> Self {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Self {
            message_id: context.record().message_id().to_owned(),
            receive_count: context.record().receive_count(),
            sent: text(context.record().attribute("SentTimestamp")),
            absent: text(context.record().attribute("MessageGroupId")),
            arn: text(context.record().source()),
            claim: context.claim().map(|claim| (claim.key(), claim.attempt(), claim.lease_until())),
            took_over: context.took_over(),
            stop: context.handler_deadline(),
            request: context.lambda().request_id.clone(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_ask_for_its_record_and_its_claim() {
    let world = World::new();
    world.abandon("B");
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let service = world.once.sqs(by_order(), move |_: Value, context: RecordContext| {
        seen.lock().unwrap().push(Told::by(&context));
        async move { Ok::<_, Failure>(context.record().message_id().to_owned()) }
    });
    let mut context = world.left(seconds(20));
    context.request_id = "request-1".to_owned();
    let mut event = batch([order("A"), order("B")]);
    event.records[1].attributes.remove("ApproximateReceiveCount");
    assert!(invoke(&service, event, context).await.unwrap().is_empty());
    let first = Told {
        message_id: "m0".to_owned(),
        receive_count: 3,
        sent: Some("1795255200000".to_owned()),
        absent: None,
        arn: Some("arn:aws:sqs:us-east-1:123456789012:orders".to_owned()),
        claim: Some((world.hash("A"), 1, START.after(seconds(21)))),
        took_over: false,
        stop: START.after(seconds(19)),
        request: "request-1".to_owned(),
    };
    let second = Told {
        message_id: "m1".to_owned(),
        receive_count: 1,
        claim: Some((world.hash("B"), 2, START.after(seconds(21)))),
        took_over: true,
        ..first.clone()
    };
    assert_eq!(*told.lock().unwrap(), [first, second]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_return_an_anyhow_result() {
    async fn handle(body: Value) -> anyhow::Result<()> {
        let number: Result<u8, _> = body["order_id"].as_str().context("no id")?.parse();
        match body["act"].as_str() {
            Some("permanent") => number.permanent().context("without success")?,
            _ => number.context("for now")?,
        };
        Ok(())
    }
    let world = World::new();
    let service = world.once.sqs(by_order(), handle);
    let bodies = [order("1"), order("A"), work("B", "permanent", 0)];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m1", "m2"]);
    assert_eq!(world.status("A").await, None);
    assert_eq!(world.status("B").await, Some(Status::Failed));
}

#[derive(Debug)]
enum ChargeError {
    Busy,
    Declined,
    TimedOut,
}

impl fmt::Display for ChargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the charge failed: {self:?}")
    }
}

impl std::error::Error for ChargeError {}

fn charge(how: &str) -> Result<(), ChargeError> {
    match how {
        "busy" => Err(ChargeError::Busy),
        "declined" => Err(ChargeError::Declined),
        "timed out" => Err(ChargeError::TimedOut),
        _ => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_error_is_classified_by_a_closure() {
    let world = World::new();
    let service = world.once.sqs(by_order(), |body: Value| async move {
        charge(body["act"].as_str().unwrap_or_default()).classify(|error| match error {
            ChargeError::Busy => Verdict::Transient,
            ChargeError::Declined => Verdict::Permanent,
            ChargeError::TimedOut => Verdict::Unknown,
        })
    });
    let bodies = [work("A", "busy", 0), work("B", "declined", 0), work("C", "timed out", 0), order("D")];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m0", "m1", "m2"]);
    assert_eq!(world.status("A").await, None);
    assert_eq!(world.status("B").await, Some(Status::Failed));
    assert_eq!(world.status("C").await, Some(Status::InProgress));
    assert_eq!(world.status("D").await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_closure_may_hold_its_own_state() {
    let world = World::new();
    let totals: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    let service = {
        let totals = Arc::clone(&totals);
        world.once.sqs(by_order(), move |body: Value| {
            let totals = Arc::clone(&totals);
            async move {
                *totals.lock().unwrap().entry(body["order_id"].to_string()).or_default() += 1;
                Ok::<_, Failure>(())
            }
        })
    };
    assert!(world.deliver_to(&service, [order("A"), order("B"), order("A")]).await.is_empty());
    assert!(totals.lock().unwrap().values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_before_its_future_is_made_fails_alone() {
    let world = World::new();
    let bodies = [order("A"), work("B", "panic at once", 0), order("C")];
    assert_eq!(world.deliver(bodies).await, ["m1"]);
    assert_eq!(world.status("B").await, Some(Status::InProgress));
}

struct Explosive;

impl<'de> Deserialize<'de> for Explosive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Value::deserialize(deserializer)?;
        assert!(body["act"] != "explode", "while decoding");
        Ok(Self)
    }
}

// Tests B1.
#[tokio::test(start_paused = true)]
async fn a_type_that_panics_when_decoded_fails_alone_and_leaves_no_record() {
    let world = World::new();
    let service = world.once.sqs(by_order(), |_: Explosive| async { Ok::<_, Failure>(()) });
    let bodies = [order("A"), work("B", "explode", 0), order("C")];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m1"]);
    assert_eq!(world.status("B").await, None);
    assert_eq!(world.status("C").await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_key_function_that_panics_or_fails_fails_alone_and_leaves_no_record() {
    let world = World::new();
    let key = Key::from_fn(|delivery| match delivery.message_id() {
        Some("m1") => panic!("while finding the key"),
        Some("m2") => Err("no key today".into()),
        Some("m3") => Ok(None),
        id => Ok(id.map(str::to_owned)),
    });
    let service = world.once.sqs(key, |_: Value| async { Ok::<_, Failure>(()) });
    let bodies = [order("A"), order("B"), order("C"), order("D"), order("E")];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m1", "m2", "m3"]);
    assert_eq!(world.records().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn bodies_can_be_decoded_by_a_function_which_may_fail_or_panic() {
    let world = World::new();
    let decode = |_: &RecordInfo, body: &String| match &**body {
        "panic" => panic!("while decoding"),
        body => Ok(body.parse::<u32>()?),
    };
    let sum = Arc::new(Mutex::new(0));
    let total = Arc::clone(&sum);
    let handler = move |number: u32| {
        *total.lock().unwrap() += number;
        async { Ok::<_, Failure>(()) }
    };
    let service = world.once.batch(Sqs, Key::message_id(), decode, handler);
    assert_eq!(world.deliver_to(&service, ["1", "one", "panic", "2"]).await, ["m1", "m2"]);
    assert_eq!(*sum.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_stored_is_still_done() {
    struct Unserializable;
    impl serde::Serialize for Unserializable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    let world = World::new();
    let runs = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&runs);
    let service = world.once.sqs(by_order(), move |_: Value| {
        *counted.lock().unwrap() += 1;
        async { Ok::<_, Failure>(Unserializable) }
    });
    for _ in 0..2 {
        assert!(world.deliver_to(&service, [order("A")]).await.is_empty());
    }
    assert_eq!(*runs.lock().unwrap(), 1);
    assert!(world.record("A").await.unwrap().result.dropped);
}

/// An error that panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("boom"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_it_is_dropped_touches_no_other_record() {
    let world = World::new();
    let service = world.once.sqs(Key::pointer("/order_id"), |job: Value| async move {
        if job["act"] == "bomb" { Err(Bomb) } else { Ok(()) }
    });
    let bodies = [work("A", "bomb", 0), order("B")];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m0"]);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_can_stop_when_its_handler_is_cancelled() {
    let world = World::new();
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let clock = world.clock.clone();
    let handler = move |_: Value, context: RecordContext| {
        let (send, clock) = (send.clone(), clock.clone());
        async move {
            assert_eq!((context.claim().map(Claim::attempt), context.time_left()), (Some(1), millis(4_500)));
            tokio::spawn(async move {
                context.cancelled().await;
                send.send((clock.now(), context.handler_deadline(), context.time_left())).unwrap();
            });
            std::future::pending::<Result<(), Failure>>().await
        }
    };
    let service = world.once.sqs(Key::pointer("/order_id"), handler);
    assert_eq!(invoke(&service, batch([order("A")]), world.left(seconds(5))).await.unwrap(), ["m0"]);
    let (ended, stop, left) = receive.recv().await.unwrap();
    assert_eq!((ended, left), (stop, millis(0)));
}

/// A handler that wraps another handler.
#[derive(Clone)]
struct Wrapper<H>(H);

impl<H: Handler<Value, (Vec<Value>,)>> Handler<Value, (Vec<Value>,)> for Wrapper<H> {
    type Output = H::Output;

    async fn call(&self, payload: Value, context: RecordContext) -> Result<Self::Output, Failure> {
        self.0.call(payload, context).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_inside_another_one_gets_one_record_at_a_time() {
    let world = World::new();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let inner = bulk(10, move |bodies: Vec<Value>| {
        seen.lock().unwrap().push(bodies.len());
        async move { bodies.iter().map(|_| Ok::<_, Failure>(())).collect() }
    });
    let service = world.once.sqs(Key::pointer("/order_id"), Wrapper(inner)).validate().unwrap();
    assert_eq!(invoke(&service, batch([order("A"), order("B")]), world.left(seconds(5))).await.unwrap(), [""; 0]);
    assert_eq!(*calls.lock().unwrap(), [1, 1]);
}
