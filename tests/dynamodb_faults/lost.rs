//! A request that was applied, and whose first answer was lost, ends as if nothing had been lost.

use lambda_once::{Failure, Outcome};

use super::{World, assert_outcome, number, text};

#[tokio::test]
async fn a_claim() {
    let world = World::new().await;
    world.proxy.on("UpdateItem").drop_response();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_eq!(world.requests().len(), 3);
    let item = world.item().await.unwrap();
    assert_eq!((&item["attempt"], &item["prior_status"]), (&number(1), &text("NONE")));
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_to_all_attempts_of_the_client() {
    let world = World::new().await;
    world.proxy.on("UpdateItem").times(2).drop_response();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_eq!(world.item().await.unwrap()["attempt"], number(1));
}

#[tokio::test]
async fn a_claim_that_was_applied_although_dynamodb_said_that_it_failed() {
    let world = World::new().await;
    world.proxy.on("UpdateItem").internal_error_after();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_eq!(world.item().await.unwrap()["attempt"], number(1));
}

#[tokio::test]
async fn a_takeover_which_still_took_over() {
    for attempts in [1, 2] {
        let world = World::new().await;
        world.abandon().await;
        world.lapse();
        world.proxy.on("UpdateItem").times(attempts).drop_response();
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
        world.all_struck();
        let item = world.item().await.unwrap();
        assert_eq!((&item["attempt"], &item["prior_status"]), (&number(2), &text("INPROGRESS")));
    }
}

#[tokio::test]
async fn a_completion() {
    for attempts in [1, 2] {
        let world = World::new().await;
        world.proxy.on("UpdateItem").nth(2).times(attempts).drop_response();
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_eq!(world.requests().len(), 2 + attempts);
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

#[tokio::test]
async fn a_completion_that_was_applied_although_dynamodb_said_that_it_failed() {
    let world = World::new().await;
    world.proxy.on("UpdateItem").nth(2).internal_error_after();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test]
async fn a_permanent_failure() {
    let world = World::new().await;
    world.proxy.on("UpdateItem").nth(2).drop_response();
    assert_outcome!(world.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    assert_outcome!(
        world.run().await,
        Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such card")
    );
}

#[tokio::test]
async fn a_release() {
    for attempts in [1, 2] {
        let world = World::new().await;
        world.proxy.on("DeleteItem").times(attempts).drop_response();
        assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_eq!(world.item().await, None);
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    }
}

#[tokio::test]
async fn a_release_of_a_key_that_somebody_claimed_meanwhile() {
    let world = World::new().await;
    let mut again = world.proxy.on("DeleteItem").nth(2).hold();
    world.proxy.on("DeleteItem").drop_response();
    let successor = async {
        again.arrived().await;
        assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
        again.release();
    };
    let (outcome, ()) = tokio::join!(world.run_to(Err(Failure::transient("try again"))), successor);
    assert_outcome!(outcome, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test]
async fn a_hand_back() {
    let world = World::new().await;
    world.abandon().await;
    world.lapse();
    world.proxy.on("UpdateItem").nth(2).drop_response();
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    let item = world.item().await.unwrap();
    assert_eq!((item.get("owner"), &item["in_progress_expiration"]), (None, &number(0)));
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}
