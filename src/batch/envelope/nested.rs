//! Nests one envelope in another.

use super::{Content, Envelope, EnvelopeError, Message};

impl<Outer: Envelope, Inner: Envelope> Envelope for (Outer, Inner) {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let (outer, inner) = self;
        let around = match outer.open(body)? {
            Content::Bare => return inner.open(body),
            Content::Nothing => return Ok(Content::Nothing),
            Content::Messages(messages) => messages,
        };
        let mut messages = Vec::with_capacity(around.len());
        for message in around {
            match inner.open(message.body.as_bytes())? {
                Content::Bare => messages.push(message),
                Content::Nothing => {}
                Content::Messages(inside) => messages.extend(inside.into_iter().map(|inside| within(&message, inside))),
            }
        }
        Ok(Content::Messages(messages))
    }
}

/// Adds the id, attributes and headers of the outer message, unless the inner one has them.
fn within(around: &Message, mut inside: Message) -> Message {
    inside.id = inside.id.or_else(|| around.id.clone());
    // If a name occurs several times, the last one counts.
    inside.attributes.splice(0..0, around.attributes.iter().cloned());
    inside.headers.splice(0..0, around.headers.iter().cloned());
    inside.binary_headers.splice(0..0, around.binary_headers.iter().cloned());
    inside
}
