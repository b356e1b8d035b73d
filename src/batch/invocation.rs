//! Processes an invocation, from event to response.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use lambda_runtime::LambdaEvent;
use tower_service::Service;

use super::{
    handler::Handler,
    options::{FullBatchFailure, Options},
    processor::Processor,
    redelivery,
    report::{self, RecordReport},
    service::BatchService,
    source::Source,
    spans::{add_origin, batch_span},
};
use crate::{
    clock::{Deadline, Timestamp},
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    idempotency::{invoked::note_tenant, outcome::OutcomeKind, window::Window},
    telemetry::{EntryPoint, spans},
};

/// The response to a batch, and a report of each of its records.
#[derive(Debug)]
#[non_exhaustive]
pub struct Processed<R> {
    /// The response to Lambda.
    pub response: Result<R, Error>,
    /// One report per record, in the order of the event, or for Kafka in the order of processing
    /// ([`RecordReport::index`]). Empty if the service failed before anything was claimed.
    pub records: Vec<RecordReport>,
}

impl<R> Processed<R> {
    /// Returns the outcome of each record, in the order of [`records`](Self::records).
    pub fn outcomes(&self) -> Vec<Result<OutcomeKind, ErrorKind>> {
        self.records.iter().map(|report| report.outcome).collect()
    }

    /// Returns the ids of the reported records, in the order of [`records`](Self::records). The id of a RabbitMQ
    /// message without one is empty.
    pub fn reported(&self) -> Vec<&str> {
        self.records.iter().filter(|report| report.reported).map(|report| report.record.id()).collect()
    }
}

impl<S, H, T, Args> BatchService<S, H, T, Args>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    /// Processes one event as under [`lambda_runtime::run`], and returns the response with one report for each record.
    /// For tests, and for functions that use the reports before they respond.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, OutcomeKind};
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// let service = once.sqs(Key::message_id(), |_: serde_json::Value| async { Ok::<_, Failure>(()) });
    /// # let text = r#"{"Records": [{"messageId": "m", "body": "{}"}]}"#;
    /// let event: aws_lambda_events::sqs::SqsEvent = serde_json::from_str(text).unwrap();
    /// let processed = service.process(lambda_runtime::LambdaEvent::new(event, lambda_runtime::Context::default())).await;
    /// assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Executed)]);
    /// # }}
    /// ```
    pub async fn process(&self, event: LambdaEvent<S::Event>) -> Processed<S::Response> {
        match self.clone().handle(event).await {
            Ok(processed) => processed,
            Err(error) => Processed { response: Err(error), records: Vec::new() },
        }
    }

    /// # Errors
    ///
    /// Errors that occur before anything is claimed.
    async fn handle(self, event: LambdaEvent<S::Event>) -> Result<Processed<S::Response>, Error> {
        self.check()?;
        let Self { source, engine, key, handler, decode, options, .. } = self;
        let (records, rest) = source.split(event.payload)?;
        let now = engine.clock.now();
        let window = Window::new(now, Deadline::from(&event.context), &engine.settings);
        if !records.is_empty() {
            check_time(now, window, options.expected_duration)?;
        }
        let tenant = event.context.tenant_id.as_deref();
        engine.check_keys(S::OPERATION, tenant)?;
        note_tenant(tenant);
        let operation = engine.log_name(S::OPERATION);
        let span = batch_span(&operation, records.len(), &event.context);
        let traced = !span.is_disabled();
        let processor = Processor { source, engine, key, handler, decode, options, traced };
        let served = async {
            let records = processor.process(records, event.context, window).await;
            report::tell(&processor.engine, &operation, &records);
            add_origin(&span, &processor.source, &records);
            records
        };
        let records = processor.engine.observed(EntryPoint::Batch, &operation, span.clone(), served).await;
        if let Some(redelivery) = &processor.options.redelivery {
            let failed: Vec<_> = records.iter().filter(|report| report.reported).cloned().collect();
            redelivery::delay(redelivery, &failed, &*processor.engine.clock, window.settle_by).await;
        }
        let response = respond(&processor.source, rest, &records, &processor.options);
        if let Err(error) = &response {
            spans::fail(&span, error.kind().as_str());
        }
        Ok(Processed { response, records })
    }
}

/// Checks that there is time for any record to begin. If not, no later invocation has it either, and each would use up
/// a delivery of the batch.
fn check_time(now: Timestamp, window: Window, expected: Option<Duration>) -> Result<(), Error> {
    let expected = expected.unwrap_or_default();
    if now < window.stop && now.after(expected) <= window.stop {
        return Ok(());
    }
    let time = window.stop.since(now);
    let message = format!(
        "no record could begin: an invocation has {time:?} before its reserve, and a handler is expected to take {expected:?}; \
         set a longer timeout of the function, a shorter reserve or a shorter expected duration"
    );
    Err(Error::new(ErrorKind::Config, ErrorStatus::Temporary, "receive", message))
}

/// Builds the response to Lambda (B9).
fn respond<S: Source>(
    source: &S,
    rest: S::Rest,
    records: &[RecordReport],
    options: &Options,
) -> Result<S::Response, Error> {
    let failed: Vec<_> =
        records.iter().filter(|report| report.reported).map(|report| Arc::clone(&report.record)).collect();
    let count = records.len();
    let message = if options.all_or_error && !failed.is_empty() {
        Some(format!("{} of the batch's {count} records failed", failed.len()))
    } else if count > 0 && failed.len() == count {
        let is_of_store = |report: &RecordReport| report.outcome.is_err_and(ErrorKind::is_of_store);
        // Records behind one that failed in the store, or for which store errors left no time, did not get as far.
        let is_behind =
            |report: &RecordReport| matches!(report.outcome, Ok(OutcomeKind::Skipped | OutcomeKind::NotStarted));
        let store_error = || {
            let all = records.iter().all(|report| is_of_store(report) || is_behind(report));
            let first = records.iter().find(|report| is_of_store(report));
            first.filter(|_| all).and_then(|report| report.error.as_deref())
        };
        match options.on_full_batch_failure {
            FullBatchFailure::Report => None,
            FullBatchFailure::Error => Some(format!("every one of the batch's {count} records failed")),
            FullBatchFailure::StoreError => {
                store_error().map(|error| format!("the store decided none of the batch's {count} records: {error}"))
            }
        }
    } else {
        None
    };
    if let Some(message) = message {
        return Err(Error::new(ErrorKind::Batch, ErrorStatus::Temporary, "answer", message));
    }
    source.respond(rest, &failed)
}

impl<S, H, T, Args> Service<LambdaEvent<S::Event>> for BatchService<S, H, T, Args>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    type Response = S::Response;
    type Error = Error;
    type Future = BoxFuture<'static, Result<S::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<S::Event>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.handle(event).await?.response })
    }
}
