//! The user's handle on an engine.

use std::{borrow::Cow, sync::Arc};

use super::engine::Engine;
use crate::{error::Error, store::Store};

/// Makes operations take effect once: a store, and the settings for using it.
///
/// It is cheap to clone, and clones share everything. Build it once, in the function's init, and use it from any number
/// of tasks. Several engines may share a store, and an operation of one may run inside an operation of another, as long
/// as they have different [names](Self::named).
///
/// # Names
///
/// Equal keys meet, and share one record, only if all of these are equal as well. They are hashed together with the key,
/// each preceded by its length:
///
/// 1. the [scope](super::Builder::scope): the function's name, unless the builder says otherwise;
/// 2. the engine's name, if it has one ([`named`](Self::named));
/// 3. the operation's name: the first argument of [`operation`](Self::operation); of a service the name of its kind, which is
///    `http`, `invocation`, or the source ([`Source::OPERATION`](crate::batch::Source::OPERATION), such as `sqs`);
/// 4. for requests and events, whose key it is: the HTTP caller, and the tenant if Lambda gives one.
///
/// So the unnamed engines of a scope and a store serve one service of each kind, and any number of operations with names of their
/// own. A second service of one kind would take the first one's records for its own, and skip work that has never run. It is refused
/// ([`ErrorKind::Config`](crate::ErrorKind::Config)), and so is the first while both are alive: by `validate`, or at the first
/// event. Clones of one service are one, and so are services that are created at the same source line with the
/// same handler, equal keys and equal settings, as in a function that makes its service for each event. A handler or a
/// [`Key::from_fn`](crate::Key::from_fn) that captures something, or is a function pointer, equals no other. Give each an engine with a name:
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
pub struct Idempotency {
    pub(crate) engine: Engine,
}

impl Idempotency {
    /// The same engine under a name: equal keys of differently named engines do not meet, nor do those of a named one and an
    /// unnamed one. The name comes in front of the [operations' own](Self#names), and replaces an earlier one of the engine.
    ///
    /// An empty name is refused ([`Config`](crate::ErrorKind::Config)) by what is made on the engine. Two services of one kind need two
    /// names. Give both the same one only if they are to share their records, as two
    /// versions of one service do.
    #[must_use]
    pub fn named(&self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { engine: self.engine.named(name.into()) }
    }

    /// Opens the store's connections. Call it in init, so that no invocation waits for it.
    ///
    /// # Errors
    ///
    /// Those of the store. A function that can still answer without the store may go on.
    pub async fn warm_up(&self) -> Result<(), Error> {
        if self.engine.settings.disabled {
            return Ok(());
        }
        self.engine.store.warm_up().await
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }
}
