//! Dead letters: a record whose retry cannot succeed is dead-lettered, and then acknowledged.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::SqsBatchResponse;
use lambda_once::{
    BoxError, BoxFuture, ErrorKind, Failure, Key, MissingKey, OutcomeKind, PermanentFailures, Verdict,
    batch::{DeadLetter, DeadLetters, FullBatchFailure, OnFailure, Processed, RecordInfo, sqs::Sqs},
    clock::Clock,
    record::{KeyHash, Status},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

use crate::{
    support::collector::Collector,
    world::{START, World, batch, fifo, ids, millis, order, orders, reported, seconds, work},
};

/// A dead-lettered record, in the form that was sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Letter {
    pub(crate) id: String,
    pub(crate) body: String,
    key: Option<KeyHash>,
    pub(crate) outcome: Result<OutcomeKind, ErrorKind>,
    pub(crate) reason: &'static str,
    error: Option<String>,
}

/// The behavior of the dead-letter destination for each record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Take(Duration),
    Refuse,
    RefuseUnprintably,
    Panic,
    PanicAtOnce,
    Hang,
    HangAndPanicWhenDropped,
}

/// A dead-letter destination.
#[derive(Clone, Debug)]
pub(crate) struct Letters {
    act: Act,
    sent: Arc<Mutex<Vec<Letter>>>,
    at_once: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

impl Letters {
    pub(crate) fn new() -> Self {
        Self::that(Act::Take(Duration::ZERO))
    }

    pub(crate) fn that(act: Act) -> Self {
        Self { act, sent: Arc::default(), at_once: Arc::default(), most_at_once: Arc::default() }
    }

    /// Returns all sent records, by the ids of their messages.
    pub(crate) fn sent(&self) -> Vec<Letter> {
        let mut sent = self.sent.lock().unwrap().clone();
        sent.sort_by_key(|letter| letter.id[1..].parse::<u32>().unwrap());
        sent
    }

    /// Returns the ids of the sent records, in the order in which they were sent.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.sent.lock().unwrap().iter().map(|letter| letter.id.clone()).collect()
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("in drop"));
    }
}

struct Unprintable;

impl fmt::Debug for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::panic::resume_unwind(Box::new("in Debug"))
    }
}

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::panic::resume_unwind(Box::new("in Display"))
    }
}

impl std::error::Error for Unprintable {}

