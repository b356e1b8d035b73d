//! The engine's settings, with their defaults and checks.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::{
    classifier::Classifiers,
    codec::ResultCodec,
    policy::{AfterUnknown, Heartbeat, OnPanic, Results},
};
use crate::{error::Error, key::missing::MissingKey, record::DEFAULT_PAYLOAD_VERSION, telemetry::Observers};

/// The environment variable that switches the protection off if set to `1` or `true`: handlers run without calls to the
/// store.
pub const DISABLED_VARIABLE: &str = "LAMBDA_ONCE_DISABLED";

/// The environment variable with the name of the function, which only Lambda sets. A service's name in traces is no
/// scope, because renaming it there would make everything run again.
const FUNCTION_VARIABLE: &str = "AWS_LAMBDA_FUNCTION_NAME";

/// SQS keeps a message for up to 14 days, and a record must outlive it.
const RETENTION: Duration = Duration::from_secs(15 * 24 * 60 * 60);

const MIN_LEASE: Duration = Duration::from_secs(1);

/// Lambda's maximum duration of an invocation.
const MAX_DURATION: Duration = Duration::from_secs(15 * 60);

/// The minimum reserve. Its first half is for settling, and a call to the store needs at least that time.
const MIN_RESERVE: Duration = Duration::from_millis(200);

/// The settings of an engine. [`Builder`](super::Builder) documents them.
#[derive(Clone, Debug)]
pub(crate) struct EngineSettings {
    /// The service's name, if known.
    pub(crate) function: Option<Cow<'static, str>>,
    /// The engine's name.
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) lease: Duration,
    /// The maximum duration of a run that renews its lease, or `None` if no run does.
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) reserve: Option<Duration>,
    pub(crate) skew_margin: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) failed_retention: Option<Duration>,
    pub(crate) in_progress_retention: Option<Duration>,
    pub(crate) after_unknown: AfterUnknown,
    pub(crate) on_panic: OnPanic,
    pub(crate) missing_key: MissingKey,
    pub(crate) results: Results,
    pub(crate) compress_above: usize,
    pub(crate) codec: Option<Arc<dyn ResultCodec>>,
    /// The maximum size of a result that can be replayed, as JSON, in bytes. The store's limit may be lower.
    pub(crate) max_result_bytes: usize,
    pub(crate) classifiers: Classifiers,
    pub(crate) observers: Observers,
    pub(crate) payload_version: u32,
    pub(crate) disabled: bool,
    /// Whether the process is an execution environment of Lambda.
    pub(crate) is_in_lambda: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            function: None,
            name: None,
            lease: Duration::from_secs(30),
            heartbeat: Some(MAX_DURATION),
            reserve: None,
            skew_margin: Duration::from_secs(1),
            retention: None,
            failed_retention: None,
            in_progress_retention: None,
            after_unknown: AfterUnknown::default(),
            on_panic: OnPanic::default(),
            missing_key: MissingKey::default(),
            results: Results::default(),
            // The size that DynamoDB reads for one unit. Above it, each saved byte saves money.
            compress_above: 4096,
            codec: None,
            max_result_bytes: usize::MAX,
            classifiers: Classifiers::default(),
            observers: Observers::default(),
            payload_version: DEFAULT_PAYLOAD_VERSION,
            disabled: false,
            is_in_lambda: false,
        }
    }
}

impl EngineSettings {
    pub(super) fn from_environment() -> Self {
        let mut settings = Self::default();
        settings.function = std::env::var(FUNCTION_VARIABLE).ok().filter(|name| !name.is_empty()).map(Cow::Owned);
        settings.is_in_lambda = settings.function.is_some();
        settings.disabled = std::env::var(DISABLED_VARIABLE).is_ok_and(|value| is_true(&value));
        settings
    }

    pub(crate) fn retention(&self) -> Duration {
        self.retention.unwrap_or(RETENTION)
    }

    pub(crate) fn failed_retention(&self) -> Duration {
        self.failed_retention.unwrap_or_else(|| self.retention())
    }

    pub(crate) fn in_progress_retention(&self) -> Duration {
        self.in_progress_retention.unwrap_or_else(|| self.retention())
    }

    /// Returns the first part of every key.
    pub(crate) fn scope(&self) -> &str {
        self.function.as_deref().unwrap_or("local")
    }

