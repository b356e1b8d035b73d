//! A request of a dead invocation that reaches DynamoDB late overwrites nothing.

use std::future::Future;

use lambda_once::{Error, Failure, Outcome};
use tokio::runtime::Handle;

use super::{LEASE, World, assert_outcome, number, text};
use crate::support::proxy::{Call, LateRequest};

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
        assert!(status == 400 && String::from_utf8_lossy(&body).contains("ConditionalCheckFailed"), "{body:?}");
        assert_eq!(self.item().await, before);
    }
}

/// How a run ends whose settle is delivered late, and the request that is kept.
fn settles() -> [(Result<u32, Failure>, &'static str, usize); 3] {
    [
        (Ok(99), "UpdateItem", 2),
        (Err(Failure::permanent("no such card")), "UpdateItem", 2),
        (Err(Failure::transient("try again")), "DeleteItem", 1),
    ]
}

#[tokio::test]
async fn a_late_claim_is_refused_where_an_outcome_stands() {
    let world = World::new().await;
    let mut late = world.proxy.on("UpdateItem").hang();
    world.die(Ok(99), &mut late).await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
    world.comes_to_nothing(late).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test]
async fn a_late_claim_is_refused_where_another_claim_stands() {
    let world = World::new().await;
    let mut late = world.proxy.on("UpdateItem").hang();
    world.die(Ok(99), &mut late).await;
    world.abandon().await;
    world.comes_to_nothing(late).await;
}

#[tokio::test]
async fn a_late_takeover_is_refused_where_another_took_over_before() {
    let world = World::new().await;
    world.abandon().await;
    world.lapse();
    let mut late = world.proxy.on("UpdateItem").hang();
    world.die(Ok(99), &mut late).await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1)));
    world.comes_to_nothing(late).await;
}

#[tokio::test]
async fn a_late_claim_on_a_free_key_blocks_it_at_most_until_its_own_lease() {
    let world = World::new().await;
    let mut late = world.proxy.on("UpdateItem").hang();
    let claim = world.die(Ok(99), &mut late).await;
    world.clock.jump(LEASE / 2);
    assert_eq!(late.deliver().await.0, 200);
    let item = world.item().await.unwrap();
    let lease = claim.body["ExpressionAttributeValues"][":lease"]["N"].as_str().unwrap().parse().unwrap();
    assert_eq!(item["in_progress_expiration"], number(lease));
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.clock.jump(LEASE / 2 + super::MARGIN);
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test]
async fn the_late_copy_of_a_claim_is_refused_after_its_owner_completed() {
    let world = World::new().await;
    let late = world.proxy.on("UpdateItem").deliver_late();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.comes_to_nothing(late).await;
}

#[tokio::test]
async fn the_late_copy_of_a_claim_blocks_a_released_key_at_most_until_its_own_lease() {
    let world = World::new().await;
    let mut late = world.proxy.on("UpdateItem").deliver_late();
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    assert_eq!(late.deliver().await.0, 200);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test]
async fn late_settles_are_refused_where_a_successor_has_an_outcome() {
    for (end, operation, nth) in settles() {
        let world = World::new().await;
        let mut late = world.proxy.on(operation).nth(nth).hang();
        world.die(end, &mut late).await;
        world.lapse();
        assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1)));
        world.comes_to_nothing(late).await;
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

#[tokio::test]
async fn late_settles_are_refused_where_a_successor_is_running() {
    for (end, operation, nth) in settles() {
        let world = World::new().await;
        let mut late = world.proxy.on(operation).nth(nth).hang();
        world.die(end, &mut late).await;
        world.lapse();
        let running = world.elsewhere.operation(super::KEY).run(|| async {
            world.comes_to_nothing(late).await;
            world.work().await
        });
        assert_outcome!(running.await, Ok(Outcome::TookOver(1)));
    }
}

#[tokio::test]
async fn a_late_hand_back_is_refused_where_a_successor_is_running() {
    let world = World::new().await;
    world.abandon().await;
    world.lapse();
    let mut late = world.proxy.on("UpdateItem").nth(2).hang();
    world.die(Err(Failure::transient("try again")), &mut late).await;
    world.lapse();
    world.abandon().await;
    world.comes_to_nothing(late).await;
}

#[tokio::test]
async fn late_settles_create_no_record() {
    for (end, operation, nth) in settles() {
        let world = World::new().await;
        let mut late = world.proxy.on(operation).nth(nth).hang();
        world.die(end, &mut late).await;
        world.direct.delete_item().table_name(&world.table).key("id", world.id()).send().await.unwrap();
        world.comes_to_nothing(late).await;
        assert_eq!(world.item().await, None);
    }
}

#[tokio::test]
async fn a_late_completion_counts_where_nobody_has_claimed_the_key_since() {
    let world = World::new().await;
    let mut late = world.proxy.on("UpdateItem").nth(2).hang();
    world.die(Ok(99), &mut late).await;
    world.lapse();
    assert_eq!(late.deliver().await.0, 200);
    assert_eq!(world.item().await.unwrap()["status"], text("COMPLETED"));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(99)));
}

/// Runs the operation with a handler that blocks its thread until its lease is over for all, while `meanwhile` happens.
async fn run_blocked(world: &World, meanwhile: impl Future<Output = ()> + Send) -> Result<Outcome<u32>, Error> {
    let blocked = world.once.operation(super::KEY).run(|| async {
        world.lapse();
        tokio::task::block_in_place(|| Handle::current().block_on(meanwhile));
        Ok::<_, Failure>(99)
    });
    blocked.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_blocked_past_its_lease_sees_its_successors_result() {
    let world = World::new().await;
    let successor = async { assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1))) };
    assert_outcome!(run_blocked(&world, successor).await, Ok(Outcome::Replayed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_blocked_past_its_lease_has_lost_it_while_its_successor_runs() {
    let world = World::new().await;
    assert_outcome!(run_blocked(&world, world.abandon()).await, Ok(Outcome::LeaseLost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_blocked_past_its_lease_records_its_result_where_it_has_no_successor() {
    let world = World::new().await;
    assert_outcome!(run_blocked(&world, async {}).await, Ok(Outcome::Executed(99)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(99)));
}