impl DeadLetters for Letters {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        if let Act::PanicAtOnce = self.act {
            std::panic::resume_unwind(Box::new("the post is on fire"));
        }
        Box::pin(async move {
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            self.sent.lock().unwrap().push(Letter {
                id: letter.record.id().to_owned(),
                body: String::from_utf8(letter.body.to_vec()).unwrap(),
                key: letter.key,
                outcome: letter.outcome,
                reason: letter.reason,
                error: letter.error.map(str::to_owned),
            });
            match self.act {
                Act::Take(time) => tokio::time::sleep(time).await,
                Act::Refuse => return Err("the post is closed".into()),
                Act::RefuseUnprintably => return Err(Unprintable.into()),
                Act::Hang => std::future::pending().await,
                Act::HangAndPanicWhenDropped => {
                    let _panics = PanicsWhenDropped;
                    std::future::pending::<()>().await;
                }
                Act::Panic | Act::PanicAtOnce => std::panic::resume_unwind(Box::new("the post is on fire")),
            }
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

/// Returns the ids of the records that are reported as dead-lettered.
pub(crate) fn dead_lettered(processed: &Processed<SqsBatchResponse>) -> Vec<String> {
    let aside = processed.records.iter().filter(|report| report.dead_lettered);
    aside.map(|report| report.record.id().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn unretryable_records_are_dead_lettered_with_the_reason_and_acknowledged() {
    for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
        let (world, letters) = (World::new(), Letters::new());
        world.put("failed", Status::Failed, "\"no\"");
        world.deliver([work("other", "succeed", 0)]).await;
        let service = world.service().dead_letters(letters.clone()).permanent_failures(policy);
        let bodies = [
            work("A", "permanent", 0),
            order("failed"),
            work("other", "succeed", 1),
            json!("not an order"),
            order(""),
            order("B"),
            work("C", "transient", 0),
        ];
        let processed = world.process(&service, batch(&bodies)).await;
        assert_eq!((reported(&processed), dead_lettered(&processed)), (ids(6..7), ids(0..5)));
        let letter = |i: usize, key: &str, outcome, reason, error: Option<&str>| Letter {
            id: format!("m{i}"),
            body: bodies[i].to_string(),
            key: (!key.is_empty()).then(|| world.hash(key)),
            outcome,
            reason,
            error: error.map(str::to_owned),
        };
        let sent = letters.sent();
        let undecodable = sent[3].error.as_deref();
        assert!(undecodable.unwrap().contains("the body does not match the handler's type"), "{undecodable:?}");
        let keyless = sent[4].error.as_deref();
        assert!(keyless.is_some());
        let permanent = OutcomeKind::Failed(Verdict::Permanent);
        let expected = [
            letter(0, "A", Ok(permanent), "failed", Some("the shop is closed")),
            letter(1, "failed", Ok(OutcomeKind::ReplayedFailure), "replayed_failure", None),
            letter(2, "other", Ok(OutcomeKind::Mismatch), "mismatch", None),
            letter(3, "", Err(ErrorKind::Payload), "invalid_payload", undecodable),
            letter(4, "", Err(ErrorKind::KeyMissing), "key_missing", keyless),
        ];
        assert_eq!(sent, expected);
        assert_eq!(processed.records[0].outcome, Ok(permanent), "its outcome is what it was");
        assert_eq!(world.status("A").await, Some(Status::Failed));
        assert_eq!(world.records().await.len(), 4, "the first four keys, and none for what has no key");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_dead_lettered_is_reported_and_alone_affected() {
    for act in [Act::Refuse, Act::RefuseUnprintably, Act::Panic, Act::PanicAtOnce] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service = world.service().dead_letters(letters.clone()).permanent_failures(PermanentFailures::Acknowledge);
        let bodies = [work("A", "permanent", 0), order("B"), json!("not an order"), order("C")];
        let processed = world.process(&service, batch(bodies)).await;
        assert_eq!(reported(&processed), ["m0", "m2"], "{act:?}: nothing is lost, whatever the policy was");
        assert!(dead_lettered(&processed).is_empty());
        assert_eq!(processed.records[0].outcome, Ok(OutcomeKind::Failed(Verdict::Permanent)));
        assert_eq!(processed.records[2].outcome, Err(ErrorKind::Payload));
        assert_eq!(world.journal.keys(), ["A", "B", "C"]);

        let again = Letters::new();
        let service = world.service().dead_letters(again.clone());
        assert!(reported(&world.process(&service, batch([work("A", "permanent", 0)])).await).is_empty());
        assert_eq!(again.sent()[0].reason, "replayed_failure", "the next delivery tries again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_dead_letter_is_waited_for_no_longer_than_there_is_time() {
    for act in [Act::Hang, Act::HangAndPanicWhenDropped] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service = world.service().dead_letters(letters.clone());
        let bodies = std::iter::repeat_n(json!("not an order"), 25).chain([order("A")]);
        let processed = world.process(&service, batch(bodies)).await;
        assert_eq!(reported(&processed), ids(0..25), "{act:?}");
        assert_eq!(world.journal.keys(), ["A"]);
        // The reserve is two seconds, and the first of them is for settles.
        assert_eq!(world.clock.now(), START.after(seconds(59)));
        assert_eq!(letters.ids().len(), 10, "what comes too late is not begun");
    }
}

#[tokio::test(start_paused = true)]
async fn records_are_dead_lettered_after_the_handler_deadline_if_time_is_left() {
    let (world, letters) = (World::new(), Letters::that(Act::Take(millis(200))));
    let service = world.service().dead_letters(letters.clone()).concurrency(1);
    // Ten are sent at a time, 200 ms each. The last handler ends just before the handler deadline, half a second before
    // the end.
    let late = work("A", "permanent", 499);
    let event = LambdaEvent::new(batch([late, order("B")]), world.left(seconds(1)));
    let processed = service.process(event).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (ids(1..2), ids(0..1)));
    assert_eq!(processed.records[1].outcome, Ok(OutcomeKind::NotStarted));
    assert_eq!(world.clock.now(), START.after(millis(699)));
}

#[tokio::test(start_paused = true)]
async fn at_most_ten_records_are_dead_lettered_at_once_beside_the_handlers() {
    let (world, letters) = (World::new(), Letters::that(Act::Take(seconds(1))));
    let service = world.service().dead_letters(letters.clone());
    let bodies = std::iter::repeat_n(json!("not an order"), 25).chain(orders(10, "succeed", 3_000));
    let processed = world.process(&service, batch(bodies)).await;
    assert!(reported(&processed).is_empty());
    assert_eq!((letters.ids().len(), letters.most_at_once.load(Ordering::SeqCst)), (25, 10));
    assert_eq!(world.clock.now(), START.after(seconds(3)));
}

#[tokio::test(start_paused = true)]
async fn at_most_a_hundred_decoded_records_wait_to_be_dead_lettered() {
    let (world, letters) = (World::new(), Letters::that(Act::Hang));
    let decoded = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&decoded);
    let decode = move |_: &RecordInfo, _: &String| {
        count.fetch_add(1, Ordering::SeqCst);
        Err::<Value, BoxError>("not an order".into())
    };
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    let service = world.once.batch(Sqs, Key::message_id(), decode, handler).dead_letters(letters.clone());
    let processed = world.process(&service, batch(orders(500, "succeed", 0))).await;
    assert_eq!(reported(&processed), ids(0..500));
    assert_eq!((letters.ids().len(), decoded.load(Ordering::SeqCst)), (10, 110));
}

#[tokio::test(start_paused = true)]
async fn records_no_longer_dead_lettered_leave_room_to_decode_others() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone());
    let bad = std::iter::repeat_n(("a", json!("not an order")), 120);
    let event = fifo([("a", work("A", "transient", 50))].into_iter().chain(bad).chain([("b", order("B"))]));
    let processed = world.process(&service, event).await;
    assert_eq!((reported(&processed), letters.ids()), (ids(0..121), vec![]));
    assert_eq!(world.journal.keys(), ["A", "B"]);
}

// Tests B3.
#[tokio::test(start_paused = true)]
async fn duplicates_of_a_dead_lettered_record_are_acknowledged_with_it() {
    for (act, failed) in [(Act::Take(millis(10)), 0), (Act::Refuse, 2)] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service = world.service().dead_letters(letters.clone());
        let duplicates = [work("A", "permanent", 0), work("A", "permanent", 0), order("B")];
        let processed = world.process(&service, batch(duplicates)).await;
        assert_eq!(reported(&processed), ids(0..failed));
        assert_eq!(letters.ids(), ["m0"], "one letter for one operation");
        // One DLQ message is for both.
        assert_eq!(dead_lettered(&processed), ids(0..2 - failed));
    }
}

// Tests B3.
#[tokio::test(start_paused = true)]
async fn a_mismatch_within_a_batch_is_reported_and_dead_lettered_if_redelivered() {
    for act in ["succeed", "permanent", "transient"] {
        let (world, letters) = (World::new(), Letters::new());
        let service = world.service().dead_letters(letters.clone());
        let processed = world.process(&service, batch([work("A", act, 0), work("A", act, 1)])).await;
        assert_eq!(processed.records[1].outcome, Ok(OutcomeKind::Mismatch), "{act}");
        assert!(reported(&processed).contains(&"m1".to_owned()), "{act}");
        assert!(!letters.ids().contains(&"m1".to_owned()), "{act}");
        if act != "transient" {
            let again = Letters::new();
            let service = world.service().dead_letters(again.clone());
            assert!(reported(&world.process(&service, batch([work("A", act, 1)])).await).is_empty());
            assert_eq!(again.sent()[0].reason, "mismatch");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_of_a_standard_queue_is_never_dead_lettered() {
    let (world, letters) = (World::new(), Letters::new());
    world.put("running", Status::InProgress, "");
    let service = world.service().dead_letters(letters.clone()).max_receive_count(1);
    let acts = ["transient", "unknown", "panic", "hang"];
    let bodies = acts.map(|act| work(act, act, 0)).into_iter().chain([order("running")]);
    assert_eq!(reported(&world.process(&service, batch(bodies)).await), ids(0..5));
    assert!(letters.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_without_protection_is_dead_lettered_too() {
    let (world, letters) = (World::with(|builder| builder.missing_key(MissingKey::RunUnprotected)), Letters::new());
    let service = world.service().dead_letters(letters.clone());
    assert!(reported(&world.process(&service, batch([work("", "permanent", 0)])).await).is_empty());
    assert_eq!((letters.sent()[0].key, letters.sent()[0].reason), (None, "failed"));
}

#[tokio::test(start_paused = true)]
async fn in_an_order_the_group_continues_when_its_head_is_dead_lettered() {
    for (act, reports) in [(Act::Take(millis(50)), vec![]), (Act::Refuse, ids(1..4))] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service = world.service().dead_letters(letters.clone());
        let bodies = [order("A"), work("B", "permanent", 10), json!("not an order"), order("C")];
        let processed = world.process(&service, fifo(bodies.map(|body| ("a", body)))).await;
        assert_eq!(reported(&processed), reports, "{act:?}");
        let (sent, keys): (&[&str], &[&str]) =
            if reports.is_empty() { (&["m1", "m2"], &["A", "B", "C"]) } else { (&["m1"], &["A", "B"]) };
        assert_eq!(letters.ids(), sent);
        assert_eq!(world.journal.keys(), keys);
        assert_eq!(world.journal.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_order_nothing_is_dead_lettered_early_or_behind_a_failure() {
    let (world, letters) = (World::new(), Letters::new());
    world.put("failed", Status::Failed, "\"no\"");
    let service = world.service().dead_letters(letters.clone());
    let event = || {
        let bad = [json!("not an order"), order("failed")].map(|body| ("a", body));
        fifo([("a", work("A", "transient once", 50))].into_iter().chain(bad))
    };
    let processed = world.process(&service, event()).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (ids(0..3), vec![]));
    assert!(letters.ids().is_empty(), "they come again, and would be put aside twice");
    assert_eq!(processed.records[1].outcome, Ok(OutcomeKind::Skipped));

    assert!(reported(&world.process(&service, event()).await).is_empty());
    assert_eq!(letters.ids(), ["m1", "m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_record_stops_the_batch_unless_it_is_dead_lettered() {
    for (act, reports) in [(Act::Take(millis(10)), vec![]), (Act::Refuse, vec!["m0", "m2"])] {
        let (world, letters) = (World::new(), Letters::that(act));
        let service = world.service().dead_letters(letters).on_failure(OnFailure::StopBatch);
        let event = fifo([("a", work("A", "permanent", 10)), ("b", work("B", "succeed", 50)), ("b", order("C"))]);
        assert_eq!(reported(&world.process(&service, event).await), reports, "{act:?}");
        assert_eq!(world.journal.keys().len(), 3 - reports.len() / 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_running_when_the_batch_stopped_is_dead_lettered_anyway() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.service().dead_letters(letters.clone()).on_failure(OnFailure::StopBatch);
    let event = fifo([("a", work("A", "transient", 10)), ("b", work("B", "permanent", 30)), ("b", order("C"))]);
    let processed = world.process(&service, event).await;
    assert_eq!((reported(&processed), dead_lettered(&processed)), (vec!["m0".to_owned(), "m2".to_owned()], ids(1..2)));
    assert_eq!(world.journal.keys(), ["A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_dead_lettered_in_full_is_no_failure() {
    for (act, is_error) in [(Act::Take(Duration::ZERO), false), (Act::Refuse, true)] {
        let world = World::new();
        let service = world.service().dead_letters(Letters::that(act)).on_full_batch_failure(FullBatchFailure::Error);
        let bodies = [work("A", "permanent", 0), json!("not an order")];
        let response = world.process(&service, batch(bodies)).await.response;
        assert_eq!(response.is_err(), is_error, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_reports_dead_lettered_records_and_failures_to_dead_letter() {
    for (act, aside, error) in [
        (Act::Take(Duration::ZERO), "true", None),
        (Act::Refuse, "", Some("the post is closed")),
        (Act::Panic, "", Some("dead-lettering it panicked")),
        (Act::Hang, "", Some("there was no time left")),
    ] {
        let world = World::new();
        let service = world.service().dead_letters(Letters::that(act));
        let (collector, guard) = Collector::install();
        world.process(&service, batch([work("A", "permanent", 0)])).await;
        drop(guard);
        let lines = collector.lines();
        let record = lines.iter().find(|line| line.get("message") == "record").unwrap();
        assert_eq!((record.get("outcome"), record.get("dead_lettered")), ("failed", aside), "{act:?}");
        let failed = lines.iter().find(|line| line.level == tracing::Level::ERROR);
        assert_eq!(failed.map(|line| line.get("error")), error, "{act:?}");
    }
}

/// A body whose instances are counted.
#[derive(Clone, Debug)]
struct Counted(#[expect(dead_code, reason = "it is only counted")] Arc<()>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        b"{}"
    }
}

mod counting {
    use std::{borrow::Cow, sync::Arc};

    use lambda_once::{
        Error,
        batch::{RecordInfo, Source},
    };

    use super::Counted;

    /// A source of records with counted bodies.
    #[derive(Clone, Debug)]
    pub(super) struct Counting(pub(super) Arc<()>);

    impl Source for Counting {
        type Event = Vec<u32>;
        type Record = u32;
        type Rest = ();
        type Body = Counted;
        type Response = ();
        const OPERATION: &'static str = "counting";

        fn split(&self, event: Vec<u32>) -> Result<(Vec<u32>, ()), Error> {
            Ok((event, ()))
        }

        fn lane<'a>(&self, _: &'a u32) -> Option<Cow<'a, str>> {
            None
        }

        fn open(&self, record: u32) -> (RecordInfo, Counted) {
            (RecordInfo::new(record.to_string()), Counted(Arc::clone(&self.0)))
        }

        fn respond(&self, (): (), _: &[Arc<RecordInfo>]) -> Result<(), Error> {
            Ok(())
        }
    }
}

/// Returns the number of bodies in memory when each of ten handlers begins, one after the other.
async fn bodies_in_memory(letters: Option<Letters>) -> Vec<usize> {
    let world = World::new();
    let bodies = Arc::new(());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (counted, noted) = (Arc::downgrade(&bodies), Arc::clone(&seen));
    let handler = move |(): ()| {
        noted.lock().unwrap().push(counted.strong_count());
        async {
            tokio::time::sleep(millis(10)).await;
            Ok::<_, Failure>(())
        }
    };
    let source = counting::Counting(bodies);
    let mut service = world.once.batch(source, Key::message_id(), |_, _| Ok(()), handler).concurrency(1);
    if let Some(letters) = letters {
        service = service.dead_letters(letters);
    }
    service.process(LambdaEvent::new((0..10).collect(), world.left(seconds(60)))).await.response.unwrap();
    seen.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn bodies_are_kept_only_for_dead_letters_and_until_records_are_decided() {
    let without = bodies_in_memory(None).await;
    let clones_of_the_source = without[0];
    assert_eq!(without, [clones_of_the_source; 10]);
    let with = bodies_in_memory(Some(Letters::new())).await;
    let kept: Vec<_> = with.iter().map(|count| count - clones_of_the_source).collect();
    assert_eq!(kept, [10, 10, 9, 8, 7, 6, 5, 4, 3, 2], "the one that runs, and the last one while it is being settled");
}

#[tokio::test(start_paused = true)]
async fn a_letter_shows_no_body() {
    #[derive(Debug)]
    struct Shown(Arc<Mutex<String>>);
    impl DeadLetters for Shown {
        fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
            *self.0.lock().unwrap() = format!("{letter:?}");
            Box::pin(async { Ok(()) })
        }
    }
    let (world, shown) = (World::new(), Arc::default());
    let service = world.service().dead_letters(Shown(Arc::clone(&shown)));
    let body: Value = json!({"order_id": "secret-1", "act": 7, "card": "secret-2"});
    world.process(&service, batch([body])).await;
    let shown = shown.lock().unwrap();
    assert!(shown.contains("m0") && !shown.contains("secret"), "{shown}");
}
