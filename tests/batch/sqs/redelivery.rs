//! The redelivery hook, which determines when a failed record is redelivered.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    BoxFuture, ErrorKind, Interruption, MissingKey, OnPanic, OutcomeKind, Verdict,
    batch::{FullBatchFailure, RecordReport, Redelivery},
    clock::{Clock, Timestamp},
    record::{Fingerprint, Record, Status},
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use serde_json::json;
use tracing::Level;

use crate::{
    sqs::dead_letters::{Act as Post, Letters},
    support::collector::Collector,
    world::{START, World, batch, fifo, ids, invoke, millis, order, orders, reported, seconds, work},
};

/// The ten-second lease of [`World::put`], plus the margin and a millisecond.
const LAPSE_ELSEWHERE: Timestamp = Timestamp::from_millis(START.as_millis() + 11_001);
/// The minute of [`World::process`], plus the second after it, the margin and a millisecond.
const LAPSE: Timestamp = Timestamp::from_millis(START.as_millis() + 62_001);

#[derive(Clone, Copy, Debug)]
enum Act {
    Take(Duration),
    Panic,
    PanicAtOnce,
    Hang,
    HangAndPanicWhenDropped,
}

/// The time, and the failed records.
type Told = (Timestamp, Vec<RecordReport>);

/// A hook that records its calls.
#[derive(Clone, Debug)]
struct Hook {
    act: Act,
    calls: Arc<Mutex<Vec<Told>>>,
}

impl Hook {
    fn new() -> Self {
        Self::that(Act::Take(Duration::ZERO))
    }

    fn that(act: Act) -> Self {
        Self { act, calls: Arc::default() }
    }

    /// Returns the arguments of its only call.
    fn told(&self) -> Told {
        let mut calls = self.calls.lock().unwrap().clone();
        assert_eq!(calls.len(), 1);
        calls.remove(0)
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("in drop"));
    }
}

impl Redelivery for Hook {
    fn delay<'a>(&'a self, failed: &'a [RecordReport], now: Timestamp) -> BoxFuture<'a, ()> {
        self.calls.lock().unwrap().push((now, failed.to_vec()));
        if let Act::PanicAtOnce = self.act {
            std::panic::resume_unwind(Box::new("the clock is broken"));
        }
        Box::pin(async move {
            match self.act {
                Act::Take(time) => tokio::time::sleep(time).await,
                Act::Panic | Act::PanicAtOnce => std::panic::resume_unwind(Box::new("the clock is broken")),
                Act::Hang => std::future::pending().await,
                Act::HangAndPanicWhenDropped => {
                    let _panics = PanicsWhenDropped;
                    std::future::pending::<()>().await;
                }
            }
        })
    }
}

// Tests B7.
#[tokio::test(start_paused = true)]
async fn the_hook_gets_all_failures_once_in_event_order_before_the_response() {
    let (world, hook) = (World::new(), Hook::that(Act::Take(seconds(3))));
    let service = world.service().redelivery(hook.clone());
    let bodies = [
        work("A", "transient", 300),
        order("B"),
        json!("not an order"),
        work("C", "transient", 200),
        work("D", "permanent", 100),
    ];
    let answer = invoke(&service, batch(bodies), world.left(seconds(60))).await.unwrap();
    assert_eq!(answer, ["m0", "m2", "m3", "m4"]);
    let (now, failed) = hook.told();
    assert_eq!((now, world.clock.now()), (START.after(millis(300)), START.after(millis(3_300))));
    assert_eq!(failed.iter().map(|report| report.record.id()).collect::<Vec<_>>(), answer);
    assert!(failed.iter().all(|report| report.reported));
    assert_eq!(failed[0].record.receipt(), Some("AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a"));
}

