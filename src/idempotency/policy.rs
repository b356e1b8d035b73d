//! Policies that a caller chooses.

use std::time::Duration;

use crate::{error::Error, store::Takeover};

/// The policy for a claim that has ended without an outcome because its holder crashed, was cancelled, or could not
/// record it.
///
/// The operation may or may not have taken effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterUnknown {
    /// Runs the operation again once the lease and the skew margin have passed. The claim reports that it took over.
    ///
    /// The effect happens once, except that after such a loss it may happen again.
    #[default]
    Rerun,
    /// Refuses with [`Outcome::Abandoned`](crate::Outcome::Abandoned) until an operator settles, releases or deletes
    /// the record, or the retention ends. The effect happens at most once, for handlers that mark
    /// [unknown](crate::Classify::unknown) errors. A plain error means that nothing happened, and releases the claim.
    /// An operation that never ran may be refused.
    Refuse,
    /// Takes the claim over once the lease and the skew margin have passed, and calls the caller's
    /// [probe](crate::Operation::probe) to find out whether the operation took effect. If it did, the result from the
    /// probe is recorded ([`Outcome::Recovered`](crate::Outcome::Recovered)). If it did not, it runs. If the probe
    /// fails, the claim is handed back, and the next delivery probes again.
    ///
    /// The effect happens once, if the probe is truthful. Without a probe nothing is claimed
    /// ([`ErrorKind::Config`](crate::ErrorKind::Config)). Operations, batches and the HTTP layer take one, and
    /// `InvocationLayer` does not.
    Probe,
}

impl AfterUnknown {
    pub(crate) const fn takeover(self) -> Takeover {
        match self {
            Self::Rerun | Self::Probe => Takeover::Allowed,
            Self::Refuse => Takeover::Refused,
        }
    }
}

/// The policy for a panic in the handler. It also applies to a panic in a task that the handler awaits: a
/// `tokio::task::JoinError` of a panic, as the handler's error or in its chain of sources, without a mark or a
/// classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// The operation may have taken effect. The claim is kept until its lease ends.
    #[default]
    Unknown,
    /// The operation did not take effect. The claim is released.
    Transient,
}

/// The policy for storing the results of operations and the texts of permanent failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Results {
    /// They are stored, and replays return them.
    #[default]
    Store,
    /// They are not stored, for results that contain personal data. A duplicate is recognized, and returns
    /// [`Outcome::ReplayedWithoutResult`](crate::Outcome::ReplayedWithoutResult), or a
    /// [`StoredFailure`](crate::StoredFailure) without its message. The HTTP layer stores only the status of the
    /// response.
    Discard,
}

/// The renewal of a run's lease if no deadline is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// The engine's setting.
    #[default]
    AsEngine,
    Never,
    /// Renews the lease for a run of at most this duration.
    UpTo(Duration),
}

impl Heartbeat {
    pub(crate) fn of(max_duration: Option<Duration>) -> Self {
        max_duration.map_or(Self::Never, Self::UpTo)
    }

    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if nothing could run within it.
    pub(crate) fn check(self) -> Result<(), Error> {
        if self == Self::UpTo(Duration::ZERO) {
            return Err(Error::config("the longest duration of a heartbeat is zero, so nothing could run"));
        }
        Ok(())
    }

    /// Refuses a setting that would fail each invocation, because in Lambda the deadline is known and no lease is
    /// renewed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a duration is set in Lambda.
    #[cfg(any(feature = "http-lambda", feature = "invocation"))]
    pub(crate) fn check_invocations(self) -> Result<(), Error> {
        if matches!(self, Self::UpTo(_)) && is_invoked_by_lambda() {
            return Err(Error::config(
                "a heartbeat is set in Lambda, where the deadline of each invocation is known: its lease lasts until then, and is \
                 not renewed. Leave it out, or set `Builder::heartbeat`, which applies only if no deadline is known",
            ));
        }
        Ok(())
    }
}

/// Returns whether Lambda itself invokes the function. `cargo lambda watch` does not set this variable.
/// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html>
#[cfg(any(feature = "http-lambda", feature = "invocation"))]
fn is_invoked_by_lambda() -> bool {
    std::env::var_os("AWS_LAMBDA_INITIALIZATION_TYPE").is_some()
}
