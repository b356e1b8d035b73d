//! Calls to the store that fail for some of their records, and are sent again for these.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    BoxFuture, Error, ErrorKind, ErrorStatus, Failure, Key, MemoryStore, OutcomeKind, Store, Verdict,
    batch::{OnFailure, PermanentFailures},
    store::{
        Answers, ClaimRequest, Claimed, SettleRequest, Settled,
        fault::{Call, Fault, FaultStore},
    },
    telemetry::OperationEvent,
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    support::delegate::delegate,
    world::{World, batch, fifo, ids, invoke, order, reported, seconds, work},
};

/// The messages whose handlers have begun, and the time of each since the start.
type Begun = Arc<Mutex<Vec<(String, Duration)>>>;

/// Returns a handler that takes ten milliseconds, and its journal.
fn journaled() -> (Begun, impl Fn(Value) -> BoxFuture<'static, Result<(), Failure>> + Clone + Send + Sync) {
    let (begun, began) = (Begun::default(), Instant::now());
    let journal = Arc::clone(&begun);
    let handler = move |job: Value| -> BoxFuture<'static, Result<(), Failure>> {
        journal.lock().unwrap().push((job["id"].as_str().unwrap().to_owned(), began.elapsed()));
        Box::pin(async {
            sleep(Duration::from_millis(10)).await;
            Ok(())
        })
    };
    (begun, handler)
}

/// A store whose claims take a tenth of a second.
#[derive(Clone, Debug)]
struct Slow(FaultStore<MemoryStore>);

impl Store for Slow {
    delegate!(0: settle, read, limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            sleep(Duration::from_millis(100)).await;
            self.0.claim(requests).await
        })
    }
}

fn of_group(group: &str, id: &str) -> testing::Record {
    testing::record(&json!({ "id": id })).attribute("MessageGroupId", group)
}

/// The only settle call of two groups is throttled. The first retry records one outcome, and the other stays throttled.
#[tokio::test(start_paused = true)]
async fn a_settle_that_keeps_failing_holds_up_no_other_of_its_call() {
    let store = FaultStore::new(testing::store(), 1);
    let once = testing::builder(store.clone()).build().unwrap();
    let (begun, handler) = journaled();
    let service = once.sqs(Key::pointer("/id"), handler);
    for fault in [Fault::Throttled, Fault::Throttled, Fault::Throttled, Fault::Delay(Duration::ZERO)] {
        store.next(Call::Settle, fault);
    }
    store.always(Call::Settle, Fault::Throttled);
    let messages = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2")].map(|(group, id)| of_group(group, id));
    let event = sqs::fifo(messages).delivery(1);
    service.process(LambdaEvent::new(event, testing::context(Duration::from_secs(60)))).await;
    let begun = begun.lock().unwrap().clone();
    let [(a1, _), (b1, _), (b2, at), ..] = &*begun else { panic!("{begun:?}") };
    assert_eq!([&**a1, &**b1, &**b2], ["a1", "b1", "b2"]);
    assert!(*at < Duration::from_secs(1), "{begun:?}");
}

/// The first claim of four is throttled, and its retries get no response.
#[tokio::test(start_paused = true)]
async fn granted_records_begin_while_a_throttled_claim_is_sent_again() {
    let store = FaultStore::new(testing::store(), 1);
    let once = testing::builder(store.clone()).build().unwrap();
    let (begun, handler) = journaled();
    let service = once.sqs(Key::pointer("/id"), handler);
    store.next(Call::Claim, Fault::Throttled);
    for _ in 0..3 {
        store.next(Call::Claim, Fault::Delay(Duration::ZERO));
    }
    store.always(Call::Claim, Fault::Silence);
    let batch = sqs::batch(["a", "b", "c", "d"].map(|id| testing::record(&json!({ "id": id }))));
    let context = testing::context(Duration::from_secs(6));
    let processed = service.process(LambdaEvent::new(batch.delivery(1), context)).await;
    let at_once = ["b", "c", "d"].map(|id| (id.to_owned(), Duration::ZERO));
    assert_eq!(*begun.lock().unwrap(), at_once);
    assert_eq!(processed.reported().len(), 1, "{:?}", processed.outcomes());
}

/// The handler could begin within 50 milliseconds, and the claim is refused after 100.
// Tests B5.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_sent_again_once_nothing_may_begin() {
    let store = FaultStore::new(testing::store(), 1);
    let once = testing::builder(Slow(store.clone())).build().unwrap();
    let (begun, handler) = journaled();
    let service = once.sqs(Key::pointer("/id"), handler).expected_duration(Duration::from_millis(18_950));
    store.next(Call::Claim, Fault::Throttled);
    let batch = sqs::batch([testing::record(&json!({ "id": "7" }))]);
    let context = testing::context(Duration::from_secs(20));
    let processed = service.process(LambdaEvent::new(batch.delivery(1), context)).await;
    let claims = store.calls().into_iter().filter(|(call, _)| *call == Call::Claim).count();
    assert_eq!(claims, 1);
    assert_eq!(processed.reported().len(), 1);
    assert!(begun.lock().unwrap().is_empty());
}

