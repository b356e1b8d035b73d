//! Records that another delivery has left in the store.

use lambda_once::{AfterUnknown, PermanentFailures, record::Status};

use crate::world::{World, order, seconds, work};

// Tests B6.
#[tokio::test(start_paused = true)]
async fn in_progress_elsewhere_is_reported_and_does_not_run() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let before = world.record("A").await;
    assert_eq!(world.deliver([order("A"), order("B")]).await, ["m0"]);
    assert_eq!(world.journal.keys(), ["B"]);
    assert_eq!(world.record("A").await, before);
}

#[tokio::test(start_paused = true)]
async fn in_progress_is_reported_where_permanent_failures_are_acknowledged_too() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.deliver_to(&service, [order("A")]).await, ["m0"]);
}

// Tests S7.
#[tokio::test(start_paused = true)]
async fn done_elsewhere_is_acknowledged_without_decoding_the_result() {
    let world = World::new();
    world.put("A", Status::Completed, "{ this is not JSON");
    assert!(world.deliver([order("A"), order("A")]).await.is_empty());
    assert!(world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_completed_record_does_not_run() {
    let world = World::new();
    for _ in 0..3 {
        assert!(world.deliver([order("A"), order("B")]).await.is_empty());
        tokio::time::advance(seconds(24 * 3_600)).await;
    }
    assert_eq!(world.journal.keys(), ["A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn failed_before_follows_the_policy_and_does_not_run() {
    let world = World::new();
    world.put("A", Status::Failed, "also not JSON");
    assert_eq!(world.deliver([order("A")]).await, ["m0"]);
    let acknowledging = world.service().permanent_failures(PermanentFailures::Acknowledge);
    assert!(world.deliver_to(&acknowledging, [order("A")]).await.is_empty());
    assert!(world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_claim_is_taken_over_and_its_record_completed() {
    let world = World::new();
    world.abandon("A");
    assert!(world.deliver([order("A")]).await.is_empty());
    let record = world.record("A").await.unwrap();
    assert_eq!((record.status, record.attempt), (Status::Completed, 2));
    assert_eq!(record.prior_status, Some(Status::InProgress));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_claim_whose_takeover_failed_is_handed_back() {
    let world = World::new();
    world.abandon("A");
    assert_eq!(world.deliver([work("A", "transient", 0)]).await, ["m0"]);
    let record = world.record("A").await.unwrap();
    assert_eq!((record.status, record.owner), (Status::InProgress, None));
}

#[tokio::test(start_paused = true)]
async fn under_refuse_an_abandoned_claim_is_always_reported_and_never_run() {
    for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
        let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
        world.abandon("A");
        let service = world.service().permanent_failures(policy);
        assert_eq!(world.deliver_to(&service, [order("A"), order("B")]).await, ["m0"], "{policy:?}");
        assert_eq!(world.journal.keys(), ["B"]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_payload_for_a_key_that_is_decided_follows_the_policy() {
    for act in ["succeed", "permanent"] {
        let world = World::new();
        world.deliver([work("A", act, 0)]).await;
        let runs = world.journal.keys().len();
        for _ in 0..2 {
            assert_eq!(world.deliver([work("A", act, 9)]).await, ["m0"], "{act}");
            let acknowledging = world.service().permanent_failures(PermanentFailures::Acknowledge);
            assert!(world.deliver_to(&acknowledging, [work("A", act, 9)]).await.is_empty(), "{act}");
            tokio::time::advance(seconds(100)).await;
        }
        assert_eq!(world.journal.keys().len(), runs, "{act}");
    }
}

// Tests S7.
#[tokio::test(start_paused = true)]
async fn a_record_of_a_format_still_to_come_is_reported_and_does_not_run() {
    let world = World::new();
    world.put("A", Status::Completed, "1");
    let mut record = world.record("A").await.unwrap();
    record.version = u32::MAX;
    world.memory.insert(world.hash("A"), record);
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.deliver_to(&service, [order("A"), order("B")]).await, ["m0"]);
    assert_eq!(world.journal.keys(), ["B"]);
}

// Tests S8.
#[tokio::test(start_paused = true)]
async fn a_lease_lost_to_a_successor_gives_the_successors_outcome() {
    // While the handler runs, another client takes over its record.
    for (status, reported) in [(Status::Completed, false), (Status::Failed, true), (Status::InProgress, true)] {
        let world = World::new();
        let service = world.service();
        let event = crate::world::batch([work("A", "succeed", 1_000)]);
        let invocation = crate::world::invoke(&service, event, world.left(seconds(60)));
        let successor = async {
            tokio::time::sleep(crate::world::millis(500)).await;
            world.put("A", status, "1");
        };
        let (answer, ()) = tokio::join!(invocation, successor);
        assert_eq!(!answer.unwrap().is_empty(), reported, "{status:?}");
        assert_eq!(world.status("A").await, Some(status));
    }
}
