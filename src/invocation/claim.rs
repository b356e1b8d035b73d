//! The claim of the running handler.

use std::future::Future;

use crate::idempotency::claim::Claim;

tokio::task_local! {
    static CURRENT: Option<Claim>;
}

/// The claim under which the calling handler runs; `None` where it runs unprotected, and outside of one.
///
/// It says whether an earlier run ended without an outcome, so that the operation may already have taken effect, and its
/// key can serve as the idempotency key of the calls that the handler makes. It is known in the handler's own task only:
/// tasks that the handler spawns are to be given it.
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

/// Runs a handler that can ask for its claim.
pub(super) fn with_claim<F: Future>(claim: Option<Claim>, handler: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(claim, handler)
}
