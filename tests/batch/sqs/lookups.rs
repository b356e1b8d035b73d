//! Batches with many completed records. Those behind the first ones are looked up before they are claimed (B12).

use std::time::Duration;

use lambda_once::{AfterUnknown, record::Status, store::fault::Call};
use tokio::time::Instant;

use crate::world::{Event, Latency, World, fifo, ids, invoke, millis, order, orders, seconds, work};

/// The duration of a request.
const REQUEST: Duration = millis(5);

/// Returns a world whose claims take this many requests each.
fn world(requests_in_a_claim: u32, policy: AfterUnknown) -> World {
    let latency =
        Latency { claim: REQUEST * requests_in_a_claim, settle: REQUEST, read: REQUEST, ..Latency::default() };
    World::on(latency, |builder| builder.after_unknown(policy))
}

/// Returns a world like DynamoDB, on which a claim that finds records takes a second request to read them.
fn world_with_done(done: impl IntoIterator<Item = usize>) -> World {
    let world = world(2, AfterUnknown::Rerun);
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
    assert_eq!((claims.iter().sum::<usize>(), world.journal.keys().len()), (25 + 38, 50));
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
