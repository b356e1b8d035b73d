//! The payload of a delivery, by which two uses of a key are compared.

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

/// What the payload of a delivery is, for telling a repeated operation from a misused key.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Payload {
    /// The whole body: canonical if it is JSON, else its bytes.
    #[default]
    Body,
    /// A part of the body, for bodies in which something varies from delivery to delivery.
    Part(Key),
    /// Nothing. A key is trusted to stand for one payload.
    Ignored,
}

impl Payload {
    /// Finds what can be known to be wrong before any delivery.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Part(part) => part.check(),
            Self::Body | Self::Ignored => Ok(()),
        }
    }

    /// The fingerprint of a delivery's payload.
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
    /// Of the canonical form if the body is JSON, else of its bytes.
    pub(crate) fn fingerprint(&self, hasher: &KeyHasher) -> Fingerprint {
        match self.canonical() {
            Ok(json) => hasher.fingerprint(Form::CanonicalJson, json),
            Err(_) => hasher.fingerprint(Form::Bytes, self.bytes()),
        }
    }
}

impl Key {
    /// The part of a delivery that stands for its payload. It must be there, and may hold anything.
    pub(crate) fn select_part<'a>(&self, delivery: &Delivery<'a>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        self.look_up(delivery, buffer, |_| false).map_err(|error| match error.kind() {
            ErrorKind::KeyMissing => Error::payload("the part that stands for the payload is not there"),
            _ => error,
        })
    }
}
