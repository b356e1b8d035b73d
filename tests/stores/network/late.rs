//! A late request of a dead process overwrites nothing.

use lambda_once::{Failure, Outcome, record::Status};

use super::{BATCHED, Backend, Purpose, World, assert_applied, assert_outcome, permanent, transient};
use crate::support::stores::on_each_proxied_store;

/// Returns the ends of a run whose settle is delivered late, with the request that is kept.
fn settles() -> [(Result<u32, Failure>, Purpose); 3] {
    [(Ok(99), Purpose::Complete), (permanent(), Purpose::Fail), (transient(), Purpose::Release)]
}

// Tests P1.
async fn a_claim_is_refused_after_an_outcome(backend: Backend) {
    let world = World::new(backend).await;
    let mut late = world.on(Purpose::Claim).hang();
    world.die(Ok(99), &mut late).await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
    world.assert_refused(late).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_claim_is_refused_while_another_is_live(backend: Backend) {
    let world = World::new(backend).await;
    let mut late = world.on(Purpose::Claim).hang();
    world.die(Ok(99), &mut late).await;
    world.abandon().await;
    world.assert_refused(late).await;
}

async fn a_takeover_is_refused_where_another_took_over_before(backend: Backend) {
    let world = World::new(backend).await;
    world.abandon().await;
    world.lapse();
    let mut late = world.on_takeover().hang();
    world.die(Ok(99), &mut late).await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1)));
    world.assert_refused(late).await;
}

async fn a_takeover_is_refused_where_another_is_running(backend: Backend) {
    let world = World::new(backend).await;
    world.abandon().await;
    world.lapse();
    let mut late = world.on_takeover().hang();
    world.die(Ok(99), &mut late).await;
    world.abandon().await;
    world.assert_refused(late).await;
}

// Tests P18.
async fn a_claim_on_a_free_key_blocks_it_at_most_for_its_own_lease(backend: Backend) {
    let world = World::new(backend).await;
    let mut late = world.on(Purpose::Claim).hang();
    world.die(Ok(99), &mut late).await;
    assert_applied(&late.deliver().await);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

async fn the_copy_of_a_claim_is_refused_after_its_owner_completed(backend: Backend) {
    let world = World::new(backend).await;
    let late = world.on(Purpose::Claim).copy();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.assert_refused(late).await;
}

// Tests P18.
async fn the_copy_of_a_claim_blocks_a_released_key_at_most_for_its_own_lease(backend: Backend) {
    let world = World::new(backend).await;
    let mut late = world.on(Purpose::Claim).copy();
    assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
    assert_applied(&late.deliver().await);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

// Tests S3, P1.
async fn settles_are_refused_where_a_successor_has_an_outcome(backend: Backend) {
    for (end, purpose) in settles() {
        let world = World::new(backend).await;
        let mut late = world.on(purpose).hang();
        world.die(end, &mut late).await;
        world.lapse();
        assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1)));
        world.assert_refused(late).await;
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

// Tests S3, P1.
async fn settles_are_refused_where_a_successor_is_running(backend: Backend) {
    for (end, purpose) in settles() {
        let world = World::new(backend).await;
        let mut late = world.on(purpose).hang();
        world.die(end, &mut late).await;
        world.lapse();
        let running = world.elsewhere.operation(super::CHARGE, super::KEY).run(|| async {
            world.assert_refused(late).await;
            Ok::<_, Failure>(1)
        });
        assert_outcome!(running.await, Ok(Outcome::TookOver(1)));
    }
}

async fn a_hand_back_is_refused_where_a_successor_is_running(backend: Backend) {
    let world = World::new(backend).await;
    world.abandon().await;
    world.lapse();
    let mut late = world.on(Purpose::HandBack).hang();
    world.die(transient(), &mut late).await;
    world.lapse();
    world.abandon().await;
    world.assert_refused(late).await;
}

/// After a takeover was released, and so handed back, late copies of an older claim and of its release may arrive. That
/// claim takes over, so its release must not delete the record.
async fn a_late_release_does_not_delete_a_record_its_claim_took_over(backend: Backend) {
    let world = World::new(backend).await;
    let (mut claim, release) = (world.on(Purpose::Claim).copy(), world.on(Purpose::Release).copy());
    assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
    world.abandon().await;
    world.lapse();
    assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.record().await.unwrap().owner, None, "handed back");
    if backend == BATCHED {
        // A request that creates a record there takes nothing over.
        world.assert_refused(claim).await;
    } else {
        assert_applied(&claim.deliver().await);
    }
    world.assert_refused(release).await;
}

// Tests S1, P1.
async fn settles_create_no_record(backend: Backend) {
    for (end, purpose) in settles() {
        let world = World::new(backend).await;
        let mut late = world.on(purpose).hang();
        world.die(end, &mut late).await;
        world.delete().await;
        // DynamoDB applies a statement that deletes a missing item.
        let is_vain_delete = backend == BATCHED && purpose == Purpose::Release;
        world.assert_changes_nothing(late, is_vain_delete).await;
        assert_eq!(world.record().await, None);
    }
}

async fn a_completion_counts_where_nobody_has_claimed_the_key_since(backend: Backend) {
    let world = World::new(backend).await;
    let mut late = world.on(Purpose::Complete).hang();
    world.die(Ok(99), &mut late).await;
    world.lapse();
    assert_applied(&late.deliver().await);
    assert_eq!(world.record().await.unwrap().status, Status::Completed);
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(99)));
}

on_each_proxied_store!(
    a_claim_is_refused_after_an_outcome,
    a_claim_is_refused_while_another_is_live,
    a_takeover_is_refused_where_another_took_over_before,
    a_takeover_is_refused_where_another_is_running,
    a_claim_on_a_free_key_blocks_it_at_most_for_its_own_lease,
    the_copy_of_a_claim_is_refused_after_its_owner_completed,
    the_copy_of_a_claim_blocks_a_released_key_at_most_for_its_own_lease,
    settles_are_refused_where_a_successor_has_an_outcome,
    settles_are_refused_where_a_successor_is_running,
    a_hand_back_is_refused_where_a_successor_is_running,
    a_late_release_does_not_delete_a_record_its_claim_took_over,
    settles_create_no_record,
    a_completion_counts_where_nobody_has_claimed_the_key_since,
);