    /// Refuses an engine that is not distinguished from other services on the same store.
    pub(super) fn check_scope(&self) -> Result<(), Error> {
        if self.function.is_some() {
            return Ok(());
        }
        Err(Error::config(
            "outside Lambda the service needs a name, or it would share its records with every other service on the \
             store: give the engine a scope, as in `Idempotency::builder(store).scope(\"payments\")`",
        ))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.function.as_deref() == Some("") {
            return Err(Error::config(
                "the scope is empty: set a name that distinguishes this function's keys from those of others",
            ));
        }
        if self.name.as_deref() == Some("") {
            return Err(Error::config(
                "the engine's name is empty: omit it, or set a name that distinguishes the engine from others",
            ));
        }
        if self.lease < MIN_LEASE {
            return Err(Error::config("the lease must be at least one second, or nothing could start within it"));
        }
        if self.reserve.is_some_and(|reserve| reserve >= self.lease) {
            return Err(Error::config("the reserve must be shorter than the lease, or nothing could start within it"));
        }
        if self.reserve.is_some_and(|reserve| reserve < MIN_RESERVE) {
            return Err(Error::config(
                "the reserve must be at least 200 milliseconds, or an outcome could not be recorded within it",
            ));
        }
        if let Some(max_duration) = self.heartbeat {
            Heartbeat::UpTo(max_duration).check()?;
        }
        let shortest = self.lease.saturating_add(self.skew_margin);
        for (name, retention) in [
            ("retention", self.retention()),
            ("retention of failures", self.failed_retention()),
            ("retention while in progress", self.in_progress_retention()),
        ] {
            if retention < shortest {
                return Err(Error::config(format!(
                    "the {name} ({retention:?}) must be at least the lease and the skew margin ({shortest:?}), or a record would \
                     expire under its holder"
                )));
            }
        }
        if self.after_unknown != AfterUnknown::Rerun && self.in_progress_retention() < self.retention() {
            return Err(Error::config(
                "under AfterUnknown::Refuse and AfterUnknown::Probe the retention while in progress must not be shorter than \
                 the retention, or an operation without an outcome would run again when its record expires",
            ));
        }
        Ok(())
    }
}

fn is_true(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::assert_states;

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let settings = EngineSettings::default();
        let days = settings.retention().as_secs() / (24 * 60 * 60);
        let lease = settings.lease.as_secs();
        let minutes = settings.heartbeat.unwrap().as_secs() / 60;
        let margin = settings.skew_margin.as_secs();
        let compressed = settings.compress_above;
        let version = settings.payload_version;
        let EngineSettings { after_unknown, on_panic, missing_key, results, .. } = settings;
        assert_states(
            "docs/settings.md",
            [
                format!("| [`retention`](#retention) | {days} days; "),
                format!("hence the default of {days}."),
                format!("| [`lease`](#lease) | {lease} s; "),
                format!("Otherwise the {lease} s lease may outlive"),
                format!("| [`heartbeat`](#heartbeat) | {minutes} minutes; "),
                format!("| [`skew_margin`](#reserve) | {margin} s |"),
                format!("| [`after_unknown`](#after-an-unknown-outcome) | `AfterUnknown::{after_unknown:?}` |"),
                format!("| `on_panic` | `OnPanic::{on_panic:?}`; "),
                format!("| [`missing_key`](#missing-keys) | `MissingKey::{missing_key:?}` |"),
                format!("By default (`MissingKey::{missing_key:?}`)"),
                format!("| [`results`](#results) | `Results::{results:?}` |"),
                format!("| | `Results::{results:?}` (default) |"),
                format!("| `compress_above` | {compressed} bytes; "),
                format!(".payload_version(2); // the default is {version}"),
                format!("| [`disabled`](#switching-it-off) | `{DISABLED_VARIABLE}` |"),
                format!("| [`scope`](#scope), a literal or a `String` | `{FUNCTION_VARIABLE}`, else `local`; "),
            ],
        );
        assert_states("docs/how-it-works.md", [format!("skew margin, {margin} second by default")]);
        assert_states("docs/comparison.md", [format!("of lambda-once {days} days |")]);
        assert_states("docs/recipes.md", [format!("its record ({days} days by default)")]);
        assert_states(
            "src/idempotency/builder.rs",
            [
                format!("| [`lease`](Self::lease) | {lease} s; "),
                format!("for at most {minutes} minutes; "),
                format!("| [`skew_margin`](Self::skew_margin) | {margin} s |"),
                format!("| [`retention`](Self::retention) | {days} days; "),
                format!("| [`after_unknown`](Self::after_unknown) | [`AfterUnknown::{after_unknown:?}`] |"),
                format!("| [`on_panic`](Self::on_panic) | [`OnPanic::{on_panic:?}`] |"),
                format!("| [`missing_key`](Self::missing_key) | [`MissingKey::{missing_key:?}`] |"),
                format!("| [`results`](Self::results) | [`Results::{results:?}`] |"),
                format!("| [`compress_above`](Self::compress_above) | {compressed} bytes |"),
            ],
        );
    }

    #[test]
    fn only_a_clear_yes_disables() {
        for yes in ["1", "true", "TRUE"] {
            assert!(is_true(yes));
        }
        for no in ["", "0", "false", "no", " 1"] {
            assert!(!is_true(no));
        }
    }
}
