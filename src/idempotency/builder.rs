//! Builds an engine.

use std::{
    borrow::Cow,
    sync::{Arc, Once},
    time::Duration,
};

use super::{
    codec::ResultCodec,
    engine::Engine,
    handle::Idempotency,
    policy::{AfterUnknown, OnPanic, Results},
    settings::{DISABLED_VARIABLE, EngineSettings},
    verdict::Verdict,
};
use crate::{
    clock::{Clock, SystemClock},
    error::Error,
    key::missing::MissingKey,
    store::{Store, memory::MemoryStore},
    telemetry::{Observer, TalliedStore},
};

fn warn_that_it_is_disabled() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(target: "lambda_once", "{DISABLED_VARIABLE} is set: handlers run unprotected, and repeated deliveries take effect again");
    });
}

impl Idempotency {
    /// Creates an engine on `store` with the [default settings](Builder#defaults).
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build_unchecked()
    }

    /// Returns a builder for settings other than the defaults.
    pub fn builder(store: impl Store) -> Builder {
        Builder::new(store)
    }

    /// Creates an engine that does not protect, for tests of a handler alone and for handlers that may run twice.
    pub fn disabled() -> Self {
        Self::builder(MemoryStore::new()).disabled(true).build_unchecked()
    }
}

/// Builds an [`Idempotency`] with settings other than the defaults.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`scope`](Self::scope) | `AWS_LAMBDA_FUNCTION_NAME`, else `local`; HTTP outside Lambda needs one |
/// | [`named`](Self::named) | no name |
/// | [`lease`](Self::lease) | 30 s; used only if the invocation's deadline is unknown |
/// | [`heartbeat`](Self::heartbeat) | renewed while the work runs, for at most 15 minutes; only if the deadline is unknown, and never in batches |
/// | [`reserve`](Self::reserve) | 5 % of the time left at entry, at least 500 ms, at most 2 s |
/// | [`skew_margin`](Self::skew_margin) | 1 s |
/// | [`retention`](Self::retention) | 15 days; 24 hours for HTTP |
/// | [`failed_retention`](Self::failed_retention), [`in_progress_retention`](Self::in_progress_retention) | as `retention` |
/// | [`after_unknown`](Self::after_unknown) | [`AfterUnknown::Rerun`] |
/// | [`observer`](Self::observer) | none |
/// | [`classify`](Self::classify) | no classifiers: an error without a mark is transient |
/// | [`on_panic`](Self::on_panic) | [`OnPanic::Unknown`] |
/// | [`missing_key`](Self::missing_key) | [`MissingKey::Reject`] |
/// | [`results`](Self::results) | [`Results::Store`] |
/// | [`compress_above`](Self::compress_above) | 4096 bytes |
/// | [`result_codec`](Self::result_codec) | none: results are stored as JSON |
/// | [`disabled`](Self::disabled) | no, unless `LAMBDA_ONCE_DISABLED` is `1` or `true` |
/// | [`clock`](Self::clock) | [`SystemClock`] |
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: EngineSettings,
}

