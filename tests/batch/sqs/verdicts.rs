//! Verdicts of single records. The response contains exactly those that must be redelivered.

use lambda_once::{
    AfterUnknown, BoxError, ErrorKind, Failure, Key, OnPanic, PermanentFailures, Verdict,
    batch::{FullBatchFailure, RecordInfo, bulk, sqs::Sqs},
    clock::Clock as _,
    record::Status,
};
use lambda_runtime::LambdaEvent;
use tower_service::Service;

use crate::world::{World, batch, ids, invoke, order, orders, seconds, work};

/// Returns the response as Lambda gets it, byte for byte.
async fn answer(world: &World, bodies: Vec<serde_json::Value>) -> String {
    let event = LambdaEvent::new(batch(bodies), world.left(seconds(60)));
    serde_json::to_string(&world.service().call(event).await.unwrap()).unwrap()
}

// Tests B1.
#[tokio::test(start_paused = true)]
async fn a_panic_a_hang_and_a_bad_body_affect_none_of_the_other_seven_records() {
    let world = World::new();
    let mut bodies = orders(10, "succeed", 5);
    bodies[8] = work("order-8", "panic", 0);
    bodies[1] = work("order-1", "hang", 0);
    bodies[5] = serde_json::json!("not an order");
    let answer = answer(&world, bodies).await;
    assert_eq!(
        answer,
        r#"{"batchItemFailures":[{"itemIdentifier":"m1"},{"itemIdentifier":"m5"},{"itemIdentifier":"m8"}]}"#
    );
    for i in [0, 2, 3, 4, 6, 7, 9] {
        assert_eq!(world.status(&format!("order-{i}")).await, Some(Status::Completed), "order {i}");
    }
    assert_eq!(world.status("order-1").await, Some(Status::InProgress));
    assert_eq!(world.status("order-8").await, Some(Status::InProgress));
    assert_eq!(world.status("order-5").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_response_without_failures_is_an_empty_list() {
    assert_eq!(answer(&World::new(), orders(3, "succeed", 0)).await, r#"{"batchItemFailures":[]}"#);
    assert_eq!(answer(&World::new(), vec![]).await, r#"{"batchItemFailures":[]}"#);
}

// Tests B1.
#[tokio::test(start_paused = true)]
async fn failures_are_listed_in_event_order_however_late_they_fail() {
    let world = World::new();
    let bodies = (0..8).map(|i: u64| work(&format!("order-{i}"), "transient", 100 * (8 - i)));
    assert_eq!(world.deliver(bodies).await, ids(0..8));
}

// Tests B7, P14.
#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_reported_and_runs_again() {
    let world = World::new();
    assert_eq!(world.deliver([work("A", "transient once", 0)]).await, ["m0"]);
    assert_eq!(world.status("A").await, None);
    assert!(world.deliver([work("A", "transient once", 0)]).await.is_empty());
    assert_eq!(world.status("A").await, Some(Status::Completed));
    assert_eq!(world.journal.keys(), ["A", "A"]);
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_the_claim_is_kept_until_its_lease_ends() {
    for act in ["unknown", "panic", "panic at once", "hang"] {
        let world = World::new();
        let deadline = world.left(seconds(60)).deadline;
        assert_eq!(world.deliver([work("A", act, 0)]).await, ["m0"], "{act}");
        let record = world.record("A").await.unwrap();
        assert_eq!(record.status, Status::InProgress, "{act}");
        assert_eq!(record.lease_until.unwrap().as_millis(), deadline + 1_000, "{act}");
        assert_eq!(world.deliver([work("A", act, 0)]).await, ["m0"], "{act}");
        assert_eq!(world.journal.keys(), ["A"], "{act}");
    }
}

/// A verdict of the user's handler, in a user-defined type.
#[derive(Debug, thiserror::Error)]
#[error("{0:?}")]
struct Said(Verdict);

fn said(act: &str) -> Said {
    Said(match act {
        "permanent" => Verdict::Permanent,
        "unknown" => Verdict::Unknown,
        _ => Verdict::Transient,
    })
}

/// Returns bodies of which `A` fails permanently, `B` temporarily, and `C` with an unknown outcome.
fn failing() -> [serde_json::Value; 3] {
    [("A", "permanent"), ("B", "transient"), ("C", "unknown")].map(|(key, act)| work(key, act, 0))
}

async fn left(world: &World) -> [Option<Status>; 3] {
    [world.status("A").await, world.status("B").await, world.status("C").await]
}

#[tokio::test(start_paused = true)]
async fn a_handlers_classified_error_determines_the_status_of_its_key() {
    let classified = || World::with(|builder| builder.classify(|error: &Said| error.0));
    let act = |job: &serde_json::Value| said(job["act"].as_str().unwrap());
    let one = move |job: serde_json::Value| async move { Err::<(), Said>(act(&job)) };
    let many = bulk(10, move |jobs: Vec<serde_json::Value>| async move {
        jobs.iter().map(|job| Err::<(), Said>(act(job))).collect()
    });
    let world = classified();
    assert_eq!(world.deliver_to(&world.once.sqs(Key::pointer("/order_id"), one), failing()).await, ["m0", "m1", "m2"]);
    assert_eq!(left(&world).await, [Some(Status::Failed), None, Some(Status::InProgress)]);
    let world = classified();
    assert_eq!(world.deliver_to(&world.once.sqs(Key::pointer("/order_id"), many), failing()).await, ["m0", "m1", "m2"]);
    assert_eq!(left(&world).await, [Some(Status::Failed), None, Some(Status::InProgress)]);
}

#[tokio::test(start_paused = true)]
async fn a_decoders_classified_error_decides_whether_the_message_is_retried() {
    let world = World::with(|builder| builder.classify(|error: &Said| error.0));
    let decode = |_: &RecordInfo, body: &String| {
        let job: serde_json::Value = serde_json::from_str(body)?;
        Err::<String, BoxError>(said(job["act"].as_str().unwrap()).into())
    };
    let handler = |_: String| async { Ok::<_, Failure>(()) };
    let service = world.once.batch(Sqs, Key::pointer("/order_id"), decode, handler);
    let service = service.permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.deliver_to(&service, failing()).await, ["m1", "m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_marked_as_transient_releases_the_claim() {
    let world = World::with(|builder| builder.on_panic(OnPanic::Transient));
    assert_eq!(world.deliver([work("A", "panic", 0), order("B")]).await, ["m0"]);
    assert_eq!(world.status("A").await, None);
}

// Tests C7, P10, P11, P13.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_runs_again_after_its_lease_or_never_by_policy() {
    for (policy, runs) in [(AfterUnknown::Rerun, 2), (AfterUnknown::Refuse, 1)] {
        let world = World::with(|builder| builder.after_unknown(policy));
        world.deliver([work("A", "unknown", 0)]).await;
        tokio::time::advance(seconds(63)).await;
        assert_eq!(world.deliver([work("A", "unknown", 0)]).await, ["m0"], "{policy:?}");
        assert_eq!(world.journal.keys().len(), runs, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_handlers_future_is_dropped_stays_within_its_record() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    let world = World::new();
    let service = world.once.sqs(lambda_once::Key::message_id(), |body: serde_json::Value| async move {
        if body["act"] == "hang" {
            let _panics = PanicsWhenDropped;
            std::future::pending::<()>().await;
        }
        Ok::<_, lambda_once::Failure>(())
    });
    let bodies = [order("A"), work("B", "hang", 0), order("C")];
    assert_eq!(world.deliver_to(&service, bodies).await, ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_whose_message_panics_when_dropped_stays_within_its_record() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let world = World::new();
    let service = world.once.sqs(lambda_once::Key::message_id(), |body: serde_json::Value| async move {
        if body["act"] == "panic" {
            std::panic::panic_any(Bomb);
        }
        Ok::<_, lambda_once::Failure>(())
    });
    let bodies = || [order("A"), work("B", "panic", 0), order("C")];
    assert_eq!(world.deliver_to(&service, bodies()).await, ["m1"]);

    let decode = |_: &RecordInfo, body: &String| {
        if body.contains("panic") {
            std::panic::panic_any(Bomb);
        }
        Ok(())
    };
    let world = World::new();
    let service = world.once.batch(Sqs, lambda_once::Key::message_id(), decode, |()| async { anyhow::Ok(()) });
    assert_eq!(world.deliver_to(&service, bodies()).await, ["m1"], "in decoding");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_it_is_printed_stays_within_its_record() {
    #[derive(Debug)]
    struct Unprintable;
    impl std::fmt::Display for Unprintable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("in Display");
        }
    }
    impl std::error::Error for Unprintable {}
    for verdict in [lambda_once::Verdict::Transient, lambda_once::Verdict::Permanent] {
        let world = World::new();
        let service = world.once.sqs(lambda_once::Key::message_id(), move |body: serde_json::Value| async move {
            match body["act"].as_str() {
                Some("fail") => Err(lambda_once::Failure::new(verdict, Unprintable)),
                _ => Ok(()),
            }
        });
        let bodies = [order("A"), work("B", "fail", 0), order("C")];
        assert_eq!(world.deliver_to(&service, bodies).await, ["m1"], "{verdict:?}");
    }
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_batch_that_failed_as_a_whole_is_an_error_if_that_is_wanted() {
    let world = World::new();
    let service = world.service().on_full_batch_failure(FullBatchFailure::Error);
    let failing = || batch([work("A", "transient", 0), work("B", "panic", 0)]);
    let error = invoke(&service, failing(), world.left(seconds(60))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Batch, true));
    assert_eq!(world.record("A").await, None, "every verdict is settled all the same");

    let partly = batch([work("C", "transient", 0), order("D")]);
    assert_eq!(invoke(&service, partly, world.left(seconds(60))).await.unwrap(), ["m0"]);
    assert!(invoke(&service, batch([order("D")]), world.left(seconds(60))).await.unwrap().is_empty());
    let none: [serde_json::Value; 0] = [];
    assert!(invoke(&service, batch(none), world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(world.deliver([work("E", "transient", 0)]).await, ["m0"], "by default it is reported");
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn all_or_error_fails_the_invocation_for_any_failure_and_replays_the_rest() {
    let world = World::new();
    let service = world.service().all_or_error();
    let deliver = || invoke(&service, batch([order("A"), work("B", "transient once", 0)]), world.left(seconds(60)));
    let error = deliver().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Batch, true));
    assert!(deliver().await.unwrap().is_empty());
    assert_eq!(world.journal.keys(), ["A", "B", "B"]);
}

#[tokio::test(start_paused = true)]
async fn all_or_error_accepts_acknowledged_failures() {
    let world = World::new();
    let service = world.service().all_or_error().permanent_failures(PermanentFailures::Acknowledge);
    let bodies = [order("A"), work("B", "permanent", 0)];
    assert!(invoke(&service, batch(bodies), world.left(seconds(60))).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_or_error_waits_for_work_elsewhere_unless_the_batch_has_failed() {
    let world = World::new();
    world.put("running", Status::InProgress, "1");
    let begun = world.clock.now();
    let service = world.service().all_or_error();
    let failing = batch([work("A", "transient", 0), order("running")]);
    assert!(invoke(&service, failing, world.left(seconds(60))).await.is_err());
    assert!(world.clock.now().since(begun) < seconds(1), "no answer depends on it");
    let waiting = batch([order("B"), order("running")]);
    assert!(invoke(&service, waiting, world.left(seconds(60))).await.unwrap().is_empty());
    assert!(world.clock.now().since(begun) > seconds(10), "its lease had to end");
    assert_eq!(world.journal.keys(), ["A", "B", "running"]);
}
