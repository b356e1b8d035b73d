//! Permanent failures, which are reported or acknowledged by policy.

use lambda_once::{MissingKey, PermanentFailures, record::Status};
use serde_json::{Value, json};

use crate::world::{World, order, work};

/// Returns the reported ids and the number of records for these bodies under each policy, each in a separate world.
async fn under_each_policy(bodies: &[Value]) -> [(Vec<String>, usize); 2] {
    let mut seen = Vec::new();
    for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
        let world = World::new();
        let service = world.service().permanent_failures(policy);
        let reported = world.deliver_to(&service, bodies).await;
        seen.push((reported, world.records().await.len()));
    }
    seen.try_into().unwrap()
}

// Tests B7.
#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_remembered_and_follows_the_policy() {
    let [report, acknowledge] = under_each_policy(&[work("A", "permanent", 0), order("B")]).await;
    assert_eq!(report, (vec!["m0".to_owned()], 2));
    assert_eq!(acknowledge, (vec![], 2));

    let world = World::new();
    for _ in 0..2 {
        assert_eq!(world.deliver([work("A", "permanent", 0)]).await, ["m0"]);
        assert_eq!(world.status("A").await, Some(Status::Failed));
    }
    assert_eq!(world.journal.keys(), ["A"]);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_body_follows_the_policy_and_leaves_no_record() {
    for body in [json!({"order_id": "A"}), json!([]), json!("text"), Value::Null] {
        let [report, acknowledge] = under_each_policy(&[body.clone(), order("B")]).await;
        assert_eq!(report, (vec!["m0".to_owned()], 1), "{body}");
        assert_eq!(acknowledge, (vec![], 1), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_follows_the_policy_and_leaves_no_record() {
    let [report, acknowledge] = under_each_policy(&[order(""), order("B")]).await;
    assert_eq!(report, (vec!["m0".to_owned()], 1));
    assert_eq!(acknowledge, (vec![], 1));
}

// Tests B7.
#[tokio::test(start_paused = true)]
async fn a_mismatch_follows_the_policy_and_leaves_the_record_as_it_was() {
    let [report, acknowledge] = under_each_policy(&[order("A"), work("A", "succeed", 1), order("B")]).await;
    assert_eq!(report, (vec!["m1".to_owned()], 2));
    assert_eq!(acknowledge, (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn only_permanent_failures_are_acknowledged_and_retryable_ones_reported() {
    let world = World::new();
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    let acts = ["transient", "permanent", "unknown", "panic", "hang", "succeed"];
    let bodies = acts.iter().enumerate().map(|(i, act)| work(&format!("order-{i}"), act, 0));
    assert_eq!(world.deliver_to(&service, bodies).await, ["m0", "m2", "m3", "m4"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_key_runs_unprotected_where_that_is_chosen() {
    let world = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    let bodies =
        [order(""), order("A"), work("", "transient", 0), order(""), work("", "panic", 0), work("", "hang", 0)];
    assert_eq!(world.deliver(bodies).await, ["m2", "m4", "m5"]);
    assert_eq!(world.journal.times_run()[""], 5);
    assert_eq!(world.records().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_without_a_key_follows_the_policy() {
    let world = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    assert_eq!(world.deliver([work("", "permanent", 0)]).await, ["m0"]);
    let acknowledging = world.service().permanent_failures(PermanentFailures::Acknowledge);
    assert!(world.deliver_to(&acknowledging, [work("", "permanent", 0)]).await.is_empty());
}
