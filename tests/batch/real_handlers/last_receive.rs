//! The last receive of a message that hangs, or that an earlier run left abandoned. The messages behind it do not go to
//! the dead-letter queue with it.

use std::time::Duration;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    AfterUnknown, Interruption, Key, OutcomeKind,
    batch::Processed,
    clock::{Clock, Timestamp},
    record::Status,
};
use serde_json::Value;

use crate::{
    sources::{
        kinesis,
        streams::{SHARD, Stream, checkpoint},
    },
    sqs::dead_letters::{Act, Letters, dead_lettered},
    world::{ALL_DONE, START, World, batch, fifo, ids, millis, order, reported, seconds, work},
};

/// The receive count of each message.
const RECEIVES: u32 = 3;

const CUT_OFF: OutcomeKind = OutcomeKind::Interrupted(Interruption::Cancelled);

fn group<const N: usize>(bodies: [Value; N]) -> SqsEvent {
    fifo(bodies.map(|body| ("a", body)))
}

/// Delivers an event on its last receive, with a minute left and this `last_attempt_timeout`, and returns the world
/// and the DLQ messages.
async fn last(
    last_attempt_timeout: Option<Duration>,
    event: SqsEvent,
) -> (World, Letters, Processed<SqsBatchResponse>) {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone()).max_receive_count(RECEIVES);
    let processed = match last_attempt_timeout {
        Some(last_attempt_timeout) => world.process(&service.last_attempt_timeout(last_attempt_timeout), event).await,
        None => world.process(&service, event).await,
    };
    (world, letters, processed)
}

