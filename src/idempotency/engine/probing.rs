//! Calls the probe after a takeover, which decides whether the operation still has to run.

use std::future::Future;

use crate::{
    error::BoxError,
    idempotency::{claim::Claim, guard::catch_panic, probe::ProbeResult, verdict::Failure},
};

/// Calls the probe for the result of an earlier run, if the claim took over. With a result the handler must not run.
/// Without one ([`None`]) the handler decides. Must be awaited within the same bounds as the handler.
///
/// # Errors
///
/// The errors of the probe, all of them as transient, whatever their own verdict. The outcome is still unknown, so the
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
    // Boxed, because it is rare and every run would reserve space for it.
    match Box::pin(probe(claim.clone())).await {
        Ok(ProbeResult::Done(result)) => Ok(Some(result)),
        Ok(ProbeResult::NotDone) => Ok(None),
        Err(error) => {
            // The text comes from user code, and printing it may panic.
            let text = catch_panic(|| error.to_string());
            tracing::warn!(target: "lambda_once", key = %claim.key(), error = text, "the probe failed: whether the operation took effect is still not known");
            Err(Failure::transient(error))
        }
    }
}
