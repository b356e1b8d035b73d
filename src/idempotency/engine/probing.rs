//! Probes: what an earlier run has left decides whether there is anything to run.

use std::future::Future;

use crate::{
    error::{BoxError, Error},
    idempotency::{
        claim::Claim, guard::catch_panic, handle::Idempotency, policy::AfterUnknown, probe::Probed, verdict::Failure,
    },
};

/// What a probe says of the operation, if its claim took over; to be awaited within the same bounds as the work after it.
///
/// # Errors
///
/// Those of the probe, all of them as transient, whatever they say of themselves: nothing has been found out, so the
/// claim is handed back and the next one probes again.
pub(crate) async fn probed<T, F>(claim: &Claim, probe: impl FnOnce(Claim) -> F + Send) -> Result<Probed<T>, Failure>
where
    F: Future<Output = Result<Probed<T>, BoxError>> + Send,
{
    if !claim.took_over() {
        return Ok(Probed::NotDone);
    }
    // Boxed, since it is rare: every run would have to have room for it.
    Box::pin(probe(claim.clone())).await.map_err(|error| {
        // The text is the user's, and printing it may panic.
        let text = catch_panic(|| error.to_string());
        tracing::warn!(target: "lambda_once", key = %claim.key(), error = text, "the probe failed: whether the operation took effect is still not known");
        Failure::transient(error)
    })
}

impl Idempotency {
    /// Whether a probe is given where the policy wants one, and only there. To be checked before anything is claimed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if not.
    pub(crate) fn check_probe(&self, is_given: bool) -> Result<(), Error> {
        match (self.settings.after_unknown, is_given) {
            _ if self.settings.disabled => Ok(()),
            (AfterUnknown::Probe, false) => Err(Error::config(
                "AfterUnknown::Probe needs a probe, and none is given; `Operation::probe` or, of a batch, `BatchService::probe` takes one",
            )),
            (AfterUnknown::Rerun | AfterUnknown::Refuse, true) => {
                Err(Error::config("a probe is given, but it is asked under AfterUnknown::Probe only"))
            }
            _ => Ok(()),
        }
    }
}
