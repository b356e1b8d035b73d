//! Repeated keys in a batch.

use lambda_once::{Key, MissingKey, OutcomeKind, Payload, PermanentFailures, record::Status};
use serde_json::json;

use crate::world::{World, batch, event, ids, message, order, orders, reported, work};

// Tests B3.
#[tokio::test(start_paused = true)]
async fn the_earliest_runs_and_the_others_are_acknowledged_with_it() {
    let world = World::new();
    let event = batch([order("A"), order("B"), order("A"), order("A")]);
    let processed = world.process(&world.service(), event).await;
    assert_eq!(reported(&processed), ids(0..0));
    let (executed, replayed) = (Ok(OutcomeKind::Executed), Ok(OutcomeKind::Replayed));
    assert_eq!(processed.outcomes(), [executed, executed, replayed, replayed]);
    assert_eq!(world.journal.keys(), ["A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn the_others_of_one_that_failed_are_reported_with_it() {
    for act in ["transient", "permanent", "unknown", "panic", "hang"] {
        let world = World::new();
        let failing = work("A", act, 0);
        assert_eq!(world.deliver([&failing, &order("B"), &failing]).await, ["m0", "m2"], "{act}");
        assert_eq!(world.journal.keys(), ["A", "B"], "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn duplicates_of_a_permanent_failure_follow_the_same_policy() {
    let world = World::new();
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    let failing = work("A", "permanent", 0);
    assert!(world.deliver_to(&service, [&failing, &failing]).await.is_empty());
    assert_eq!(world.journal.keys(), ["A"]);
}

// Tests B3.
#[tokio::test(start_paused = true)]
async fn a_later_one_with_another_payload_is_a_mismatch() {
    let world = World::new();
    let event = batch([order("A"), work("A", "succeed", 1), order("A")]);
    let processed = world.process(&world.service(), event).await;
    assert_eq!(reported(&processed), ["m1"]);
    let expected = [OutcomeKind::Executed, OutcomeKind::Mismatch, OutcomeKind::Replayed];
    assert_eq!(processed.outcomes(), expected.map(Ok));
    assert_eq!(world.journal.keys(), ["A"]);
}

// Tests B3.
#[tokio::test(start_paused = true)]
async fn another_payload_is_no_misuse_of_a_key_that_was_not_decided() {
    let mismatch = |first: &str| [work("A", first, 0), work("A", "succeed", 1)];
    for undecided in ["transient", "unknown", "panic"] {
        let world = World::new();
        let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(world.deliver_to(&service, mismatch(undecided)).await, ["m0", "m1"], "{undecided}");
    }
    for decided in ["succeed", "permanent"] {
        let world = World::new();
        let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(world.deliver_to(&service, mismatch(decided)).await, ids(0..0), "{decided}");
    }
}

#[tokio::test(start_paused = true)]
async fn white_space_and_the_order_of_members_make_no_other_payload() {
    let world = World::new();
    let same = r#"{ "ms": 0, "act": "succeed",  "order_id": "\u0041" }"#;
    assert!(world.deliver([order("A").to_string(), same.to_owned()]).await.is_empty());
    assert_eq!(world.journal.keys(), ["A"]);
}

#[tokio::test(start_paused = true)]
async fn the_part_used_as_payload_must_exist_and_may_hold_anything() {
    let body = |items: &str| format!(r#"{{"order_id":"A","act":"succeed","ms":0,"items":{items}}}"#);
    for items in ["[]", "null", r#"[{"note":null}]"#, "\"\""] {
        let world = World::new();
        let service = || world.service().payload(Payload::Part(Key::pointer("/items")));
        for _ in 0..2 {
            assert_eq!(world.deliver_to(&service(), [body(items)]).await, ids(0..0), "{items}");
        }
        assert_eq!(world.deliver_to(&service(), [body("[1]")]).await, ["m0"], "{items}: another payload");
        assert_eq!(world.journal.keys(), ["A"], "{items}");
    }
    let world = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    let service = world.service().payload(Payload::Part(Key::pointer("/nothing")));
    assert_eq!(world.deliver_to(&service, [body("[]")]).await, ["m0"], "a missing payload does not run unprotected");
    assert!(world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_compared_payload_can_be_chosen() {
    let bodies = || [json!({"order_id": "A", "act": "succeed", "ms": 0, "note": 1}), order("A")];
    let world = World::new();
    assert_eq!(world.deliver_to(&world.service().payload(Payload::Ignored), bodies()).await, ids(0..0));
    let world = World::new();
    let part = || Payload::Part(Key::pointer("/act"));
    assert_eq!(world.deliver_to(&world.service().payload(part()), bodies()).await, ids(0..0));
    let world = World::new();
    let differs = [work("A", "succeed", 0), work("A", "panic", 0)];
    assert_eq!(world.deliver_to(&world.service().payload(part()), differs).await, ids(1..2));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_for_the_one_that_is_running_beside_it() {
    let world = World::new();
    let service = world.service().concurrency(10);
    let bodies = [work("A", "succeed", 5_000), work("A", "succeed", 5_000), work("B", "transient", 3_000)];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m2"]);
    assert_eq!(world.journal.keys(), ["A", "B"]);
    assert_eq!(world.journal.most_at_once(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_in_a_later_chunk_gets_the_verdict_of_the_earliest() {
    let world = World::new();
    let mut bodies = orders(60, "succeed", 10);
    bodies[1] = work("order-1", "transient", 10);
    bodies[30] = bodies[0].clone();
    bodies[31] = bodies[1].clone();
    bodies[59] = bodies[0].clone();
    assert_eq!(world.deliver(bodies).await, ["m1", "m31"]);
    assert!(world.journal.times_run().values().all(|times| *times == 1));
    assert_eq!(world.journal.keys().len(), 57);
}

// Tests B3.
#[tokio::test(start_paused = true)]
async fn the_others_of_one_that_was_not_started_are_reported_with_it() {
    let world = World::new();
    let service = world.service().concurrency(1);
    let event = batch([work("A", "succeed", 300), order("B"), order("B")]);
    let reported = crate::world::invoke(&service, event, world.left(crate::world::seconds(1))).await.unwrap();
    assert_eq!(reported, ["m1", "m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_decoded_leads_nobody() {
    let world = World::new();
    let undecodable = json!({"order_id": "A", "act": 7, "ms": 0});
    assert_eq!(world.deliver([undecodable, order("A")]).await, ["m0"]);
    assert_eq!(world.status("A").await, Some(Status::Completed));
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_in_the_batch_twice_is_reported_once() {
    let world = World::new();
    let failing = work("A", "transient", 0);
    let event = event([message("same", &failing), message("other", &order("B")), message("same", &failing)]);
    let reported = crate::world::invoke(&world.service(), event, world.left(crate::world::seconds(60))).await.unwrap();
    assert_eq!(reported, ["same"]);
    assert_eq!(world.journal.keys(), ["A", "B"]);
}
