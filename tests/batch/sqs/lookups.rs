//! Batches with many completed records. Those behind the first ones are looked up before they are claimed (B12).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    AfterUnknown, BoxError, Failure, Key,
    batch::{RecordInfo, sqs::Sqs},
    record::Status,
    store::fault::Call,
};
use tokio::time::Instant;

use crate::world::{Backing, Event, Job, Latency, World, fifo, ids, invoke, millis, order, orders, seconds, work};

/// The duration of a request.
const REQUEST: Duration = millis(5);

/// Returns the latency of a store on which claims take this many requests each.
fn latency(requests_in_a_claim: u32) -> Latency {
    Latency { claim: REQUEST * requests_in_a_claim, settle: REQUEST, read: REQUEST, ..Latency::default() }
}

fn world(requests_in_a_claim: u32, policy: AfterUnknown) -> World {
    World::on(latency(requests_in_a_claim), |builder| builder.after_unknown(policy))
}

/// Returns a world like DynamoDB, on which a claim that finds records takes a second request to read them.
fn world_with_done(done: impl IntoIterator<Item = usize>) -> World {
    world_in_calls_of(25, done)
}

/// Returns the same world with a store that takes up to `batch` requests in a call.
fn world_in_calls_of(batch: usize, done: impl IntoIterator<Item = usize>) -> World {
    let world = World::on(Backing { batch, latency: Some(latency(2)), ..Backing::default() }, |builder| builder);
    done.into_iter().for_each(|i| world.put(&format!("order-{i}"), Status::Completed, "1"));
    world
}

/// Returns the number of records in each lookup.
fn lookups(world: &World) -> Vec<usize> {
    let read = |event| if let Event::ReadArrived(keys) = event { Some(keys) } else { None };
    world.journal.events().into_iter().filter_map(read).collect()
}

