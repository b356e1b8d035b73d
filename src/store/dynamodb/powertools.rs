//! Records that functions with AWS Powertools recognize, and theirs.

use aws_sdk_dynamodb::types::AttributeValue;

use super::native;
use crate::{
    error::Error,
    key::powertools::{Dialect, PowertoolsKeys},
    record::{Fingerprint, KeyHash, StoredData},
    store::{ClaimRequest, FinalStatus, SettleRequest, Settlement},
};

/// The function whose records a store shares: one written with the idempotency utility of AWS Powertools, in Python or in
/// TypeScript.
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
/// What they have done, this store's operations replay, and the other way round. `docs/comparison.md` lists how each part of their
/// configuration is carried over, and `docs/internals/powertools.md` all differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Powertools {
    dialect: Dialect,
    prefix: String,
}

impl Powertools {
    /// A function in Python, by its `key_prefix`.
    pub fn python(prefix: impl Into<String>) -> Self {
        Self { dialect: Dialect::Python, prefix: prefix.into() }
    }

    /// A function in Python without a `key_prefix`: the name of the Lambda function, the module (`__module__`) and the name
    /// within it (`__qualname__`, such as `handler`, or `Orders.place` for a method) of what is decorated.
    pub fn python_function(function_name: &str, module: &str, qualname: &str) -> Self {
        Self::python(format!("{function_name}.{module}.{qualname}"))
    }

    /// A function in TypeScript, by its `keyPrefix`; without one by the name of the Lambda function.
    pub fn typescript(prefix: impl Into<String>) -> Self {
        Self { dialect: Dialect::TypeScript, prefix: prefix.into() }
    }
}

/// What a store needs to know of its [`Powertools`].
#[derive(Clone, Debug)]
pub(super) struct Shared {
    prefix: String,
    dialect: Dialect,
    pub(super) keys: PowertoolsKeys,
}

impl Shared {
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a prefix that is empty.
    pub(super) fn new(powertools: &Powertools) -> Result<Self, Error> {
        let Powertools { dialect, prefix } = powertools;
        // So does Powertools.
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

    /// The prefix, and the hash of the key.
    pub(super) fn id(&self, key: &KeyHash) -> String {
        [&self.prefix, "#", &self.keys.written(&key.as_bytes()[..16])].concat()
    }

    pub(super) fn validation(&self, fingerprint: &Fingerprint) -> String {
        self.keys.validation(fingerprint)
    }

    pub(super) fn read_validation(&self, text: &str) -> Option<Fingerprint> {
        self.keys.read_validation(text)
    }

    /// A result as it is stored; `None` if it cannot be, or takes more than so many bytes.
    pub(super) fn data(&self, data: &StoredData, max_bytes: usize) -> Option<AttributeValue> {
        match (data, self.dialect) {
            (StoredData::Json(json), Dialect::Python) => Some(AttributeValue::S(json.clone())),
            (StoredData::Json(json), Dialect::TypeScript) => native::from_json(json, max_bytes),
            (StoredData::Deflated(_) | StoredData::Encoded(_), _) => None,
        }
    }

    /// The result that was stored so.
    pub(super) fn read_data(&self, value: &AttributeValue) -> StoredData {
        StoredData::Json(match (value, self.dialect) {
            (AttributeValue::S(json), Dialect::Python) => json.clone(),
            (value, Dialect::TypeScript) => native::to_json(value),
            // It is not JSON text, so it decodes into nothing.
            (_, Dialect::Python) => String::new(),
        })
    }

    /// What a record says that has no result. A function in TypeScript that returns `undefined` stores nothing; in Python there
    /// always is something.
    pub(super) fn absent_data(&self) -> Option<StoredData> {
        (self.dialect == Dialect::TypeScript).then(|| StoredData::Json("null".to_owned()))
    }

    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a claim that the records cannot hold.
    pub(super) fn check_claim(&self, request: &ClaimRequest) -> Result<(), Error> {
        self.check_key(&request.key)?;
        if request.order().is_some() { Err(in_order()) } else { Ok(()) }
    }

    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an outcome that the records cannot hold.
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