impl Builder {
    fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), clock: Arc::new(SystemClock), settings: EngineSettings::from_environment() }
    }

    /// Sets the namespace of this function's keys in the table. Set it explicitly to keep the records when a function
    /// is renamed, or to share them between functions.
    pub fn scope(mut self, scope: impl Into<Cow<'static, str>>) -> Self {
        self.settings.function = Some(scope.into());
        self
    }

    /// Sets the engine's name, which separates its keys from the keys of other engines in the same function. See
    /// [`Idempotency::named`].
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the lease of a claim if the deadline of the invocation is unknown, that is, outside Lambda and under
    /// `cargo lambda watch`. At least one second. In Lambda the lease ends one second after the deadline.
    ///
    /// Work may run longer if it has a [heartbeat](Self::heartbeat), and a short lease then lets others take over soon
    /// after a crash. In batches, and without a heartbeat, the lease is the maximum run time of a handler.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets the maximum duration of an operation, a request or an invocation if its deadline is unknown. Meanwhile its
    /// lease is renewed each time a third of it has passed, so shorter work costs no renewal. At `max_duration` the
    /// handler is cancelled, and its claim is kept until the lease ends. The same maximum applies to work without a
    /// claim.
    ///
    /// Renewals are part of the run's own future. A handler that blocks its thread starves them, and may lose its
    /// lease. Use `tokio::task::spawn_blocking`, and await that. If the lease is lost, or cannot be renewed in time,
    /// the handler is dropped.
    ///
    /// If the deadline is known, as in Lambda, this has no effect, because the lease lasts until the deadline. Batches
    /// renew no leases.
    ///
    /// With `None` no lease is renewed. If the deadline is unknown, a handler is then cancelled shortly before its
    /// first lease ends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_once::{Idempotency, MemoryStore};
    ///
    /// # fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .lease(Duration::from_secs(10)) // a crash blocks the key for this time and the skew margin
    ///     .heartbeat(Duration::from_secs(3_600)) // the work may take an hour
    ///     .build()?;
    /// # drop(once); Ok(()) }
    /// ```
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.settings.heartbeat = max_duration.into();
        self
    }

    /// Sets the time before the deadline (or, without one, before the end of the lease) in which no handler runs. Its
    /// first half is for settling the runs that have just ended. At least 200 milliseconds.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = Some(reserve);
        self
    }

    /// Sets the maximum clock difference between two execution environments. A claim is taken over only after its lease
    /// and this margin have passed.
    pub fn skew_margin(mut self, margin: Duration) -> Self {
        self.settings.skew_margin = margin;
        self
    }

    /// Sets the retention of a completed record, and with it of the protection. It must be longer than the maximum time
    /// after which a delivery may be repeated, including redrives from a dead-letter queue.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// Sets the retention of the record of a permanent failure.
    pub fn failed_retention(mut self, retention: Duration) -> Self {
        self.settings.failed_retention = Some(retention);
        self
    }

    /// Sets the retention of a record that is in progress, or was when its holder died. The next run after that does not
    /// learn that it took over.
    pub fn in_progress_retention(mut self, retention: Duration) -> Self {
        self.settings.in_progress_retention = Some(retention);
        self
    }

    /// Sets the policy for a claim that has ended without an outcome.
    pub fn after_unknown(mut self, policy: AfterUnknown) -> Self {
        self.settings.after_unknown = policy;
        self
    }

    /// Maps errors of the type `E` to verdicts, so that handlers can return them unchanged with `?`.
    ///
    /// ```
    /// use lambda_once::{Idempotency, MemoryStore, Outcome, Verdict};
    ///
    /// #[derive(Debug)]
    /// enum PaymentError { Declined, Busy, TimedOut }
    ///
    /// impl std::fmt::Display for PaymentError {
    ///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    ///         write!(f, "{self:?}")
    ///     }
    /// }
    /// impl std::error::Error for PaymentError {}
    ///
    /// async fn charge() -> Result<u64, PaymentError> {
    ///     Err(PaymentError::TimedOut)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .classify(|error: &PaymentError| match error {
    ///         PaymentError::Declined => Verdict::Permanent, // nothing happened, and a retry is declined as well
    ///         PaymentError::Busy => Verdict::Transient, // nothing happened, and a retry may work
    ///         PaymentError::TimedOut => Verdict::Unknown, // the card may have been charged
    ///     })
    ///     .build()?;
    /// let outcome = once.operation("charge", "order 7").run(charge).await?;
    /// assert!(matches!(outcome, Outcome::Failed(failure) if failure.verdict() == Verdict::Unknown));
    /// # Ok(()) }
    /// ```
    ///
    /// Can be called for several types. A mark ([`Classify`](crate::Classify)) anywhere in an error's chain of sources
    /// takes precedence. Without one, classifiers are applied to the error and its sources, from the outermost on,
    /// until one returns a verdict. Of two for one type, the first is applied first. A classifier may return
    /// `Option<Verdict>`, with `None` for no verdict. A classifier that panics counts as [`Unknown`](Verdict::Unknown).
    ///
    /// If an error has no mark and no classifier applies, the same places are searched for a `tokio::task::JoinError`.
    /// A panic in a task that the handler awaited is judged by [`on_panic`](Self::on_panic). A cancelled task is
    /// [`Unknown`](Verdict::Unknown), because it may have ended at any of its awaits.
    ///
    /// Classifiers receive handlers' errors in queues, streams, operations and bulk handlers, and decoders' errors,
    /// which are permanent by default. From an HTTP service and a handler of whole invocations they receive boxed
    /// errors, and errors of a type that has a classifier.
    ///
    /// They also find an `E` in an `Arc`, a `Box` and an `io::Error`, and with the feature `anyhow` in an
    /// `anyhow::Error`. They cannot look into an `anyhow::Error` that was converted to a boxed error (by `?` in a
    /// function that returns `Box<dyn Error + Send + Sync>`, which is `lambda_runtime::Error`), nor into errors that do
    /// not return their contents as [source](std::error::Error::source), such as `transparent` ones of `thiserror`.
    /// Mark the error before the conversion, or classify the outer type.
    pub fn classify<E, V>(mut self, classify: impl Fn(&E) -> V + Send + Sync + 'static) -> Self
    where
        E: std::error::Error + 'static,
        V: Into<Option<Verdict>>,
    {
        self.settings.classifiers.add(classify);
        self
    }

    /// Sets the policy for a panic in the handler, or in a task that it awaits.
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.settings.on_panic = policy;
        self
    }

    /// Sets the policy for a delivery without a key.
    pub fn missing_key(mut self, policy: MissingKey) -> Self {
        self.settings.missing_key = policy;
        self
    }

    /// Sets which parts of results and failure texts are stored.
    pub fn results(mut self, policy: Results) -> Self {
        self.settings.results = policy;
        self
    }

    /// Compresses results larger than `bytes`. Results over 1 MiB are never compressed, because that would take longer
    /// than the reserve of a small function. A result that is then too large for the store is dropped.
    pub fn compress_above(mut self, bytes: usize) -> Self {
        self.settings.compress_above = bytes;
        self
    }

    /// Encodes results before they are stored, for example to encrypt them. See [`ResultCodec`]. Records in the format
    /// of AWS Powertools do not support codecs, so every claim is refused with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config).
    pub fn result_codec(mut self, codec: impl ResultCodec) -> Self {
        self.settings.codec = Some(Arc::new(codec));
        self
    }

    /// Turns off the protection, so that handlers run without calls to the store. Overrides `LAMBDA_ONCE_DISABLED`.
    pub fn disabled(mut self, disabled: bool) -> Self {
        self.settings.disabled = disabled;
        self
    }

    /// Sets the clock for leases and deadlines. The store has a separate one.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Adds an observer, which receives every operation of this engine: its outcome, its times, and its calls to the
    /// store. Can be called several times. [`Emf`](crate::telemetry::Emf) writes CloudWatch metrics.
    ///
    /// An engine without observers measures nothing.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.add(observer);
        self
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if
    /// * the scope or the engine's name is empty;
    /// * the lease is shorter than a second, or not longer than the reserve;
    /// * the reserve is shorter than 200 milliseconds;
    /// * the maximum duration of a heartbeat is zero;
    /// * a retention is shorter than the lease and the skew margin: the record would expire under its holder;
    /// * under [`AfterUnknown::Refuse`] or [`AfterUnknown::Probe`] the retention while in progress is shorter than the
    ///   retention.
    pub fn build(self) -> Result<Idempotency, Error> {
        self.settings.check()?;
        Ok(self.build_unchecked())
    }

    /// The defaults need no check.
    pub(crate) fn build_unchecked(self) -> Idempotency {
        if self.settings.disabled {
            warn_that_it_is_disabled();
        }
        let Self { mut store, clock, settings } = self;
        if !settings.observers.is_empty() {
            store = Arc::new(TalliedStore::new(store));
        }
        Idempotency { engine: Engine::new(store, clock, settings) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, store::memory::MemoryStore};

    fn builder() -> Builder {
        Idempotency::builder(MemoryStore::new())
    }

    #[test]
    fn the_defaults_are_valid() {
        assert!(builder().build().is_ok());
        assert!(EngineSettings::default().check().is_ok());
    }

    #[test]
    fn an_empty_scope_or_name_is_refused() {
        for bad in [builder().scope(""), builder().named("")] {
            assert_eq!(bad.build().unwrap_err().kind(), ErrorKind::Config);
        }
        assert_eq!(builder().build().unwrap().named("").engine.settings.check().unwrap_err().kind(), ErrorKind::Config);
    }

    // Tests L4.
    #[test]
    fn settings_that_would_let_a_record_expire_under_its_holder_are_refused() {
        let second = Duration::from_secs(1);
        for bad in [
            builder().retention(30 * second),
            builder().failed_retention(30 * second),
            builder().in_progress_retention(second),
            builder().lease(second / 2),
            builder().heartbeat(Duration::ZERO),
            builder().reserve(30 * second),
            builder().reserve(second / 5 - Duration::from_millis(1)),
            builder().lease(Duration::MAX),
            builder().after_unknown(AfterUnknown::Refuse).in_progress_retention(60 * second),
            builder().after_unknown(AfterUnknown::Probe).in_progress_retention(60 * second),
        ] {
            assert_eq!(bad.build().unwrap_err().kind(), ErrorKind::Config);
        }
        assert!(builder().retention(31 * second).build().is_ok());
        assert!(builder().in_progress_retention(60 * second).build().is_ok());
    }
}
