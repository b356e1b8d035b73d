//! Batches whose handlers have a probe for lost outcomes.

use std::sync::{Arc, Mutex};

use lambda_once::{
    AfterUnknown, ErrorKind, Failure, Interruption, Key, OnPanic, OutcomeKind, ProbeResult, RecordContext, Verdict,
    batch::{BatchService, Handler, sqs::Sqs},
    clock::Clock,
    record::{Status, StoredData},
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

use crate::{
    support::collector::Collector,
    world::{START, World, batch, fifo, ids, invoke, millis, order, orders, reported, seconds, work},
};

/// The result of a probe for an order.
#[derive(Clone, Copy, Debug)]
enum Finds {
    Done,
    Nothing,
    Error,
    PermanentError,
    Panic,
    PanicAtOnce,
    Hang,
}

/// A world with a probe, and the log of its probes and runs.
struct Lab {
    world: World,
    log: Arc<Mutex<Vec<String>>>,
}

impl Lab {
    fn new() -> Self {
        Self::on(|settings| settings)
    }

    fn on(settings: impl FnOnce(lambda_once::Builder) -> lambda_once::Builder) -> Self {
        let world = World::with(|builder| settings(builder.after_unknown(AfterUnknown::Probe)));
        Self { world, log: Arc::default() }
    }

    /// Returns the orders that were probed and those that ran, in chronological order.
    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn service<'a>(&self, finds: Finds) -> BatchService<Sqs, impl Handler<Value, (Value,)> + use<'a>, Value, (Value,)> {
        let note = |what: &'static str| {
            let log = Arc::clone(&self.log);
            move |order: &Value| {
                let key = order["order_id"].as_str().unwrap().to_owned();
                log.lock().unwrap().push(format!("{what} {key}"));
            }
        };
        let (ran, asked) = (note("ran"), note("asked"));
        let handler = move |order: Value| {
            ran(&order);
            async move {
                tokio::time::sleep(millis(order["ms"].as_u64().unwrap())).await;
                Ok::<_, Failure>("ran".to_owned())
            }
        };
        let probe = move |order: Value, context: RecordContext| {
            assert!(context.took_over() && context.claim().is_some());
            asked(&order);
            if let Finds::PanicAtOnce = finds {
                std::panic::resume_unwind(Box::new("no such order"));
            }
            async move {
                match finds {
                    Finds::Done => Ok(ProbeResult::Done("found".to_owned())),
                    Finds::Nothing => Ok(ProbeResult::NotDone),
                    Finds::Error => Err(Failure::transient("no answer")),
                    Finds::PermanentError => Err(Failure::permanent("no such account")),
                    Finds::Hang => std::future::pending().await,
                    Finds::Panic | Finds::PanicAtOnce => std::panic::resume_unwind(Box::new("no such order")),
                }
            }
        };
        self.world.once.sqs(Key::pointer("/order_id"), handler).probe(probe)
    }

    /// Delivers the order A, whose outcome was lost, and returns its new outcome and whether it is reported.
    async fn deliver(&self, finds: Finds) -> (Result<OutcomeKind, ErrorKind>, bool) {
        let processed = self.world.process(&self.service(finds), batch([order("A")])).await;
        (processed.records[0].outcome, !reported(&processed).is_empty())
    }

    async fn lost() -> Self {
        let lab = Self::new();
        lab.world.abandon("A");
        lab
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_a_probe_finds_done_is_recorded_and_not_run_again() {
    let lab = Lab::lost().await;
    assert_eq!(lab.deliver(Finds::Done).await, (Ok(OutcomeKind::Recovered), false));
    assert_eq!(lab.log(), ["asked A"]);
    let record = lab.world.record("A").await.unwrap();
    assert_eq!((record.status, record.attempt), (Status::Completed, 2));
    assert!(matches!(&record.result.data, Some(StoredData::Json(json)) if json == "\"found\""), "{:?}", record.result);
    assert_eq!(lab.deliver(Finds::Panic).await, (Ok(OutcomeKind::Replayed), false));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_a_probe_finds_not_done_runs() {
    let lab = Lab::lost().await;
    assert_eq!(lab.deliver(Finds::Nothing).await, (Ok(OutcomeKind::TookOver), false));
    assert_eq!(lab.log(), ["asked A", "ran A"]);
    assert_eq!(lab.world.status("A").await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_called_only_for_a_record_that_took_over() {
    let lab = Lab::new();
    let world = &lab.world;
    world.put("done", Status::Completed, "1");
    world.put("running", Status::InProgress, "1");
    world.abandon("lost");
    let bodies = ["new", "done", "running", "lost"].map(order);
    assert_eq!(reported(&world.process(&lab.service(Finds::Done), batch(bodies)).await), ids(2..3));
    assert_eq!(lab.log(), ["ran new", "asked lost"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_hands_back_its_claim_and_the_next_delivery_probes_again() {
    for finds in [Finds::Error, Finds::PermanentError] {
        let lab = Lab::lost().await;
        let transient = OutcomeKind::Failed(Verdict::Transient);
        assert_eq!(lab.deliver(finds).await, (Ok(transient), true), "{finds:?}");
        let record = lab.world.record("A").await.unwrap();
        assert_eq!((record.status, record.owner, record.attempt), (Status::InProgress, None, 2));
        assert_eq!(lab.deliver(Finds::Done).await, (Ok(OutcomeKind::Recovered), false), "at once");
        assert_eq!(lab.log(), ["asked A", "asked A"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_or_hangs_keeps_the_claim_until_it_lapses() {
    for finds in [Finds::Panic, Finds::PanicAtOnce, Finds::Hang] {
        let lab = Lab::lost().await;
        let (interruption, until) = match finds {
            Finds::Hang => (Interruption::Cancelled, seconds(58)),
            _ => (Interruption::Panicked, seconds(0)),
        };
        assert_eq!(lab.deliver(finds).await, (Ok(OutcomeKind::Interrupted(interruption)), true), "{finds:?}");
        assert_eq!(lab.world.clock.now(), START.after(until), "{finds:?}");
        assert_eq!(lab.deliver(Finds::Done).await, (Ok(OutcomeKind::InProgress), true), "{finds:?}");
        tokio::time::advance(seconds(63)).await;
        assert_eq!(lab.deliver(Finds::Done).await, (Ok(OutcomeKind::Recovered), false), "{finds:?}");
        assert_eq!(lab.log(), ["asked A", "asked A"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_probe_that_is_set_to_transient_hands_the_claim_back() {
    let lab = Lab::on(|builder| builder.on_panic(OnPanic::Transient));
    lab.world.abandon("A");
    let panicked = OutcomeKind::Interrupted(Interruption::Panicked);
    assert_eq!(lab.deliver(Finds::Panic).await, (Ok(panicked), true));
    assert_eq!(lab.deliver(Finds::Done).await, (Ok(OutcomeKind::Recovered), false));
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_hung_probe_affects_no_other_record() {
    for finds in [Finds::Error, Finds::Panic, Finds::PanicAtOnce, Finds::Hang] {
        let lab = Lab::lost().await;
        let event = batch([order("B"), order("A"), order("A"), order("C")]);
        let processed = lab.world.process(&lab.service(finds), event).await;
        assert_eq!(reported(&processed), ["m1", "m2"], "{finds:?}: and its duplicate");
    }
}

#[tokio::test(start_paused = true)]
async fn duplicates_of_a_record_that_a_probe_found_done_are_acknowledged() {
    let lab = Lab::lost().await;
    let processed = lab.world.process(&lab.service(Finds::Done), batch([order("A"), order("A")])).await;
    let outcomes: Vec<_> = processed.records.iter().map(|report| report.outcome).collect();
    assert_eq!(outcomes, [Ok(OutcomeKind::Recovered), Ok(OutcomeKind::Replayed)]);
    assert!(reported(&processed).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_probe_result_that_cannot_be_recorded_is_acknowledged() {
    let lab = Lab::lost().await;
    lab.world.store.next(Call::Settle, Fault::TableMissing);
    assert_eq!(lab.deliver(Finds::Done).await, (Ok(OutcomeKind::Unrecorded), false));
    assert_eq!(lab.world.status("A").await, Some(Status::InProgress));
}

#[tokio::test(start_paused = true)]
async fn a_probe_counts_as_running() {
    let lab = Lab::new();
    for i in 0..4 {
        lab.world.abandon(&format!("order-{i}"));
    }
    let service = lab.service(Finds::Hang).concurrency(2);
    let reported = invoke(&service, batch(orders(4, "succeed", 0)), lab.world.left(seconds(10))).await.unwrap();
    assert_eq!((reported, lab.log()), (ids(0..4), vec!["asked order-0".to_owned(), "asked order-1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn without_the_probe_that_the_policy_wants_nothing_is_claimed() {
    let lab = Lab::new();
    let service = lab.world.service();
    assert_eq!(service.clone().validate().unwrap_err().kind(), ErrorKind::Config);
    let error = invoke(&service, batch([order("A")]), lab.world.left(seconds(60))).await.unwrap_err();
    assert_eq!((error.kind(), lab.world.store.calls().len()), (ErrorKind::Config, 0));
    assert!(lab.service(Finds::Done).validate().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_the_probe_policy_is_refused() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let lab = Lab::on(|builder| builder.after_unknown(policy));
        let service = lab.service(Finds::Done);
        assert_eq!(service.clone().validate().unwrap_err().kind(), ErrorKind::Config, "{policy:?}");
        let error = invoke(&service, batch([order("A")]), lab.world.left(seconds(60))).await.unwrap_err();
        assert_eq!((error.kind(), lab.world.store.calls().len()), (ErrorKind::Config, 0), "{policy:?}");
        assert!(lab.log().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_disabled_engine_runs_with_a_probe_and_without() {
    let lab = Lab::on(|builder| builder.disabled(true));
    assert_eq!(lab.deliver(Finds::Panic).await, (Ok(OutcomeKind::Executed), false));
    assert!(lab.world.deliver([order("A")]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_is_claimed_only_when_its_handler_is_about_to_start() {
    for (takes, concurrency) in [(100, 1), (100, 3), (2, 3)] {
        let world = World::on(takes, |builder| builder.after_unknown(AfterUnknown::Probe));
        let service = world.service().probe(|_, _| async { Ok::<_, Failure>(ProbeResult::NotDone) });
        let service = service.concurrency(concurrency);
        let bodies = (0..20).map(|i| work(&format!("order-{i}"), "succeed", 20 + 7 * (i % 5)));
        assert!(world.deliver_to(&service, bodies).await.is_empty());
        assert!(world.journal.most_open() <= concurrency, "{} open of {concurrency}", world.journal.most_open());
        assert_eq!(world.journal.most_at_once(), concurrency);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_leaves_claims_only_on_the_running_records() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Probe));
    let service = world.service().probe(|_, _| async { Ok::<_, Failure>(ProbeResult::NotDone) }).concurrency(2);
    let reported = invoke(&service, batch(orders(12, "hang", 0)), world.left(seconds(10))).await.unwrap();
    assert_eq!((reported, world.records().await.len(), world.journal.releases()), (ids(0..12), 2, 0));
}

#[tokio::test(start_paused = true)]
async fn in_an_order_a_failed_probe_blocks_its_group_and_a_recovery_does_not() {
    for (finds, reports, log) in [
        (Finds::Done, ids(0..0), vec!["asked A", "ran C", "ran B"]),
        (Finds::Nothing, ids(0..0), vec!["asked A", "ran A", "ran C", "ran B"]),
        (Finds::Error, ids(0..2), vec!["asked A", "ran C"]),
        (Finds::Panic, ids(0..2), vec!["asked A", "ran C"]),
    ] {
        let lab = Lab::lost().await;
        let event = fifo([("a", order("A")), ("a", order("B")), ("b", order("C"))]);
        assert_eq!(reported(&lab.world.process(&lab.service(finds), event).await), reports, "{finds:?}");
        assert_eq!(lab.log(), log, "{finds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_order_a_lease_is_awaited_and_the_abandoned_record_is_probed() {
    let lab = Lab::new();
    lab.world.put("A", Status::InProgress, "");
    let event = fifo([("a", order("A")), ("a", order("B"))]);
    assert!(reported(&lab.world.process(&lab.service(Finds::Done), event).await).is_empty());
    assert_eq!(lab.log(), ["asked A", "ran B"]);
    assert_eq!(lab.world.clock.now(), START.after(millis(11_001)));
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_probe_is_logged() {
    let lab = Lab::lost().await;
    let (collector, guard) = Collector::install();
    let event = LambdaEvent::new(batch([order("A")]), lab.world.left(seconds(60)));
    lab.service(Finds::Error).process(event).await.response.unwrap();
    let event = LambdaEvent::new(batch([order("A")]), lab.world.left(seconds(60)));
    lab.service(Finds::Done).process(event).await.response.unwrap();
    drop(guard);
    let lines = collector.lines();
    let lines = lines.iter().filter(|line| line.get("message") != "batch");
    let said: Vec<_> = lines.map(|line| (line.get("outcome"), line.get("error"))).collect();
    assert_eq!(said, [("", "no answer"), ("failed", "no answer"), ("recovered", "")]);
}
