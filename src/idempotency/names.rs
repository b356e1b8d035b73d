//! Separates the operations of an engine by names, and detects services of a process that would share records by
//! accident.

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
use std::{
    any::TypeId,
    fmt,
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
use super::engine::Engine;
use crate::error::Error;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
use crate::{key::selector::Key, store::StoreId};

/// Refuses an empty name.
pub(crate) fn check(operation: &str) -> Result<(), Error> {
    if operation.is_empty() {
        Err(Error::config("the operation has no name: name the action, as in `charge`"))
    } else {
        Ok(())
    }
}

/// The only operation of an engine, on a store whose records do not contain its name.
#[cfg(feature = "powertools")]
#[derive(Debug, Default)]
pub(crate) struct OnlyOperation(std::sync::OnceLock<Box<str>>);

#[cfg(feature = "powertools")]
impl OnlyOperation {
    /// Fails for a second operation and for a tenant, on a store with records of AWS Powertools.
    pub(super) fn check(&self, operation: &str, tenant: Option<&str>) -> Result<(), Error> {
        if tenant.is_some() {
            return Err(Error::config(
                "keys of AWS Powertools do not tell tenants apart: a multi-tenant function needs a store without `powertools`",
            ));
        }
        let only = self.0.get_or_init(|| operation.into());
        if **only == *operation {
            return Ok(());
        }
        Err(Error::config(format!(
            "`{operation}` would take the records of `{only}` for its own, since the names of operations are not in keys of \
             AWS Powertools: give it an engine with a separate store and prefix"
        )))
    }
}

/// The unnamed services of the process that still exist, on any engine.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
static ALIVE: Mutex<Vec<Service>> = Mutex::new(Vec::new());

/// A service, by the values that its records depend on and those that distinguish it from other services with the same
/// records.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
#[derive(Debug)]
struct Service {
    id: u64,
    store: StoreId,
    scope: Box<str>,
    kind: &'static str,
    /// The place in the program that creates it. A function that creates its service for each event creates the same
    /// one each time.
    place: &'static Location<'static>,
    /// The type of its handler. `None` if it captures something, or is a pointer, because its type does not determine
    /// its behavior.
    handler: Option<TypeId>,
    /// Its keys and settings, once they were needed.
    terms: Option<Terms>,
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
#[derive(Debug)]
struct Terms {
    keys: Vec<Key>,
    /// Their `Debug` output, because hooks cannot be compared.
    settings: String,
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
impl Service {
    fn shares_records_with(&self, other: &Self) -> bool {
        (self.store, &self.scope, self.kind) == (other.store, &other.scope, other.kind)
    }

    fn is(&self, other: &Self) -> bool {
        if self.handler.is_none() || (self.place, self.handler) != (other.place, other.handler) {
            return false;
        }
        // A service whose terms are unknown is compared when it is checked itself.
        let (Some(ours), Some(theirs)) = (&self.terms, &other.terms) else { return true };
        let mut keys = ours.keys.iter().zip(&theirs.keys);
        ours.keys.len() == theirs.keys.len()
            && keys.all(|(ours, theirs)| ours.is_same(theirs))
            && ours.settings == theirs.settings
    }
}

/// The registration of a service in the process. Clones of a service share it, and it ends with the last of them.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// `None` on a named engine, because two services with one name are meant to share their records.
    unnamed: Option<Arc<Unnamed>>,
}

/// The id of a registered service, which exists as long as this.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
#[derive(Debug)]
struct Unnamed(u64);

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
impl Drop for Unnamed {
    fn drop(&mut self) {
        alive().retain(|service| service.id != self.0);
    }
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
fn alive() -> MutexGuard<'static, Vec<Service>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
impl Registration {
    /// Registers a service of this kind, with handlers of this type. Must be called by its constructor, which tracks
    /// its caller.
    #[track_caller]
    pub(crate) fn new<H: 'static>(engine: &Engine, kind: &'static str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if engine.settings.name.is_some() {
            return Self { unnamed: None };
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (store, scope) = (engine.store.id(), engine.settings.scope().into());
        let (place, handler) = (Location::caller(), (size_of::<H>() == 0).then(TypeId::of::<H>));
        alive().push(Service { id, store, scope, kind, place, handler, terms: None });
        Self { unnamed: Some(Arc::new(Unnamed(id))) }
    }

    /// Fails while another service exists that shares the records of this one. `keys` and `settings` are called only if
    /// another service may be the same one, created again.
    pub(crate) fn check(&self, keys: impl FnOnce() -> Vec<Key>, settings: impl fmt::Debug) -> Result<(), Error> {
        let Some(Unnamed(id)) = self.unnamed.as_deref() else { return Ok(()) };
        let mut alive = alive();
        let Some(place) = alive.iter().position(|service| service.id == *id) else { return Ok(()) };
        let shares = |other: &Service| other.id != *id && other.shares_records_with(&alive[place]);
        if !alive.iter().any(shares) {
            return Ok(());
        }
        alive[place].terms = Some(Terms { keys: keys(), settings: format!("{settings:?}") });
        let ours = &alive[place];
        let shares = |other: &&Service| other.id != *id && other.shares_records_with(ours) && !other.is(ours);
        let Some(theirs) = alive.iter().find(shares) else { return Ok(()) };
        let (kind, ours, theirs) = (ours.kind, ours.place, theirs.place);
        Err(Error::config(format!(
            "two unnamed `{kind}` services would share their records, one made at {ours}, the other at {theirs}: make each on an \
             engine with a different name, as in `once.named(\"orders\")`"
        )))
    }
}
