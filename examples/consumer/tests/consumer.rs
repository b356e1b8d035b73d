//! The consumer as a process that is killed, stopped and overtaken.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test panics, and its modules are its own")]

mod support;

use std::time::Duration;

use support::World;
use tokio::time::sleep;

/// The orders that are added before each kill. With a debit of 20 ms, eight at a time, they take at least 375 ms.
const ORDERS: usize = 150;

/// The orders that the producer sends twice, one in ten.
const DUPLICATES: usize = 10;

fn order(id: &str) -> String {
    format!(r#"{{"id":"{id}","account":"17","cents":1999}}"#)
}

/// The number of kills of the consumer. `CONSUMER_KILLS` sets a different number.
fn kills() -> usize {
    std::env::var("CONSUMER_KILLS").map_or(3, |kills| kills.parse().unwrap())
}

fn ids(round: usize) -> Vec<String> {
    (0..ORDERS).map(|number| format!("{round:03}-{number:03}")).collect()
}

/// Adds orders, and sends some of them again. Returns their ids.
async fn produce(world: &World, round: usize) -> Vec<String> {
    let ids = ids(round);
    for (number, id) in ids.iter().enumerate() {
        world.add(&order(id)).await;
        if number % DUPLICATES == 0 {
            world.add(&order(&ids[fastrand::usize(..=number)])).await;
        }
    }
    ids
}

#[tokio::test]
async fn every_order_takes_effect_once_although_the_consumer_is_killed() {
    let world = World::new().await;
    world.add("not an order").await;
    let (mut ids, mut interrupted) = (Vec::new(), 0);
    for round in 0..kills() {
        let before = world.group().await.read;
        ids.extend(produce(&world, round).await);
        let consumer = world.start(&[("DELAY_MS", "20")]);
        world.until(|group| group.read > before).await;
        sleep(Duration::from_millis(fastrand::u64(..400))).await;
        consumer.kill();
        interrupted += world.group().await.pending;
    }
    let _consumer = world.start(&[]);
    world.until_done().await;
    assert!(interrupted > 0, "no kill has interrupted anything");
    assert_eq!(world.debited().await, ids);
    let letters = world.dead_letters().await;
    assert!(matches!(&letters[..], [reason] if reason.starts_with("not an order")), "{letters:?}");
}

#[tokio::test]
async fn orders_that_can_never_succeed_are_dead_lettered() {
    let world = World::new().await;
    let mut free: serde_json::Value = serde_json::from_str(&order("free")).unwrap();
    free["cents"] = 0.into();
    let mut unstorable: serde_json::Value = serde_json::from_str(&order("unstorable")).unwrap();
    unstorable["account"] = "\0".into();
    world.add_field("payload", b"an entry without an order").await;
    world.add_field("order", b"\xff").await;
    world.add(&free.to_string()).await;
    world.add(&free.to_string()).await;
    world.add(&unstorable.to_string()).await;
    world.add(&order("a")).await;
    world.add(&order("a").replace("1999", "1998")).await;
    // One at a time, or either of the two orders "a" could be the first.
    let _consumer = world.start(&[("CONCURRENCY", "1")]);
    world.until_done().await;
    assert_eq!(world.debited().await, ["a"]);
    let letters = world.dead_letters().await;
    assert_eq!(letters.len(), 6, "{letters:?}");
    for reason in ["without an order", "the amount is not positive", "another order has this id"] {
        assert!(letters.iter().any(|letter| letter == reason), "{letters:?}");
    }
}

/// Two consumers may hold the same entry if one of them was slow, and the other has claimed it.
#[tokio::test]
async fn an_entry_is_dead_lettered_once() {
    let world = World::new().await;
    world.add("not an order").await;
    let entry = world.read_entry().await;
    world.dead_letter(&entry, "the first").await;
    world.dead_letter(&entry, "the second").await;
    assert_eq!(world.dead_letters().await, ["the first"]);
    assert_eq!(world.group().await.pending, 0);
}

#[tokio::test]
async fn on_sigterm_it_completes_the_orders_it_has_read() {
    let world = World::new().await;
    let ids = ids(0);
    for id in &ids {
        world.add(&order(id)).await;
    }
    let mut consumer = world.start(&[("CONCURRENCY", "4"), ("DELAY_MS", "300")]);
    world.until(|group| group.pending > 0).await;
    consumer.terminate();
    assert_eq!(consumer.ended().await, Some(0));
    let group = world.group().await;
    assert_eq!(group.pending, 0, "{group:?}");
    assert!((1..ORDERS / 2).contains(&group.read), "it stops reading: {group:?}");
    assert_eq!(world.debited().await, ids[..group.read]);

    let _consumer = world.start(&[]);
    world.until_done().await;
    assert_eq!(world.debited().await, ids);
}

#[tokio::test]
async fn an_order_unfinished_at_shutdown_is_rolled_back_and_redone_elsewhere() {
    let world = World::new().await;
    world.add(&order("a")).await;
    let mut stuck = world.start(&[("DELAY_MS", "120000"), ("DRAIN_MS", "100")]);
    world.until(|group| group.pending > 0).await;
    stuck.terminate();
    assert_eq!(stuck.ended().await, Some(0));
    assert_eq!((world.group().await.pending, world.debited().await.len()), (1, 0));

    let _consumer = world.start(&[]);
    world.until_done().await;
    assert_eq!(world.debited().await, ["a"]);
}

/// Other consumers claim its entry meanwhile, and find the order in progress.
#[tokio::test]
async fn a_debit_may_take_longer_than_its_lease() {
    let world = World::new().await;
    world.add(&order("a")).await;
    let _slow = world.start(&[("DELAY_MS", "7000")]);
    world.until(|group| group.pending > 0).await;
    let _other = world.start(&[]);
    world.until_done().await;
    assert_eq!(world.debited().await, ["a"]);
}

#[tokio::test]
async fn a_group_that_redis_has_lost_is_created_again() {
    let world = World::new().await;
    world.add(&order("a")).await;
    let _consumer = world.start(&[]);
    world.until_done().await;
    world.lose_stream().await;
    world.add(&order("b")).await;
    world.until_done().await;
    assert_eq!(world.debited().await, ["a", "b"]);
}
