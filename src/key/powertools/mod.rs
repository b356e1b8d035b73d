//! The hashes of AWS Powertools' idempotency utilities: MD5 of a JSON text that each language writes in its own way.

use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};

use super::canonical::Form;
use crate::record::{Fingerprint, KeyHash, digits, from_digits};

mod number;
mod python;
#[cfg(test)]
mod tests;
mod typescript;

/// Which Powertools has written the records, or is to read them. Neither recognizes what the other has written: the JSON that
/// they hash differs, and so does the form of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Powertools for AWS Lambda (Python): the MD5 in hexadecimal digits of `json.dumps(data, sort_keys=True)`.
    Python,
    /// Powertools for AWS Lambda (TypeScript): the MD5 in Base64 of `JSON.stringify(deepSort(data))`.
    TypeScript,
}

impl Dialect {
    /// The text that this Powertools hashes, of a value in canonical JSON.
    ///
    /// Of names that differ only in the case of their letters, TypeScript's text keeps the order in which the sender wrote them.
    /// The canonical form no longer has that, so here they are in the order of their characters.
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

/// How a function with AWS Powertools hashes keys and payloads. A store has it of its
/// [`Powertools`](crate::store::dynamodb::Powertools).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowertoolsKeys {
    dialect: Dialect,
    /// Of the prefix, so that equal keys under different prefixes have different [`KeyHash`]es.
    prefix: [u8; 16],
}

impl PowertoolsKeys {
    pub(crate) fn new(dialect: Dialect, prefix: &str) -> Self {
        Self { dialect, prefix: Md5::digest(prefix).into() }
    }

    /// The hash of a key in canonical JSON: first Powertools' own, then that of the prefix.
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::from_halves(self.dialect.md5(Form::CanonicalJson, key), self.prefix)
    }

    /// Powertools' hash of a payload, filled up with zeros.
    pub(crate) fn fingerprint(&self, form: Form, payload: &[u8]) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.dialect.md5(form, payload));
        Fingerprint::from_bytes(bytes)
    }

    /// Whether a key was hashed by this.
    pub(crate) fn made(&self, key: &KeyHash) -> bool {
        *key.halves().1 == self.prefix
    }

    /// A fingerprint as it is written.
    pub(crate) fn validation(&self, fingerprint: &Fingerprint) -> String {
        self.written(&fingerprint.as_bytes()[..16])
    }

    /// The fingerprint that is written so; `None` if it is none.
    pub(crate) fn read_validation(&self, text: &str) -> Option<Fingerprint> {
        let hash: [u8; 16] = match self.dialect {
            Dialect::Python => from_digits(text)?,
            Dialect::TypeScript => STANDARD.decode(text).ok()?.try_into().ok()?,
        };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&hash);
        Some(Fingerprint::from_bytes(bytes))
    }

    /// A hash as this Powertools writes it.
    pub(crate) fn written(&self, hash: &[u8]) -> String {
        match self.dialect {
            Dialect::Python => digits(hash, &mut [0; 32]).to_owned(),
            Dialect::TypeScript => STANDARD.encode(hash),
        }
    }
}
