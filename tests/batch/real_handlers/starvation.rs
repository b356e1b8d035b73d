//! Settings under which nothing could ever start fail the invocation, and a batch of which nothing is started logs a
//! warning. Otherwise a queue would drain silently into its dead-letter queue.

use std::time::Duration;

use lambda_once::{ErrorKind, batch::FullBatchFailure};
use lambda_runtime::{Context, LambdaEvent};
use tracing::Level;

use crate::{
    support::collector::{Collector, Line},
    world::{World, batch, ids, invoke, millis, orders, seconds},
};

/// Asserts that an event with this context fails as a whole, and returns the error message.
async fn refused(
    world: &World,
    service: &(
         impl tower_service::Service<
        LambdaEvent<aws_lambda_events::sqs::SqsEvent>,
        Response = aws_lambda_events::sqs::SqsBatchResponse,
        Error = lambda_once::Error,
    > + Clone
     ),
    context: Context,
) -> String {
    let error = invoke(service, batch(orders(3, "succeed", 10)), context).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(world.store.calls().is_empty(), "nothing is claimed");
    assert!(world.journal.keys().is_empty());
    error.to_string()
}

// Tests B2.
#[tokio::test(start_paused = true)]
async fn a_too_long_reserve_fails_the_invocation_with_an_error_that_names_it() {
    for reserve in [3, 5, 29] {
        let world = World::with(|builder| builder.reserve(seconds(reserve)));
        let message = refused(&world, &world.service(), world.left(seconds(3))).await;
        assert!(message.contains("reserve") && message.to_lowercase().contains("time"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expected_duration_that_never_fits_fails_the_invocation_with_advice() {
    let world = World::new();
    // With one second left, the reserve is half of it.
    let service = world.service().expected_duration(millis(501));
    let message = refused(&world, &service, world.left(seconds(1))).await;
    assert!(message.contains("expected"), "{message}");
    // Without a deadline, the lease is 30 s.
    let service = world.service().expected_duration(seconds(30));
    let message = refused(&world, &service, Context::default()).await;
    assert!(message.contains("expected"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn it_fails_so_whatever_is_made_of_batches_that_failed_as_a_whole() {
    for policy in [FullBatchFailure::Report, FullBatchFailure::Error] {
        let world = World::with(|builder| builder.reserve(seconds(5)));
        refused(&world, &world.service().on_full_batch_failure(policy), world.left(seconds(3))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_expected_duration_that_just_fits_does_not_fail_the_invocation() {
    let world = World::new();
    let service = world.service().expected_duration(millis(500));
    let event = batch(orders(3, "succeed", 10));
    assert!(invoke(&service, event, world.left(seconds(1))).await.unwrap().is_empty());
}

/// Returns the warnings about records that were not started, in an invocation with one second left.
async fn warnings(time: Duration, records: usize) -> (Vec<String>, Vec<Line>) {
    let world = World::new();
    let (collector, guard) = Collector::install();
    let service = world.service().concurrency(1);
    let event = batch(orders(records, "succeed", time.as_millis().try_into().unwrap()));
    let reported = invoke(&service, event, world.left(seconds(1))).await.unwrap();
    drop(guard);
    let is_warning = |line: &Line| line.level == Level::WARN && line.get("message").contains("start");
    (reported, collector.lines().into_iter().filter(is_warning).collect())
}

#[tokio::test(start_paused = true)]
async fn one_warning_reports_the_unstarted_records_of_a_batch() {
    let (reported, warnings) = warnings(millis(300), 6).await;
    assert_eq!(reported, ids(1..6));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_started_as_a_whole_is_not_warned_of() {
    let (reported, warnings) = warnings(millis(100), 4).await;
    assert!(reported.is_empty() && warnings.is_empty(), "{warnings:?}");
}
