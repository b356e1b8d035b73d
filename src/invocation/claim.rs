//! The claim of the running handler.

use std::future::Future;

use crate::idempotency::claim::Claim;

tokio::task_local! {
    static CURRENT: Option<Claim>;
}

/// Returns the claim under which the calling handler runs, or `None` if it runs unprotected or outside a handler.
///
/// [`Claim::took_over`] indicates that an earlier run ended without an outcome, so that the operation may already have
/// taken effect. The claim's key can serve as the idempotency key of the calls that the handler makes. It is available
/// only in the handler's task, so pass it to tasks that the handler spawns.
///
/// ```
/// use lambda_once::invocation;
/// use lambda_runtime::{Error, LambdaEvent};
///
/// async fn book(event: LambdaEvent<serde_json::Value>) -> Result<(), Error> {
///     if let Some(claim) = invocation::claim() {
///         let (key, again) = (claim.key().to_hex(), claim.took_over());
///         println!("booking under {key}, maybe again: {again}");
///     }
///     Ok(())
/// }
/// ```
pub fn claim() -> Option<Claim> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Runs a handler with access to its claim.
pub(super) fn with_claim<F: Future>(claim: Option<Claim>, handler: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(claim, handler)
}
