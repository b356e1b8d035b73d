//! Records that are shared with functions that use AWS Powertools.

use aws_sdk_dynamodb::types::AttributeValue;

use super::native;
use crate::{
    error::Error,
    key::powertools::{Dialect, PowertoolsKeys},
    record::{Fingerprint, KeyHash, StoredData},
    store::{ClaimRequest, FinalStatus, SettleRequest, Settlement},
};

/// A function written with the idempotency utility of AWS Powertools, in Python or in TypeScript, whose records a store
/// shares.
///
/// ```no_run
/// # async fn init() -> Result<(), lambda_once::Error> {
/// use lambda_once::{
///     Idempotency,
///     store::dynamodb::{Config, Powertools},
/// };
///
/// // Where Python has `@idempotent` above `def handler` in app.py, in the function `orders`:
/// let function = Powertools::python_function("orders", "app", "handler");
/// let once = Idempotency::new(Config::from_env()?.powertools(function).load().await?);
/// # Ok(()) }
/// ```
///
/// This store's operations replay the function's outcomes, and the other way round. `docs/comparison.md` describes how
/// each part of its configuration is carried over, and `docs/internals/powertools.md` lists all differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Powertools {
    dialect: Dialect,
    prefix: String,
}

impl Powertools {
    /// Creates the settings for a function in Python, by its `key_prefix`.
    pub fn python(prefix: impl Into<String>) -> Self {
        Self { dialect: Dialect::Python, prefix: prefix.into() }
    }

    /// Creates the settings for a function in Python without a `key_prefix`: the name of the Lambda function, and the
    /// module (`__module__`) and name (`__qualname__`, such as `handler`, or `Orders.place` for a method) of the
    /// decorated object.
    pub fn python_function(function_name: &str, module: &str, qualname: &str) -> Self {
        Self::python(format!("{function_name}.{module}.{qualname}"))
    }

    /// Creates the settings for a function in TypeScript, by its `keyPrefix`, or without one by the name of the Lambda
    /// function.
    pub fn typescript(prefix: impl Into<String>) -> Self {
        Self { dialect: Dialect::TypeScript, prefix: prefix.into() }
    }
}

/// The properties of its [`Powertools`] that a store needs.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    prefix: String,
    dialect: Dialect,
    pub(super) keys: PowertoolsKeys,
}

impl Shared {
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the prefix is empty.
    pub(super) fn new(powertools: &Powertools) -> Result<Self, Error> {
        let Powertools { dialect, prefix } = powertools;
        // As Powertools does.
        let prefix = if *dialect == Dialect::TypeScript { prefix.trim() } else { prefix };
        if prefix.is_empty() {
            return Err(Error::config(
                "the prefix of Powertools' keys must not be empty: it is the function's name at least",
            ));
        }
        Ok(Self { prefix: prefix.to_owned(), dialect: *dialect, keys: PowertoolsKeys::new(*dialect, prefix) })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the prefix and the hash of the key.
    pub(super) fn id(&self, key: &KeyHash) -> String {
        [&self.prefix, "#", &self.keys.written(&key.as_bytes()[..16])].concat()
    }

    pub(super) fn validation(&self, fingerprint: &Fingerprint) -> String {
        self.keys.validation(fingerprint)
    }

    pub(super) fn read_validation(&self, text: &str) -> Option<Fingerprint> {
        self.keys.read_validation(text)
    }

    /// Returns a result in its stored form, or `None` if it cannot be stored or exceeds `max_bytes`.
    pub(super) fn data(&self, data: &StoredData, max_bytes: usize) -> Option<AttributeValue> {
        match (data, self.dialect) {
            (StoredData::Json(json), Dialect::Python) => Some(AttributeValue::S(json.clone())),
            (StoredData::Json(json), Dialect::TypeScript) => native::from_json(json, max_bytes),
            (StoredData::Deflated(_) | StoredData::Encoded(_), _) => None,
        }
    }

    /// Returns the result from its stored form.
    pub(super) fn read_data(&self, value: &AttributeValue) -> StoredData {
        StoredData::Json(match (value, self.dialect) {
            (AttributeValue::S(json), Dialect::Python) => json.clone(),
            (value, Dialect::TypeScript) => native::to_json(value),
            // It is not JSON text, so it never decodes.
            (_, Dialect::Python) => String::new(),
        })
    }

    /// Returns the data of a record without a result. A function in TypeScript that returns `undefined` stores nothing.
    /// In Python a result is always stored.
    pub(super) fn absent_data(&self) -> Option<StoredData> {
        (self.dialect == Dialect::TypeScript).then(|| StoredData::Json("null".to_owned()))
    }

    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a claim that the records cannot represent.
    pub(super) fn check_claim(&self, request: &ClaimRequest) -> Result<(), Error> {
        self.check_key(&request.key)?;
        if request.order().is_some() { Err(in_order()) } else { Ok(()) }
    }

    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an outcome that the records cannot represent.
    pub(super) fn check_settle(&self, request: &SettleRequest) -> Result<(), Error> {
        self.check_key(&request.key)?;
        match &request.settlement {
            _ if request.order().is_some() => Err(in_order()),
            Settlement::Record { outcome: FinalStatus::Failed, .. } => {
                Err(Error::config("records of AWS Powertools hold no failures: release the claim"))
            }
            Settlement::Record { result, .. } if result.superseded => {
                Err(Error::config("records of AWS Powertools cannot say that an operation is superseded"))
            }
            _ => Ok(()),
        }
    }

    fn check_key(&self, key: &KeyHash) -> Result<(), Error> {
        if self.keys.made(key) {
            return Ok(());
        }
        Err(Error::config(
            "a key was not hashed as AWS Powertools does: does a store that wraps this one pass its `format` on?",
        ))
    }
}

fn in_order() -> Error {
    Error::config("records of AWS Powertools hold no order of operations")
}
