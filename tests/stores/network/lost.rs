//! A request that is lost, or applied without a response, ends as if nothing had been lost.

use std::time::Duration;

use lambda_once::{
    ErrorKind, Failure, Idempotency, Key, Outcome,
    clock::Timestamp,
    record::{Record, Status},
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};

use super::{LOSSES, Purpose, World, assert_outcome, permanent, transient};
use crate::support::{
    collector::Collector,
    stores::{Backend, on_each_proxied_store},
    wire::Fault,
};

/// Returns each loss, with a number of repetitions of one, and of the DynamoDB SDK's attempts.
fn losses() -> impl Iterator<Item = (fn(Fault<'_>), usize)> {
    [1, 2].into_iter().flat_map(|times| LOSSES.map(|lose| (lose, times)))
}

async fn a_claim(backend: Backend) {
    for (lose, times) in losses() {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Claim).times(times));
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_eq!((world.sent(Purpose::Claim), world.sent(Purpose::Complete)), (times + 1, 1));
        assert!(matches!(world.record().await, Some(Record { attempt: 1, prior_status: None, .. })));
    }
}

async fn a_takeover_which_still_took_over(backend: Backend) {
    for (lose, times) in losses() {
        let world = World::new(backend).await;
        world.abandon().await;
        world.lapse();
        lose(world.on_takeover().times(times));
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
        world.all_struck();
        let record = world.record().await.unwrap();
        assert_eq!((record.attempt, record.prior_status), (2, Some(Status::InProgress)));
    }
}

async fn a_completion(backend: Backend) {
    for (lose, times) in losses() {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Complete).times(times));
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_eq!(world.sent(Purpose::Complete), times + 1);
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

async fn a_permanent_failure(backend: Backend) {
    for (lose, times) in losses() {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Fail).times(times));
        assert_outcome!(world.run_to(permanent()).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_eq!(world.sent(Purpose::Fail), times + 1);
        assert_outcome!(
            world.run().await,
            Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such card")
        );
    }
}

async fn a_release(backend: Backend) {
    for (lose, times) in losses() {
        let world = World::new(backend).await;
        lose(world.on(Purpose::Release).times(times));
        assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_eq!((world.sent(Purpose::Release), world.record().await), (times + 1, None));
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
    for (lose, times) in losses() {
        let world = World::new(backend).await;
        world.abandon().await;
        world.lapse();
        lose(world.on(Purpose::HandBack).times(times));
        assert_outcome!(world.run_to(transient()).await, Ok(Outcome::Failed(_)));
        world.all_struck();
        assert_eq!(world.sent(Purpose::HandBack), times + 1);
        let record = world.record().await.unwrap();
        assert_eq!((record.owner, record.lease_until), (None, Some(Timestamp::EPOCH)));
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    }
}

async fn a_claim_that_never_arrives_runs_nothing(backend: Backend) {
    let world = World::new(backend).await;
    world.on(Purpose::Claim).times(usize::MAX).drop_request();
    let error = world.run().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert_eq!((world.runs(), world.record().await), (0, None));
}

async fn a_completion_that_never_arrives_leaves_the_claim_live(backend: Backend) {
    let world = World::with(backend, |builder| builder.lease(Duration::from_secs(2))).await;
    world.on(Purpose::Complete).times(usize::MAX).drop_request();
    assert_outcome!(world.run().await, Ok(Outcome::Unrecorded(1)));
    assert_eq!((world.sent(Purpose::Release), world.record().await.unwrap().status), (0, Status::InProgress));
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(2)));
}

async fn every_request_of_a_batch_whose_messages_are_all_reported(backend: Backend) {
    let world = World::new(backend).await;
    world.proxy.on(|_| true).times(usize::MAX).drop_request();
    let batch = sqs::batch((0..30).map(|id| testing::record(&json!({ "id": id }))));
    let deliver = async |once: &Idempotency| {
        let service = once.sqs(Key::pointer("/id"), |_: Value| async { Ok::<_, Failure>(()) });
        service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await.reported().len()
    };
    assert_eq!(deliver(&world.once).await, 30);
    assert_eq!((world.sent(Purpose::Complete), world.sent(Purpose::Release)), (0, 0), "something ran");
    assert_eq!(deliver(&world.elsewhere).await, 0, "something was claimed");
}

/// The repeated claim finds its own grant (C5), which reports the merge, too.
async fn a_claim_that_merges_doubt_is_warned_of_once(backend: Backend) {
    let world = World::new(backend).await;
    let set = async |once: &Idempotency, version: u64, end: Result<u32, Failure>| {
        once.operation("set", &version).ordered_by("document", version).run(|| async { end }).await
    };
    for version in 1..=65 {
        let lost = set(&world.elsewhere, version, Err(Failure::unknown("timed out"))).await;
        assert_outcome!(lost, Ok(Outcome::Failed(_)));
        world.lapse();
    }
    let (collector, _guard) = Collector::install();
    match backend {
        // The first transaction finds that the order marker contains an in-doubt operation.
        Backend::DynamoDb(_) => world.proxy.on_command("TransactWriteItems").nth(2).drop_response(),
        Backend::Postgres => world.proxy.on_command("COMMIT").drop_response(),
        _ => world.on(Purpose::Claim).drop_response(),
    }
    assert_outcome!(set(&world.once, 66, Err(Failure::transient("busy"))).await, Ok(Outcome::Failed(_)));
    world.all_struck();
    let warnings = || collector.lines().iter().filter(|line| line.get("message").contains("65 operations")).count();
    assert_eq!(warnings(), 1);
    assert_outcome!(set(&world.once, 67, Ok(1)).await, Ok(Outcome::Executed(1)));
    assert_eq!(warnings(), 1, "the next grant merges nothing");
}

on_each_proxied_store!(
    a_claim,
    a_claim_that_merges_doubt_is_warned_of_once,
    a_takeover_which_still_took_over,
    a_completion,
    a_permanent_failure,
    a_release,
    a_release_of_a_key_that_is_claimed_before_it_is_sent_again,
    a_hand_back,
    a_claim_that_never_arrives_runs_nothing,
    a_completion_that_never_arrives_leaves_the_claim_live,
    every_request_of_a_batch_whose_messages_are_all_reported,
);
