//! Choices that a caller makes, as types.

use std::time::Duration;

use crate::{error::Error, store::Takeover};

/// What happens when a claim has ended without an outcome: its holder crashed, was cancelled, or could not record.
///
/// Nobody knows then whether the operation took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterUnknown {
    /// Run again once the lease and the skew margin have passed. The run is told that it took over.
    ///
    /// The effect happens once, except that after such a loss it may happen again.
    #[default]
    Rerun,
    /// Refuse with [`Outcome::Abandoned`](crate::Outcome::Abandoned) until an operator deletes the record, or the
    /// retention ends. The effect happens at most once, for handlers that mark what is
    /// [unknown](crate::Classify::unknown): a plain error says that nothing happened, and releases the claim. An operation that
    /// never ran may be refused.
    Refuse,
    /// Take the claim over once the lease and the skew margin have passed, and ask the caller's
    /// [probe](crate::Operation::probe) whether the operation took effect. If it did, the result that the probe has found
    /// is recorded ([`Outcome::Recovered`](crate::Outcome::Recovered)); if it did not, it runs; if the probe cannot tell,
    /// the claim is handed back, and the next delivery asks again.
    ///
    /// The effect happens once, if the probe tells the truth. Without a probe nothing is claimed
    /// ([`ErrorKind::Config`](crate::ErrorKind::Config)). Operations and the handlers of queues take one, other layers none yet.
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

/// What a panic in the handler says about the operation. So does one in a task that the handler awaits: a
/// `tokio::task::JoinError` of a panic, as the handler's error or in its chain of sources, without a mark or a classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// Nothing: it may have taken effect. The claim is kept until its lease ends.
    #[default]
    Unknown,
    /// It did not take effect. The claim is released.
    Transient,
}

/// Whether the results of operations and the texts of permanent failures are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Results {
    /// All of it, and a replay returns it.
    #[default]
    Store,
    /// Nothing, for results that hold personal data. A duplicate is recognized, and gets
    /// [`Outcome::ReplayedWithoutResult`](crate::Outcome::ReplayedWithoutResult), or a
    /// [`StoredFailure`](crate::StoredFailure) without its message. The HTTP layer stores the status of the response and nothing
    /// else.
    Discard,
}

/// Whether a run renews its lease where no deadline is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// As the engine is set.
    #[default]
    AsEngine,
    Never,
    /// A run lasts this long at most.
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

    /// Refuses a setting that would fail each invocation: in Lambda the deadline is known, and no lease is renewed.
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
