//! The user's handle to an engine.

use std::{borrow::Cow, sync::Arc};

use super::engine::Engine;
use crate::{error::Error, store::Store};

/// Makes operations take effect once, with a store and the settings for its use.
///
/// It is cheap to clone, and clones share everything. Build it once, in the function's init, and use it from any number
/// of tasks. Several engines may share a store, and an operation of one may run inside an operation of another, as long
/// as they have different [names](Self::named).
///
/// # Names
///
/// Equal keys share one record only if all of these are equal as well. They are hashed together with the key, each
/// preceded by its length:
///
/// 1. the [scope](super::Builder::scope), by default the function's name;
/// 2. the engine's name, if it has one ([`named`](Self::named));
/// 3. the operation's name, which is the first argument of [`operation`](Self::operation), or for a service the name of
///    its kind, which is `http`, `invocation`, or the source ([`Source::OPERATION`](crate::batch::Source::OPERATION),
///    such as `sqs`);
/// 4. for requests and events, the owner of the key: the HTTP caller, and the tenant if Lambda provides one.
///
/// So the unnamed engines of a scope and a store serve one service of each kind, and any number of operations with
/// distinct names. A second service of one kind would take the first one's records for its own, and skip operations
/// that have never run. It is refused ([`ErrorKind::Config`](crate::ErrorKind::Config)), and so is the first while both
/// exist, by `validate` or at the first event. Clones of one service count as one. So do services that are created at
/// the same source line with the same handler, equal keys and equal settings, as in a function that makes its service
/// for each event. Settings that differ are noticed at the next event of each service. A handler or a
/// [`Key::from_fn`](crate::Key::from_fn) that captures something, or is a function pointer, equals no other.
///
/// Layers show less of their handlers. Two invocation layers of one line differ if the types of their events do, or
/// those of their inner services once both have handled an event, so two closures of one type count as one. One
/// invocation layer does not wrap services of two types. HTTP layers of one line with equal `Caller`s count as one,
/// whatever they wrap. There a key that was used for another method or path is refused as a mismatch.
///
/// Give each service of one kind an engine with a name:
///
/// ```
/// # #[cfg(feature = "sqs")] {
/// # use lambda_once::{ErrorKind, Failure, Idempotency, Key, MemoryStore};
/// # let once = Idempotency::new(MemoryStore::new());
/// # async fn handle(_: serde_json::Value) -> Result<(), Failure> { Ok(()) }
/// let orders = once.named("orders").sqs(Key::pointer("/id"), handle).validate();
/// let refunds = once.named("refunds").sqs(Key::pointer("/id"), handle).validate();
/// assert!(orders.is_ok() && refunds.is_ok());
///
/// let orders = once.sqs(Key::pointer("/id"), handle);
/// let refunds = once.sqs(Key::pointer("/id"), handle).validate();
/// assert_eq!(refunds.unwrap_err().kind(), ErrorKind::Config);
/// # }
/// ```
///
/// # Example
///
/// ```
/// use lambda_once::{Failure, Idempotency, Outcome, store::memory::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// let once = Idempotency::new(MemoryStore::new());
/// let first = once.operation("charge", "order 7").payload(&(7, 995)).run(charge_card).await?;
/// assert!(matches!(first, Outcome::Executed(1)));
/// let second = once.operation("charge", "order 7").payload(&(7, 995)).run(charge_card).await?;
/// assert!(matches!(second, Outcome::Replayed(1)));
/// let other = once.operation("charge", "order 7").payload(&(7, 996)).run(charge_card).await?;
/// assert!(matches!(other, Outcome::Mismatch(_)));
/// # Ok(()) }
/// # async fn charge_card() -> Result<u32, Failure> { Ok(1) }
/// ```
#[derive(Clone, Debug)]
#[doc(alias("deduplication", "deduplicate", "exactly-once"))]
pub struct Idempotency {
    pub(crate) engine: Engine,
}

impl Idempotency {
    /// Returns the same engine with a name. Engines with different names never share records, nor do a named and an
    /// unnamed one. The name precedes the [operations' names](Self#names), and replaces an earlier name of the engine.
    ///
    /// An empty name is refused ([`Config`](crate::ErrorKind::Config)) by the operations and services of the engine.
    /// Two services of one kind need two names. Give both the same name only if they are to share their records, like
    /// two versions of one service.
    #[must_use]
    pub fn named(&self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { engine: self.engine.named(name.into()) }
    }

    /// Opens the store's connections. Call it in init, so that no invocation waits for it.
    ///
    /// # Errors
    ///
    /// The errors of the store. A function that can work without the store may continue.
    pub async fn warm_up(&self) -> Result<(), Error> {
        if self.engine.settings.disabled {
            return Ok(());
        }
        self.engine.store.warm_up().await
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }
}
