//! Which part of a delivery is its key.

use std::{fmt, sync::Arc};

use super::{
    canonical::Problem,
    canonical_value, is_missing,
    pointer::{Pointer, find},
};
use crate::error::{BoxError, Error, ErrorKind};

/// What a [`Key`] selects from: one delivery.
#[derive(Clone, Copy)]
pub struct Delivery<'a> {
    body: &'a [u8],
    canonical: Result<&'a [u8], Problem>,
    message_id: Option<&'a str>,
}

impl<'a> Delivery<'a> {
    /// `canonical` is the body in canonical JSON, or why it has none.
    pub(crate) fn new(body: &'a [u8], canonical: Result<&'a [u8], Problem>, message_id: Option<&'a str>) -> Self {
        Self { body, canonical, message_id }
    }

    /// The body as it arrived.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The id that the queue gave the message.
    pub fn message_id(&self) -> Option<&'a str> {
        self.message_id
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("bytes", &self.body.len()).field("message_id", &self.message_id).finish()
    }
}

type Closure = dyn Fn(&Delivery<'_>) -> Result<Option<String>, BoxError> + Send + Sync;

/// Selects the key of an operation from a delivery.
///
/// ```
/// use lambda_once::Key;
///
/// // One order is one operation, however often and in how many messages it is sent.
/// let key = Key::pointer("/order_id");
/// // Order ids are unique within a customer only.
/// let key = Key::all([Key::pointer("/customer_id"), Key::pointer("/order_id")]);
/// ```
#[derive(Clone)]
pub struct Key(Selector);

#[derive(Clone)]
enum Selector {
    Pointer { text: Arc<str>, parsed: Option<Pointer> },
    MessageId,
    Closure(Arc<Closure>),
    All(Arc<[Key]>),
}

impl Key {
    /// The value at a JSON Pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) in the body, such as
    /// `/order_id` or `/detail/items/0/id`. Its type counts: `1`, `"1"` and `1.0` are three keys.
    ///
    /// A body that is not JSON is an error of that delivery. A pointer that is not one (`order_id` without the slash) is
    /// an error of every invocation, before anything is claimed; `SqsService::checked` finds it in init.
    pub fn pointer(pointer: &str) -> Self {
        Self(Selector::Pointer { text: pointer.into(), parsed: Pointer::parse(pointer) })
    }

    /// The id that the queue gave the message.
    ///
    /// It protects against redelivery by the queue, and against nothing else: a producer that sends again, and a redrive
    /// from a dead-letter queue, make a new id. A key from the body covers those too.
    pub fn message_id() -> Self {
        Self(Selector::MessageId)
    }

    /// What a function makes of the delivery. `Ok(None)` and an empty string mean that there is no key.
    ///
    /// ```
    /// use lambda_once::Key;
    ///
    /// let key = Key::from_fn(|delivery| {
    ///     let body = std::str::from_utf8(delivery.body())?;
    ///     Ok(body.split(',').next().map(str::to_owned))
    /// });
    /// ```
    pub fn from_fn<F>(select: F) -> Self
    where
        F: Fn(&Delivery<'_>) -> Result<Option<String>, BoxError> + Send + Sync + 'static,
    {
        Self(Selector::Closure(Arc::new(select)))
    }

    /// All of these together. Each must select something.
    pub fn all(keys: impl IntoIterator<Item = Self>) -> Self {
        Self(Selector::All(keys.into_iter().collect()))
    }

    /// Finds what can be known to be wrong before any delivery.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.0 {
            Selector::Pointer { text, parsed: None } => Err(Error::config(format!(
                "`{text}` is not a JSON Pointer: write `/` before each member's name, as in `/order_id`"
            ))),
            Selector::All(keys) if keys.is_empty() => {
                Err(Error::config("Key::all needs at least one key, or all deliveries would share one record"))
            }
            Selector::All(keys) => keys.iter().try_for_each(Self::check),
            _ => Ok(()),
        }
    }

    /// The key of a delivery in canonical JSON.
    pub(crate) fn select(&self, delivery: &Delivery<'_>) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        self.select_into(delivery, is_missing, &mut out)?;
        Ok(out)
    }

    /// The part of a delivery that stands for its payload. It must be there, and may hold anything.
    pub(crate) fn select_part(&self, delivery: &Delivery<'_>) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        match self.select_into(delivery, |_| false, &mut out) {
            Err(error) if error.kind() == ErrorKind::KeyMissing => {
                Err(Error::payload("the part that stands for the payload is not there"))
            }
            selected => selected.map(|()| out),
        }
    }

    fn select_into(
        &self,
        delivery: &Delivery<'_>,
        is_missing: fn(&[u8]) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match &self.0 {
            Selector::Pointer { text, parsed } => {
                let Some(pointer) = parsed else { return self.check() };
                let json = delivery.canonical.map_err(|problem| {
                    Error::payload(format!("`{text}` cannot be looked up in the body: {problem}"))
                })?;
                match find(json, pointer) {
                    Some(value) if !is_missing(value) => {
                        out.extend_from_slice(value);
                        Ok(())
                    }
                    _ => Err(Error::key_missing(format!("the body has nothing at `{text}`, or something empty in it"))),
                }
            }
            Selector::MessageId => {
                let id = delivery.message_id.filter(|id| !id.is_empty());
                write_json(id.ok_or_else(|| Error::key_missing("the delivery has no message id"))?, out)
            }
            Selector::Closure(select) => {
                let key = select(delivery)
                    .map_err(|source| Error::payload("the key's function failed").with_source(source))?
                    .filter(|key| !key.is_empty());
                write_json(&key.ok_or_else(|| Error::key_missing("the key's function found no key"))?, out)
            }
            Selector::All(keys) => {
                out.push(b'[');
                for (i, key) in keys.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    key.select_into(delivery, is_missing, out)?;
                }
                out.push(b']');
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Selector::Pointer { text, .. } => write!(f, "Key::pointer({text:?})"),
            Selector::MessageId => f.write_str("Key::message_id()"),
            Selector::Closure(_) => f.write_str("Key::from_fn(..)"),
            Selector::All(keys) => f.debug_tuple("Key::all").field(keys).finish(),
        }
    }
}

fn write_json(value: &str, out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend(canonical_value(value)?);
    Ok(())
}
