//! Probes, by which the caller checks whether an operation took effect.

use std::future::Future;

use super::{claim::Claim, verdict::Failure};
use crate::error::BoxError;

/// The result of a probe for a run that left no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeResult<T> {
    /// The operation took effect, with this result. It is recorded, and nothing runs.
    Done(T),
    /// The operation did not take effect, and nothing left of the earlier run can still bring it about. It runs now.
    NotDone,
}

/// Finds out whether an earlier run took effect, by an async function of its [`Claim`], given to
/// [`Operation::probe`](super::Operation::probe), or not at all ([`Unprobed`]). It has no name outside the crate, and
/// so no other implementation.
pub trait Probe<T>: Send {
    /// Whether there is a probe.
    const IS_GIVEN: bool;

    /// Checks whether the operation took effect.
    fn probe(self, claim: Claim) -> impl Future<Output = Result<ProbeResult<T>, BoxError>> + Send;
}

/// An operation without a probe.
#[derive(Clone, Copy, Debug)]
pub struct Unprobed;

impl<T: Send> Probe<T> for Unprobed {
    const IS_GIVEN: bool = false;

    async fn probe(self, _: Claim) -> Result<ProbeResult<T>, BoxError> {
        Ok(ProbeResult::NotDone)
    }
}

impl<T, E, F, Fut> Probe<T> for F
where
    F: FnOnce(Claim) -> Fut + Send,
    Fut: Future<Output = Result<ProbeResult<T>, E>> + Send,
    E: Into<Failure>,
{
    const IS_GIVEN: bool = true;

    // The function is called inside, so that a panic in the call is caught too.
    async fn probe(self, claim: Claim) -> Result<ProbeResult<T>, BoxError> {
        self(claim).await.map_err(|error| error.into().into_source())
    }
}
