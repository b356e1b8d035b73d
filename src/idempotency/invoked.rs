//! The deadline and the tenant of the invocation that an operation belongs to.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::clock::{Deadline, Timestamp};

/// The deadline of an operation's invocation, and its tenant if Lambda provides one. Created from a [`Deadline`], a
/// [`Timestamp`] or a Lambda `Context`, for [`Operation::deadline`](crate::Operation::deadline).
#[derive(Clone, Debug)]
pub struct InvocationContext {
    pub(super) deadline: Deadline,
    /// The context's tenant, if any, or `None` without a context.
    pub(super) tenant: Option<Option<String>>,
}

impl From<Deadline> for InvocationContext {
    fn from(deadline: Deadline) -> Self {
        Self { deadline, tenant: None }
    }
}

impl From<Timestamp> for InvocationContext {
    fn from(at: Timestamp) -> Self {
        Deadline::at(at).into()
    }
}

#[cfg(any(feature = "batch", feature = "http-lambda", feature = "invocation"))]
impl From<&lambda_runtime::Context> for InvocationContext {
    fn from(context: &lambda_runtime::Context) -> Self {
        note_tenant(context.tenant_id.as_deref());
        Self { deadline: context.into(), tenant: Some(context.tenant_id.clone()) }
    }
}

/// The tenant that an operation belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Tenant {
    #[default]
    Unsaid,
    /// The tenant of the given context, if any.
    OfContext(Option<String>),
    /// Set explicitly, or `None` for all tenants.
    Chosen(Option<String>),
}

impl Tenant {
    pub(super) fn id(&self) -> Option<&str> {
        match self {
            Self::Unsaid => None,
            Self::OfContext(tenant) | Self::Chosen(tenant) => tenant.as_deref(),
        }
    }
}

/// Whether an invocation in this process was for a tenant. A static, because the identity of an operation must not
/// depend on its task: `tokio::spawn` would change its key.
static HAS_TENANTS: AtomicBool = AtomicBool::new(false);

/// Records that an invocation begins, for this tenant.
#[cfg_attr(
    not(any(feature = "batch", feature = "http", feature = "invocation")),
    expect(dead_code, reason = "without Lambda there are no tenants")
)]
pub(crate) fn note_tenant(tenant: Option<&str>) {
    if tenant.is_some() {
        HAS_TENANTS.store(true, Ordering::Relaxed);
    }
}

pub(super) fn process_has_tenants() -> bool {
    HAS_TENANTS.load(Ordering::Relaxed)
}

/// The run whose work is being polled on this thread. Runs inside it end before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enclosing {
    /// The end of its invocation, if known.
    pub(crate) deadline: Option<Timestamp>,
    /// The time at which it is cancelled.
    pub(crate) stop: Timestamp,
}

thread_local! {
    static ENCLOSING: Cell<Option<Enclosing>> = const { Cell::new(None) };
}

impl Enclosing {
    pub(crate) fn current() -> Option<Self> {
        ENCLOSING.get()
    }

    /// Makes this the enclosing run of the work that is polled on this thread, until the guard is dropped.
    ///
    /// A guard, because in a debug build each function that polls holds the result once more on the stack.
    pub(crate) fn enter(self) -> Entered {
        Entered(ENCLOSING.replace(Some(self)))
    }
}

/// Restores the run outside of the one that was entered.
#[must_use = "it leaves the run when it is dropped"]
pub(crate) struct Entered(Option<Enclosing>);

impl Drop for Entered {
    fn drop(&mut self) {
        ENCLOSING.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        Failure, Idempotency, MemoryStore,
        clock::SystemClock,
        idempotency::{engine::Engine, settings::EngineSettings},
    };

    fn in_lambda() -> Idempotency {
        let settings = EngineSettings { is_in_lambda: true, ..EngineSettings::default() };
        Idempotency { engine: Engine::new(Arc::new(MemoryStore::new()), Arc::new(SystemClock), settings) }
    }

    async fn run(once: &Idempotency, deadline: Option<Deadline>) {
        let operation = once.operation("charge", "order 7").all_tenants();
        let operation = match deadline {
            Some(deadline) => operation.deadline(deadline),
            None => operation,
        };
        let _ = operation.run(async || Ok::<_, Failure>(())).await.unwrap();
    }

    #[tokio::test]
    async fn in_lambda_an_operation_without_a_deadline_is_warned_of() {
        let once = in_lambda();
        run(&once, None).await;
        assert!(!once.named("other").engine.warnings.deadline.is_first(), "it was given, and is not given again");
    }

    #[tokio::test]
    async fn an_operation_with_a_set_or_inherited_deadline_logs_no_warning() {
        let once = in_lambda();
        run(&once, Some(Deadline::UNKNOWN)).await;
        // As under `cargo lambda watch`, whose deadlines are in the past.
        let stop = once.engine.clock.now().after(Duration::from_secs(30));
        let mut inner = std::pin::pin!(run(&once, None));
        std::future::poll_fn(|context| {
            let _entered = Enclosing { deadline: None, stop }.enter();
            inner.as_mut().poll(context)
        })
        .await;
        assert!(once.engine.warnings.deadline.is_first());
    }

    #[test]
    fn a_run_inside_a_run_that_panics_leaves_the_outer_one() {
        let [outer, inner] = [1, 2].map(|second| Enclosing { deadline: None, stop: Timestamp::from_seconds(second) });
        let entered = outer.enter();
        let panicked = std::panic::catch_unwind(|| {
            let _entered = inner.enter();
            panic!("oh")
        });
        assert!(panicked.is_err());
        assert_eq!(Enclosing::current(), Some(outer));
        drop(entered);
        assert_eq!(Enclosing::current(), None);
    }
}
