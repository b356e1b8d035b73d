//! Checks before a claim: what a use needs, against the engine's settings and its store.

#[cfg(feature = "powertools")]
use super::Engine;
use crate::store::RecordFormat;
use crate::{
    error::Error,
    idempotency::policy::{AfterUnknown, Heartbeat},
    store::StoreId,
};

/// What an operation or a service needs of its engine. It has no default, so that a new need is decided for each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Whether a probe is given.
    pub(crate) probe: bool,
    /// Whether its records must be told apart from those of every other service by the engine's scope: requests come from anywhere.
    pub(crate) scope: bool,
    /// The store that its transactions write to, if it has them.
    pub(crate) transactions: Option<StoreId>,
    /// Whether its operations are ordered.
    pub(crate) order: bool,
    pub(crate) heartbeat: Heartbeat,
}

impl Engine {
    /// Checks the engine's settings, and that they and the store give what is needed. To be called before anything is claimed.
    ///
    /// Services check their registration as well, before this. [`check_keys`](Self::check_keys) is a check of its own, as it
    /// depends on the tenant of each event.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), for the first of these that fails.
    pub(crate) fn check(&self, needs: &Needs) -> Result<(), Error> {
        let Needs { probe, scope, transactions, order, heartbeat } = *needs;
        if !self.settings.disabled {
            self.settings.check()?;
            self.check_probe(probe)?;
            if scope {
                self.settings.check_scope()?;
            }
            if order {
                self.check_order()?;
            }
        }
        if let Some(store) = transactions {
            self.check_store(store)?;
        }
        heartbeat.check()
    }

    /// Refuses a policy that wants a probe without one, and a probe that no policy wants.
    fn check_probe(&self, is_given: bool) -> Result<(), Error> {
        match (self.settings.after_unknown, is_given) {
            (AfterUnknown::Probe, false) => Err(Error::config(
                "AfterUnknown::Probe needs a probe, and none is given; `Operation::probe` or, of a batch, `BatchService::probe` takes one",
            )),
            (AfterUnknown::Rerun | AfterUnknown::Refuse, true) => {
                Err(Error::config("a probe is given, but it is asked under AfterUnknown::Probe only"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses transactions of another store than the one that records their outcomes.
    fn check_store(&self, id: StoreId) -> Result<(), Error> {
        if self.store.id() == id {
            return Ok(());
        }
        Err(Error::config("a transaction needs the engine's own store: give `in_transaction` a clone of it"))
    }

    /// Refuses ordered operations on a store that does not keep the order of entities.
    fn check_order(&self) -> Result<(), Error> {
        if self.store.limits().orders {
            return Ok(());
        }
        Err(Error::config("`ordered_by` needs a store that keeps the order of entities, which this one does not"))
    }

    /// Refuses operations that the store's records do not tell apart from others. To be called before one is claimed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config): keys of AWS Powertools have a prefix in place of the
    /// operation's name, and nothing of a tenant.
    #[cfg_attr(not(feature = "powertools"), expect(unused_variables, reason = "the library's own records do"))]
    pub(crate) fn check_keys(&self, operation: &str, tenant: Option<&str>) -> Result<(), Error> {
        #[cfg(feature = "powertools")]
        if !self.settings.disabled && self.store.format() != RecordFormat::Native {
            return self.only_operation.check(&self.log_name(operation), tenant);
        }
        Ok(())
    }
}
