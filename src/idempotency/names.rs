//! Names: what sets the operations of one engine apart, and which of its services would share records by accident.

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
use std::sync::{Arc, PoisonError};
use std::{
    collections::HashMap,
    sync::{Mutex, Weak},
};

use crate::error::Error;

/// Refuses a name that says nothing.
pub(crate) fn check(operation: &str) -> Result<(), Error> {
    if operation.is_empty() {
        Err(Error::config("the operation has no name: say what is done, as in `charge`"))
    } else {
        Ok(())
    }
}

/// The unnamed services of an engine that are alive, by kind.
#[derive(Debug, Default)]
pub(crate) struct Services {
    #[cfg_attr(
        not(any(feature = "batch", feature = "http", feature = "invocation")),
        expect(dead_code, reason = "without services nothing is registered")
    )]
    alive: Mutex<HashMap<&'static str, Vec<Weak<()>>>>,
    /// The only operation, on a store with records in which its name is not.
    #[cfg(feature = "powertools")]
    only: std::sync::OnceLock<Box<str>>,
}

#[cfg(feature = "powertools")]
impl Services {
    /// For a store with records of AWS Powertools: fails for a second operation, and where there is a tenant.
    pub(super) fn check_keys(&self, operation: &str, tenant: Option<&str>) -> Result<(), Error> {
        if tenant.is_some() {
            return Err(Error::config(
                "keys of AWS Powertools do not tell tenants apart: a multi-tenant function needs a store without `powertools`",
            ));
        }
        let only = self.only.get_or_init(|| operation.into());
        if **only == *operation {
            return Ok(());
        }
        Err(Error::config(format!(
            "`{operation}` would take the records of `{only}` for its own, since the names of operations are not in keys of \
             AWS Powertools: give it an engine with a store and a prefix of its own"
        )))
    }
}

/// A service's place among the services of its engine. Clones of a service share it; it ends with the last of them.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    kind: &'static str,
    /// `None` on a named engine: whoever gives one name to two services wants them to share their records.
    unnamed: Option<(Arc<()>, Arc<Services>)>,
}

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
impl Registration {
    /// Registers a service of this kind, unless its engine has a name.
    pub(super) fn new(kind: &'static str, unnamed: Option<&Arc<Services>>) -> Self {
        let unnamed = unnamed.map(|services| {
            let token = Arc::new(());
            let mut kinds = services.alive.lock().unwrap_or_else(PoisonError::into_inner);
            let alive = kinds.entry(kind).or_default();
            alive.retain(|service| service.strong_count() > 0);
            alive.push(Arc::downgrade(&token));
            (token, Arc::clone(services))
        });
        Self { kind, unnamed }
    }

    /// Fails while another service of the same kind is alive on the same unnamed engine.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some((token, services)) = &self.unnamed else { return Ok(()) };
        let services = services.alive.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another =
            |service: &Weak<()>| service.strong_count() > 0 && !std::ptr::eq(service.as_ptr(), Arc::as_ptr(token));
        if services.get(self.kind).is_some_and(|alive| alive.iter().any(is_another)) {
            let kind = self.kind;
            return Err(Error::config(format!(
                "two `{kind}` services on one unnamed engine would share their records: make each on an engine with a \
                 name of its own, as in `once.named(\"orders\")`"
            )));
        }
        Ok(())
    }
}
