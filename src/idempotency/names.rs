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
    /// The name of the type of an invocation layer's events.
    event: &'static str,
    /// The type of the service inside an invocation layer, once it has handled an event.
    inner: Option<TypeId>,
    /// Its keys, once it was checked.
    keys: Option<Vec<Key>>,
    /// The `Debug` output of its settings, because hooks cannot be compared, once it was needed.
    settings: Option<String>,
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
impl Service {
    fn shares_records_with(&self, other: &Self) -> bool {
        (self.store, &self.scope, self.kind) == (other.store, &other.scope, other.kind)
    }

    fn is(&self, other: &Self) -> bool {
        self.handler.is_some()
            && (self.place, self.handler, self.event) == (other.place, other.handler, other.event)
            && may_equal(self.inner.as_ref(), other.inner.as_ref(), |ours, theirs| ours == theirs)
            && may_equal(self.keys.as_ref(), other.keys.as_ref(), |ours, theirs| {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| ours.is_same(theirs))
            })
            && may_equal(self.settings.as_ref(), other.settings.as_ref(), |ours, theirs| ours == theirs)
    }
}

/// Compares a part of two services. One that is unknown may equal any, and is compared when its service is checked.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
fn may_equal<T>(ours: Option<&T>, theirs: Option<&T>, is_equal: impl FnOnce(&T, &T) -> bool) -> bool {
    ours.zip(theirs).is_none_or(|(ours, theirs)| is_equal(ours, theirs))
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
    #[cfg(any(feature = "batch", feature = "http"))]
    #[track_caller]
    pub(crate) fn new<H: 'static>(engine: &Engine, kind: &'static str) -> Self {
        Self::register(engine, kind, (size_of::<H>() == 0).then(TypeId::of::<H>), "")
    }

    /// Registers a layer of this kind, for events of type `T`. Must be called by its constructor, too.
    #[cfg(feature = "invocation")]
    #[track_caller]
    pub(crate) fn of_layer<T>(engine: &Engine, kind: &'static str) -> Self {
        Self::register(engine, kind, Some(TypeId::of::<()>()), std::any::type_name::<T>())
    }

    #[track_caller]
    fn register(engine: &Engine, kind: &'static str, handler: Option<TypeId>, event: &'static str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if engine.settings.name.is_some() {
            return Self { unnamed: None };
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (store, scope) = (engine.store.id(), engine.settings.scope().into());
        let place = Location::caller();
        let (inner, keys, settings) = (None, None, None);
        alive().push(Service { id, store, scope, kind, place, handler, event, inner, keys, settings });
        Self { unnamed: Some(Arc::new(Unnamed(id))) }
    }

    /// Fails while another service exists that shares the records of this one. `keys` is called the first time, and
    /// again if another service may be the same one, created again. The settings are formatted only then.
    #[cfg(any(feature = "batch", feature = "http"))]
    pub(crate) fn check(&self, keys: impl Fn() -> Vec<Key>, settings: impl fmt::Debug) -> Result<(), Error> {
        self.check_around(None, keys, settings)
    }

    /// Does the same around a service of this type, if it is known.
    pub(crate) fn check_around(
        &self,
        inner: Option<TypeId>,
        keys: impl Fn() -> Vec<Key>,
        settings: impl fmt::Debug,
    ) -> Result<(), Error> {
        let Some(Unnamed(id)) = self.unnamed.as_deref() else { return Ok(()) };
        let mut alive = alive();
        let Some(place) = alive.iter().position(|service| service.id == *id) else { return Ok(()) };
        let ours = &mut alive[place];
        if !may_equal(ours.inner.as_ref(), inner.as_ref(), |ours, theirs| ours == theirs) {
            return Err(sharing(ours.kind, ours.place, ours.place));
        }
        ours.inner = ours.inner.or(inner);
        ours.keys.get_or_insert_with(&keys);
        let shares = |other: &Service| other.id != *id && other.shares_records_with(&alive[place]);
        if !alive.iter().any(shares) {
            return Ok(());
        }
        let ours = &mut alive[place];
        (ours.keys, ours.settings) = (Some(keys()), Some(format!("{settings:?}")));
        let ours = &alive[place];
        let shares = |other: &&Service| other.id != *id && other.shares_records_with(ours) && !other.is(ours);
        let Some(theirs) = alive.iter().find(shares) else { return Ok(()) };
        Err(sharing(ours.kind, ours.place, theirs.place))
    }
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
fn sharing(kind: &str, ours: &Location<'_>, theirs: &Location<'_>) -> Error {
    Error::config(format!(
        "two unnamed `{kind}` services would share their records, one made at {ours}, the other at {theirs}: make each on an engine \
         with a different name, as in `once.named(\"orders\")`"
    ))
}
