//! FIFO queues: order within a group, concurrent groups, and messages that are held back by a failure.

use aws_lambda_events::sqs::SqsEvent;
use lambda_once::{
    AfterUnknown, PermanentFailures,
    batch::OnFailure,
    record::Status,
    store::fault::{Call, Fault},
};
use serde_json::{Value, json};

use crate::{
    support::collector::Collector,
    world::{START, World, batch, fifo, ids, invoke, message, millis, order, orders, seconds, work},
};

impl World {
    /// Delivers messages of a FIFO queue with a minute left, and returns the reported ids.
    async fn deliver_fifo(&self, event: SqsEvent) -> Vec<String> {
        invoke(&self.service(), event, self.left(seconds(60))).await.unwrap()
    }
}

/// Returns the messages of a group, with distinct keys that begin with the group's name.
fn group(name: &'static str, acts: &[&str], ms: u64) -> Vec<(&'static str, Value)> {
    acts.iter().enumerate().map(|(i, act)| (name, work(&format!("{name}{i}"), act, ms))).collect()
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn a_group_runs_in_order_and_groups_run_side_by_side() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    let messages = ["a", "b", "a", "c", "b", "a"].into_iter().enumerate();
    let event = fifo(messages.map(|(i, group)| (group, work(&format!("{group}{i}"), "succeed", 100))));
    assert!(world.deliver_fifo(event).await.is_empty());
    assert_eq!(began.elapsed(), millis(300), "as long as the longest group");
    assert_eq!(world.journal.most_at_once(), 3);
    for name in ["a", "b", "c"] {
        let runs: Vec<_> = world.journal.runs().into_iter().filter(|run| run.key.starts_with(name)).collect();
        assert!(runs.is_sorted_by_key(|run| run.key.clone()), "{runs:?}");
        assert!(runs.windows(2).all(|pair| pair[0].ended.is_some_and(|ended| ended <= pair[1].began)), "{runs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn groups_share_the_limit_of_concurrency() {
    let world = World::new();
    let service = world.service().concurrency(2);
    let event = fifo(["a", "b", "c", "d"].map(|group| (group, work(group, "succeed", 50))));
    assert!(invoke(&service, event, world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(world.journal.most_at_once(), 2);
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn the_next_of_a_group_starts_only_when_the_outcome_before_it_is_recorded() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Delay(millis(40)));
    assert!(world.deliver_fifo(fifo(group("a", &["succeed"; 3], 10))).await.is_empty());
    let runs = world.journal.runs();
    assert!(runs.windows(2).all(|pair| pair[1].began.since(pair[0].began) >= millis(50)), "{runs:?}");
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn a_failure_blocks_its_group_and_no_other() {
    for act in ["transient", "permanent", "unknown", "panic", "panic at once"] {
        let world = World::new();
        let mut messages = group("a", &["succeed", act, "succeed", "succeed"], 10);
        messages.extend(group("b", &["succeed", "succeed"], 10));
        assert_eq!(world.deliver_fifo(fifo(messages)).await, ["m1", "m2", "m3"], "{act}");
        assert_eq!(world.journal.keys().iter().filter(|key| key.starts_with('a')).count(), 2, "{act}");
        assert_eq!(world.journal.keys().iter().filter(|key| key.starts_with('b')).count(), 2, "{act}");
        for released in ["a2", "a3"] {
            assert_eq!(world.record(released).await, None, "the claim of {released} is released after {act}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_read_holds_back_its_group() {
    let undecodable = json!("not an order");
    let keyless = json!({ "act": "succeed", "ms": 0 });
    for bad in [undecodable, keyless] {
        let world = World::new();
        let event = fifo([("a", order("A")), ("a", bad), ("a", order("B")), ("b", order("C"))]);
        assert_eq!(world.deliver_fifo(event).await, ["m1", "m2"]);
        assert_eq!((world.status("A").await, world.record("B").await), (Some(Status::Completed), None));
        assert_eq!(world.status("C").await, Some(Status::Completed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_cancelled_at_the_handler_deadline_holds_up_its_group() {
    let world = World::new();
    let event = fifo(group("a", &["succeed", "hang", "succeed"], 10));
    assert_eq!(invoke(&world.service(), event, world.left(seconds(5))).await.unwrap(), ["m1", "m2"]);
    assert_eq!(world.status("a1").await, Some(Status::InProgress), "nobody knows what it did");
    assert_eq!(world.record("a2").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_that_is_acknowledged_holds_up_nothing() {
    let world = World::new();
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    let event = fifo(group("a", &["succeed", "permanent", "succeed"], 10));
    assert!(invoke(&service, event, world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(world.journal.keys(), ["a0", "a1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_a_long_group_that_has_failed_runs() {
    let world = World::new();
    let mut messages = vec![("a", work("a0", "transient", 10))];
    messages.extend((1..120).map(|i| ("a", order(&format!("a{i}")))));
    messages.push(("b", order("B")));
    assert_eq!(world.deliver_fifo(fifo(messages)).await, ids(0..120));
    assert_eq!(world.journal.keys(), ["a0", "B"]);
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn a_failure_can_hold_up_the_whole_batch() {
    let world = World::new();
    let service = world.service().on_failure(OnFailure::StopBatch).concurrency(2);
    let mut messages = group("a", &["transient", "succeed"], 10);
    messages.extend(group("b", &["succeed", "succeed"], 30));
    messages.extend(group("c", &["succeed"], 10));
    let reported = invoke(&service, fifo(messages), world.left(seconds(60))).await.unwrap();
    assert_eq!(reported, ["m0", "m1", "m3", "m4"], "what was running goes on to its end");
    assert_eq!(world.journal.keys(), ["a0", "b0"]);
    assert_eq!((world.record("b1").await, world.record("c0").await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn done_before_holds_up_nothing_and_failed_before_holds_up_its_group() {
    let world = World::new();
    world.put("A", Status::Completed, "1");
    world.put("C", Status::Failed, "\"no\"");
    let event = fifo([("a", order("A")), ("a", order("B")), ("b", order("C")), ("b", order("D"))]);
    assert_eq!(world.deliver_fifo(event).await, ["m2", "m3"]);
    assert_eq!(world.journal.keys(), ["B"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_claim_call_holds_up_its_group() {
    let world = World::new();
    world.store.always(Call::Claim, Fault::AccessDenied);
    assert_eq!(world.deliver_fifo(fifo(group("a", &["succeed"; 2], 0))).await, ["m0", "m1"]);
    assert!(world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_success_that_cannot_be_recorded_holds_up_nothing() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::TableMissing);
    assert!(world.deliver_fifo(fifo(group("a", &["succeed"; 2], 0))).await.is_empty());
    assert_eq!(world.journal.keys(), ["a0", "a1"]);
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn a_live_claim_whose_lease_ends_in_time_is_waited_for() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let began = tokio::time::Instant::now();
    let event = fifo([("a", order("A")), ("a", order("B")), ("b", order("C"))]);
    assert!(world.deliver_fifo(event).await.is_empty());
    assert_eq!(world.journal.keys(), ["C", "A", "B"], "another group does not wait");
    assert_eq!(world.record("A").await.unwrap().prior_status, Some(Status::InProgress));
    // The lease of ten seconds, the margin of one, and little more.
    assert!(began.elapsed() >= seconds(11) && began.elapsed() < millis(11_100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_claims_of_an_invocation_that_died_are_waited_for_together() {
    let world = World::new();
    for key in ["A", "B", "C"] {
        world.put(key, Status::InProgress, "");
    }
    let event = fifo([("a", order("A")), ("a", order("B")), ("b", order("C"))]);
    assert!(world.deliver_fifo(event).await.is_empty());
    assert_eq!(world.calls(Call::Claim), [3, 3]);
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn a_live_claim_whose_lease_ends_too_late_fails_its_group_at_once() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let began = tokio::time::Instant::now();
    let event = fifo([("a", order("A")), ("a", order("B")), ("b", order("C"))]);
    let reported = invoke(&world.service(), event, world.left(seconds(11))).await.unwrap();
    assert_eq!((reported, began.elapsed()), (vec!["m0".to_owned(), "m1".to_owned()], millis(0)));
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn a_claim_still_held_after_the_wait_fails_its_group() {
    let world = World::new();
    // The renewal shows only when the record is claimed.
    world.store.always(Call::Read, Fault::AccessDenied);
    world.put("A", Status::InProgress, "");
    let renewing = async {
        tokio::time::sleep(seconds(5)).await;
        world.put("A", Status::InProgress, "");
    };
    let event = fifo([("a", order("A")), ("a", order("B"))]);
    let (reported, ()) = tokio::join!(world.deliver_fifo(event), renewing);
    assert_eq!(reported, ["m0", "m1"]);
    assert!(world.journal.keys().is_empty());
    assert_eq!(world.record("B").await, None);
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn a_standard_queue_does_not_wait_for_a_live_claim() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let began = tokio::time::Instant::now();
    assert_eq!(world.deliver([order("A"), order("B")]).await, ["m0"]);
    assert_eq!(began.elapsed(), millis(0));
}

#[tokio::test(start_paused = true)]
async fn messages_with_one_key_in_several_groups_share_its_outcome() {
    for (act, reported) in [("succeed", vec![]), ("transient", vec!["m0", "m1", "m2", "m3"])] {
        let world = World::new();
        let shared = || work("A", act, 50);
        let event = fifo([("a", shared()), ("b", shared()), ("b", order("B")), ("a", order("C"))]);
        assert_eq!(world.deliver_fifo(event).await, reported, "{act}");
        assert_eq!(world.journal.times_run()["A"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn groups_that_wait_for_each_others_keys_come_to_an_end() {
    let world = World::new();
    let (first, second) = (|| work("A", "succeed", 20), || work("B", "succeed", 20));
    let event = fifo([("a", first()), ("b", second()), ("a", second()), ("b", first()), ("a", order("C"))]);
    assert!(world.deliver_fifo(event).await.is_empty());
    assert_eq!(world.journal.keys().len(), 3);
    let event = fifo([("a", second()), ("b", first()), ("a", first()), ("b", second())]);
    assert!(World::new().deliver_fifo(event).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn under_refuse_a_message_is_claimed_only_when_its_turn_has_come() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    let mut messages = group("a", &["succeed", "hang", "succeed"], 10);
    messages.extend(group("b", &["succeed", "succeed"], 10));
    let reported = invoke(&world.service(), fifo(messages), world.left(seconds(5))).await.unwrap();
    assert_eq!(reported, ["m1", "m2"]);
    assert!(world.journal.most_open() <= 2, "{} open", world.journal.most_open());
    assert_eq!(world.journal.releases(), 0, "nothing was claimed that did not begin");
}

#[tokio::test(start_paused = true)]
async fn a_long_group_does_not_keep_the_others_from_running_beside_it() {
    let world = World::on(3, |builder| builder);
    let mut messages = group("a", &["succeed"; 7], 10);
    messages.extend(group("b", &["succeed"; 3], 10));
    let began = tokio::time::Instant::now();
    assert!(world.deliver_fifo(fifo(messages)).await.is_empty());
    assert_eq!(began.elapsed(), millis(70), "as long as the long group alone");
    let runs = world.journal.runs();
    let starts = ["a0", "b0"].map(|key| runs.iter().find(|run| run.key == key).unwrap().began);
    assert_eq!(starts, [START; 2], "the first of each group");
}

#[tokio::test(start_paused = true)]
async fn of_two_payloads_with_one_key_the_later_in_the_queue_is_the_mismatch() {
    let world = World::new();
    let event = fifo([("a", order("A")), ("a", work("K", "succeed", 1)), ("b", work("K", "succeed", 2))]);
    assert_eq!(world.deliver_fifo(event).await, ["m2"]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_and_not_a_group_id_attribute_determines_the_order() {
    let world = World::new();
    let mut fair = [message("m0", &work("A", "transient", 0)), message("m1", &order("B"))];
    fair.iter_mut().for_each(|message| message["attributes"]["MessageGroupId"] = json!("tenant"));
    let reported = invoke(&world.service(), crate::world::event(fair), world.left(seconds(60))).await.unwrap();
    assert_eq!(reported, ["m0"], "a fair queue has groups and no order");
    assert!(world.deliver_fifo(batch(orders(2, "succeed", 0))).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_blocked_by_a_failure_is_logged_as_skipped() {
    let world = World::new();
    let (collector, guard) = Collector::install();
    world.deliver_fifo(fifo(group("a", &["transient", "succeed"], 0))).await;
    drop(guard);
    let records = collector.lines().into_iter().filter(|line| line.get("message") == "record");
    let outcomes: Vec<_> = records.map(|line| line.get("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["failed", "skipped"]);
}
