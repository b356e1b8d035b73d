//! Handlers that take several records in one call.

use std::sync::{Arc, Mutex};

use lambda_once::{
    AfterUnknown, Failure, Key, OutcomeKind, ProbeResult, RecordContext, Verdict,
    batch::{BatchService, Handler, OnFailure, Processed, bulk, sqs::Sqs},
    record::Status,
    store::fault::Call,
};
use lambda_runtime::LambdaEvent;
use serde::Deserialize;
use serde_json::json;

use crate::world::{World, batch, fifo, invoke, millis, order, orders, seconds, work};

#[derive(Clone, Deserialize)]
struct Job {
    order_id: String,
    act: String,
}

/// The keys of each call, in order.
type Calls = Arc<Mutex<Vec<Vec<String>>>>;

fn sizes(calls: &Calls) -> Vec<usize> {
    calls.lock().unwrap().iter().map(Vec::len).collect()
}

/// Performs each job. Some acts affect the whole call.
async fn perform(calls: Calls, jobs: Vec<Job>) -> Vec<Result<String, Failure>> {
    calls.lock().unwrap().push(jobs.iter().map(|job| job.order_id.clone()).collect());
    let any = |act: &str| jobs.iter().any(|job| job.act == act);
    if any("hang") {
        std::future::pending::<()>().await;
    }
    if any("panic") {
        std::panic::resume_unwind(Box::new("the shop is on fire"));
    }
    let dropped = usize::from(any("miscount"));
    let error = || std::io::Error::other("the shop is closed");
    let verdict = |job: Job| match job.act.as_str() {
        "transient" => Err(error().into()),
        "permanent" => Err(Failure::permanent(error())),
        "unknown" => Err(Failure::unknown(error())),
        _ => Ok(job.order_id),
    };
    jobs.into_iter().skip(dropped).map(verdict).collect()
}

/// A service with a handler of several jobs.
type Bulk<H> = BatchService<Sqs, H, Job, (Vec<Job>,)>;

/// Returns a service that passes up to `most` records to one call.
fn service(world: &World, most: usize, calls: &Calls) -> Bulk<impl Handler<Job, (Vec<Job>,), Output = String> + use<>> {
    let calls = Arc::clone(calls);
    world.once.sqs(Key::pointer("/order_id"), bulk(most, move |jobs| perform(Arc::clone(&calls), jobs)))
}

#[tokio::test(start_paused = true)]
async fn records_claimed_in_one_call_run_in_bulk_and_have_separate_verdicts() {
    let (world, calls) = (World::new(), Calls::default());
    world.put("done", Status::Completed, "1");
    let bodies =
        [order("A"), work("B", "transient", 0), work("C", "permanent", 0), order("done"), order("A"), order("D")];
    let event = LambdaEvent::new(batch(bodies), world.left(seconds(60)));
    let Processed { response, records, .. } = service(&world, 25, &calls).process(event).await;
    let outcomes: Vec<_> = records.iter().map(|report| report.outcome.unwrap()).collect();
    let failed = OutcomeKind::Failed;
    let (executed, replayed) = (OutcomeKind::Executed, OutcomeKind::Replayed);
    let expected = [executed, failed(Verdict::Transient), failed(Verdict::Permanent), replayed, replayed, executed];
    assert_eq!(outcomes, expected);
    let reported = response.unwrap().batch_item_failures.into_iter().map(|failure| failure.item_identifier);
    assert_eq!(reported.collect::<Vec<_>>(), ["m1", "m2"]);
    assert_eq!(*calls.lock().unwrap(), [["A", "B", "C", "D"]]);
    assert_eq!((world.calls(Call::Claim), world.calls(Call::Settle)), (vec![5], vec![4]));
    assert_eq!((world.record("B").await, world.status("C").await), (None, Some(Status::Failed)));
}

