//! Creates the candidate for a claim, with the hashes of an operation's key and payload and its position in an order.

use std::sync::Arc;

use super::{
    engine::{Candidate, Engine, Extras},
    invoked::{Tenant, process_has_tenants},
};
use crate::{
    error::{Error, ErrorKind},
    order::Sequence,
    record::{Fingerprint, KeyHash},
};

/// The position of an operation in the order of its entity. Uninhabited without the feature `order`.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) entity: Result<Vec<u8>, Error>,
    pub(super) sequence: Sequence,
    #[cfg(not(feature = "order"))]
    pub(super) _impossible: std::convert::Infallible,
}

/// Returns the candidate, or `None` if the operation runs unprotected.
pub(super) fn candidate(
    engine: &Engine,
    name: &str,
    tenant: &Tenant,
    key: Result<Vec<u8>, Error>,
    fingerprint: Result<Option<Fingerprint>, Error>,
    rank: Option<Rank>,
    label: Option<Arc<str>>,
) -> Result<Option<Candidate>, Error> {
    if engine.settings.disabled {
        return Ok(None);
    }
    let key = match key {
        Ok(key) => key,
        // An ordered operation never runs unprotected.
        Err(error) if error.kind() == ErrorKind::KeyMissing && engine.runs_without_key() && rank.is_none() => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if *tenant == Tenant::Unsaid && process_has_tenants() {
        return Err(Error::config(
            "the function serves tenants, so the operation must say whose it is: give it the context, as in \
             `.deadline(&context)`, or choose `.tenant(id)` or `.all_tenants()`",
        ));
    }
    engine.check_keys(name, tenant.id())?;
    let hasher = engine.hasher(name, tenant.id().map(str::as_bytes));
    let (key, fingerprint) = (hasher.hash(&key), fingerprint?);
    let Some(Rank { entity, sequence, .. }) = rank else {
        return Ok(Some(Candidate { key, fingerprint, extras: Extras { sequence: None, label }.boxed() }));
    };
    let entity = entity.map_err(|error| Error::order("the operation has no entity").with_source(error))?;
    let key = KeyHash::ordered(&hasher.hash(&entity), &key);
    Ok(Some(Candidate { key, fingerprint, extras: Extras { sequence: Some(sequence), label }.boxed() }))
}
