//! Contexts for handlers under test.

use std::{sync::Arc, time::Duration};

use lambda_runtime::Context;
#[cfg(feature = "invocation")]
use lambda_runtime::LambdaEvent;
use serde::Serialize;
#[cfg(feature = "invocation")]
use serde_json::value::{RawValue, to_raw_value};

use super::{
    TIME_LEFT, TokioClock, builder, store,
    unique::{number, uuid},
};
use crate::{
    batch::{RecordContext, RecordInfo},
    clock::{Clock, Deadline},
    idempotency::{claim::Claim, settings::EngineSettings, window::Window},
    record::Owner,
    store::Grant,
};

/// Makes the context of an invocation with this much time left by the [`TokioClock`].
///
/// ```
/// use std::time::Duration;
/// use lambda_once::{clock::Clock, testing::{self, TokioClock}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let context = testing::context(Duration::from_secs(30));
/// assert_eq!(context.deadline, TokioClock.now().as_millis() + 30_000);
/// # }
/// ```
pub fn context(time_left: Duration) -> Context {
    let mut context = Context::default();
    context.request_id = uuid(number());
    context.invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:testing".to_owned();
    context.deadline = TokioClock.now().after(time_left).as_millis();
    context
}

/// Makes an event for an [`InvocationLayer`](crate::invocation::InvocationLayer) as `lambda_runtime` passes it, with
/// this payload, in an invocation with [a minute left](TIME_LEFT).
///
/// # Panics
///
/// If the payload cannot be written as JSON.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use lambda_once::{BoxError, Key, invocation::InvocationLayer, testing};
/// use lambda_runtime::{LambdaEvent, service_fn, tower::{Layer, Service}};
///
/// let book = service_fn(|order: LambdaEvent<String>| async move { Ok::<_, BoxError>(order.payload) });
/// let mut service = InvocationLayer::new(testing::engine(), Key::pointer("")).layer(book);
/// assert_eq!(service.call(testing::event("order 7")).await.unwrap(), "order 7");
/// # }
/// ```
#[cfg(feature = "invocation")]
pub fn event<V: Serialize + ?Sized>(payload: &V) -> LambdaEvent<Box<RawValue>> {
    let payload = to_raw_value(payload).unwrap_or_else(|error| panic!("not an event: {error}"));
    LambdaEvent::new(payload, context(TIME_LEFT))
}

/// Makes a first claim on `key`, of an invocation with a minute left. It is in no store.
///
/// # Panics
///
/// If the key is missing, as for [`Idempotency::operation`](crate::Idempotency::operation).
///
/// ```
/// use lambda_once::testing;
///
/// let claim = testing::claim("order 7");
/// assert!(!claim.took_over() && claim.with_takeover().took_over());
/// ```
pub fn claim<K: Serialize + ?Sized>(key: &K) -> Claim {
    let engine = builder(store()).build_unchecked();
    let hash = engine.key_hash("testing", key).unwrap_or_else(|error| panic!("not a key: {error}"));
    let window = window(&context(TIME_LEFT));
    let grant = Grant { lease_until: window.lease_until, attempt: 1, prior_status: None, has_merged_doubt: false };
    Claim::new(hash, None, Owner::from_bytes([0; 16]), grant, window)
}

/// Makes a record's context, for tests that call a handler directly. The handler runs under a [`claim`] on the record's
/// id, in an invocation with a minute left.
///
/// ```
/// use lambda_once::{Failure, RecordContext, batch::RecordInfo, testing};
///
/// async fn handle(order: &str, context: RecordContext) -> Result<bool, Failure> {
///     // An earlier run may have reached this point.
///     Ok(context.took_over() && context.record().header("tenant") == Some("a"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Failure> {
/// let record = RecordInfo::new("m-7").with_header("tenant", "a");
/// let context = testing::record_context(record).with_claim(testing::claim("order 7").with_takeover());
/// assert!(handle("7", context).await?);
/// # Ok(()) }
/// ```
pub fn record_context(record: RecordInfo) -> RecordContext {
    let lambda = context(TIME_LEFT);
    let claim = claim(record.id());
    let stop = window(&lambda).stop;
    RecordContext {
        record: Arc::new(record),
        lambda: Arc::new(lambda),
        claim: Some(claim),
        stop,
        clock: Arc::new(TokioClock),
        transaction: None,
    }
}

fn window(context: &Context) -> Window {
    Window::new(TokioClock.now(), Deadline::from(context), &EngineSettings::default())
}

/// For tests that call a handler directly; see [`record_context`].
impl RecordContext {
    /// Sets a different claim, whose handler deadline becomes the handler's. With `None` the handler runs unprotected.
    #[must_use]
    pub fn with_claim(mut self, claim: impl Into<Option<Claim>>) -> Self {
        self.claim = claim.into();
        self.stop = self.claim.as_ref().map_or(self.stop, Claim::handler_deadline);
        self
    }

    /// Sets the invocation's context. The claim and the handler deadline do not change.
    #[must_use]
    pub fn with_lambda(mut self, lambda: Context) -> Self {
        self.lambda = Arc::new(lambda);
        self
    }
}
