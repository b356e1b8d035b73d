//! A request that the network delivers twice is applied once.

use lambda_once::{
    Outcome,
    record::{Record, Status},
};

use super::{Backend, Purpose, World, assert_outcome, permanent, transient};
use crate::support::stores::on_each_proxied_store;

async fn a_claim(backend: Backend) {
    let world = World::new(backend).await;
    world.on(Purpose::Claim).repeat();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert!(matches!(world.record().await, Some(Record { attempt: 1, prior_status: None, .. })));
}

async fn a_takeover(backend: Backend) {
    let world = World::new(backend).await;
    world.abandon().await;
    world.lapse();
    world.on_takeover().repeat();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    world.all_struck();
    let record = world.record().await.unwrap();
    assert_eq!((record.attempt, record.prior_status), (2, Some(Status::InProgress)));
}

async fn an_outcome(backend: Backend) {
    for (end, purpose) in [(Ok(7), Purpose::Complete), (permanent(), Purpose::Fail)] {
        let world = World::new(backend).await;
        let mut copy = world.on(purpose).copy();
        assert_outcome!(world.run_to(end).await, Ok(Outcome::Executed(7) | Outcome::Failed(_)));
        let before = world.record().await;
        let response = copy.deliver().await;
        assert_eq!(response.is_applied(), Some(false), "{response:?}");
        assert_eq!(world.record().await, before);
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(7) | Outcome::ReplayedFailure(_)));
    }
}

async fn a_release(backend: Backend) {
    let world = World::new(backend).await;
    world.on(Purpose::Release).repeat();
    assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    assert_eq!(world.record().await, None);
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

async fn a_hand_back(backend: Backend) {
    let world = World::new(backend).await;
    world.abandon().await;
    world.lapse();
    world.on(Purpose::HandBack).repeat();
    assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

on_each_proxied_store!(a_claim, a_takeover, an_outcome, a_release, a_hand_back);
