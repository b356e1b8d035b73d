//! Selects the entity of an operation, and its sequence in the entity's order.

use super::{delivery::Delivery, hash::KeyHasher, selector::Key};
use crate::{error::Error, order::Sequence, record::KeyHash};

/// Selects the entity and the sequence from a delivery. Cannot be constructed without the feature `order`.
#[derive(Clone, Debug)]
pub(crate) struct OrderSelector {
    pub(crate) entity: Key,
    pub(crate) sequence: Key,
    #[cfg(not(feature = "order"))]
    _impossible: std::convert::Infallible,
}

impl OrderSelector {
    #[cfg(any(feature = "batch", feature = "http"))]
    pub(crate) fn keys(&self) -> [&Key; 2] {
        [&self.entity, &self.sequence]
    }

    /// # Errors
    ///
    /// The errors of [`Key::check`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.entity.check()?;
        self.sequence.check()
    }

    /// Computes the hash of the entity, which is specific to the operation like a key's hash, and the sequence.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Order`](crate::ErrorKind::Order) if one of them is missing, or the sequence is not a whole number.
    pub(crate) fn select(
        &self,
        delivery: &Delivery<'_>,
        hasher: &KeyHasher,
        buffer: &mut Vec<u8>,
    ) -> Result<(KeyHash, Sequence), Error> {
        let missing = |what| move |error: Error| Error::order(what).with_source(error);
        let entity = self.entity.select(delivery, buffer).map_err(missing("the operation has no entity"))?;
        let entity = hasher.hash(entity);
        let selected = self.sequence.select(delivery, buffer).map_err(missing("the operation has no sequence"))?;
        let digits = match selected {
            [b'"', digits @ .., b'"'] => digits,
            digits => digits,
        };
        let sequence = std::str::from_utf8(digits).unwrap_or_default().parse()?;
        Ok((entity, sequence))
    }
}