/// The process is frozen during the pause before the second claim.
// Tests B5.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_sent_again_after_a_pause_beyond_the_handler_deadline() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::Throttled);
    let service = world.service();
    let invocation = invoke(&service, batch([order("A")]), world.left(seconds(20)));
    let (reported, ()) = tokio::join!(invocation, async { world.clock.jump(seconds(30)) });
    assert_eq!((reported.unwrap(), world.calls(Call::Claim)), (ids(0..1), vec![1]));
}

/// The handler of the first message fails while the claim of the second, throttled twice, waits to be sent again.
// Tests B4, B5.
#[tokio::test(start_paused = true)]
async fn a_claim_that_a_failure_blocks_is_not_sent_again() {
    let world = World::new();
    for fault in [Fault::Delay(Duration::ZERO), Fault::Throttled, Fault::Throttled] {
        world.store.next(Call::Claim, fault);
    }
    let service = world.service().on_failure(OnFailure::StopBatch);
    let event = fifo([("a", work("A", "transient", 0)), ("b", order("B"))]);
    assert_eq!(reported(&world.process(&service, event).await), ids(0..2));
    assert_eq!(world.calls(Call::Claim), [2, 1]);
}

/// A store that rejects the first of two outcomes that it is to record, and is throttled for the second, both once.
#[derive(Clone, Debug)]
struct Choosy {
    store: FaultStore<MemoryStore>,
    settles: Arc<Mutex<Vec<usize>>>,
}

impl Store for Choosy {
    delegate!(store: claim, read, limits, id, warm_up);

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        let mut settles = self.settles.lock().unwrap();
        settles.push(requests.len());
        if settles.len() > 1 {
            return self.store.settle(requests);
        }
        let errors = [
            (ErrorKind::Request, ErrorStatus::Permanent, "the text is refused"),
            (ErrorKind::Throttled, ErrorStatus::Temporary, "too many requests"),
        ];
        let answers = errors.map(|(kind, status, message)| Err(Error::new(kind, status, "settle", message)));
        Box::pin(async { Vec::from(answers) })
    }
}

/// The store rejects the text of one failure, which is then recorded without it, and is throttled for the other.
#[tokio::test(start_paused = true)]
async fn a_settle_without_its_rejected_text_does_not_take_others_with_it() {
    let store = Choosy { store: FaultStore::new(testing::store(), 1), settles: Arc::default() };
    let once = testing::builder(store.clone()).build().unwrap();
    let fails = async |_: Value| Err::<(), _>(Failure::permanent("no amount"));
    let service = once.sqs(Key::pointer("/id"), fails).permanent_failures(PermanentFailures::Acknowledge);
    let both = sqs::batch(["7", "8"].map(|id| testing::record(&json!({ "id": id }))));
    let processed =
        service.process(LambdaEvent::new(both.delivery(1), testing::context(Duration::from_secs(20)))).await;
    assert!(processed.reported().is_empty(), "{processed:?}");
    assert_eq!(*store.settles.lock().unwrap(), [2, 1, 1], "the rejected one at once, the throttled one after a pause");
}

/// Delivered alone, it is reported, too, because the claim of the failed message holds the key.
#[tokio::test(start_paused = true)]
async fn a_corrected_message_is_not_lost_to_a_failure_that_was_not_recorded() {
    let store = FaultStore::new(testing::store(), 1);
    let once = testing::builder(store.clone()).build().unwrap();
    let work = |job: Value| async move {
        if job["is_corrected"] == true { Ok(()) } else { Err(Failure::permanent("no amount")) }
    };
    let service = once.sqs(Key::pointer("/id"), work).permanent_failures(PermanentFailures::Acknowledge);
    store.always(Call::Settle, Fault::Throttled);
    let message = |is_corrected: bool| testing::record(&json!({ "id": "7", "is_corrected": is_corrected }));
    let context = || testing::context(Duration::from_secs(20));
    let both = sqs::batch([message(false), message(true)]);
    let processed = service.process(LambdaEvent::new(both.delivery(1), context())).await;
    let reports = processed.records.iter().map(|record| (record.outcome.ok(), record.reported));
    assert_eq!(
        reports.collect::<Vec<_>>(),
        [(Some(OutcomeKind::Failed(Verdict::Permanent)), false), (Some(OutcomeKind::Mismatch), true)]
    );
    store.heal();
    let alone = sqs::batch([message(true)]);
    let processed = service.process(LambdaEvent::new(alone.delivery(1), context())).await;
    assert_eq!(processed.reported().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_within_a_batch_has_no_times_of_its_leader() {
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let events = Arc::clone(&seen);
    let observer = move |event: &OperationEvent<'_>| {
        let times = [event.claim_time, event.handler_time, event.settle_time, event.lease_remaining];
        events.lock().unwrap().push((event.outcome.ok(), event.attempt, times.map(|time| time.is_some())));
    };
    let once = testing::builder(testing::store()).observer(observer).build().unwrap();
    let service = once.sqs(Key::pointer("/id"), async |_: Value| {
        sleep(Duration::from_millis(50)).await;
        Ok::<_, Failure>(())
    });
    let twice = sqs::batch([1, 2].map(|_| testing::record(&json!({ "id": "7" }))));
    let context = testing::context(Duration::from_secs(20));
    service.process(LambdaEvent::new(twice.delivery(1), context)).await;
    assert_eq!(
        *seen.lock().unwrap(),
        [(Some(OutcomeKind::Executed), 1, [true; 4]), (Some(OutcomeKind::Replayed), 0, [false; 4])]
    );
}
