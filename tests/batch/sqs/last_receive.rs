//! The last delivery of a FIFO message, which must not take the messages behind it to the dead-letter queue.

use aws_lambda_events::sqs::SqsEvent;
use lambda_once::{
    AfterUnknown, BoxError, Classify, ErrorKind, Failure, Key, OutcomeKind, Verdict,
    batch::{BatchService, Handler, OnFailure, RecordInfo, sqs::Sqs},
    clock::Clock,
    record::Status,
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tracing::Level;

use crate::{
    sqs::dead_letters::{Act, Letters, dead_lettered},
    support::collector::Collector,
    world::{START, World, batch, fifo, ids, millis, order, reported, seconds, work},
};

/// The delivery count of each message.
const DELIVERIES: u32 = 3;

const FAILURES: [&str; 4] = ["transient", "unknown", "panic", "panic at once"];

/// Returns a group whose first message has this act, with two more behind it.
fn group(act: &str) -> SqsEvent {
    fifo([work("A", act, 10), order("B"), order("C")].map(|body| ("a", body)))
}

/// Returns a group with these delivery counts.
fn delivered<const N: usize>(bodies: [Value; N], times: [u32; N]) -> SqsEvent {
    let mut event = fifo(bodies.map(|body| ("a", body)));
    for (message, times) in event.records.iter_mut().zip(times) {
        message.attributes.insert("ApproximateReceiveCount".to_owned(), times.to_string());
    }
    event
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn a_head_that_fails_on_its_last_receive_is_dead_lettered_and_others_run() {
    for act in FAILURES {
        for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
            let (world, letters) =
                (World::with(|builder| builder.after_unknown(policy)), Letters::that(Act::Take(millis(50))));
            let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES);
            let processed = world.process(&service, group(act)).await;
            assert_eq!((reported(&processed), dead_lettered(&processed)), (vec![], ids(0..1)), "{act}");
            assert_eq!((letters.ids(), world.journal.keys()), (ids(0..1), vec!["A".into(), "B".into(), "C".into()]));
            let status = (act == "unknown" || act.starts_with("panic")).then_some(Status::InProgress);
            assert_eq!(world.status("A").await, status, "{act}: what is made of its claim does not change");
            assert_eq!(world.journal.held(), usize::from(status.is_some()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn before_its_last_delivery_a_failing_head_holds_up_its_group() {
    for act in FAILURES {
        let (world, letters) = (World::new(), Letters::new());
        let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES + 1);
        assert_eq!(reported(&world.process(&service, group(act)).await), ids(0..3), "{act}");
        assert!(letters.ids().is_empty());
        let never_told = world.service().dead_letters(letters.clone());
        world.process(&never_told, fifo([("b", work("D", act, 10))])).await;
        assert!(letters.ids().is_empty(), "the queue's maximum is not known");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_on_its_last_delivery_begins_in_its_place() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters).max_receive_count(DELIVERIES).concurrency(1);
    let event = fifo([("a", order("A")), ("b", order("B")), ("a", order("C"))]);
    assert!(reported(&world.process(&service, event).await).is_empty());
    assert_eq!(world.journal.keys(), ["A", "B", "C"]);
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn a_failed_head_that_cannot_be_dead_lettered_blocks_its_group() {
    for act in [Act::Refuse, Act::Panic, Act::Hang] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES);
        let processed = world.process(&service, group("transient")).await;
        assert_eq!(reported(&processed), ids(0..3), "{act:?}");
        assert_eq!(processed.records[0].outcome, Ok(OutcomeKind::Failed(Verdict::Transient)));
        assert_eq!(world.journal.keys(), ["A"]);
        for key in ["A", "B", "C"] {
            assert_eq!(world.record(key).await, None, "{act:?}: the claim of {key} is released");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_after_the_other_on_its_last_delivery_is_dead_lettered() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES);
    let bodies = || [work("A", "transient", 10), work("B", "panic", 10), work("C", "transient", 10), order("D")];
    let processed = world.process(&service, delivered(bodies(), [3, 4, 2, 2])).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (ids(2..4), ids(0..2)));
    assert_eq!(letters.ids(), ["m0", "m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_dead_lettered_in_any_delivery() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone()).max_receive_count(10);
    assert!(reported(&world.process(&service, group("permanent")).await).is_empty());
    assert_eq!(letters.ids(), ["m0"]);
}

#[tokio::test(start_paused = true)]
async fn duplicates_of_a_dead_lettered_head_block_nothing() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES);
    let failing = || work("A", "transient", 10);
    let event = fifo([("a", failing()), ("a", failing()), ("a", order("B")), ("b", failing()), ("b", order("C"))]);
    let processed = world.process(&service, event).await;
    assert!(reported(&processed).is_empty());
    assert_eq!(dead_lettered(&processed), ["m0", "m1", "m3"]);
    assert_eq!(letters.ids(), ["m0"], "one letter for one operation");
    assert_eq!(world.journal.times_run().len(), 3);
}

// Tests B3, B11.
#[tokio::test(start_paused = true)]
async fn a_mismatch_on_its_last_receive_is_dead_lettered_and_others_run() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES);
    let event = fifo([work("A", "succeed", 0), work("A", "succeed", 1), order("B")].map(|body| ("a", body)));
    let processed = world.process(&service, event).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (vec![], ids(1..2)));
    assert_eq!((letters.ids(), world.journal.keys()), (ids(1..2), vec!["A".into(), "B".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_dead_lettered_head_does_not_stop_the_batch() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters).max_receive_count(DELIVERIES);
    let service = service.on_failure(OnFailure::StopBatch);
    let event = fifo([("a", work("A", "transient", 10)), ("b", work("B", "succeed", 50)), ("b", order("C"))]);
    assert!(reported(&world.process(&service, event).await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_did_not_run_is_not_dead_lettered_on_its_last_delivery() {
    let (world, letters) = (World::new(), Letters::new());
    world.store.next(Call::Claim, Fault::AccessDenied);
    let service = world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES);
    let processed = world.process(&service, fifo([("a", order("A"))])).await;
    assert_eq!(reported(&processed), ["m0"]);
    world.put("X", Status::InProgress, "");
    let event = LambdaEvent::new(fifo([("a", order("X"))]), world.left(seconds(5)));
    assert_eq!(reported(&service.process(event).await), ids(0..1));
    assert!(letters.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_head_dead_lettered_past_the_handler_deadline_no_other_starts() {
    let (world, letters) = (World::new(), Letters::that(Act::Take(millis(100))));
    let service = world.service().dead_letters(letters).max_receive_count(DELIVERIES).last_attempt_timeout(millis(500));
    let event = fifo([("a", work("A", "transient", 499)), ("a", order("B"))]);
    let processed = service.process(LambdaEvent::new(event, world.left(seconds(1)))).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (ids(1..2), ids(0..1)));
    assert_eq!(processed.records[1].outcome, Ok(OutcomeKind::NotStarted));
    assert_eq!((world.record("B").await, world.clock.now()), (None, START.after(millis(599))));
}

/// Returns the messages that the queue will move according to a warning, each with its outcome.
async fn warned<H, T, Args>(
    world: &World,
    service: &BatchService<Sqs, H, T, Args>,
    event: SqsEvent,
) -> Vec<(String, String)>
where
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    let (collector, guard) = Collector::install();
    let _ = service.process(LambdaEvent::new(event, world.left(seconds(5)))).await;
    drop(guard);
    let lines = collector.lines().into_iter().filter(|line| line.get("message").contains("the last delivery"));
    lines
        .map(|line| {
            assert_eq!(line.level, Level::WARN);
            (line.get("message_id").to_owned(), line.get("outcome").to_owned())
        })
        .collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(id, outcome)| (id.to_owned(), outcome.to_owned())).to_vec()
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn without_dead_letters_a_warning_names_each_message_the_queue_loses() {
    let world = World::new();
    let told = world.service().max_receive_count(DELIVERIES);
    let skipped = [("m1", "skipped"), ("m2", "skipped")];
    for (act, outcome) in
        [("transient", "failed"), ("permanent", "failed"), ("panic", "panicked"), ("hang", "cancelled")]
    {
        let world = World::new();
        let told = world.service().max_receive_count(DELIVERIES);
        let expected = pairs([("m0", outcome), skipped[0], skipped[1]]);
        assert_eq!(warned(&world, &told, group(act)).await, expected, "{act}");
    }
    let bodies = || [work("D", "transient", 0), order("E")];
    assert_eq!(warned(&world, &told, delivered(bodies(), [3, 2])).await, pairs([("m0", "failed")]));
    assert_eq!(warned(&world, &told, delivered(bodies(), [2, 3])).await, pairs([("m1", "skipped")]));
    let slow = || [work("F", "succeed", 3_000), order("G"), order("H")];
    let not_started = pairs([("m1", "not_started"), ("m2", "skipped")]);
    assert_eq!(warned(&world, &told, delivered(slow(), [3, 3, 3])).await, not_started);
}

#[tokio::test(start_paused = true)]
async fn no_warning_is_logged_for_messages_that_are_not_lost() {
    let world = World::new();
    let told = || world.service().max_receive_count(DELIVERIES);
    assert_eq!(warned(&world, &told(), group("succeed")).await, []);
    let standard = batch([work("D", "transient", 0), json!("not an order")]);
    assert_eq!(warned(&world, &told(), standard).await, [], "a standard queue has no order");
    assert_eq!(warned(&world, &world.service(), group("transient")).await, [], "the maximum is not known");
    let early = world.service().max_receive_count(DELIVERIES + 1);
    assert_eq!(warned(&world, &early, group("transient")).await, []);
    let aside = told().dead_letters(Letters::new());
    assert_eq!(warned(&world, &aside, fifo([("a", work("F", "transient", 0)), ("a", order("G"))])).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_failure_to_dead_letter_on_the_last_delivery_logs_a_warning() {
    let (world, letters) = (World::new(), Letters::that(Act::Refuse));
    let service = world.service().dead_letters(letters).max_receive_count(DELIVERIES);
    let expected = pairs([("m0", "failed"), ("m1", "skipped"), ("m2", "skipped")]);
    assert_eq!(warned(&world, &service, group("transient")).await, expected);
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn an_undecodable_head_on_its_last_delivery_does_not_block_its_group() {
    let burn = || std::panic::resume_unwind(Box::new("the shop is on fire"));
    let decode = move |act: &str| match act {
        "panic" => burn(),
        "transient" | "unknown" => {
            let verdict = if act == "transient" { Verdict::Transient } else { Verdict::Unknown };
            Err::<(), BoxError>("the schemas are away".into()).classify(|_| verdict).map_err(BoxError::from)
        }
        _ => Ok(()),
    };
    for act in ["panic", "transient", "unknown"] {
        for at in ["the decoder", "the key", "the predicate"] {
            if at == "the predicate" && act != "panic" {
                continue;
            }
            for deliveries in [DELIVERIES, DELIVERIES + 1] {
                let (world, letters) = (World::new(), Letters::new());
                let act_of = |body: &[u8]| {
                    let job: Value = serde_json::from_slice(body).unwrap_or_default();
                    job["act"].as_str().unwrap_or_default().to_owned()
                };
                let key = Key::from_fn(move |delivery| {
                    if at == "the key" {
                        decode(&act_of(delivery.body()))?;
                    }
                    Ok(delivery.message_id().map(str::to_owned))
                });
                let decoder = move |_: &RecordInfo, body: &String| {
                    if at == "the decoder" {
                        decode(&act_of(body.as_bytes()))?;
                    }
                    Ok(serde_json::from_str::<Value>(body)?)
                };
                let journal = world.journal.clone();
                let handler = move |job: Value| {
                    journal.ran(job["order_id"].as_str().unwrap_or_default());
                    async { Ok::<_, Failure>(()) }
                };
                let service = world.once.batch(Sqs, key, decoder, handler).dead_letters(letters.clone());
                let service = service.max_receive_count(deliveries).ignore(move |delivery| {
                    if at == "the predicate" {
                        let _ = decode(&act_of(delivery.body()));
                    }
                    false
                });
                let processed = world.process(&service, group(act)).await;
                let is_last = deliveries == DELIVERIES;
                let (failed, dead) = if is_last { (vec![], ids(0..1)) } else { (ids(0..3), vec![]) };
                assert_eq!((reported(&processed), letters.ids()), (failed, dead), "{act} in {at}");
                assert_eq!(processed.records[0].outcome, Err(ErrorKind::Decode));
                assert_eq!(world.journal.keys(), if is_last { vec!["B", "C"] } else { vec![] }, "{act} in {at}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_delivers_no_message_at_all_is_a_configuration_error() {
    let world = World::new();
    let error = world.service().max_receive_count(0).validate().unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("max_receive_count"), "{error}");
    let refused = world.process(&world.service().max_receive_count(0), group("transient")).await;
    assert_eq!(refused.response.unwrap_err().kind(), ErrorKind::Config);
    assert!(world.service().max_receive_count(1).validate().is_ok());
}

// Tests B5.
#[tokio::test(start_paused = true)]
async fn a_cancelled_heads_duration_does_not_predict_how_long_others_take() {
    let (world, letters) = (World::new(), Letters::new());
    let service =
        world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES).last_attempt_timeout(seconds(20));
    // When the head is cancelled, less than ten seconds are left.
    let processed = world.process_within(&service, group("hang"), seconds(30)).await;
    assert_eq!((reported(&processed), letters.ids()), (vec![], ids(0..1)));
    assert_eq!(world.journal.keys(), ["A", "B", "C"]);
}

#[tokio::test(start_paused = true)]
async fn a_finished_heads_duration_predicts_how_long_others_take() {
    let (world, letters) = (World::new(), Letters::new());
    let service =
        world.service().dead_letters(letters.clone()).max_receive_count(DELIVERIES).last_attempt_timeout(seconds(25));
    let event = fifo([work("A", "transient", 20_000), order("B"), order("C")].map(|body| ("a", body)));
    let processed = world.process_within(&service, event, seconds(30)).await;
    assert_eq!((reported(&processed), letters.ids()), (ids(1..3), ids(0..1)));
    assert_eq!(world.journal.keys(), ["A"]);
}
