//! A request of a dead invocation that reaches DynamoDB late overwrites nothing.

use std::{future::Future, time::Duration};

use hyper::{StatusCode, body::Bytes};
use lambda_once::{
    Error, Failure, Outcome, Store,
    clock::ManualClock,
    store::{
        Claimed,
        dynamodb::{Calls, Config},
    },
};
use tokio::runtime::Handle;

use super::{LEASE, World, assert_outcome, batches, in_both_shapes, requests::Purpose, text};
use crate::support::{
    self, FUTURE,
    proxy::{Call, LateRequest},
};

impl World {
    /// Runs the operation until the network keeps a request of it, and dies there.
    async fn die(&self, end: Result<u32, Failure>, kept: &mut LateRequest) -> Call {
        tokio::select! {
            outcome = self.run_to(end) => panic!("the run should still wait, but ended as {outcome:?}"),
            call = kept.arrived() => call,
        }
    }

    /// Delivers a request that comes too late. It must be refused and change nothing.
    async fn comes_to_nothing(&self, mut late: LateRequest) {
        let before = self.item().await;
        let (status, body) = late.deliver().await;
        let body = String::from_utf8_lossy(&body);
        let refused = body.contains("ConditionalCheckFailed") || body.contains("DuplicateItem");
        // A statement that deletes what is not there is no failure.
        assert!(refused || (self.is_batched && before.is_none()), "{status} {body}");
        assert_eq!(self.item().await, before);
    }
}

/// The answer says that the request was applied.
fn applied((status, body): (StatusCode, Bytes)) {
    let body = String::from_utf8_lossy(&body);
    assert!(status == 200 && !body.contains("\"Error\""), "{status} {body}");
}

/// How a run ends whose settle is delivered late, and the request that is kept.
fn settles() -> [(Result<u32, Failure>, Purpose); 3] {
    [
        (Ok(99), Purpose::Outcome),
        (Err(Failure::permanent("no such card")), Purpose::Outcome),
        (Err(Failure::transient("try again")), Purpose::Release),
    ]
}

async fn a_late_claim_is_refused_where_an_outcome_stands(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Claim).hang();
    world.die(Ok(99), &mut late).await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
    world.comes_to_nothing(late).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_late_claim_is_refused_where_another_claim_stands(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Claim).hang();
    world.die(Ok(99), &mut late).await;
    world.abandon().await;
    world.comes_to_nothing(late).await;
}

async fn a_late_takeover_is_refused_where_another_took_over_before(calls: Calls) {
    let world = World::of(calls).await;
    world.abandon().await;
    world.lapse();
    let mut late = world.on_takeover().hang();
    world.die(Ok(99), &mut late).await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1)));
    world.comes_to_nothing(late).await;
}

async fn a_late_claim_on_a_free_key_blocks_it_at_most_until_its_own_lease(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Claim).hang();
    let claim = world.die(Ok(99), &mut late).await;
    world.clock.jump(LEASE / 2);
    applied(late.deliver().await);
    let item = world.item().await.unwrap();
    let lease = item["in_progress_expiration"].as_n().unwrap();
    assert!(claim.body.to_string().contains(lease), "the lease is the one that was asked for");
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.clock.jump(LEASE / 2 + super::MARGIN);
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

async fn the_late_copy_of_a_claim_is_refused_after_its_owner_completed(calls: Calls) {
    let world = World::of(calls).await;
    let late = world.on(Purpose::Claim).deliver_late();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.comes_to_nothing(late).await;
}

async fn the_late_copy_of_a_claim_blocks_a_released_key_at_most_until_its_own_lease(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Claim).deliver_late();
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    applied(late.deliver().await);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

async fn late_settles_are_refused_where_a_successor_has_an_outcome(calls: Calls) {
    for (end, purpose) in settles() {
        let world = World::of(calls).await;
        let mut late = world.on(purpose).hang();
        world.die(end, &mut late).await;
        world.lapse();
        assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1)));
        world.comes_to_nothing(late).await;
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

