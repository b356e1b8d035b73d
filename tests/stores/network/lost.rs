//! A request that is lost, or applied without an answer that arrives, ends as if nothing had been lost.

use lambda_once::{
    Outcome,
    clock::Timestamp,
    record::{Record, Status},
};

use super::{Backend, LOSSES, Purpose, World, assert_outcome, permanent, transient};
use crate::support::stores::on_each_proxied_store;

async fn a_claim(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Claim));
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert!(matches!(world.record().await, Some(Record { attempt: 1, prior_status: None, .. })));
    }
}

async fn a_takeover_which_still_took_over(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend).await;
        world.abandon().await;
        world.lapse();
        lose(world.on(Purpose::Claim));
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
        world.all_struck();
        let record = world.record().await.unwrap();
        assert_eq!((record.attempt, record.prior_status), (2, Some(Status::InProgress)));
    }
}

async fn a_completion(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Complete));
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

async fn a_permanent_failure(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Fail));
        assert_outcome!(world.run_to(permanent()).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_outcome!(
            world.run().await,
            Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such card")
        );
    }
}

async fn a_release(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Release));
        assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_eq!(world.record().await, None);
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    }
}

async fn a_release_of_a_key_that_is_claimed_before_it_is_sent_again(backend: Backend) {
    let world = World::new(backend).await;
    let mut again = world.on(Purpose::Release).nth(2).hold();
    world.on(Purpose::Release).drop_response();
    let successor = async {
        again.arrived().await;
        assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
        again.release();
    };
    let (outcome, ()) = tokio::join!(world.run_to(transient()), successor);
    assert_outcome!(outcome, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_hand_back(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend).await;
        world.abandon().await;
        world.lapse();
        lose(world.on(Purpose::HandBack));
        assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        let record = world.record().await.unwrap();
        assert_eq!((record.owner, record.lease_until), (None, Some(Timestamp::EPOCH)));
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    }
}

on_each_proxied_store!(
    a_claim,
    a_takeover_which_still_took_over,
    a_completion,
    a_permanent_failure,
    a_release,
    a_release_of_a_key_that_is_claimed_before_it_is_sent_again,
    a_hand_back,
);