#[tokio::test(start_paused = true)]
async fn no_call_gets_more_records_than_it_takes() {
    let (world, calls) = (World::new(), Calls::default());
    assert!(world.deliver_to(&service(&world, 10, &calls), orders(60, "succeed", 0)).await.is_empty());
    assert!(sizes(&calls).iter().all(|size| *size <= 10), "{:?}", sizes(&calls));
    assert_eq!(sizes(&calls).iter().sum::<usize>(), 60);
    assert_eq!(sizes(&calls)[..3], [10, 10, 5], "the first chunk");
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_cancellation_is_unknown_for_the_records_of_its_call_only() {
    for (act, name) in [("panic", "panicked"), ("hang", "cancelled")] {
        let (world, calls) = (World::new(), Calls::default());
        let service = service(&world, 2, &calls);
        let bodies = [order("A"), work("B", act, 0), order("C"), order("D")];
        let event = LambdaEvent::new(batch(bodies), world.left(seconds(5)));
        let records = service.process(event).await.records;
        let names: Vec<_> = records.iter().map(|report| report.outcome.unwrap().as_str()).collect();
        assert_eq!(names, [name, name, "executed", "executed"]);
        for key in ["A", "B"] {
            assert_eq!(world.status(key).await, Some(Status::InProgress), "the outcome of {key} is unknown");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn verdicts_that_are_too_few_are_nobodys() {
    let (world, calls) = (World::new(), Calls::default());
    let bodies = [order("A"), work("B", "miscount", 0), order("C")];
    let event = LambdaEvent::new(batch(bodies), world.left(seconds(60)));
    let records = service(&world, 25, &calls).process(event).await.records;
    assert!(
        records.iter().all(|report| report.outcome == Ok(OutcomeKind::Failed(Verdict::Unknown)) && report.reported)
    );
    assert!(records[0].error.as_deref().unwrap().contains("gave 2 for 3"));
    assert_eq!(world.status("A").await, Some(Status::InProgress));
    // The same if it is alone.
    let event = LambdaEvent::new(batch([work("X", "miscount", 0)]), world.left(seconds(60)));
    let records = service(&world, 1, &calls).process(event).await.records;
    assert_eq!(records[0].outcome, Ok(OutcomeKind::Failed(Verdict::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn groups_of_a_fifo_queue_run_in_bulk_and_their_messages_one_by_one() {
    let (world, calls) = (World::new(), Calls::default());
    let messages = ["a", "b", "a", "b", "a"].into_iter().enumerate();
    let event = fifo(messages.map(|(i, group)| (group, order(&format!("{group}{i}")))));
    let service = service(&world, 25, &calls);
    assert!(invoke(&service, event, world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(*calls.lock().unwrap(), [vec!["a0", "b1"], vec!["a2", "b3"], vec!["a4"]]);
}

#[tokio::test(start_paused = true)]
async fn records_that_run_unprotected_are_handed_over_too() {
    let (world, calls) =
        (World::with(|builder| builder.missing_key(lambda_once::MissingKey::RunUnprotected)), Calls::default());
    let bodies = [order(""), order("A"), work("", "transient", 0)];
    assert_eq!(world.deliver_to(&service(&world, 25, &calls), bodies).await, ["m2"]);
    let mut handed: Vec<_> = calls.lock().unwrap().concat();
    handed.sort_unstable();
    assert_eq!(handed, ["", "", "A"]);
    assert_eq!(world.status("A").await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_bulk_handler_can_have_the_contexts_too() {
    let world = World::new();
    let ids = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&ids);
    let handler = move |jobs: Vec<Job>, contexts: Vec<RecordContext>| {
        assert!(contexts.iter().all(|context| context.claim().is_some()));
        heard.lock().unwrap().extend(contexts.iter().map(|context| context.record().message_id().to_owned()));
        async move { jobs.into_iter().map(|job| Ok::<_, Failure>(job.order_id)).collect::<Vec<_>>() }
    };
    let service = world.once.sqs(Key::pointer("/order_id"), bulk(25, handler));
    assert!(world.deliver_to(&service, [order("A"), order("B")]).await.is_empty());
    assert_eq!(*ids.lock().unwrap(), ["m0", "m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_is_probed_and_run_alone() {
    let (world, calls) = (World::with(|builder| builder.after_unknown(AfterUnknown::Probe)), Calls::default());
    world.abandon("A");
    world.abandon("B");
    let probe = |job: Job, _: RecordContext| async move {
        let done = job.order_id == "A";
        Ok::<_, Failure>(if done { ProbeResult::Done(job.order_id) } else { ProbeResult::NotDone })
    };
    let service = service(&world, 25, &calls).probe(probe);
    let event = LambdaEvent::new(batch(["A", "B", "C", "D"].map(order)), world.left(seconds(60)));
    let records = service.process(event).await.records;
    let outcomes: Vec<_> = records.iter().map(|report| report.outcome.unwrap()).collect();
    let executed = OutcomeKind::Executed;
    assert_eq!(outcomes, [OutcomeKind::Recovered, OutcomeKind::TookOver, executed, executed]);
    let mut calls = calls.lock().unwrap().clone();
    calls.sort();
    assert_eq!(calls, [vec!["B"], vec!["C", "D"]]);
}

#[tokio::test(start_paused = true)]
async fn under_refuse_one_call_is_claimed_first_then_enough_for_all_calls() {
    let (world, calls) = (World::with(|builder| builder.after_unknown(AfterUnknown::Refuse)), Calls::default());
    let service = service(&world, 4, &calls).concurrency(2);
    assert!(world.deliver_to(&service, orders(20, "succeed", 0)).await.is_empty());
    assert_eq!(world.calls(Call::Claim), [4, 8, 4, 4]);
    assert_eq!(sizes(&calls), [4; 5]);
}

#[tokio::test(start_paused = true)]
async fn records_to_probe_run_alone_after_those_that_share_a_call() {
    let (world, calls) = (World::with(|builder| builder.after_unknown(AfterUnknown::Probe)), Calls::default());
    world.abandon("A");
    world.abandon("C");
    let probe = |_: Job, _: RecordContext| async { Ok::<_, Failure>(ProbeResult::NotDone) };
    let service = service(&world, 25, &calls).probe(probe).concurrency(1);
    assert!(world.deliver_to(&service, ["A", "B", "C", "D"].map(order)).await.is_empty());
    assert_eq!(*calls.lock().unwrap(), [vec!["B", "D"], vec!["A"], vec!["C"]]);
}

#[tokio::test(start_paused = true)]
async fn calls_share_the_limit_of_concurrency() {
    let world = World::new();
    let running = Arc::new(Mutex::new((0_usize, 0_usize)));
    let seen = Arc::clone(&running);
    let handler = move |jobs: Vec<Job>| {
        let seen = Arc::clone(&seen);
        async move {
            {
                let mut seen = seen.lock().unwrap();
                seen.0 += 1;
                seen.1 = seen.1.max(seen.0);
            }
            tokio::time::sleep(millis(10)).await;
            seen.lock().unwrap().0 -= 1;
            jobs.into_iter().map(|job| Ok::<_, Failure>(job.order_id)).collect::<Vec<_>>()
        }
    };
    let service = world.once.sqs(Key::pointer("/order_id"), bulk(3, handler)).concurrency(2);
    assert!(world.deliver_to(&service, orders(30, "succeed", 0)).await.is_empty());
    assert_eq!(*running.lock().unwrap(), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_is_not_handed_over() {
    let (world, calls) = (World::new(), Calls::default());
    assert_eq!(world.deliver_to(&service(&world, 25, &calls), [order("A"), json!("no"), order("B")]).await, ["m1"]);
    assert_eq!(*calls.lock().unwrap(), [["A", "B"]]);
}

#[tokio::test(start_paused = true)]
async fn records_without_a_key_are_handed_over_together_as_well() {
    let (world, calls) =
        (World::with(|builder| builder.missing_key(lambda_once::MissingKey::RunUnprotected)), Calls::default());
    assert!(world.deliver_to(&service(&world, 25, &calls), (0..50).map(|_| order(""))).await.is_empty());
    assert_eq!(sizes(&calls), [25, 25]);
}

#[tokio::test(start_paused = true)]
async fn records_without_a_key_do_not_divide_the_claims_of_others() {
    let world = World::with(|builder| builder.missing_key(lambda_once::MissingKey::RunUnprotected));
    let bodies = (0..40).map(|i| order(&if i % 2 == 0 { String::new() } else { format!("k{i}") }));
    assert!(world.deliver(bodies).await.is_empty());
    assert!(world.calls(Call::Claim).len() <= 3, "{:?}", world.calls(Call::Claim));
}

#[tokio::test(start_paused = true)]
async fn a_failure_in_mid_call_stops_the_batch_before_earlier_outcomes_settle() {
    for act in ["transient", "unknown"] {
        let (world, calls) = (World::new(), Calls::default());
        let noted = Arc::clone(&calls);
        let handler = bulk(2, move |jobs| perform(Arc::clone(&noted), jobs)).consecutive();
        let service =
            world.once.sqs(Key::pointer("/order_id"), handler).on_failure(OnFailure::StopBatch).concurrency(1);
        let job = |key: &str, act: &str| json!({"order_id": key, "act": act});
        let [a, b] = ["a", "b"].map(|group| move |key: &str, act: &str| (group, job(key, act)));
        let event = fifo([a("A", ""), b("X", ""), a("B", ""), a("C", act), b("Y", "")]);
        let reported = invoke(&service, event, world.left(seconds(60))).await.unwrap();
        assert_eq!(reported, ["m3", "m4"]);
        assert_eq!(*calls.lock().unwrap(), [["A", "X"], ["B", "C"]], "Y could have begun before B was recorded");
        assert_eq!(world.record("B").await.map(|record| record.status), Some(Status::Completed));
    }
}
