//! The service for one source, and the validation of its parts.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    handler::Handler,
    options::Options,
    record::RecordInfo,
    source::{Decode, Source},
};
use crate::{
    error::{BoxError, Error},
    idempotency::{
        engine::{Engine, Needs, ProbeNeed},
        handle::Idempotency,
        names::Registration,
        policy::Heartbeat,
    },
    key::{order_selector::OrderSelector, payload::Payload, selector::Key},
};

/// A service that handles the batches of a [`Source`]. Made by [`Idempotency::batch`] and its siblings for each source,
/// and passed to [`lambda_runtime::run`] or `run_concurrent`.
///
/// It keeps no state between invocations, and clones are independent.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`concurrency`](Self::concurrency) | 10 |
/// | [`permanent_failures`](Self::permanent_failures) | [`PermanentFailures::Report`](super::PermanentFailures::Report) |
/// | [`dead_letters`](Self::dead_letters) | none, except the queue's redrive policy |
/// | [`max_receive_count`](Self::max_receive_count) | unknown |
/// | [`last_attempt_timeout`](Self::last_attempt_timeout) | half of the time left |
/// | [`dead_letter_abandoned`](Self::dead_letter_abandoned) | no |
/// | [`wait_up_to`](Self::wait_up_to) | 20 s |
/// | [`redelivery`](Self::redelivery) | none, so the source's settings apply |
/// | [`expected_duration`](Self::expected_duration) | the longest run of the invocation so far |
/// | [`payload`](Self::payload) | [`Payload::Body`](crate::Payload::Body) |
/// | [`on_failure`](Self::on_failure) | [`OnFailure::StopGroup`](super::OnFailure::StopGroup) |
/// | [`on_full_batch_failure`](Self::on_full_batch_failure) | [`FullBatchFailure::Report`](super::FullBatchFailure::Report) |
/// | [`all_or_error`](Self::all_or_error) | off, so the response lists the failed records if Lambda supports that |
/// | [`probe`](Self::probe), [`on_record`](Self::on_record), [`label`](Self::label) | none |
/// | `ordered_by` (feature `order`) | no |
/// | [`with_settings`](Self::with_settings) | as the engine's |
///
/// # Errors
///
/// The service fails as a whole, and Lambda delivers the whole batch again, if any of the following hold:
///
/// 1. The event is malformed, or a record has no id for the response ([`ErrorKind::Event`](crate::ErrorKind::Event)).
/// 2. [`validate`](Self::validate) would have failed ([`ErrorKind::Config`](crate::ErrorKind::Config)).
/// 3. No record could begin, because the time left is not longer than the engine's reserve, or
///    [`expected_duration`](Self::expected_duration) does not fit before the reserve
///    ([`ErrorKind::Config`](crate::ErrorKind::Config)).
/// 4. Every record failed and [`on_full_batch_failure`](Self::on_full_batch_failure) requires an error, or any record
///    failed and Lambda supports no partial response ([`ErrorKind::Batch`](crate::ErrorKind::Batch)).
///
/// In the first three cases nothing is claimed.
#[must_use = "a service handles nothing until it is run"]
pub struct BatchService<S: Source, H, T, Args> {
    pub(super) source: S,
    pub(super) engine: Engine,
    pub(super) registration: Registration,
    pub(super) key: Key,
    pub(super) handler: H,
    pub(super) decode: Decode<S, T>,
    pub(super) options: Options,
    pub(super) args: PhantomData<fn(Args)>,
}

impl Idempotency {
    /// Makes a service for any [`Source`], which runs `handler` for each record, once per `key`. [`Source`] has an
    /// example.
    ///
    /// `decode` turns a record into the handler's type, by its body and its metadata, such as a header with the schema.
    /// Its error is permanent unless it is marked as transient or unknown ([`Classify`](crate::Classify)). In that
    /// case, and after a panic, the record is reported under every policy
    /// ([`ErrorKind::Decode`](crate::ErrorKind::Decode)).
    ///
    /// Use it with a source of this crate for bodies that are not JSON:
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::sqs::Sqs};
    ///
    /// async fn handle(line: Vec<String>) -> Result<usize, Failure> {
    ///     Ok(line.len())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// let service =
    ///     once.batch(Sqs, Key::message_id(), |_, body| Ok(body.split(',').map(str::to_owned).collect()), handle);
    /// # }
    /// ```
    ///
    /// The handler takes the decoded body, and optionally a [`RecordContext`](crate::RecordContext). It returns any
    /// serializable value, which is stored, or an error, which is transient unless [classified](crate::Classify).
    #[track_caller]
    pub fn batch<S, H, T, Args>(
        &self,
        source: S,
        key: Key,
        decode: impl Fn(&RecordInfo, &S::Body) -> Result<T, BoxError> + Send + Sync + 'static,
        handler: H,
    ) -> BatchService<S, H, T, Args>
    where
        S: Source,
        H: Handler<T, Args>,
        T: Send + 'static,
    {
        BatchService {
            source,
            engine: self.engine.for_operation(&self.engine.log_name(S::OPERATION)),
            registration: Registration::new::<H>(&self.engine, S::OPERATION),
            key,
            handler,
            decode: Arc::new(decode),
            options: Options::default(),
            args: PhantomData,
        }
    }
}

