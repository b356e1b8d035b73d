//! The concurrency of handlers, and the claims ahead of them.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lambda_once::{
    AfterUnknown, Failure, Key,
    clock::Timestamp,
    record::Status,
    store::fault::{Call, Fault},
};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use tokio::sync::Notify;

use crate::world::{
    Backing, Event, Job, Latency, START, World, batch, fifo, ids, invoke, jobs, millis, order, orders, seconds, work,
};

// Tests B4.
#[tokio::test(start_paused = true)]
async fn never_more_handlers_run_at_once_than_allowed_and_that_many_do() {
    for (allowed, at_once) in [(0, 1), (1, 1), (3, 3), (10, 10), (1_000, 40)] {
        let world = World::new();
        let service = world.service().concurrency(allowed);
        assert!(world.deliver_to(&service, orders(40, "succeed", 50)).await.is_empty());
        assert_eq!(world.journal.most_at_once(), at_once, "of {allowed}");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_handlers_run_at_once_by_default() {
    let world = World::new();
    world.deliver(orders(30, "succeed", 50)).await;
    assert_eq!(world.journal.most_at_once(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_slow_record_holds_up_no_free_slot() {
    let world = World::new();
    let service = world.service().concurrency(2);
    let mut bodies = orders(11, "succeed", 100);
    bodies[0] = work("order-0", "succeed", 1_000);
    let began = tokio::time::Instant::now();
    assert!(world.deliver_to(&service, bodies).await.is_empty());
    assert_eq!(began.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn claims_are_made_in_chunks_as_large_as_the_store_takes_and_at_most_100() {
    for (takes, records, sizes) in
        [(usize::MAX, 230, vec![100, 100, 30]), (25, 60, vec![25, 25, 10]), (8, 60, vec![8, 8, 8, 8, 8, 8, 8, 4])]
    {
        let world = World::on(takes, |builder| builder);
        world.deliver(orders(records, "succeed", 10)).await;
        assert_eq!(world.calls(Call::Claim), sizes, "a store that takes {takes}");
    }
    let world = World::on(0, |builder| builder);
    world.deliver(orders(3, "succeed", 10)).await;
    assert_eq!(world.calls(Call::Claim), [1, 1, 1]);
}

// Tests B12.
#[tokio::test(start_paused = true)]
async fn claims_run_at_most_one_chunk_ahead_of_the_work() {
    for (takes, concurrency) in [(4, 1), (4, 3), (25, 1), (25, 10), (1_000, 10)] {
        let world = World::on(takes, |builder| builder);
        let service = world.service().concurrency(concurrency);
        assert!(world.deliver_to(&service, orders(250, "succeed", 50)).await.is_empty());
        assert!(world.journal.most_open() <= concurrency + takes.min(100), "{} open", world.journal.most_open());
        assert_eq!(world.journal.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_order_too_claims_run_at_most_one_chunk_ahead_of_the_work() {
    const GROUPS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    // Leases that all end after ten seconds are in the way of all messages, or of none.
    for are_held in [false, true] {
        for (takes, concurrency, groups) in [(4, 1, 1), (4, 3, 6), (25, 1, 1), (25, 1, 6), (25, 3, 2), (25, 10, 6)] {
            let world = World::on(takes, |builder| builder);
            let keys: Vec<String> = (0..60).map(|i| format!("order-{i}")).collect();
            if are_held {
                keys.iter().for_each(|key| world.put(key, Status::InProgress, ""));
            }
            let event =
                fifo(GROUPS[..groups].iter().copied().cycle().zip(keys.iter().map(|key| work(key, "succeed", 50))));
            let service = world.service().concurrency(concurrency);
            assert!(invoke(&service, event, world.left(seconds(60))).await.unwrap().is_empty());
            let (open, most) = (world.journal.most_open(), concurrency + takes);
            assert!(open <= most, "{open} of {most} open: {takes}, {concurrency}, {groups}, held: {are_held}");
            assert_eq!((world.journal.held(), world.journal.keys().len()), (0, 60));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_one_lane_a_chunk_is_claimed_and_of_several_half_a_chunk_ahead() {
    for (groups, claims) in [(1, vec![25, 12, 12, 11]), (2, vec![2 + 12, 6, 6, 6, 6, 6, 6, 6, 4])] {
        let world = World::new();
        let event = fifo(["a", "b"][..groups].iter().copied().cycle().zip(orders(60, "succeed", 10)));
        assert!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap().is_empty());
        assert_eq!(world.calls(Call::Claim), claims, "{groups} groups");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_run_ahead_by_one_round_trip_of_handlers() {
    let world = World::on(Latency { claim: millis(300), ..Latency::default() }, |builder| builder);
    let service = world.service().concurrency(1);
    assert!(world.deliver_to(&service, orders(400, "succeed", 1)).await.is_empty());
    let sent = world.journal.timed().into_iter().filter(|(_, event)| matches!(event, Event::ClaimsSent(_)));
    let sent: Vec<_> = sent.map(|(at, _)| at.since(START)).collect();
    // The first handler shows that 300 can begin in a round trip. Of these, 250 are claimed.
    assert!(sent[1] > millis(300) && sent[9] < millis(310), "{sent:?}");
    // They arrive after a pause without work, which does not count. When the first 25 of them have begun, others are
    // claimed.
    assert!(sent[11] > millis(600) && sent[11] < millis(640), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn at_most_250_records_are_claimed_ahead_of_instant_handlers() {
    for takes in [25, 100] {
        let world = over_a_slow_network(takes, 0);
        assert!(world.deliver(orders(1_000, "succeed", 0)).await.is_empty());
        let most = world.journal.most_unbegun_since(0);
        assert!(most > takes && most <= 250, "{most} claims of work that has not begun: {takes}");
    }
}

thread_local! {
    static DECODED: Cell<usize> = const { Cell::new(0) };
}

/// A type that counts its decodings.
struct Counted;

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DECODED.set(DECODED.get() + 1);
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_runs_unprotected_is_decoded_as_it_runs() {
    let world = World::with(|builder| builder.disabled(true));
    let most_ahead = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most_ahead);
    let service = world.once.sqs(Key::message_id(), move |_: Counted| {
        DECODED.set(DECODED.get() - 1);
        seen.fetch_max(DECODED.get(), Ordering::Relaxed);
        std::future::ready(Ok::<_, Failure>(()))
    });
    let event = fifo((0..1_000).map(|i| ("a", order(&format!("{i}")))));
    assert!(invoke(&service, event, world.left(seconds(60))).await.unwrap().is_empty());
    let most_ahead = most_ahead.load(Ordering::Relaxed);
    assert!(most_ahead <= 100, "{most_ahead} were decoded and had not run");
}

#[tokio::test(start_paused = true)]
async fn records_blocked_by_a_failure_are_not_decoded_if_nothing_else_is_left() {
    let world = World::new();
    let service =
        world.once.sqs(Key::message_id(), |_: Counted| std::future::ready(Err::<(), _>(Failure::transient("no"))));
    DECODED.set(0);
    let event = fifo((0..1_000).map(|i| ("a", order(&format!("{i}")))));
    assert_eq!(invoke(&service, event, world.left(seconds(60))).await.unwrap().len(), 1_000);
    // The first chunk, and at most one more.
    assert!(DECODED.get() <= 50, "{} were decoded", DECODED.get());
}

#[tokio::test(start_paused = true)]
async fn the_next_chunk_is_claimed_while_the_last_one_works() {
    let world = World::on(4, |builder| builder);
    let service = world.service().concurrency(4);
    world.deliver_to(&service, orders(20, "succeed", 50)).await;
    assert!(world.journal.most_held() > 4);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_slow_to_settle_is_not_swamped_with_claims() {
    for concurrency in [1, 10, 1_000] {
        let latency = Some(Latency { settle_arrives: millis(200), ..Latency::default() });
        let world = World::on(Backing { batch: 10, latency, ..Backing::default() }, |builder| builder);
        let service = world.service().concurrency(concurrency);
        assert!(world.deliver_to(&service, orders(500, "succeed", 0)).await.is_empty());
        // A chunk that is not settled yet, one that is claimed ahead, and the handlers that ran in between.
        assert!(world.journal.most_held() <= 20 + concurrency.min(10), "{} held", world.journal.most_held());
    }
}

/// Returns a world whose claims take five milliseconds, and whose settles take this many.
fn over_a_slow_network(batch: usize, settle: u64) -> World {
    let latency = Some(Latency { claim: millis(5), settle: millis(settle), ..Latency::default() });
    World::on(Backing { batch, latency, ..Backing::default() }, |builder| builder)
}

#[tokio::test(start_paused = true)]
async fn a_claim_call_with_an_error_does_not_measure_the_store() {
    let world = over_a_slow_network(25, 5);
    world.store.next(Call::Claim, Fault::AccessDenied);
    assert_eq!(world.deliver(orders(100, "succeed", 0)).await, ["m0"]);
    let sent = |(at, event): (Timestamp, Event)| matches!(event, Event::ClaimsSent(_)).then(|| at.since(START));
    let times: Vec<_> = world.journal.timed().into_iter().filter_map(sent).collect();
    // The second call is the first to show that the handlers are faster than the store.
    assert_eq!(times, [0, 5, 10, 10].map(millis));
}

#[tokio::test(start_paused = true)]
async fn time_without_running_handlers_does_not_slow_the_claims() {
    let world = over_a_slow_network(25, 1_000);
    let began = tokio::time::Instant::now();
    assert!(world.deliver(orders(1_000, "succeed", 0)).await.is_empty());
    // Ten chunks wait for a second to be recorded, and then the next ones.
    assert!(began.elapsed() < seconds(6), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn outcomes_due_in_one_turn_of_the_runtime_share_a_call() {
    let world = over_a_slow_network(2, 0);
    let ended = Arc::new(Notify::new());
    let handler = move |job: Job| {
        let ended = Arc::clone(&ended);
        async move {
            if job.act == "wait" {
                ended.notified().await;
            } else {
                // A task of the runtime wakes the other one.
                tokio::spawn(async move { ended.notify_one() });
            }
            Ok::<_, Failure>(())
        }
    };
    let service = world.once.sqs(Key::pointer("/order_id"), handler).concurrency(2);
    let bodies = jobs(&[("end", 0), ("wait", 0), ("end", 0), ("wait", 0)]);
    assert!(world.deliver_to(&service, bodies).await.is_empty());
    assert_eq!(world.calls(Call::Settle), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn settles_that_are_due_while_a_call_is_under_way_share_the_next() {
    for (delay, most_calls) in [(3, 8), (30, 2)] {
        let world = World::on(100, |builder| builder);
        world.store.always(Call::Settle, Fault::Delay(millis(delay)));
        let service = world.service().concurrency(20);
        let bodies = (0..20).map(|i| work(&format!("order-{i}"), "succeed", 10 + i));
        assert!(world.deliver_to(&service, bodies).await.is_empty());
        let calls = world.calls(Call::Settle);
        assert_eq!(calls.iter().sum::<usize>(), 20);
        // The first settles immediately, alone. Each other shares a call with the settles of at least the delay before
        // it.
        assert!(calls[0] == 1 && calls.len() <= most_calls, "{calls:?}");
        assert_eq!(world.journal.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_fill_a_call_are_recorded_before_the_next_handler() {
    let world = World::new();
    let service = world.service().concurrency(1);
    assert!(world.deliver_to(&service, orders(100, "succeed", 0)).await.is_empty());
    assert_eq!(world.journal.unrecorded_at_each_beginning().into_iter().max(), Some(24));
}

#[tokio::test(start_paused = true)]
async fn throttled_settle_calls_hold_up_no_other_record() {
    let world = World::new();
    for _ in 0..4 {
        world.store.next(Call::Settle, Fault::Throttled);
    }
    let service = world.service().concurrency(2);
    assert!(world.deliver_to(&service, orders(20, "succeed", 10)).await.is_empty());
    assert_eq!((world.journal.runs().len(), world.journal.held()), (20, 0));
    let last = world.journal.runs().into_iter().filter_map(|run| run.ended).max().unwrap();
    let first = world.journal.runs()[0].began;
    assert_eq!(last.since(first), millis(100), "the handlers run on while two settles are sent again");
}

// Tests B12.
#[tokio::test(start_paused = true)]
async fn under_refuse_a_record_is_claimed_only_just_before_its_handler_starts() {
    for (takes, concurrency) in [(100, 1), (100, 3), (2, 3), (100, 40)] {
        let world = World::on(takes, |builder| builder.after_unknown(AfterUnknown::Refuse));
        let service = world.service().concurrency(concurrency);
        let bodies = (0..40).map(|i| work(&format!("order-{i}"), "succeed", 20 + 7 * (i % 5)));
        assert!(world.deliver_to(&service, bodies).await.is_empty());
        assert!(world.journal.most_open() <= concurrency, "{} open of {concurrency}", world.journal.most_open());
        assert_eq!(world.journal.most_at_once(), concurrency.min(40));
    }
}

#[tokio::test(start_paused = true)]
async fn under_refuse_claims_wait_while_more_than_a_chunk_is_unrecorded() {
    let latency = Some(Latency { settle: millis(100), ..Latency::default() });
    let backing = Backing { batch: 1, latency, ..Backing::default() };
    let world = World::on(backing, |builder| builder.after_unknown(AfterUnknown::Refuse));
    let service = world.service().concurrency(1);
    assert!(world.deliver_to(&service, orders(3, "succeed", 10)).await.is_empty());
    let began: Vec<_> = world.journal.beginnings().into_iter().map(|at| at.since(START)).collect();
    assert_eq!(began, [0, 10, 110].map(millis), "two are unrecorded until the first call returns");
}

// Tests B12, P17.
#[tokio::test(start_paused = true)]
async fn under_refuse_a_cancelled_batch_abandons_only_the_running_records() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    let service = world.service().concurrency(2);
    let context = world.left(seconds(10));
    assert_eq!(invoke(&service, batch(orders(12, "hang", 0)), context).await.unwrap(), ids(0..12));
    assert_eq!(world.records().await.len(), 2);
    assert_eq!(world.journal.releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_messages_are_handled_in_one_invocation() {
    let world = World::new();
    let service = world.service().concurrency(100);
    assert!(world.deliver_to(&service, orders(10_000, "succeed", 10)).await.is_empty());
    assert_eq!(world.journal.times_run().len(), 10_000);
}
