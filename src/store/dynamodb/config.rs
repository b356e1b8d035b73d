//! Which table, which attributes, which client.

use std::{collections::HashMap, time::Duration};

use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::config::SharedHttpClient;
use aws_sdk_dynamodb::{Client, types::AttributeValue};
use aws_smithy_http_client::{
    ConnectorBuilder,
    proxy::ProxyConfig,
    tls::{self, rustls_provider::CryptoMode},
};

use super::DynamoDbStore;
use crate::{error::Error, record::KeyHash};

const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(3);
const SDK_ATTEMPTS: u32 = 2;

/// Names of the attributes. The defaults are those of AWS Powertools, and of this library where Powertools has none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each field is named after the attribute that it names; the module says what they hold")]
pub struct AttributeNames {
    pub id: String,
    pub status: String,
    pub expiration: String,
    pub in_progress_expiration: String,
    pub data: String,
    pub validation: String,
    pub owner: String,
    pub attempt: String,
    pub prior_status: String,
    pub result_dropped: String,
    pub version: String,
}

impl Default for AttributeNames {
    fn default() -> Self {
        Self {
            id: "id".into(),
            status: "status".into(),
            expiration: "expiration".into(),
            in_progress_expiration: "in_progress_expiration".into(),
            data: "data".into(),
            validation: "validation".into(),
            owner: "owner".into(),
            attempt: "attempt".into(),
            prior_status: "prior_status".into(),
            result_dropped: "result_dropped".into(),
            version: "v".into(),
        }
    }
}

impl AttributeNames {
    fn all(&self) -> [&str; 11] {
        [
            &self.id,
            &self.status,
            &self.expiration,
            &self.in_progress_expiration,
            &self.data,
            &self.validation,
            &self.owner,
            &self.attempt,
            &self.prior_status,
            &self.result_dropped,
            &self.version,
        ]
    }
}

/// What the store needs to know of the table.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    pub(super) table: String,
    pub(super) names: AttributeNames,
    key_prefix: String,
    sort_key: Option<(String, String)>,
}

impl Schema {
    pub(super) fn new(table: String) -> Self {
        Self { table, names: AttributeNames::default(), key_prefix: "once#".into(), sort_key: None }
    }

    /// The item's primary key.
    pub(super) fn key(&self, key: &KeyHash) -> HashMap<String, AttributeValue> {
        self.key_names().map(str::to_owned).zip(self.key_values(key)).collect()
    }

    /// The names of the key's attributes.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &str> {
        [self.names.id.as_str()].into_iter().chain(self.sort_key_name())
    }

    /// The values of the key's attributes, in the order of their names.
    pub(super) fn key_values(&self, key: &KeyHash) -> impl Iterator<Item = AttributeValue> {
        let id = AttributeValue::S(format!("{}{key}", self.key_prefix));
        let sort_key = self.sort_key.as_ref().map(|(_, value)| AttributeValue::S(value.clone()));
        [id].into_iter().chain(sort_key)
    }

    pub(super) fn sort_key_name(&self) -> Option<&str> {
        self.sort_key.as_ref().map(|(name, _)| name.as_str())
    }

    /// The bytes of an item besides its result: the names, the key, and values of at most 64 bytes each.
    pub(super) fn overhead(&self) -> usize {
        let names = self.names.all();
        let sort_key = self.sort_key.as_ref().map_or(0, |(name, value)| name.len() + value.len());
        names.iter().map(|name| name.len() + 64).sum::<usize>() + self.key_prefix.len() + sort_key
    }

    fn check(&self) -> Result<(), Error> {
        let mut names: Vec<&str> = self.names.all().to_vec();
        names.extend(self.sort_key_name());
        if self.table.is_empty() || names.iter().any(|name| name.is_empty()) {
            return Err(Error::config("the names of the table and of its attributes must not be empty"));
        }
        if self.sort_key.as_ref().is_some_and(|(_, value)| value.is_empty()) {
            return Err(Error::config("the value of the sort key must not be empty"));
        }
        let is_odd = |name: &&str| name.contains(['"', '\'']) || name.starts_with(['#', ':']);
        if names.iter().chain([&self.table.as_str()]).any(is_odd) {
            return Err(Error::config(
                "the names of the table and of its attributes must not contain quotation marks, nor begin with # or :",
            ));
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::config(format!("two attributes have the name `{}`", pair[0]))),
            None => Ok(()),
        }
    }
}

