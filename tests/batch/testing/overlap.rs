//! The same event in two concurrent invocations.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Failure, Idempotency, Key, OutcomeKind,
    batch::Handler,
    testing::{self, activemq, sqs},
};
use serde_json::Value;

const EXECUTED: Result<OutcomeKind, lambda_once::ErrorKind> = Ok(OutcomeKind::Executed);
const IN_PROGRESS: Result<OutcomeKind, lambda_once::ErrorKind> = Ok(OutcomeKind::InProgress);

/// Returns a handler that takes this long and counts its runs.
fn handler(runs: &Arc<AtomicUsize>, time: Duration) -> impl Handler<Value, (Value,)> + use<> {
    let runs = Arc::clone(runs);
    move |_: Value| {
        let runs = Arc::clone(&runs);
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            if !time.is_zero() {
                tokio::time::sleep(time).await;
            }
            Ok::<_, Failure>(())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deliveries_at_once_meet_however_quick_the_handler_is() {
    for time in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(10)] {
        let runs = Arc::default();
        let service = testing::engine().sqs(Key::message_id(), handler(&runs, time));
        let batch = sqs::batch([testing::record("a"), testing::record("b")]);
        let deliveries = testing::deliver_at_once(&service, &batch).await;
        assert_eq!(deliveries.first.outcomes(), [EXECUTED; 2], "{time:?}");
        assert_eq!(deliveries.second.outcomes(), [IN_PROGRESS; 2], "{time:?}");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        deliveries.assert_once();
        testing::deliver_twice(&service, &batch).await.assert_once();
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_runs_once_between_two_deliveries() {
    let runs = Arc::default();
    let service = testing::engine().sqs(Key::message_id(), handler(&runs, Duration::from_millis(5)));
    let batch = sqs::batch((0..200).map(|i| testing::record(&i)));
    testing::deliver_at_once(&service, &batch).await.assert_once();
    assert_eq!(runs.load(Ordering::SeqCst), 200);
}

#[tokio::test(start_paused = true)]
async fn a_record_behind_one_in_progress_is_redelivered() {
    let runs = Arc::default();
    let service = testing::engine().sqs(Key::message_id(), handler(&runs, Duration::from_millis(5)));
    let batch = sqs::fifo([testing::record("a"), testing::record("b"), testing::record("c")]);
    let deliveries = testing::deliver_at_once(&service, &batch).await;
    assert_eq!(deliveries.first.outcomes(), [EXECUTED; 3]);
    assert_eq!(deliveries.second.outcomes(), [IN_PROGRESS, Ok(OutcomeKind::Skipped), Ok(OutcomeKind::Skipped)]);
    deliveries.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_source_without_partial_responses_may_fail_one_of_two_deliveries() {
    let runs = Arc::default();
    let service = testing::engine().mq(Key::message_id(), handler(&runs, Duration::from_millis(5)));
    let deliveries = testing::deliver_at_once(&service, &activemq::batch([testing::record("a")])).await;
    assert!(deliveries.second.response.is_err());
    deliveries.assert_once();
}

#[tokio::test]
async fn a_handler_without_protection_runs_in_both_and_is_found_out() {
    let runs = Arc::default();
    let service = Idempotency::disabled().sqs(Key::message_id(), handler(&runs, Duration::ZERO));
    let deliveries = testing::deliver_at_once(&service, &sqs::batch([testing::record("a")])).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(catch_unwind(AssertUnwindSafe(|| deliveries.assert_once())).is_err());
}