/// Returns the time from the beginning of the test to the end of the run at this place.
fn ended(world: &World, run: usize) -> Duration {
    world.journal.runs()[run].ended.unwrap().since(START)
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn a_hung_head_is_cancelled_after_its_timeout_and_the_rest_run_in_order() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let (world, letters) = (World::with(|builder| builder.after_unknown(policy)), Letters::new());
        let service = world.service().dead_letters(letters.clone()).max_receive_count(RECEIVES);
        let event = group([work("A", "hang", 0), work("B", "succeed", 100), order("C")]);
        let processed = world.process(&service.last_attempt_timeout(seconds(5)), event).await;
        assert_eq!((reported(&processed), dead_lettered(&processed)), (vec![], ids(0..1)), "{policy:?}");
        assert_eq!(world.journal.keys(), ["A", "B", "C"]);
        assert_eq!(ended(&world, 0), seconds(5));
        let runs = world.journal.runs();
        assert!(runs[1].began >= START.after(seconds(5)) && runs[2].began >= runs[1].ended.unwrap());
        assert!(world.clock.now() < START.after(seconds(6)));
        assert_eq!(world.status("A").await, Some(Status::InProgress), "nobody knows what it did: its claim is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn the_dlq_message_of_a_cancelled_head_has_the_reason_cancelled() {
    let event = group([work("A", "hang", 0), order("B")]);
    let (_, letters, processed) = last(Some(seconds(5)), event).await;
    assert_eq!(processed.outcomes(), [Ok(CUT_OFF), Ok(OutcomeKind::Executed)]);
    let sent: Vec<_> = letters.sent().into_iter().map(|letter| (letter.id, letter.outcome, letter.reason)).collect();
    assert_eq!(sent, [("m0".to_owned(), Ok(CUT_OFF), "cancelled")]);
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn by_default_a_head_is_cancelled_after_half_of_its_remaining_time() {
    let event = group([work("A", "succeed", 10_000), work("B", "hang", 0), order("C")]);
    let (world, letters, processed) = last(None, event).await;
    assert_eq!((reported(&processed), letters.ids()), (vec![], ids(1..2)));
    assert_eq!(world.journal.keys(), ["A", "B", "C"]);
    // 50 s are left at that time, of which the reserve takes 2 s.
    let ran = ended(&world, 1) - seconds(10);
    assert!((seconds(24)..=seconds(25)).contains(&ran), "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn consecutive_hung_heads_are_cancelled_one_after_the_other() {
    let event = group([work("A", "hang", 0), work("B", "hang", 0), order("C"), order("D")]);
    let (world, letters, processed) = last(Some(seconds(5)), event).await;
    assert_eq!((reported(&processed), letters.ids()), (vec![], ids(0..2)));
    assert_eq!((ended(&world, 0), ended(&world, 1)), (seconds(5), seconds(10)));
    assert_eq!(world.journal.keys(), ["A", "B", "C", "D"]);
}

#[tokio::test(start_paused = true)]
async fn the_timeouts_of_several_groups_run_side_by_side() {
    let bodies = [("a", work("A", "hang", 0)), ("b", work("B", "hang", 0)), ("a", order("C")), ("b", order("D"))];
    let (world, letters, processed) = last(Some(seconds(5)), fifo(bodies)).await;
    assert!(reported(&processed).is_empty());
    assert_eq!(letters.ids().len(), 2);
    assert!(world.clock.now() < START.after(seconds(6)), "{:?}", world.clock.now().since(START));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_returns_within_its_timeout_has_its_own_outcome() {
    let event = group([work("A", "succeed", 4_900), order("B")]);
    let (world, letters, processed) = last(Some(seconds(5)), event).await;
    assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Executed); 2]);
    assert!(letters.ids().is_empty());
    assert_eq!(world.status("A").await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_others_behind_it_has_all_the_time_there_is() {
    let slow = || work("A", "succeed", 40_000);
    let events = [
        group([slow()]),
        group([order("B"), slow()]),
        fifo([("a", slow()), ("b", order("B"))]),
        batch([slow(), order("B")]),
    ];
    for last_attempt_timeout in [Some(seconds(5)), None] {
        for event in &events {
            let (_, letters, processed) = last(last_attempt_timeout, event.clone()).await;
            assert!(processed.outcomes().into_iter().all(|outcome| outcome == Ok(OutcomeKind::Executed)));
            assert!(letters.ids().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_head_with_none_behind_it_is_cancelled_at_the_handler_deadline() {
    let (world, letters, processed) = last(Some(seconds(5)), group([work("A", "hang", 0)])).await;
    assert_eq!(processed.outcomes(), [Ok(CUT_OFF)]);
    assert!(reported(&processed) == ids(0..1) || letters.ids() == ids(0..1), "it is not lost");
    assert_eq!(ended(&world, 0), seconds(58));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_would_not_be_dead_lettered_has_all_the_time_there_is() {
    let event = || group([work("A", "succeed", 10_000), order("B")]);
    let world = World::new();
    let service = || world.service().last_attempt_timeout(seconds(5));
    let services = [
        service().dead_letters(Letters::new()).max_receive_count(RECEIVES + 1),
        service().dead_letters(Letters::new()),
        service().max_receive_count(RECEIVES),
    ];
    for (i, service) in services.iter().enumerate() {
        world.memory.remove(&world.hash("A"));
        world.memory.remove(&world.hash("B"));
        let processed = world.process(service, event()).await;
        assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Executed); 2], "service {i}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_that_cannot_be_dead_lettered_blocks_those_behind_it() {
    for act in [Act::Refuse, Act::Panic] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service =
            world.service().dead_letters(letters).max_receive_count(RECEIVES).last_attempt_timeout(seconds(5));
        let processed = world.process(&service, group([work("A", "hang", 0), order("B")])).await;
        assert_eq!(reported(&processed), ids(0..2), "{act:?}");
        assert_eq!(processed.outcomes(), [Ok(CUT_OFF), Ok(OutcomeKind::Skipped)]);
        assert_eq!((world.journal.keys(), ended(&world, 0)), (vec!["A".to_owned()], seconds(5)));
        assert_eq!((world.status("A").await, world.record("B").await), (Some(Status::InProgress), None));
    }
}

fn refusing() -> World {
    World::with(|builder| builder.after_unknown(AfterUnknown::Refuse))
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn an_abandoned_head_is_dead_lettered_on_its_last_receive_and_others_run() {
    let (world, letters) = (refusing(), Letters::new());
    world.abandon("A");
    let before = world.record("A").await;
    let service = world.service().dead_letters(letters.clone()).max_receive_count(RECEIVES);
    let processed = world.process(&service, group([order("A"), order("B"), order("C")])).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (vec![], ids(0..1)));
    let sent: Vec<_> = letters.sent().into_iter().map(|letter| (letter.outcome, letter.reason)).collect();
    assert_eq!(sent, [(Ok(OutcomeKind::Abandoned), "abandoned")]);
    assert_eq!(world.journal.keys(), ["B", "C"]);
    assert_eq!(world.record("A").await, before, "only an operator frees it");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_head_that_is_not_on_its_last_receive_is_reported() {
    let (world, letters) = (refusing(), Letters::new());
    world.abandon("A");
    for service in [
        world.service().dead_letters(letters.clone()).max_receive_count(RECEIVES + 1),
        world.service().dead_letters(letters.clone()),
        world.service().max_receive_count(RECEIVES),
    ] {
        let processed = world.process(&service, group([order("A"), order("B")])).await;
        assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Abandoned), Ok(OutcomeKind::Skipped)]);
        assert_eq!(reported(&processed), ids(0..2));
    }
    assert!(letters.ids().is_empty());
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn abandoned_messages_are_dead_lettered_in_any_receive_by_choice() {
    for chosen in [false, true] {
        for event in [batch([order("A"), order("B")]), group([order("A"), order("B")])] {
            let (world, letters) = (refusing(), Letters::new());
            world.abandon("A");
            let service = world.service().dead_letters(letters.clone()).dead_letter_abandoned(chosen);
            let processed = world.process(&service, event).await;
            assert_eq!(processed.records[0].outcome, Ok(OutcomeKind::Abandoned));
            let expected = if chosen { (false, ids(0..1)) } else { (true, vec![]) };
            assert_eq!((processed.records[0].reported, letters.ids()), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_abandoned_messages_are_always_reported() {
    let world = refusing();
    world.abandon("A");
    let processed = world.process(&world.service().dead_letter_abandoned(true), batch([order("A")])).await;
    assert_eq!(reported(&processed), ids(0..1));
}

/// Delivers a shard's records to an engine that refuses takeovers, after an invocation whose second record hung.
/// Returns the response, the records that ran, and the DLQ messages.
async fn abandoned_in_a_shard(dead_letter: bool) -> (String, Vec<String>, Vec<String>) {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    let letters = Letters::new();
    let kinesis = world.once.kinesis(Key::message_id(), world.handler());
    let service = kinesis.dead_letters(letters.clone()).dead_letter_abandoned(dead_letter);
    let records = [order("0"), work("1", "hang once", 0), order("2"), order("3")].map(|job| ("a", job));
    let event = crate::sources::streams::Kinesis::event(0, &records);
    let first = world.invoke(&service, &event, seconds(SHARD.seconds_left)).await.unwrap();
    assert_eq!((first, letters.ids()), (checkpoint(1), vec![]), "what hangs is not abandoned yet");
    // Two seconds of reserve, one after the deadline, the margin, and a little more.
    tokio::time::advance(millis(4_100)).await;
    let lapsed: Timestamp = world.clock.now();
    let answer = world.invoke(&service, &event, seconds(SHARD.seconds_left)).await.unwrap();
    assert!(world.clock.now().since(lapsed) < seconds(1), "nothing is waited for");
    (answer, world.journal.keys(), letters.ids())
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_record_stops_its_shard_by_default() {
    let (answer, ran, letters) = abandoned_in_a_shard(false).await;
    assert_eq!(answer, checkpoint(1));
    assert_eq!((ran, letters), (vec!["0".to_owned(), "1".to_owned()], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_shard_continues_behind_a_dead_lettered_abandoned_record() {
    let (answer, ran, letters) = abandoned_in_a_shard(true).await;
    assert_eq!(answer, ALL_DONE);
    assert_eq!(ran, ["0", "1", "2", "3"]);
    assert_eq!(letters, [kinesis::event_id(1)]);
}
