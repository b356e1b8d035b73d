//! Leases, which count from when a call begins: DynamoDB has no clock of its own.

use std::time::Duration;

use lambda_once::{
    Outcome, Store,
    clock::ManualClock,
    store::{
        Claimed,
        dynamodb::{Calls, Config},
    },
};

use super::{LEASE, MARGIN, Purpose, World, assert_outcome, batches, in_both_shapes, support};
use crate::support::FUTURE;

async fn a_late_claim_has_the_lease_that_it_asked_for(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Claim).hang();
    let claim = tokio::select! {
        outcome = world.run() => panic!("the run should still wait, but ended as {outcome:?}"),
        claim = late.arrived() => claim,
    };
    world.clock.jump(LEASE / 2);
    assert_eq!(late.deliver().await.is_applied(), Some(true));
    let item = world.item().await.unwrap();
    let lease = item["in_progress_expiration"].as_n().unwrap();
    assert!(claim.body().to_string().contains(lease), "{lease} is not in {claim:?}");
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.clock.jump(LEASE / 2 + MARGIN);
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

in_both_shapes!(a_late_claim_has_the_lease_that_it_asked_for);

/// Ten requests are under way at once; the eleventh waits for the first.
#[tokio::test]
async fn the_leases_of_one_call_end_together() {
    let world = World::of(Calls::Single).await;
    let client = support::client(&world.url).await;
    let store = Config::new(&world.table).calls(Calls::Single).build(client).unwrap();
    let clock = ManualClock::at(FUTURE);
    let store = store.with_clock(clock.clone());
    let claims: Vec<_> = (0..11).map(batches::claim).collect();
    let mut first = world.on(Purpose::Claim).hold();
    let delay = async {
        first.arrived().await;
        clock.advance(Duration::from_secs(5));
        first.release();
    };
    let (answers, ()) = tokio::join!(store.claim(&claims), delay);
    for answer in answers {
        let answer = answer.unwrap();
        assert!(matches!(answer, Claimed::Granted(grant) if grant.lease_until == FUTURE.after(LEASE)), "{answer:?}");
    }
}
