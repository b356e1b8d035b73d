//! A delivery from which keys are selected: a body and its metadata.

use std::{cell::OnceCell, fmt};

use super::canonical::{Problem, canonical};

/// A body, with its canonical form computed on demand.
pub(crate) struct Body<'a> {
    bytes: &'a [u8],
    canonical: OnceCell<Result<Vec<u8>, Problem>>,
}

impl<'a> Body<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, canonical: OnceCell::new() }
    }

    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the body in canonical JSON, or the reason why it has none.
    pub(crate) fn canonical(&self) -> Result<&[u8], Problem> {
        self.canonical.get_or_init(|| canonical(self.bytes)).as_deref().map_err(|problem| *problem)
    }
}

/// The input of a [`Key`](crate::Key): a message, or the event of an invocation, which has only a body.
#[derive(Clone, Copy)]
pub struct Delivery<'a> {
    pub(super) body: &'a Body<'a>,
    pub(super) metadata: &'a dyn MessageMetadata,
}

/// The metadata of a message. There is none unless the source overrides a method.
pub(crate) trait MessageMetadata {
    fn message_id(&self) -> Option<&str> {
        None
    }

    /// Returns the scope in which the message id is unique, or `None` if it is globally unique.
    fn id_namespace(&self) -> Option<&str> {
        None
    }

    /// Returns its origin.
    fn source(&self) -> Option<&str> {
        None
    }

    /// Returns an attribute set by the source.
    fn attribute(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Returns an attribute or header set by the sender.
    fn header(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Returns the bytes of an attribute or header, text or not.
    fn header_bytes(&self, _name: &str) -> Option<&[u8]> {
        None
    }
}

impl<'a> Delivery<'a> {
    pub(crate) const fn new(body: &'a Body<'a>, metadata: &'a dyn MessageMetadata) -> Self {
        Self { body, metadata }
    }

    /// Returns the body as received.
    pub fn body(&self) -> &'a [u8] {
        self.body.bytes
    }

    /// Returns the id that the queue gave the message, its position in its stream, or for a message in an envelope the
    /// id there.
    pub fn message_id(&self) -> Option<&'a str> {
        self.metadata.message_id()
    }

    /// Returns an attribute set by the source, such as `MessageDeduplicationId`.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.metadata.attribute(name)
    }

    /// Returns the text of an attribute or header set by the sender, or `None` if it is binary.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.metadata.header(name)
    }

    /// Returns the bytes of an attribute or header set by the sender, text or not.
    pub fn header_bytes(&self, name: &str) -> Option<&'a [u8]> {
        self.metadata.header_bytes(name)
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("bytes", &self.body().len()).field("message_id", &self.message_id()).finish()
    }
}

/// The metadata of an invocation's event, which has only a body.
#[cfg(feature = "invocation")]
pub(crate) struct NoMetadata;

#[cfg(feature = "invocation")]
impl MessageMetadata for NoMetadata {}

#[cfg(test)]
impl MessageMetadata for Option<&str> {
    fn message_id(&self) -> Option<&str> {
        *self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use super::*;
    use crate::key::selector::Key;
    use crate::key::{
        canonical::Form,
        hash::{KeyScope, fingerprint},
    };

    #[test]
    fn a_body_is_made_canonical_when_it_is_needed_and_once() {
        let body = Body::new(br#"{"b":1,"a":"x"}"#);
        let delivery = Delivery::new(&body, &Some("m-1"));
        let mut buffer = Vec::new();
        Key::message_id().select(&delivery, &mut buffer).unwrap();
        let from_fn = Key::from_fn(|delivery| Ok(delivery.message_id().map(str::to_owned)));
        from_fn.select(&delivery, &mut buffer).unwrap();
        assert!(body.canonical.get().is_none());

        let key = Key::pointer("/a").select(&delivery, &mut buffer).unwrap();
        let hasher = KeyScope { function: "f", engine: None, operation: "sqs", tenant: None }.hasher();
        let canonical = body.canonical.get().unwrap().as_ref().unwrap();
        assert!(std::ptr::eq(key, &canonical[5..8]));
        assert_eq!(body.fingerprint(&hasher), fingerprint(Form::CanonicalJson, canonical));
    }
}
