//! The hashes of AWS Powertools' idempotency utilities: MD5 of a JSON text whose format depends on the language.

use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};

use super::canonical::Form;
use crate::record::{Fingerprint, KeyHash, digits, from_digits};

mod number;
mod python;
#[cfg(test)]
mod tests;
mod typescript;

/// The Powertools implementation that reads and writes the records. None recognizes the records of another, because the
/// JSON that they hash differs, as does the format of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Powertools for AWS Lambda (Python): the MD5 of `json.dumps(data, sort_keys=True)` in hexadecimal digits.
    Python,
    /// Powertools for AWS Lambda (TypeScript): the MD5 of `JSON.stringify(deepSort(data))` in Base64.
    TypeScript,
}

impl Dialect {
    /// Returns the text that this Powertools implementation hashes for a value in canonical JSON.
    ///
    /// For names that differ only in case, TypeScript's text keeps the order of the sender. The canonical form has lost
    /// that order, so here they are sorted by their characters.
    fn text(self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(json.len() + json.len() / 4);
        match self {
            Self::Python => python::write(&mut out, json),
            Self::TypeScript => typescript::write(&mut out, json),
        }
        out
    }

    fn md5(self, form: Form, bytes: &[u8]) -> [u8; 16] {
        match form {
            Form::CanonicalJson => Md5::digest(self.text(bytes)).into(),
            Form::Bytes => Md5::digest(bytes).into(),
        }
    }
}

/// A hasher of keys and payloads that works as a function with AWS Powertools does. A store gets it from its
/// [`Powertools`](crate::store::dynamodb::Powertools).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowertoolsKeys {
    dialect: Dialect,
    /// The hash of the prefix, so that equal keys under different prefixes have different [`KeyHash`]es.
    prefix: [u8; 16],
}

impl PowertoolsKeys {
    pub(crate) fn new(dialect: Dialect, prefix: &str) -> Self {
        Self { dialect, prefix: Md5::digest(prefix).into() }
    }

    /// Returns the hash of a key in canonical JSON: Powertools' hash, followed by the hash of the prefix.
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::from_halves(self.dialect.md5(Form::CanonicalJson, key), self.prefix)
    }

    /// Returns Powertools' hash of a payload, padded with zeros.
    pub(crate) fn fingerprint(&self, form: Form, payload: &[u8]) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.dialect.md5(form, payload));
        Fingerprint::from_bytes(bytes)
    }

    /// Returns whether a key was hashed with this prefix.
    pub(crate) fn made(&self, key: &KeyHash) -> bool {
        *key.halves().1 == self.prefix
    }

    /// Returns the stored form of a fingerprint.
    pub(crate) fn validation(&self, fingerprint: &Fingerprint) -> String {
        self.written(&fingerprint.as_bytes()[..16])
    }

    /// Parses the stored form of a fingerprint. Returns `None` if it is malformed.
    pub(crate) fn read_validation(&self, text: &str) -> Option<Fingerprint> {
        let hash: [u8; 16] = match self.dialect {
            Dialect::Python => from_digits(text)?,
            Dialect::TypeScript => STANDARD.decode(text).ok()?.try_into().ok()?,
        };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&hash);
        Some(Fingerprint::from_bytes(bytes))
    }

    /// Returns a hash in the format of this Powertools implementation.
    pub(crate) fn written(&self, hash: &[u8]) -> String {
        match self.dialect {
            Dialect::Python => digits(hash, &mut [0; 32]).to_owned(),
            Dialect::TypeScript => STANDARD.encode(hash),
        }
    }
}