impl<S: Source, H, T, Args> BatchService<S, H, T, Args> {
    /// Checks that the service's settings, key and payload selectors are valid, and returns the service. Call it in
    /// init, so that a misspelt pointer fails the deployment rather than the records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if any of the following hold:
    ///
    /// * [Settings](Self::with_settings) contradict each other.
    /// * A selector is malformed, or a combination of keys is empty.
    /// * There is a probe that the engine's policy does not use, or none although the policy requires one.
    /// * The handler writes in [transactions](super::in_transaction) of a store other than the engine's.
    /// * Another service of the same source exists on an [unnamed engine](Idempotency#names) of the same scope and
    ///   store.
    pub fn validate(self) -> Result<Self, Error>
    where
        H: Handler<T, Args>,
    {
        self.check()?;
        self.engine.check_keys(S::OPERATION, None)?;
        Ok(self)
    }

    /// Returns the service with its source wrapped, and with `decode` for the bodies of the wrapping source.
    pub(super) fn wrapped<W: Source>(
        self,
        wrap: impl FnOnce(S) -> W,
        decode: impl FnOnce(Decode<S, T>) -> Decode<W, T>,
    ) -> BatchService<W, H, T, Args> {
        let Self { source, engine, registration, key, handler, decode: inner, options, args } = self;
        BatchService { source: wrap(source), engine, registration, key, handler, decode: decode(inner), options, args }
    }

    /// Returns the service with its source changed, for source-specific settings.
    pub(super) fn map_source(mut self, change: impl FnOnce(&mut S)) -> Self {
        change(&mut self.source);
        self
    }

    /// Returns all keys in use.
    fn keys(&self) -> Vec<Key> {
        let part = if let Payload::Part(part) = &self.options.payload { Some(part) } else { None };
        let order = self.options.order.iter().flat_map(OrderSelector::keys);
        [&self.key].into_iter().chain(part).chain(order).cloned().collect()
    }

    pub(super) fn check(&self) -> Result<(), Error>
    where
        H: Handler<T, Args>,
    {
        self.registration.check(|| self.keys(), (&self.engine.settings, &self.options))?;
        self.engine.check(&Needs {
            probe: ProbeNeed::new(H::FORM.probes, "BatchService::probe"),
            scope: false,
            transactions: if H::FORM.in_transaction { self.handler.store() } else { None },
            order: self.options.order.is_some(),
            heartbeat: Heartbeat::AsEngine,
        })?;
        if self.options.last_attempt_timeout.is_some_and(|longest| longest < Duration::from_millis(1)) {
            return Err(Error::config(
                "`last_attempt_timeout` must be at least a millisecond, or a message would never run on its last delivery",
            ));
        }
        if self.options.max_receive_count == Some(0) {
            return Err(Error::config(
                "`max_receive_count` must be at least 1, as that of a redrive policy is, or every delivery would be the last",
            ));
        }
        self.key.check()?;
        if let Some(order) = &self.options.order {
            order.check()?;
        }
        if let Some(label) = &self.options.label {
            label.check()?;
        }
        self.options.payload.check()
    }
}

impl<S: Source, H: Clone, T, Args> Clone for BatchService<S, H, T, Args> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            engine: self.engine.clone(),
            registration: self.registration.clone(),
            key: self.key.clone(),
            handler: self.handler.clone(),
            decode: Arc::clone(&self.decode),
            options: self.options.clone(),
            args: PhantomData,
        }
    }
}

impl<S: Source, H, T, Args> fmt::Debug for BatchService<S, H, T, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchService")
            .field("source", &S::OPERATION)
            .field("engine", &self.engine)
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
