//! Time in the test engine.

use std::time::Duration;

use lambda_once::{
    AfterUnknown, Failure, Interruption, Key, OutcomeKind,
    clock::{Clock, SystemClock},
    testing::{self, TIME_LEFT, TokioClock, sqs},
};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use tokio::time::{advance, sleep};

use testing::Redeliver;

const CUT_OFF: OutcomeKind = OutcomeKind::Interrupted(Interruption::Cancelled);

async fn hang(_: Value) -> Result<(), Failure> {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_taken_over_after_its_lease_has_ended() {
    let once = testing::engine().named("orders");
    let (broken, mended) =
        (once.sqs(Key::message_id(), hang), once.sqs(Key::message_id(), |_: Value| async { Ok::<_, Failure>(()) }));
    let batch = sqs::batch([testing::record("7")]);
    assert_eq!(testing::deliver(&broken, &batch).await.outcomes(), [Ok(CUT_OFF)]);
    assert_eq!(testing::deliver(&mended, &batch).await.outcomes(), [Ok(OutcomeKind::InProgress)]);
    advance(TIME_LEFT).await;
    assert_eq!(testing::deliver(&mended, &batch).await.outcomes(), [Ok(OutcomeKind::TookOver)]);
}

#[tokio::test(start_paused = true)]
async fn settings_and_stores_are_the_tests_own() {
    let engine = testing::builder(testing::store()).after_unknown(AfterUnknown::Refuse).build().unwrap();
    let service = engine.sqs(Key::message_id(), hang);
    let batch = sqs::batch([testing::record("7")]);
    assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Ok(CUT_OFF)]);
    advance(TIME_LEFT).await;
    let abandoned = OutcomeKind::Abandoned;
    assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Ok(abandoned)]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_the_time_that_the_context_leaves_it() {
    let once = testing::engine();
    let slow = |_: Value| async {
        sleep(Duration::from_secs(20)).await;
        Ok::<_, Failure>(())
    };
    let service = once.sqs(Key::message_id(), slow);
    let batch = sqs::batch([testing::record("7")]);
    for (left, expected) in [(10, CUT_OFF), (40, OutcomeKind::TookOver)] {
        let context = testing::context(Duration::from_secs(left));
        let processed = service.process(LambdaEvent::new(batch.delivery(1), context)).await;
        assert_eq!(processed.outcomes(), [Ok(expected)]);
        advance(Duration::from_secs(3)).await;
    }
}

/// The context of a delivery has a deadline, as in Lambda.
#[tokio::test(start_paused = true)]
async fn an_operation_in_a_handler_may_have_a_heartbeat_as_in_lambda() {
    let once = testing::engine();
    for (takes, expected) in [(5, OutcomeKind::Executed), (20, CUT_OFF)] {
        let inner = once.clone();
        let export = move |_: Value| {
            let inner = inner.clone();
            async move {
                let operation = inner.operation("export", &takes).all_tenants().heartbeat(Duration::from_secs(10));
                let ran = operation.run(|| async {
                    sleep(Duration::from_secs(takes)).await;
                    Ok::<_, Failure>(())
                });
                assert_eq!(ran.await?.kind(), expected);
                Ok::<_, Failure>(())
            }
        };
        let service = once.named(format!("exports {takes}")).sqs(Key::message_id(), export);
        let delivered = testing::deliver(&service, &sqs::batch([testing::record("7")])).await;
        assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed)]);
    }
}

#[tokio::test(start_paused = true)]
async fn paused_time_moves_as_it_is_moved() {
    let before = TokioClock.now();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(TokioClock.now(), before);
    advance(Duration::from_secs(86_400)).await;
    assert_eq!(TokioClock.now().since(before), Duration::from_secs(86_400));
}

#[tokio::test]
async fn time_that_is_not_paused_is_the_systems() {
    let apart = |(a, b): (lambda_once::clock::Timestamp, _)| a.since(b).max(b.since(a));
    assert!(apart((TokioClock.now(), SystemClock.now())) < Duration::from_secs(10));
    let before = TokioClock.now();
    sleep(Duration::from_millis(2)).await;
    assert!(TokioClock.now() > before);
}
