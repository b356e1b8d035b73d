//! Handlers that never yield do not delay recording the outcomes of others.

use lambda_once::{
    OutcomeKind,
    batch::{BatchService, Handler, sqs::Sqs},
};

use crate::world::{Event, Latency, World, batch, fifo, millis, orders, reported};

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
