//! Handlers that never yield do not delay recording the outcomes of others.

use lambda_once::{
    BoxError, Failure, Key, MissingKey, OutcomeKind,
    batch::{BatchService, Handler, RecordInfo, sqs::Sqs},
    store::fault::Call,
};

use crate::{
    support::clock::block,
    world::{
        Backing, Event, Job, Latency, START, World, batch, fifo, jobs, millis, order, orders, reported, seconds, work,
    },
};

/// Asserts that an execution environment that died at any moment of the invocation would have lost the outcomes of at
/// most one run besides those in progress.
fn assert_one_run_behind(world: &World, runs: usize) {
    let unrecorded = world.journal.unrecorded_at_each_beginning();
    assert_eq!(unrecorded.len(), runs);
    let most = unrecorded.iter().max();
    assert!(most <= Some(&1), "runs that had returned unrecorded when another began: {unrecorded:?}");
}

// Tests P16.
#[tokio::test(start_paused = true)]
async fn a_completion_is_recorded_before_the_second_handler_after_it_begins() {
    for concurrency in [1, 10] {
        for time in [3, 50, 400] {
            let world = World::over_a_network();
            let service = world.service().concurrency(concurrency);
            let processed = world.process(&service, batch(orders(20, "block", time))).await;
            assert!(reported(&processed).is_empty());
            assert_one_run_behind(&world, 20);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_does_not_wait_for_a_settle_call_in_flight() {
    for concurrency in [1, 10] {
        let latency = Latency { claim: millis(5), settle: millis(100), ..Latency::default() };
        let world = World::on(latency, |builder| builder);
        let service = world.service().concurrency(concurrency);
        let processed = world.process(&service, batch(orders(20, "block", 5))).await;
        assert!(reported(&processed).is_empty());
        assert_one_run_behind(&world, 20);
    }
}

#[tokio::test(start_paused = true)]
async fn completions_due_during_a_settle_call_are_recorded_in_time() {
    let latency = Some(Latency { claim: millis(10), settle: millis(100), ..Latency::default() });
    let world = World::on(Backing { batch: 3, latency, ..Backing::default() }, |builder| builder);
    // The second and the third end while the first is being recorded, and the last is claimed later.
    let acts = [("succeed", 1), ("succeed", 2), ("succeed", 3), ("block", 50)];
    let processed = world.process(&world.service(), batch(jobs(&acts))).await;
    assert!(reported(&processed).is_empty());
    assert_one_run_behind(&world, 4);
}

#[tokio::test(start_paused = true)]
async fn completions_that_fill_a_call_are_recorded_in_time() {
    let latency = Some(Latency { claim: millis(5), ..Latency::default() });
    let world = World::on(Backing { batch: 2, latency, ..Backing::default() }, |builder| builder);
    // All are claimed at the beginning, because their handlers are expected to be fast.
    let service = world.service().expected_duration(millis(1));
    let processed = world.process(&service, batch(orders(8, "block", 3))).await;
    assert!(reported(&processed).is_empty());
    assert_one_run_behind(&world, 8);
}

#[tokio::test(start_paused = true)]
async fn a_completion_waits_two_milliseconds_at_most_for_others() {
    let world = World::over_a_network();
    let processed = world.process(&world.service(), batch(orders(20, "block", 1))).await;
    assert!(reported(&processed).is_empty());
    assert_eq!(world.calls(Call::Settle), [4; 5], "the first of each call is due for 3 ms before a fifth begins");
}

#[tokio::test(start_paused = true)]
async fn after_slow_decoding_a_claim_is_sent_before_a_handler_blocks() {
    let world = World::on(Latency::default(), |builder| builder.missing_key(MissingKey::RunUnprotected));
    let decode = |_: &RecordInfo, body: &String| {
        block(millis(3));
        Ok::<Job, BoxError>(serde_json::from_str(body)?)
    };
    let service = world.once.batch(Sqs, Key::pointer("/order_id"), decode, world.handler());
    let processed = world.process(&service, batch([order("A"), work("", "block", 50)])).await;
    assert!(reported(&processed).is_empty());
    let granted = world.journal.timed().into_iter().find(|(_, event)| matches!(event, Event::Granted(_)));
    assert_eq!(granted.map(|(at, _)| at), Some(START.after(millis(6))));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_blocks_in_each_poll_keeps_no_other_from_beginning() {
    let world = World::on(Latency { settle: seconds(1), ..Latency::default() }, |builder| builder);
    let journal = world.journal.clone();
    let handler = move |job: Job| {
        let journal = journal.clone();
        async move {
            for _ in 0..job.ms {
                block(millis(3));
                tokio::task::yield_now().await;
            }
            journal.ran(job.order_id);
            Ok::<_, Failure>(())
        }
    };
    let service = world.once.sqs(Key::pointer("/order_id"), handler).concurrency(2);
    // The third begins beside the second, while the first is being recorded.
    let processed = world.process(&service, batch([work("A", "", 0), work("B", "", 100), work("C", "", 0)])).await;
    assert!(reported(&processed).is_empty());
    assert_eq!(world.journal.keys(), ["A", "C", "B"]);
}

#[tokio::test(start_paused = true)]
async fn in_a_group_and_among_groups_completions_are_one_run_behind_too() {
    let world = World::over_a_network();
    let groups = ["a", "a", "b", "a", "c", "b", "b", "a", "c", "a"];
    let event = fifo(groups.into_iter().zip(orders(groups.len(), "block", 20)));
    assert!(reported(&world.process(&world.service(), event).await).is_empty());
    assert_one_run_behind(&world, groups.len());
}

// Tests P16.
#[tokio::test(start_paused = true)]
async fn a_killed_environment_loses_the_record_of_at_most_one_run() {
    for killed_in in 0..20 {
        let world = World::over_a_network();
        let service = world.service().concurrency(1);
        world.process_and_die(&service, batch(orders(20, "block", 5)), killed_in).await;
        let before = world.journal.beginnings().len();
        assert_eq!(before, killed_in + 1);
        let again = world.process(&service, batch(orders(20, "block", 5))).await;
        assert!(reported(&again).is_empty());
        let replayed = again.records.iter().filter(|report| report.outcome == Ok(OutcomeKind::Replayed)).count();
        assert!(replayed + 1 >= killed_in, "killed in run {killed_in}, {replayed} of those before it are replayed");
        let ran_again = world.journal.beginnings().len() - before;
        assert_eq!(ran_again + replayed, 20);
    }
}

/// Delivers `n` orders with instant handlers, and returns the number of settle calls.
async fn settle_calls<H, T, Args>(world: &World, service: &BatchService<Sqs, H, T, Args>, n: usize) -> usize
where
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    let processed = world.process(service, batch(orders(n, "succeed", 0))).await;
    assert!(reported(&processed).is_empty());
    let recorded = world.journal.events().into_iter().filter(|event| matches!(event, Event::Recorded(_))).count();
    assert_eq!(recorded, n);
    world.journal.count(|event| event == Event::SettlesArrived)
}

/// Asserts that instant handlers share their settle calls, on a store with this latency.
async fn assert_shared(latency: Latency) {
    for n in [1, 10, 25, 100, 1_000] {
        for concurrency in [1, 10, 100] {
            let world = World::on(latency, |builder| builder);
            let calls = settle_calls(&world, &world.service().concurrency(concurrency), n).await;
            let most = n.div_ceil(25) + 1;
            assert!(calls <= most, "{n} records, {concurrency} at once: {calls} calls, not {most}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn completions_of_instant_handlers_share_their_settle_calls() {
    assert_shared(Latency::default()).await;
}

#[tokio::test(start_paused = true)]
async fn completions_of_instant_handlers_share_slow_settle_calls() {
    assert_shared(Latency { claim: millis(5), settle: millis(5), ..Latency::default() }).await;
}

#[tokio::test]
async fn a_completion_is_recorded_in_time_when_handlers_block_their_thread() {
    for concurrency in [1, 10] {
        let latency = Latency { claim: millis(3), settle: millis(20), ..Latency::default() };
        let world = World::on(latency, |builder| builder).in_real_time();
        let service = world.service().concurrency(concurrency);
        let processed = world.process(&service, batch(orders(20, "block", 5))).await;
        assert!(reported(&processed).is_empty());
        assert_one_run_behind(&world, 20);
    }
}
