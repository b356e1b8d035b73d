//! A request that was applied, and whose first answer was lost, ends as if nothing had been lost.

use lambda_once::{Failure, Outcome, store::dynamodb::Calls};

use super::{World, assert_outcome, in_both_shapes, number, requests::Purpose, text};

async fn a_claim(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Claim).drop_response();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    let again: &[Purpose] = if world.is_batched { &[Purpose::Claim, Purpose::Look] } else { &[Purpose::Claim] };
    assert_eq!(world.purposes(), [&[Purpose::Claim], again, &[Purpose::Outcome]].concat());
    let item = world.item().await.unwrap();
    assert_eq!((&item["attempt"], &item["prior_status"]), (&number(1), &text("NONE")));
}

async fn a_claim_whose_answer_is_lost_to_all_attempts_of_the_client(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Claim).times(2).drop_response();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_eq!(world.item().await.unwrap()["attempt"], number(1));
}

async fn a_claim_that_was_applied_although_dynamodb_said_that_it_failed(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Claim).internal_error_after();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_eq!(world.item().await.unwrap()["attempt"], number(1));
}

async fn a_takeover_which_still_took_over(calls: Calls) {
    for attempts in [1, 2] {
        let world = World::of(calls).await;
        world.abandon().await;
        world.lapse();
        world.on_takeover().times(attempts).drop_response();
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
        world.all_struck();
        let item = world.item().await.unwrap();
        assert_eq!((&item["attempt"], &item["prior_status"]), (&number(2), &text("INPROGRESS")));
    }
}

async fn a_completion(calls: Calls) {
    for attempts in [1, 2] {
        let world = World::of(calls).await;
        world.on(Purpose::Outcome).times(attempts).drop_response();
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_eq!(world.requests().len(), 2 + attempts);
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

async fn a_completion_that_was_applied_although_dynamodb_said_that_it_failed(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Outcome).internal_error_after();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_permanent_failure(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Outcome).drop_response();
    assert_outcome!(world.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    assert_outcome!(
        world.run().await,
        Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such card")
    );
}

async fn a_release(calls: Calls) {
    for attempts in [1, 2] {
        let world = World::of(calls).await;
        world.on(Purpose::Release).times(attempts).drop_response();
        assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_eq!(world.item().await, None);
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    }
}

async fn a_release_of_a_key_that_somebody_claimed_meanwhile(calls: Calls) {
    let world = World::of(calls).await;
    let mut again = world.on(Purpose::Release).nth(2).hold();
    world.on(Purpose::Release).drop_response();
    let successor = async {
        again.arrived().await;
        assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
        again.release();
    };
    let (outcome, ()) = tokio::join!(world.run_to(Err(Failure::transient("try again"))), successor);
    assert_outcome!(outcome, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_hand_back(calls: Calls) {
    let world = World::of(calls).await;
    world.abandon().await;
    world.lapse();
    world.on(Purpose::Outcome).drop_response();
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    let item = world.item().await.unwrap();
    assert_eq!((item.get("owner"), &item["in_progress_expiration"]), (None, &number(0)));
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

in_both_shapes!(
    a_claim,
    a_claim_whose_answer_is_lost_to_all_attempts_of_the_client,
    a_claim_that_was_applied_although_dynamodb_said_that_it_failed,
    a_takeover_which_still_took_over,
    a_completion,
    a_completion_that_was_applied_although_dynamodb_said_that_it_failed,
    a_permanent_failure,
    a_release,
    a_release_of_a_key_that_somebody_claimed_meanwhile,
    a_hand_back,
);