async fn time_of(world: &World, records: usize, ms: u64) -> Duration {
    let begun = Instant::now();
    assert!(world.deliver(orders(records, "succeed", ms)).await.is_empty());
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_duplicates_takes_1_5_times_as_long_as_a_new_one_at_most() {
    let of_new = time_of(&world(1, AfterUnknown::Rerun), 100, 0).await;
    let world = world_with_done(0..100);
    let of_duplicates = time_of(&world, 100, 0).await;
    assert!(2 * of_duplicates <= 3 * of_new, "{of_duplicates:?}, and {of_new:?} for new records");
    // Two requests for the claim, and one per lookup. Claims alone would take eight.
    assert_eq!((world.calls(Call::Claim), lookups(&world)), (vec![25], vec![25, 25, 25]));
    assert!(world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn lookups_beside_slow_handlers_make_no_more_claims_stand() {
    let world = world_with_done((0..100).filter(|i| i % 2 == 0));
    assert!(time_of(&world, 100, 50).await <= millis(6 * 50), "five rounds of ten handlers");
    assert!(world.journal.most_open() <= 10 + 25, "{} open", world.journal.most_open());
    let (claims, lookups) = (world.calls(Call::Claim), lookups(&world));
    assert_eq!(claims.iter().sum::<usize>(), 25 + 38);
    let in_the_order_of_the_event: Vec<_> = (0..50).map(|i| format!("order-{}", 2 * i + 1)).collect();
    assert_eq!(world.journal.keys(), in_the_order_of_the_event);
    // A claim of records that were looked up finds none, and takes one request.
    assert!(2 + claims[1..].len() + lookups.len() <= 8, "{claims:?} and {lookups:?}");
}

#[tokio::test(start_paused = true)]
async fn under_refuse_duplicates_are_not_claimed_one_by_one() {
    let world = world(1, AfterUnknown::Refuse);
    (0..100).for_each(|i| world.put(&format!("order-{i}"), Status::Completed, "1"));
    assert!(time_of(&world, 100, 0).await <= 6 * REQUEST);
    assert_eq!((world.calls(Call::Claim), lookups(&world)), (vec![1, 1, 1], vec![25, 25, 25, 22]));
}

#[tokio::test(start_paused = true)]
async fn records_are_no_longer_looked_up_once_most_of_them_are_new() {
    let world = world_with_done(0..25);
    assert!(world.deliver(orders(100, "succeed", 50)).await.is_empty());
    assert_eq!((world.calls(Call::Claim), lookups(&world)), (vec![25; 4], vec![25]));
    assert_eq!(world.journal.keys().len(), 75);
}

#[tokio::test(start_paused = true)]
async fn no_record_is_looked_up_while_claims_run_far_ahead() {
    let world = world_with_done((0..600).filter(|i| i % 2 == 0));
    assert!(world.deliver(orders(600, "succeed", 0)).await.is_empty());
    assert_eq!(lookups(&world), [25], "before the first handlers proved fast");
}

#[tokio::test(start_paused = true)]
async fn lookups_continue_beside_claims_while_a_third_of_the_records_are_done() {
    // Of each `every` records, the first `done` are done.
    for (batch, every, done, records, claimed) in [(5, 5, 4, 200, 5 + 39), (24, 3, 1, 96, 24 + 48)] {
        let world = world_in_calls_of(batch, (0..records).filter(|i| i % every < done));
        assert!(world.deliver(orders(records, "succeed", 50)).await.is_empty());
        assert_eq!(lookups(&world), vec![batch; records / batch - 1]);
        assert_eq!(world.calls(Call::Claim).iter().sum::<usize>(), claimed, "new records, and the first call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_waits_for_no_more_records_than_it_reads() {
    let world = world_with_done(0..100);
    let (journal, lookups_before) = (world.journal.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&lookups_before);
    let decode = move |_: &RecordInfo, body: &String| {
        noted.lock().unwrap().push(journal.count(|event| event == Event::ReadAnswered));
        serde_json::from_str::<Job>(body).map_err(BoxError::from)
    };
    let handler = |_: Job| async { Ok::<_, Failure>(()) };
    let service = world.once.batch(Sqs, Key::pointer("/order_id"), decode, handler);
    assert_eq!(world.deliver_to(&service, orders(100, "succeed", 0)).await, [""; 0]);
    // Those of the first claim and the first lookup, and then those of two lookups.
    assert_eq!(*lookups_before.lock().unwrap(), [[0_usize; 50], [1; 50]].concat());
}

#[tokio::test(start_paused = true)]
async fn at_most_a_hundred_records_wait_for_a_lookup_or_a_handler() {
    let world = world_in_calls_of(100, (0..300).filter(|i| i % 2 == 0));
    assert!(world.deliver(orders(300, "succeed", 50)).await.is_empty());
    assert_eq!((world.calls(Call::Claim)[0], lookups(&world)[0]), (100, 50), "fifty are claimed and not done");
}

// Tests B12.
#[tokio::test(start_paused = true)]
async fn a_cached_outcome_is_not_looked_up() {
    let world = World::new();
    (0..100).for_each(|i| world.put(&format!("order-{i}"), Status::Completed, "1"));
    assert!(world.deliver(orders(100, "succeed", 0)).await.is_empty());
    assert_eq!((world.calls(Call::Claim), lookups(&world)), (vec![25; 4], vec![]));
}

// Tests B12.
#[tokio::test(start_paused = true)]
async fn a_record_that_a_lookup_does_not_decide_is_claimed() {
    let world = world_with_done((0..100).filter(|i| ![40, 60].contains(i)));
    world.abandon("order-40");
    world.put("order-60", Status::InProgress, "");
    let service = world.service();
    let mut bodies = orders(100, "succeed", 0);
    bodies[80] = work("order-80", "fail", 1);
    bodies[81] = bodies[40].clone();
    world.memory.insert(world.hash("order-80"), world.record("order-80").await.unwrap());
    let processed = world.process(&service, crate::world::batch(bodies)).await;
    let outcome = |i: usize| format!("{:?}", processed.records[i].outcome);
    assert_eq!([outcome(40), outcome(60), outcome(81)], ["Ok(TookOver)", "Ok(InProgress)", "Ok(Replayed)"]);
    assert_eq!(world.journal.keys(), ["order-40"]);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_finds_other_payloads_and_failures_as_a_claim_does() {
    let world = world(2, AfterUnknown::Rerun);
    let mut bodies = orders(100, "succeed", 0);
    bodies[70] = work("order-70", "permanent", 0);
    assert_eq!(world.deliver(bodies.clone()).await, ["m70"]);
    bodies[80] = work("order-80", "succeed", 1);
    let processed = world.process(&world.service(), crate::world::batch(bodies)).await;
    assert_eq!(lookups(&world), [25, 25, 25]);
    assert_eq!(world.calls(Call::Claim), [25; 5], "records that a lookup decides are not claimed");
    let outcome = |i: usize| format!("{:?}", processed.records[i].outcome);
    assert_eq!([outcome(70), outcome(80), outcome(90)], ["Ok(ReplayedFailure)", "Ok(Mismatch)", "Ok(Replayed)"]);
}

#[tokio::test(start_paused = true)]
async fn records_that_were_looked_up_run_in_their_order() {
    let world = world_with_done((0..90).filter(|i| i % 3 != 2));
    let event = fifo((0..90).map(|i| (["a", "b"][i % 2], work(&format!("order-{i}"), "succeed", 10))));
    assert_eq!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap(), ids(0..0));
    assert!(!lookups(&world).is_empty());
    for group in 0..2 {
        let due: Vec<String> = (0..90).filter(|i| i % 3 == 2 && i % 2 == group).map(|i| format!("order-{i}")).collect();
        let ran: Vec<String> = world.journal.keys().into_iter().filter(|key| due.contains(key)).collect();
        assert_eq!(ran, due);
    }
    assert_eq!(world.journal.keys().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_failure_blocks_records_that_were_looked_up_behind_it() {
    let world = world_with_done(0..25);
    (30..60).for_each(|i| world.put(&format!("order-{i}"), Status::Completed, "1"));
    let act = |i| if i == 27 { "transient" } else { "succeed" };
    let event = fifo((0..60).map(|i| ("a", work(&format!("order-{i}"), act(i), 10))));
    assert_eq!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap(), ids(27..60));
    assert_eq!(world.journal.keys(), ["order-25", "order-26", "order-27"]);
    assert_eq!(world.journal.held(), 0);
    assert!(world.deliver([order("order-28")]).await.is_empty(), "its claim was released");
}
