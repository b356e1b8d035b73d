//! Reads the fields of a hash.

use redis::Value;

use crate::error::{Error, ErrorKind, ErrorStatus};

/// A field returned by a script or `HMGET`.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) value: Value,
    /// For errors.
    pub(super) operation: &'static str,
}

/// Returns the fields with these names from a reply, in their order, or `None` if the hash has none of them. The last
/// ones may be missing.
pub(super) fn fields<const N: usize>(
    names: [&'static str; N],
    answer: Value,
    operation: &'static str,
) -> Result<Option<[Field; N]>, Error> {
    let Value::Array(values) = answer else { return Err(super::error::unexpected(operation)) };
    if values.iter().all(|value| *value == Value::Nil) {
        return Ok(None);
    }
    let mut values = values.into_iter();
    Ok(Some(names.map(|name| Field { name, value: values.next().unwrap_or(Value::Nil), operation })))
}

impl Field {
    pub(super) fn is_present(&self) -> bool {
        self.value != Value::Nil
    }

    /// # Errors
    ///
    /// [`ErrorKind::Format`], temporary, like all errors of a field.
    pub(super) fn text(self) -> Result<Option<String>, Error> {
        match self.value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map(Some).map_err(|_| unknown(self.name, self.operation))
            }
            _ => Err(unknown(self.name, self.operation)),
        }
    }

    pub(super) fn known<T>(self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Error> {
        let (name, operation) = (self.name, self.operation);
        self.text()?.map(|text| read(&text).ok_or_else(|| unknown(name, operation))).transpose()
    }

    /// Reads the value from its bytes.
    pub(super) fn bytes<T>(self, read: impl FnOnce(Vec<u8>) -> Option<T>) -> Result<Option<T>, Error> {
        match self.value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => read(bytes).map(Some).ok_or_else(|| unknown(self.name, self.operation)),
            _ => Err(unknown(self.name, self.operation)),
        }
    }

    pub(super) fn required<T>(self, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
        let (name, operation) = (self.name, self.operation);
        self.known(read)?.ok_or_else(|| unknown(name, operation))
    }

    /// Reads the version of a format, or 0 if there is none.
    pub(super) fn version(self) -> Result<u32, Error> {
        Ok(self.number()?.map_or(0, |version| u32::try_from(version).unwrap_or(u32::MAX)))
    }

    pub(super) fn number(self) -> Result<Option<u64>, Error> {
        self.known(|digits| digits.parse().ok())
    }
}

fn unknown(field: &str, operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Format,
        ErrorStatus::Temporary,
        operation,
        format!("the field `{field}` has a value that this version does not know; finish the deployment"),
    )
}
