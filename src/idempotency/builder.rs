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
    /// An engine on `store` with the [default settings](Builder#defaults).
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build_unchecked()
    }

    /// For settings other than the defaults.
    pub fn builder(store: impl Store) -> Builder {
        Builder::new(store)
    }

    /// An engine that does not protect: for tests of a handler alone, and for handlers that may run twice.
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
/// | [`lease`](Self::lease) | 30 s; used only when the invocation's deadline is not known |
/// | [`heartbeat`](Self::heartbeat) | renewed while the work runs, for 15 minutes at most; only when the deadline is not known, and never in batches |
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

    /// What sets this function's keys apart from those of others in the same table. Set it to a name of your own to keep
    /// the records when a function is renamed, or to share them between functions.
    pub fn scope(mut self, scope: impl Into<Cow<'static, str>>) -> Self {
        self.settings.function = Some(scope.into());
        self
    }

    /// The engine's name, which sets its keys apart from those of other engines in the same function. See
    /// [`Idempotency::named`].
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// How long a claim stands when the deadline of the invocation is not known: outside Lambda, and under `cargo lambda
    /// watch`. At least one second. In Lambda the lease ends one second after the deadline.
    ///
    /// Work may run longer, by a [heartbeat](Self::heartbeat); a short lease then lets others take over soon after a crash.
    /// In batches, and without a heartbeat, it is the longest time that a handler has.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long an operation, a request or an invocation may run when its deadline is not known. Its lease is renewed
    /// meanwhile, each time a third of it has passed: shorter work costs no renewal. At `max_duration` the handler is cancelled,
    /// and its claim is kept until the lease ends. What runs without a claim has as long.
    ///
    /// Renewals are a part of the run's own future. A handler that blocks its thread starves them, and may lose its lease: use
    /// `tokio::task::spawn_blocking`, and await that. If the lease is lost, or cannot be renewed in time, the handler is
    /// dropped.
    ///
    /// When the deadline is known, as in Lambda, this has no effect: the lease lasts until then. Batches renew no leases.
    ///
    /// With `None` no lease is renewed: when the deadline is not known, a handler is cancelled shortly before its first lease ends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_once::{Idempotency, MemoryStore};
    ///
    /// # fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .lease(Duration::from_secs(10)) // a crash blocks the key for so long, and the skew margin
    ///     .heartbeat(Duration::from_secs(3_600)) // the work may take an hour
    ///     .build()?;
    /// # drop(once); Ok(()) }
    /// ```
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.settings.heartbeat = max_duration.into();
        self
    }

    /// The time before the deadline (or before the end of the lease, where there is none) in which no handler runs.
    /// The first half of it is for settling what has just ended. At least 200 milliseconds.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = Some(reserve);
        self
    }

    /// Sets the maximum clock difference between two execution environments. A claim is taken over only when this has passed after its lease.
    pub fn skew_margin(mut self, margin: Duration) -> Self {
        self.settings.skew_margin = margin;
        self
    }

    /// How long a completed record stays, and with it the protection. Longer than the longest time after which a
    /// delivery may be repeated, redrives from a dead-letter queue included.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// How long the record of a permanent failure stays.
    pub fn failed_retention(mut self, retention: Duration) -> Self {
        self.settings.failed_retention = Some(retention);
        self
    }

    /// How long a record stays that is in progress, or was when its holder died.
    pub fn in_progress_retention(mut self, retention: Duration) -> Self {
        self.settings.in_progress_retention = Some(retention);
        self
    }

    /// What happens when a claim has ended without an outcome.
    pub fn after_unknown(mut self, policy: AfterUnknown) -> Self {
        self.settings.after_unknown = policy;
        self
    }

    /// Reads the verdict off errors of the type `E`, so that handlers can return them as they are, by `?`.
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
    /// May be called for any number of types. A mark ([`Classify`](crate::Classify)), anywhere in an error's chain of sources, wins.
    /// Without one the error and its sources are looked at, from the outermost on, until a classifier says something; of two for
    /// one type the first is asked first. A classifier may return `Option<Verdict>`, and `None` where it has nothing to say. One
    /// that panics says [`Unknown`](Verdict::Unknown).
    ///
    /// If an error has no mark and no classifier knows it, the same places are searched for a `tokio::task::JoinError`.
    /// A panic in a task that the handler awaited is judged by [`on_panic`](Self::on_panic). A task that was cancelled
    /// is [`Unknown`](Verdict::Unknown), as it may have ended at any of its awaits.
    ///
    /// Classifiers see handlers' errors in queues, streams, operations and bulk handlers, and decoders' errors, which are
    /// permanent unless something says otherwise. Of an HTTP service and a handler of whole invocations they see boxed errors, and
    /// errors of a type that has a classifier.
    ///
    /// They find an `E` in an `Arc`, a `Box` and an `io::Error` too; in an `anyhow::Error` with the feature `anyhow`. They cannot see
    /// into an `anyhow::Error` that has become a boxed error before (by `?` in a function that returns
    /// `Box<dyn Error + Send + Sync>`, which is `lambda_runtime::Error`), nor into errors that do not show what they hold as their
    /// [source](std::error::Error::source), such as those that `thiserror` calls `transparent`. Mark the error before that, or
    /// classify the outer type.
    pub fn classify<E, V>(mut self, classify: impl Fn(&E) -> V + Send + Sync + 'static) -> Self
    where
        E: std::error::Error + 'static,
        V: Into<Option<Verdict>>,
    {
        self.settings.classifiers.add(classify);
        self
    }

    /// What a panic says about the operation: in the handler, or in a task that it awaits.
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.settings.on_panic = policy;
        self
    }

    /// What happens to a delivery without a key.
    pub fn missing_key(mut self, policy: MissingKey) -> Self {
        self.settings.missing_key = policy;
        self
    }

    /// Sets what is stored of results and of the texts of failures.
    pub fn results(mut self, policy: Results) -> Self {
        self.settings.results = policy;
        self
    }

    /// From how many bytes on a result is compressed, up to 1 MiB: more would take longer than the reserve of a small function
    /// has. What is too large for the store then is not kept.
    pub fn compress_above(mut self, bytes: usize) -> Self {
        self.settings.compress_above = bytes;
        self
    }

    /// Encodes results before they are stored, for example to encrypt them. See [`ResultCodec`]. Records in the format of AWS
    /// Powertools take no codec: everything that would be claimed is refused with [`ErrorKind::Config`](crate::ErrorKind::Config).
    pub fn result_codec(mut self, codec: impl ResultCodec) -> Self {
        self.settings.codec = Some(Arc::new(codec));
        self
    }

    /// Whether the protection is off: handlers run, and the store is not asked. Overrides `LAMBDA_ONCE_DISABLED`.
    pub fn disabled(mut self, disabled: bool) -> Self {
        self.settings.disabled = disabled;
        self
    }

    /// The clock that leases and deadlines are compared with. The store has its own.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Is told of every operation of this engine: its outcome, its times, and its calls to the store. May be called for any number
    /// of observers. [`Emf`](crate::telemetry::Emf) writes CloudWatch metrics.
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
    /// * the longest duration of a heartbeat is zero;
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
