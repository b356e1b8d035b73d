//! The payload of a delivery, which distinguishes a repeated operation from a misused key.

use super::{
    canonical::Form,
    delivery::{Body, Delivery},
    hash::KeyHasher,
    selector::Key,
};
use crate::{
    error::{Error, ErrorKind},
    record::Fingerprint,
};

/// The part of a delivery that is its payload, for distinguishing a repeated operation from a misused key.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Payload {
    /// The whole body, in canonical form if it is JSON, or else its bytes.
    #[default]
    Body,
    /// A part of the body, for bodies in which other parts vary between deliveries.
    Part(Key),
    /// No payload. A key is trusted to identify a single payload.
    Ignored,
}

impl Payload {
    /// Reports errors that can be detected before any delivery.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Part(part) => part.check(),
            Self::Body | Self::Ignored => Ok(()),
        }
    }

    /// Returns the fingerprint of a delivery's payload.
    pub(crate) fn fingerprint(
        &self,
        body: &Body<'_>,
        delivery: &Delivery<'_>,
        hasher: &KeyHasher,
    ) -> Result<Option<Fingerprint>, Error> {
        Ok(match self {
            Self::Ignored => None,
            Self::Part(part) => {
                Some(hasher.fingerprint(Form::CanonicalJson, part.select_part(delivery, &mut Vec::new())?))
            }
            Self::Body => Some(body.fingerprint(hasher)),
        })
    }
}

impl Body<'_> {
    /// Returns the fingerprint of the canonical form if the body is JSON, or else of its bytes.
    pub(crate) fn fingerprint(&self, hasher: &KeyHasher) -> Fingerprint {
        match self.canonical() {
            Ok(json) => hasher.fingerprint(Form::CanonicalJson, json),
            Err(_) => hasher.fingerprint(Form::Bytes, self.bytes()),
        }
    }
}

impl Key {
    /// Selects the part of a delivery that is its payload. It must exist, and may be empty.
    pub(crate) fn select_part<'a>(&self, delivery: &Delivery<'a>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        self.look_up(delivery, buffer, |_| false).map_err(|error| match error.kind() {
            ErrorKind::KeyMissing => Error::payload("the part that stands for the payload is not there"),
            _ => error,
        })
    }
}