#[tokio::test(start_paused = true)]
async fn the_hook_is_not_called_if_nothing_failed() {
    let (world, hook) = (World::new(), Hook::new());
    let service = world.service().redelivery(hook.clone()).dead_letters(Letters::new());
    let bodies = [order("A"), work("B", "permanent", 0), order("A")];
    assert!(reported(&world.process(&service, batch(bodies)).await).is_empty());
    assert!(reported(&world.process(&service, batch(orders(0, "", 0))).await).is_empty());
    assert!(hook.calls.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_hook_gets_records_that_could_not_be_dead_lettered() {
    let (world, hook) = (World::new(), Hook::new());
    let service = world.service().redelivery(hook.clone()).dead_letters(Letters::that(Post::Refuse));
    world.process(&service, batch([work("A", "permanent", 0)])).await;
    assert_eq!(hook.told().1[0].outcome, Ok(OutcomeKind::Failed(Verdict::Permanent)));
}

#[tokio::test(start_paused = true)]
async fn it_never_changes_an_outcome_or_takes_longer_than_ten_seconds() {
    for (act, takes, level) in [
        (Act::Panic, 0, Level::ERROR),
        (Act::PanicAtOnce, 0, Level::ERROR),
        (Act::Hang, 10, Level::WARN),
        (Act::HangAndPanicWhenDropped, 10, Level::ERROR),
    ] {
        let (world, hook) = (World::new(), Hook::that(act));
        let service = world.service().redelivery(hook.clone());
        let (collector, guard) = Collector::install();
        let processed = world.process(&service, batch([order("A"), work("B", "transient", 0)])).await;
        drop(guard);
        assert_eq!(reported(&processed), ["m1"], "{act:?}");
        assert_eq!(processed.records.len(), 2, "{act:?}: a test beside it hears of all");
        assert_eq!(world.clock.now(), START.after(seconds(takes)), "{act:?}");
        let said: Vec<_> =
            collector.lines().into_iter().filter(|line| line.get("message").contains("redelivery")).collect();
        assert_eq!(said.iter().map(|line| line.level).collect::<Vec<_>>(), [level], "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_time_left_the_hook_is_not_called() {
    let (world, hook) = (World::new(), Hook::new());
    let clock = world.clock.clone();
    let service = world.once.sqs(lambda_once::Key::message_id(), move |_: serde_json::Value| {
        clock.jump(seconds(60));
        async { Err::<(), _>(lambda_once::Failure::transient("too late")) }
    });
    let service = service.redelivery(hook.clone());
    assert_eq!(reported(&world.process(&service, batch([order("A")])).await), ["m0"]);
    assert!(hook.calls.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_hook_is_also_called_if_the_response_is_an_error() {
    let (world, hook) = (World::new(), Hook::new());
    let service = world.service().redelivery(hook.clone()).on_full_batch_failure(FullBatchFailure::Error);
    let processed = world.process(&service, batch([work("A", "transient", 0)])).await;
    assert_eq!(processed.response.unwrap_err().kind(), ErrorKind::Batch);
    assert_eq!(hook.told().1.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_hook_gets_the_time_until_which_each_key_is_held() {
    let (world, hook) = (World::new(), Hook::new());
    world.put("running", Status::InProgress, "");
    world.put("failed", Status::Failed, "\"no\"");
    let service = world.service().redelivery(hook.clone());
    let bodies = [
        order("running"),
        order("running"),
        work("running", "succeed", 1),
        work("A", "unknown", 0),
        work("A", "unknown", 0),
        work("B", "panic", 0),
        work("C", "hang", 0),
        work("D", "transient", 0),
        work("E", "permanent", 0),
        order("failed"),
        json!("not an order"),
    ];
    world.process(&service, batch(bodies)).await;
    let held: Vec<_> = hook.told().1.iter().map(|report| report.held_until).collect();
    let elsewhere = Some(LAPSE_ELSEWHERE);
    let ours = Some(LAPSE);
    assert_eq!(held, [elsewhere, elsewhere, elsewhere, ours, ours, ours, ours, None, None, None, None]);
    let at_the_end = world.record("A").await.unwrap().lease_until.unwrap();
    assert_eq!(at_the_end.after(millis(1_001)), LAPSE, "the lease is the record's");
}

#[tokio::test(start_paused = true)]
async fn a_held_key_can_be_claimed_from_the_reported_time_and_not_before() {
    for (wait, runs) in [(millis(62_000), 1), (millis(62_001), 2)] {
        let world = World::new();
        world.process(&world.service(), batch([work("A", "unknown", 0)])).await;
        tokio::time::advance(wait).await;
        world.process(&world.service(), batch([work("A", "unknown", 0)])).await;
        assert_eq!(world.journal.keys().len(), runs, "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_transient_failure_is_not_held() {
    let (world, hook) = (World::with(|builder| builder.on_panic(OnPanic::Transient)), Hook::new());
    let service = world.service().redelivery(hook.clone());
    world.process(&service, batch([work("A", "panic", 0), work("B", "transient", 0)])).await;
    assert!(hook.told().1.iter().all(|report| report.held_until.is_none()));
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_run_holds_no_key() {
    let (world, hook) = (World::with(|builder| builder.missing_key(MissingKey::RunUnprotected)), Hook::new());
    let service = world.service().redelivery(hook.clone());
    world.process(&service, batch(["unknown", "panic", "hang"].map(|act| work("", act, 0)))).await;
    let (_, failed) = hook.told();
    assert_eq!(failed.len(), 3);
    assert!(failed.iter().all(|report| report.held_until.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_deadline_is_the_configured_one() {
    let (world, hook) = (World::new(), Hook::new());
    let service = world.service().redelivery(hook.clone());
    let event = LambdaEvent::new(batch([work("A", "unknown", 0)]), lambda_runtime::Context::default());
    service.process(event).await.response.unwrap();
    assert_eq!(hook.told().1[0].held_until, Some(START.after(millis(31_001))));
}

#[tokio::test(start_paused = true)]
async fn messages_blocked_by_a_failure_wait_for_nobody_and_the_failed_one_does() {
    let (world, hook) = (World::new(), Hook::new());
    let service = world.service().redelivery(hook.clone());
    let event = fifo([("a", work("A", "unknown", 0)), ("a", order("B")), ("a", json!("not an order"))]);
    assert_eq!(reported(&world.process(&service, event).await), ids(0..3));
    let told: Vec<_> = hook.told().1.iter().map(|report| (report.outcome, report.held_until)).collect();
    let unknown = (Ok(OutcomeKind::Failed(Verdict::Unknown)), Some(LAPSE));
    assert_eq!(told, [unknown, (Ok(OutcomeKind::Skipped), None), (Ok(OutcomeKind::Skipped), None)]);
}

#[tokio::test(start_paused = true)]
async fn the_hook_gets_store_errors_and_cancelled_records_as_such() {
    let (world, hook) = (World::new(), Hook::new());
    world.store.next(Call::Claim, Fault::AccessDenied);
    let service = world.service().redelivery(hook.clone());
    world.process(&service, batch([order("A"), work("B", "hang", 0)])).await;
    let (now, failed) = hook.told();
    let outcomes: Vec<_> = failed.iter().map(|report| (report.outcome, report.held_until)).collect();
    let cancelled = Ok(OutcomeKind::Interrupted(Interruption::Cancelled));
    assert_eq!(outcomes, [(Err(ErrorKind::AccessDenied), None), (cancelled, Some(LAPSE))]);
    assert_eq!(now, START.after(seconds(58)), "the handler deadline; a second is left for calls");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_could_not_be_settled_holds_its_key() {
    let (world, hook) = (World::new(), Hook::new());
    world.store.always(Call::Settle, Fault::AccessDenied);
    let service = world.service().redelivery(hook.clone());
    world.process(&service, batch([work("A", "transient", 0), work("B", "permanent", 0)])).await;
    let held: Vec<_> = hook.told().1.iter().map(|report| report.held_until).collect();
    assert_eq!(held, [Some(LAPSE); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_successor_holds_the_key_of_a_claim_that_lost_its_lease() {
    for (successor, held) in [(Status::InProgress, Some(LAPSE_ELSEWHERE.after(millis(5)))), (Status::Failed, None)] {
        let (world, hook) = (World::new(), Hook::new());
        let service = world.service().redelivery(hook.clone());
        let takes_over = async {
            tokio::time::sleep(millis(5)).await;
            world.put("A", successor, "1");
        };
        tokio::join!(world.process(&service, batch([work("A", "succeed", 10)])), takes_over);
        let (_, failed) = hook.told();
        let outcome = if held.is_some() { OutcomeKind::LeaseLost } else { OutcomeKind::ReplayedFailure };
        assert_eq!((failed[0].outcome, failed[0].held_until), (Ok(outcome), held));
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_with_another_payload_does_not_hold_the_operation() {
    let (world, hook) = (World::new(), Hook::new());
    let service = world.service().redelivery(hook.clone());
    let takes_over = async {
        tokio::time::sleep(millis(5)).await;
        world.put("A", Status::InProgress, "1");
        let record = world.record("A").await.unwrap();
        let fingerprint = Some(Fingerprint::from_bytes([7; 32]));
        world.memory.insert(world.hash("A"), Record { fingerprint, ..record });
    };
    tokio::join!(world.process(&service, batch([work("A", "succeed", 10)])), takes_over);
    let (_, failed) = hook.told();
    assert_eq!((failed[0].outcome, failed[0].held_until), (Ok(OutcomeKind::LeaseLost), None));
}