/// How many keys a request to DynamoDB holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// One key alone: one `UpdateItem`, `DeleteItem` or `GetItem`. Several at once: [`Batched`](Self::Batched).
    #[default]
    Auto,
    /// Always one key.
    Single,
    /// Always up to 25 keys in one `BatchExecuteStatement`. What DynamoDB does not take in a batch is sent key by key;
    /// where the role lacks the permission, or the endpoint does not know the operation, everything is from then on. Each
    /// cause is logged once.
    Batched,
}

/// Builds a [`DynamoDbStore`] on a table of another shape.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`attributes`](Self::attributes) | those of [`AttributeNames`] |
/// | [`key_prefix`](Self::key_prefix) | `once#` |
/// | [`sort_key`](Self::sort_key) | none |
/// | [`calls`](Self::calls) | [`Calls::Auto`] |
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    schema: Schema,
    calls: Calls,
}

impl Config {
    /// For the table of this name.
    pub fn new(table: impl Into<String>) -> Self {
        Self { schema: Schema::new(table.into()), calls: Calls::default() }
    }

    /// For the table that the environment variable `IDEMPOTENCY_TABLE` names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the variable is missing or empty.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var(TABLE_VARIABLE) {
            Ok(table) if !table.is_empty() => Ok(Self::new(table)),
            _ => Err(Error::config(format!("set the environment variable {TABLE_VARIABLE} to the name of the table"))),
        }
    }

    /// Other names of attributes.
    pub fn attributes(mut self, names: AttributeNames) -> Self {
        self.schema.names = names;
        self
    }

    /// What the partition key begins with, before the hash.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.schema.key_prefix = prefix.into();
        self
    }

    /// For a table with a sort key: its name and a constant value. The hash stays in the partition key, so that the load
    /// is spread.
    pub fn sort_key(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.schema.sort_key = Some((name.into(), value.into()));
        self
    }

    /// How many keys a request holds.
    pub fn calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// The store, with a client of the caller's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a name, or the sort key's value, is empty, or if a name occurs twice,
    /// contains a quotation mark, or begins with `#` or `:`.
    pub fn build(self, client: Client) -> Result<DynamoDbStore, Error> {
        self.schema.check()?;
        Ok(DynamoDbStore::from_parts(client, self.schema, self.calls))
    }

    /// The store, with a client as [`DynamoDbStore::from_env`] makes it.
    ///
    /// # Errors
    ///
    /// As of [`build`](Self::build).
    pub async fn load(self) -> Result<DynamoDbStore, Error> {
        self.schema.check()?;
        let client = Client::new(&Self::sdk_config().await);
        self.build(client)
    }

    /// The SDK's configuration from the environment, with the timeouts and the retries that suit the store, and with
    /// `ring` for TLS: it starts sooner and is smaller than the SDK's own choice, which is the one for FIPS and for
    /// post-quantum key exchange. A client of another table, or of another service, may be built from it too.
    pub async fn sdk_config() -> SdkConfig {
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .operation_timeout(OPERATION_TIMEOUT)
            .build();
        aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(http_client())
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(SDK_ATTEMPTS))
            .load()
            .await
    }
}

/// The SDK's own client, but for its TLS: proxies are taken from the environment.
fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_with_connector_fn(|settings, components| {
        let ring = tls::Provider::Rustls(CryptoMode::Ring);
        let mut connector = ConnectorBuilder::default().tls_provider(ring);
        connector.set_connector_settings(settings.cloned());
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector.build()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_collide_are_refused() {
        let names = AttributeNames { owner: "status".into(), ..AttributeNames::default() };
        assert!(Config::new("t").attributes(names).schema.check().is_err());
        assert!(Config::new("t").sort_key("id", "x").schema.check().is_err());
        assert!(Config::new("t").sort_key("sk", "").schema.check().is_err());
        assert!(Config::new("").schema.check().is_err());
        assert!(Config::new("t").sort_key("s'k", "x").schema.check().is_err());
        assert!(Config::new("t").sort_key("#sk", "x").schema.check().is_err());
        assert!(Config::new("t\"").schema.check().is_err());
        assert!(Config::new("t").sort_key("sk", "x").schema.check().is_ok());
    }
}
