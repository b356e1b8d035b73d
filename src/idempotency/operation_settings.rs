//! Settings of one operation or service that override its engine's.

use std::time::Duration;

use super::{
    policy::{AfterUnknown, OnPanic, Results},
    settings::EngineSettings,
};
use crate::key::missing::MissingKey;

/// Settings of one operation, service or layer that override its engine's. Other settings keep the values of the
/// [engine's builder](super::Builder).
///
/// Taken by `with_settings` of [`Operation`](crate::Operation), `BatchService`, `IdempotencyKeyLayer` and `InvocationLayer`.
///
/// ```
/// use std::time::Duration;
/// use lambda_once::{AfterUnknown, Failure, Idempotency, MemoryStore, Outcome, OperationSettings};
///
/// const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
///
/// /// Nobody is charged twice, and a charge is kept for a year.
/// const CHARGES: OperationSettings = OperationSettings::new().retention(YEAR).after_unknown(AfterUnknown::Refuse);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// let once = Idempotency::new(MemoryStore::new());
/// let outcome = once.operation("charge", "order 7").with_settings(CHARGES).run(charge).await?;
/// assert!(matches!(outcome, Outcome::Executed(())));
/// # Ok(()) }
/// # async fn charge() -> Result<(), Failure> { Ok(()) }
/// ```
///
/// Settings that contradict each other, or the engine's, are an error of the kind [`Config`](crate::ErrorKind::Config)
/// as in [`Builder::build`](super::Builder::build), returned by `validate` of a service or layer, or else before
/// anything is claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct OperationSettings {
    lease: Option<Duration>,
    retention: Option<Duration>,
    failed_retention: Option<Duration>,
    in_progress_retention: Option<Duration>,
    after_unknown: Option<AfterUnknown>,
    on_panic: Option<OnPanic>,
    missing_key: Option<MissingKey>,
    results: Option<Results>,
    payload_version: Option<u32>,
}

impl OperationSettings {
    /// Creates settings that are all equal to the engine's.
    pub const fn new() -> Self {
        Self {
            lease: None,
            retention: None,
            failed_retention: None,
            in_progress_retention: None,
            after_unknown: None,
            on_panic: None,
            missing_key: None,
            results: None,
            payload_version: None,
        }
    }

    /// Sets the lease of a claim if the deadline is unknown. See [`Builder::lease`](super::Builder::lease).
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the retention of a completed record. See [`Builder::retention`](super::Builder::retention). It also applies
    /// to failures and records in progress, unless these settings or the engine's specify theirs.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets the retention of the record of a permanent failure. See
    /// [`Builder::failed_retention`](super::Builder::failed_retention).
    pub const fn failed_retention(mut self, retention: Duration) -> Self {
        self.failed_retention = Some(retention);
        self
    }

    /// Sets the retention of a record that is in progress. See
    /// [`Builder::in_progress_retention`](super::Builder::in_progress_retention).
    pub const fn in_progress_retention(mut self, retention: Duration) -> Self {
        self.in_progress_retention = Some(retention);
        self
    }

    /// Sets the policy for a claim that has ended without an outcome. See
    /// [`Builder::after_unknown`](super::Builder::after_unknown).
    pub const fn after_unknown(mut self, policy: AfterUnknown) -> Self {
        self.after_unknown = Some(policy);
        self
    }

    /// Sets the policy for a panic. See [`Builder::on_panic`](super::Builder::on_panic).
    pub const fn on_panic(mut self, policy: OnPanic) -> Self {
        self.on_panic = Some(policy);
        self
    }

    /// Sets the policy for a delivery without a key. See [`Builder::missing_key`](super::Builder::missing_key). The
    /// HTTP layer has the setting `key_optional` instead.
    pub const fn missing_key(mut self, policy: MissingKey) -> Self {
        self.missing_key = Some(policy);
        self
    }

    /// Sets which parts of results and failure texts are stored. See [`Builder::results`](super::Builder::results).
    pub const fn results(mut self, policy: Results) -> Self {
        self.results = Some(policy);
        self
    }

    /// Sets the version of the payload (default 1). Raise it by one when a deployment changes the compared data: a
    /// different [`Payload`](crate::Payload), an additional member in the value given to
    /// [`payload`](crate::Operation::payload), or a different compared header. Otherwise a duplicate of an operation
    /// that ran before the deployment is a mismatch.
    ///
    /// A record written under a different version, greater or less, is not compared: its outcome is replayed as
    /// [`Outcome::ReplayedOtherVersion`](crate::Outcome::ReplayedOtherVersion), and a claim whose lease has lapsed can
    /// be taken over. The record keeps the version of its last claim.
    ///
    /// ```
    /// use lambda_once::{Failure, Idempotency, MemoryStore, Outcome, OperationSettings};
    ///
    /// /// Since version 2 the payload has a currency.
    /// const CHARGES: OperationSettings = OperationSettings::new().payload_version(2);
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::new(MemoryStore::new());
    /// let before = once.operation("charge", "order 7").payload(&995).run(charge).await?;
    /// assert!(matches!(before, Outcome::Executed(())));
    /// let after = once.operation("charge", "order 7").payload(&(995, "EUR")).with_settings(CHARGES).run(charge).await?;
    /// assert!(matches!(after, Outcome::ReplayedOtherVersion(())));
    /// # Ok(()) }
    /// # async fn charge() -> Result<(), Failure> { Ok(()) }
    /// ```
    ///
    /// Records of AWS Powertools have no version, so any version but 1 is refused
    /// ([`Config`](crate::ErrorKind::Config)).
    pub const fn payload_version(mut self, version: u32) -> Self {
        self.payload_version = Some(version);
        self
    }

    /// Returns the engine's settings with these overrides.
    pub(super) fn over(self, engine: &EngineSettings) -> EngineSettings {
        EngineSettings {
            lease: self.lease.unwrap_or(engine.lease),
            retention: self.retention.or(engine.retention),
            failed_retention: self.failed_retention.or(engine.failed_retention),
            in_progress_retention: self.in_progress_retention.or(engine.in_progress_retention),
            after_unknown: self.after_unknown.unwrap_or(engine.after_unknown),
            on_panic: self.on_panic.unwrap_or(engine.on_panic),
            missing_key: self.missing_key.unwrap_or(engine.missing_key),
            results: self.results.unwrap_or(engine.results),
            payload_version: self.payload_version.unwrap_or(engine.payload_version),
            ..engine.clone()
        }
    }
}
