//! A handler begins only if it can end before the handler deadline, even if earlier ones blocked the thread.

use lambda_once::{Failure, Key, OutcomeKind, batch::bulk, clock::Clock, record::Status};

use crate::{
    support::clock::block,
    world::{Event, Job, Latency, START, World, batch, fifo, ids, jobs, millis, orders, reported, seconds},
};

/// Asserts that the first `ran` records ran and are recorded, and that the others were not started and are free.
async fn assert_only_the_first_ran<R>(world: &World, processed: &lambda_once::batch::Processed<R>, ran: usize) {
    assert_eq!(world.journal.beginnings().len(), ran);
    for (i, report) in processed.records.iter().enumerate() {
        let expected = if i < ran { OutcomeKind::Executed } else { OutcomeKind::NotStarted };
        assert_eq!(report.outcome, Ok(expected), "record {i}");
        let record = world.read(report.key.unwrap()).await;
        let expected = (i < ran).then_some(Status::Completed);
        assert_eq!(record.map(|record| record.status), expected, "record {i}: what was not started is free");
    }
}

// Tests B5.
#[tokio::test(start_paused = true)]
async fn a_second_handler_does_not_begin_if_the_first_has_used_its_time_up() {
    for latency in [Latency::default(), Latency { claim: millis(5), settle: millis(5), ..Latency::default() }] {
        let world = World::on(latency, |builder| builder);
        let service = world.service().concurrency(10);
        let processed = world.process_within(&service, batch(orders(10, "block", 1_600)), seconds(3)).await;
        assert!(world.clock.now() < START.after(seconds(3)), "answered at {:?}", world.clock.now().since(START));
        assert_eq!(reported(&processed), ids(1..10));
        assert_only_the_first_ran(&world, &processed, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_blocks_begins_if_another_like_the_longest_still_fits() {
    // The handler deadline is at 2.5 s. The second handler ends at 1.8 s, and a third would end at 2.7 s.
    let world = World::over_a_network();
    let processed = world.process_within(&world.service(), batch(orders(10, "block", 900)), seconds(3)).await;
    assert_eq!(reported(&processed), ids(2..10));
    assert_only_the_first_ran(&world, &processed, 2).await;
    assert_eq!(world.clock.now(), START.after(millis(1_800)));
}

// Tests B5.
#[tokio::test(start_paused = true)]
async fn an_expected_duration_is_checked_at_the_first_poll_too() {
    let world = World::over_a_network();
    let service = world.service().expected_duration(millis(1_000));
    let processed = world.process_within(&service, batch(orders(10, "block", 1_600)), seconds(3)).await;
    assert_eq!(reported(&processed), ids(1..10));
    assert_only_the_first_ran(&world, &processed, 1).await;
}

/// The first one's second poll comes before the second one's first, which was to begin by 1.5 s.
// Tests B5.
#[tokio::test(start_paused = true)]
async fn a_handler_does_not_begin_too_late_after_one_that_woke_itself() {
    let world = World::new();
    let service = world.service().concurrency(2).expected_duration(millis(1_000));
    let acts = [("wake itself, then block", 1_600), ("succeed", 0)];
    let processed = world.process_within(&service, batch(jobs(&acts)), seconds(3)).await;
    assert_eq!(reported(&processed), ids(1..2));
    assert_only_the_first_ran(&world, &processed, 1).await;
}

#[tokio::test(start_paused = true)]
async fn heads_of_groups_claimed_side_by_side_do_not_begin_too_late() {
    let world = World::over_a_network();
    let groups = ["a", "b", "c", "d", "e", "f"];
    let event = fifo(groups.into_iter().zip(orders(groups.len(), "block", 1_600)));
    let processed = world.process_within(&world.service(), event, seconds(3)).await;
    assert!(world.clock.now() < START.after(seconds(3)));
    assert_only_the_first_ran(&world, &processed, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_bulk_call_does_not_begin_too_late() {
    let world = World::over_a_network();
    let events = world.journal.clone();
    let once = world.once.clone();
    let service = once.sqs(
        Key::pointer("/order_id"),
        bulk(2, move |jobs: Vec<Job>, contexts: Vec<lambda_once::RecordContext>| {
            let events = events.clone();
            async move {
                contexts.iter().for_each(|context| events.note(Event::Began(context.claim().unwrap().key())));
                block(millis(1_600));
                jobs.into_iter().map(|_| Ok::<_, Failure>(())).collect::<Vec<_>>()
            }
        }),
    );
    let processed = world.process_within(&service, batch(orders(10, "", 0)), seconds(3)).await;
    assert!(world.clock.now() < START.after(seconds(3)));
    assert_only_the_first_ran(&world, &processed, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_blocks_in_a_later_poll_keeps_others_from_beginning() {
    let world = World::over_a_network();
    let mut acts = [("succeed", 100); 6];
    acts[0] = ("sleep, then block", 2_300);
    let service = world.service().concurrency(2);
    let processed = world.process_within(&service, batch(jobs(&acts)), seconds(3)).await;
    assert!(world.clock.now() < START.after(seconds(3)));
    // The block ends at 2.35 s. A handler that takes as long as it, or 0.1 s like the second, ends too late or nearly
    // so.
    let began_late = world.journal.beginnings().into_iter().filter(|at| *at > START.after(millis(2_300))).count();
    assert_eq!(began_late, 0);
    assert_eq!(reported(&processed), ids(2..6));
}

#[tokio::test]
async fn handlers_that_put_their_thread_to_sleep_do_not_begin_too_late() {
    let latency = Latency { claim: millis(3), settle: millis(3), ..Latency::default() };
    let world = World::on(latency, |builder| builder.reserve(millis(400))).in_real_time();
    let processed = world.process_within(&world.service(), batch(orders(10, "block", 600)), millis(1_500)).await;
    assert!(world.clock.now() < START.after(millis(1_500)), "answered at {:?}", world.clock.now().since(START));
    assert_eq!(reported(&processed), ids(1..10));
    assert_only_the_first_ran(&world, &processed, 1).await;
}
