//! Probes: what an earlier run has left decides whether there is anything to run.

use std::future::Future;

use crate::{
    error::BoxError,
    idempotency::{claim::Claim, guard::catch_panic, probe::ProbeResult, verdict::Failure},
};

/// Asks the probe for the result of an earlier run, if the claim took over. With a result the handler must not run; without
/// one ([`None`]) it is up to the handler. To be awaited within the same bounds as the handler.
///
/// # Errors
///
/// Those of the probe, all of them as transient, whatever they say of themselves: nothing has been found out, so the
/// claim is handed back and the next one probes again.
pub(crate) async fn earlier_result<T, F>(
    claim: &Claim,
    probe: impl FnOnce(Claim) -> F + Send,
) -> Result<Option<T>, Failure>
where
    F: Future<Output = Result<ProbeResult<T>, BoxError>> + Send,
{
    if !claim.took_over() {
        return Ok(None);
    }
    // Boxed, since it is rare: every run would have to have room for it.
    match Box::pin(probe(claim.clone())).await {
        Ok(ProbeResult::Done(result)) => Ok(Some(result)),
        Ok(ProbeResult::NotDone) => Ok(None),
        Err(error) => {
            // The text is the user's, and printing it may panic.
            let text = catch_panic(|| error.to_string());
            tracing::warn!(target: "lambda_once", key = %claim.key(), error = text, "the probe failed: whether the operation took effect is still not known");
            Err(Failure::transient(error))
        }
    }
}