async fn late_settles_are_refused_where_a_successor_is_running(calls: Calls) {
    for (end, purpose) in settles() {
        let world = World::of(calls).await;
        let mut late = world.on(purpose).hang();
        world.die(end, &mut late).await;
        world.lapse();
        let running = world.elsewhere.operation(super::CHARGE, super::KEY).run(|| async {
            world.comes_to_nothing(late).await;
            world.work().await
        });
        assert_outcome!(running.await, Ok(Outcome::TookOver(1)));
    }
}

async fn a_late_hand_back_is_refused_where_a_successor_is_running(calls: Calls) {
    let world = World::of(calls).await;
    world.abandon().await;
    world.lapse();
    let mut late = world.on(Purpose::Outcome).hang();
    world.die(Err(Failure::transient("try again")), &mut late).await;
    world.lapse();
    world.abandon().await;
    world.comes_to_nothing(late).await;
}

async fn late_settles_create_no_record(calls: Calls) {
    for (end, purpose) in settles() {
        let world = World::of(calls).await;
        let mut late = world.on(purpose).hang();
        world.die(end, &mut late).await;
        world.direct.delete_item().table_name(&world.table).key("id", world.id()).send().await.unwrap();
        world.comes_to_nothing(late).await;
        assert_eq!(world.item().await, None);
    }
}

async fn a_late_completion_counts_where_nobody_has_claimed_the_key_since(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Outcome).hang();
    world.die(Ok(99), &mut late).await;
    world.lapse();
    applied(late.deliver().await);
    assert_eq!(world.item().await.unwrap()["status"], text("COMPLETED"));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(99)));
}

/// Runs the operation with a handler that blocks its thread until its lease is over for all, while `meanwhile` happens.
async fn run_blocked(world: &World, meanwhile: impl Future<Output = ()> + Send) -> Result<Outcome<u32>, Error> {
    let blocked = world.once.operation(super::CHARGE, super::KEY).run(|| async {
        world.lapse();
        tokio::task::block_in_place(|| Handle::current().block_on(meanwhile));
        Ok::<_, Failure>(99)
    });
    blocked.await
}

async fn a_holder_that_blocked_past_its_lease_sees_its_successors_result(calls: Calls) {
    let world = World::of(calls).await;
    let successor = async { assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1))) };
    assert_outcome!(run_blocked(&world, successor).await, Ok(Outcome::Replayed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_holder_that_blocked_past_its_lease_has_lost_it_while_its_successor_runs(calls: Calls) {
    let world = World::of(calls).await;
    assert_outcome!(run_blocked(&world, world.abandon()).await, Ok(Outcome::LeaseLost));
}

async fn a_holder_that_blocked_past_its_lease_records_its_result_where_it_has_no_successor(calls: Calls) {
    let world = World::of(calls).await;
    assert_outcome!(run_blocked(&world, async {}).await, Ok(Outcome::Executed(99)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(99)));
}

in_both_shapes!(
    a_late_claim_is_refused_where_an_outcome_stands,
    a_late_claim_is_refused_where_another_claim_stands,
    a_late_takeover_is_refused_where_another_took_over_before,
    a_late_claim_on_a_free_key_blocks_it_at_most_until_its_own_lease,
    the_late_copy_of_a_claim_is_refused_after_its_owner_completed,
    the_late_copy_of_a_claim_blocks_a_released_key_at_most_until_its_own_lease,
    late_settles_are_refused_where_a_successor_has_an_outcome,
    late_settles_are_refused_where_a_successor_is_running,
    a_late_hand_back_is_refused_where_a_successor_is_running,
    late_settles_create_no_record,
    a_late_completion_counts_where_nobody_has_claimed_the_key_since,
    a_holder_that_blocked_past_its_lease_sees_its_successors_result,
    a_holder_that_blocked_past_its_lease_has_lost_it_while_its_successor_runs,
    a_holder_that_blocked_past_its_lease_records_its_result_where_it_has_no_successor,
);

/// Ten requests are under way at once; the eleventh waits for the first.
#[tokio::test]
async fn the_leases_of_one_call_end_together() {
    let world = World::of(Calls::Single).await;
    let client = support::client(world.proxy.endpoint()).await;
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
