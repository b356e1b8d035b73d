//! The engine: one operation, from its claim to its end.
//!
//! [`Idempotency`] joins a store with settings. [`Idempotency::operation`] protects any async function; the queue
//! processor and the HTTP layer build on the same protocol.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde::Serialize;

use crate::{
    clock::Clock,
    error::Error,
    key::hash::KeyScope,
    store::{Store, memory::MemoryStore},
};

pub(crate) mod claim;
pub(crate) mod engine;
pub(crate) mod guard;
mod operation;
mod outcome;
mod policy;
mod probe;
pub(crate) mod result;
mod settings;
mod verdict;
pub(crate) mod window;

pub use claim::Claim;
pub use operation::Operation;
pub use outcome::{Interruption, Outcome, OutcomeKind, StoredFailure};
pub use policy::{AfterUnknown, OnPanic};
pub use probe::{Probe, Probed, Unprobed};
pub(crate) use settings::Settings;
pub use settings::{Builder, DISABLED_VARIABLE};
pub use verdict::{Classified, Classify, Failure, Verdict};

/// Makes operations take effect once: a store, and the settings for using it.
///
/// It is cheap to clone, and clones share everything. Build it once, in the function's init, and use it from any number
/// of tasks. Several engines may share a store, and an operation of one may run inside an operation of another, as long
/// as they have different [names](Self::named).
///
/// ```
/// use lambda_once::{Failure, Idempotency, Outcome, store::memory::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// let once = Idempotency::new(MemoryStore::new()).named("charge");
/// let first = once.operation("order 7").payload(&(7, 995)).run(charge_card).await?;
/// assert!(matches!(first, Outcome::Executed(1)));
/// let second = once.operation("order 7").payload(&(7, 995)).run(charge_card).await?;
/// assert!(matches!(second, Outcome::Replayed(1)));
/// let other = once.operation("order 7").payload(&(7, 996)).run(charge_card).await?;
/// assert!(matches!(other, Outcome::Mismatch));
/// # Ok(()) }
/// # async fn charge_card() -> Result<u32, Failure> { Ok(1) }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotency {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Arc<Settings>,
}

impl Idempotency {
    /// An engine on `store` with the [default settings](Builder#defaults).
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build_unchecked()
    }

    /// For settings other than the defaults.
    pub fn builder(store: impl Store) -> Builder {
        Builder::new(store)
    }

    /// An engine that does not protect, for tests of a handler alone.
    pub fn disabled() -> Self {
        Self::builder(MemoryStore::new()).disabled(true).build_unchecked()
    }

    /// The same engine for another operation of the function: equal keys of differently named engines do not meet.
    ///
    /// Give each operation a name of its own where operations nest, or where two of them may use the same key. An
    /// operation that runs inside another one with the same name and key finds it in progress.
    #[must_use]
    pub fn named(&self, operation: impl Into<Cow<'static, str>>) -> Self {
        let settings = Settings { operation: Some(operation.into()), ..(*self.settings).clone() };
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// The operation that `key` identifies: a string, a number, or a tuple of them.
    pub fn operation<K: Serialize + ?Sized>(&self, key: &K) -> Operation<'_> {
        Operation::new(self, key)
    }

    /// Opens the store's connections. Call it in init, where it costs no invocation any time.
    ///
    /// # Errors
    ///
    /// Those of the store. A function that can still answer without the store may go on.
    pub async fn warm(&self) -> Result<(), Error> {
        if self.settings.disabled {
            return Ok(());
        }
        self.store.warm().await
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The same engine for a use that has its own default retention.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer's records live for a day"))]
    pub(crate) fn with_default_retention(&self, retention: Duration) -> Self {
        // A lease of days would outlive it.
        let shortest = self.settings.lease.saturating_add(self.settings.skew_margin);
        let chosen = self.settings.retention.unwrap_or(retention.max(shortest));
        let settings = Settings { retention: Some(chosen), ..(*self.settings).clone() };
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    pub(crate) fn operation_name<'a>(&'a self, default: &'a str) -> &'a str {
        self.settings.operation.as_deref().unwrap_or(default)
    }

    pub(crate) fn scope<'a>(&'a self, operation: &'a str, tenant: Option<&'a [u8]>) -> KeyScope<'a> {
        KeyScope { function: &self.settings.function, operation, tenant }
    }
}
