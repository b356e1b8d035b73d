//! Hashes keys and payloads for records.

use sha2::{Digest, Sha256};

use super::canonical::Form;
#[cfg(feature = "powertools")]
use super::powertools::PowertoolsKeys;
#[cfg(feature = "http")]
use crate::record::PayloadPart;
use crate::record::{Fingerprint, KeyHash};

/// The scope that separates equal keys of different functions, engines, operations and callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyScope<'a> {
    /// The function, or the scope that the configuration sets instead.
    pub(crate) function: &'a str,
    /// The engine's name, if it has one.
    pub(crate) engine: Option<&'a str>,
    /// The operation's name, or the kind of a service.
    pub(crate) operation: &'a str,
    /// The owner of the keys: the caller of an HTTP request, or the tenant of a multi-tenant function.
    pub(crate) tenant: Option<&'a [u8]>,
}

impl KeyScope<'_> {
    /// Returns a hasher for many keys, which contains the scope.
    pub(crate) fn hasher(&self) -> KeyHasher {
        let mut hasher = Sha256::new();
        hasher.update(b"lambda-once key 1");
        // The parts present, so that no part can be mistaken for another.
        hasher.update([u8::from(self.tenant.is_some()) | u8::from(self.engine.is_some()) << 1]);
        update(&mut hasher, self.function.as_bytes());
        if let Some(engine) = self.engine {
            update(&mut hasher, engine.as_bytes());
        }
        for part in [self.operation.as_bytes(), self.tenant.unwrap_or_default()] {
            update(&mut hasher, part);
        }
        KeyHasher::Scope(hasher)
    }
}

/// A hasher of the keys and payloads of one operation.
#[derive(Clone, Debug)]
pub(crate) enum KeyHasher {
    /// A hashed scope, to which keys are added.
    Scope(Sha256),
    /// The store defines the scope.
    #[cfg(feature = "powertools")]
    Powertools(PowertoolsKeys),
}

impl KeyHasher {
    /// Returns the hash of a caller's key within the scope.
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        match self {
            Self::Scope(scope) => {
                let mut hasher = scope.clone();
                update(&mut hasher, key);
                KeyHash::from_bytes(hasher.finalize().into())
            }
            #[cfg(feature = "powertools")]
            Self::Powertools(keys) => keys.hash(key),
        }
    }

    /// Returns the fingerprint of a payload.
    #[cfg(any(feature = "batch", feature = "invocation"))]
    pub(crate) fn fingerprint(&self, form: Form, payload: &[u8]) -> Fingerprint {
        match self {
            Self::Scope(_) => fingerprint(form, payload),
            #[cfg(feature = "powertools")]
            Self::Powertools(keys) => keys.fingerprint(form, payload),
        }
    }
}

/// Adds a part, preceded by its length, so that different sets of parts never give the same bytes.
fn update(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_be_bytes());
    hasher.update(part);
}

/// Computes the fingerprint of an undivided payload.
pub(crate) fn fingerprint(form: Form, payload: &[u8]) -> Fingerprint {
    Fingerprint::of_whole(digest(form, &[payload]))
}

/// Computes the digest of a payload given in pieces.
pub(crate) fn digest(form: Form, pieces: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(match form {
        Form::CanonicalJson => b"lambda-once payload 1 json " as &[u8],
        Form::Bytes => b"lambda-once payload 1 bytes",
    });
    for piece in pieces {
        update(&mut hasher, piece);
    }
    hasher.finalize().into()
}

/// Computes the hash of a part of a payload, under the plain key. Equal parts under different keys have different hashes.
#[cfg(feature = "http")]
pub(crate) fn part_hash(key: &[u8], part: PayloadPart, pieces: &[&[u8]]) -> [u8; 4] {
    let mut hasher = Sha256::new();
    hasher.update(b"lambda-once part 1");
    for piece in [key, part.as_str().as_bytes()].iter().chain(pieces) {
        update(&mut hasher, piece);
    }
    let [a, b, c, d, ..] = <[u8; 32]>::from(hasher.finalize());
    [a, b, c, d]
}
