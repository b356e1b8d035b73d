//! One log event per operation, without plain keys or payloads.

use std::panic::panic_any;

use lambda_once::{Error, Failure, Interruption, Outcome};
use tracing::Level;

use super::{CHARGE, KEY, World, assert_outcome, support::collector::Collector};
use lambda_once::store::fault::{Call, Fault};

/// Returns the logged outcome of the run, and the level of its event.
async fn logged(world: &World, run: impl Future<Output = Result<Outcome<u32>, Error>>) -> (String, Level) {
    let (collector, guard) = Collector::install();
    let _ = run.await;
    drop(guard);
    let lines = collector.lines();
    assert!(!format!("{lines:?}").contains(KEY) && !format!("{lines:?}").contains("995 cents"));
    let mut outcomes = lines.iter().filter(|line| !line.get("outcome").is_empty());
    let line = outcomes.next().expect("an event with the outcome");
    assert!(outcomes.next().is_none(), "one event for each operation");
    assert_eq!(line.get("operation"), CHARGE);
    assert_eq!(line.get("key"), world.once.key_hash(CHARGE, KEY).unwrap().to_string());
    (line.get("outcome").to_owned(), line.level)
}

#[tokio::test(start_paused = true)]
async fn every_operation_logs_its_outcome_under_the_hash_of_its_key() {
    let world = World::new();
    let run = || world.run_on("995 cents");
    let expect = |outcome: &str, level| (outcome.to_owned(), level);
    assert_eq!(logged(&world, run()).await, expect("executed", Level::DEBUG));
    assert_eq!(logged(&world, run()).await, expect("replayed", Level::DEBUG));
    assert_eq!(logged(&world, world.run_on("996 cents")).await, expect("mismatch", Level::WARN));

    let world = World::new();
    assert_eq!(logged(&world, world.run_to(Err(Failure::transient("t")))).await, expect("failed", Level::INFO));
    assert_eq!(logged(&world, world.run_to(Err(Failure::unknown("u")))).await, expect("failed", Level::WARN));
    assert_eq!(logged(&world, world.run()).await, expect("in_progress", Level::INFO));
    world.lapse().await;
    assert_eq!(logged(&world, world.run()).await, expect("took_over", Level::WARN));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_with_its_verdict_and_its_reason_now_and_again() {
    let event = async |world: &World, failure: Failure| {
        let (collector, guard) = Collector::install();
        let _ = world.run_to(Err(failure)).await;
        drop(guard);
        let lines = collector.lines();
        let line = lines.iter().find(|line| line.get("message") == "operation").unwrap();
        ["outcome", "verdict", "error"].map(|field| line.get(field).to_owned())
    };
    let world = World::new();
    let closed = std::io::Error::other("the shop is closed");
    assert_eq!(event(&world, Failure::transient(closed)).await, ["failed", "transient", "the shop is closed"]);
    assert_eq!(event(&world, Failure::permanent("no such shop")).await, ["failed", "permanent", "no such shop"]);
    assert_eq!(event(&world, Failure::permanent("not run")).await, ["replayed_failure", "", "no such shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_logged_with_its_message_if_that_is_text() {
    let panics: [(fn(), &str); 3] = [
        (|| panic_any("the shop is on fire"), "the shop is on fire"),
        (|| panic_any("the press is on fire".to_owned()), "the press is on fire"),
        (|| panic_any(7), ""),
    ];
    for (panics, message) in panics {
        let world = World::new();
        let (collector, guard) = Collector::install();
        let run = world.once.operation(CHARGE, KEY).run(|| async {
            panics();
            Ok::<u32, Failure>(7)
        });
        assert_outcome!(run.await, Ok(Outcome::Interrupted(Interruption::Panicked)));
        drop(guard);
        let lines = collector.lines();
        let line = lines.iter().find(|line| line.get("message") == "a panic ended the run").unwrap();
        assert_eq!((line.get("panic"), line.level), (message, Level::ERROR));
    }
}

#[tokio::test(start_paused = true)]
async fn store_errors_are_logged_too() {
    let world = World::new();
    world.store.always(Call::Claim, Fault::AccessDenied);
    assert_eq!(logged(&world, world.run()).await, ("access_denied".to_owned(), Level::ERROR));

    let world = World::new();
    world.store.always(Call::Settle, Fault::AccessDenied);
    assert_eq!(logged(&world, world.run()).await, ("unrecorded".to_owned(), Level::ERROR));
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
}
