//! Builds a store: its settings, and the SDK's configuration for its client.

use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{Client, config::HttpClient};

#[cfg(any(feature = "ring", feature = "aws-lc"))]
use super::http_client::http_client;
#[cfg(feature = "powertools")]
use super::powertools::{Powertools, Shared};
use super::{
    DynamoDbStore,
    region::Home,
    schema::{AttributeNames, Schema},
};
use crate::error::Error;

const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";
/// It takes precedence over the endpoint of all services.
/// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html>
#[cfg(any(feature = "ring", feature = "aws-lc"))]
const ENDPOINT_VARIABLE: &str = "AWS_ENDPOINT_URL_DYNAMODB";
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(3);
const SDK_ATTEMPTS: u32 = 2;

/// How many keys a request to DynamoDB holds.
///
/// [`Auto`](Self::Auto) chooses what takes fewer requests, then what costs less money, then what takes less CPU. For one
/// key both shapes take one request where it is new, and one to settle; where it is not, a single request brings the item
/// that is in the way, and a batch takes another one to read it. For several keys a batch takes fewer anyway.
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
/// | [`listing_index`](Self::listing_index) | none |
/// | [`home_region`](Self::home_region) | none: claims are made in whichever Region the client is |
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    schema: Schema,
    calls: Calls,
    home_region: Option<String>,
    #[cfg(feature = "powertools")]
    powertools: Option<Powertools>,
}

impl Config {
    /// For the table of this name.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            schema: Schema::new(table.into()),
            calls: Calls::default(),
            home_region: None,
            #[cfg(feature = "powertools")]
            powertools: None,
        }
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

    /// Records that a function with AWS Powertools recognizes, in place of the library's own: see [`Powertools`].
    ///
    /// The function's prefix replaces the [`key_prefix`](Self::key_prefix). With a [`sort_key`](Self::sort_key) (Powertools'
    /// `sort_key_attr`), the hash stands in that, and its constant in the partition key (`static_pk_value`).
    ///
    /// The store is for one operation: its name is not in Powertools' keys, nor is a tenant. So an engine refuses
    /// ([`Config`](crate::ErrorKind::Config)) a second operation, multi-tenant functions, and the HTTP layer, whose keys are
    /// those of callers. Powertools knows no outcome but success. So a permanent failure is released and may run again, and
    /// operations that are in order, or say that they are superseded, are refused.
    #[cfg(feature = "powertools")]
    pub fn powertools(mut self, function: Powertools) -> Self {
        self.powertools = Some(function);
        self
    }

    /// How many keys a request holds.
    pub fn calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// Sets whether [lists](crate::store::listing) use a global secondary index named `open`, which holds the records without a success:
    /// its partition key is the attribute [`open`](AttributeNames::open) (a string), its sort key `claimed_at` (a number), and it
    /// projects the keys alone. A claim writes the attribute, and a completion removes it. So each operation takes one more write unit
    /// for its claim, and one for its completion. It is off by default. [`create_table`](DynamoDbStore::create_table) creates the index.
    ///
    /// A list then reads these records alone, of one operation the oldest claim first. It contains records that were claimed since the
    /// setting is on. An entry reaches the index within moments. Each entry is checked against its record, so that a list has no
    /// operation that is done.
    pub fn listing_index(mut self, enabled: bool) -> Self {
        self.schema.has_listing_index = enabled;
        self
    }

    /// Sets the only Region in which claims are made, such as `eu-central-1`; for a global table.
    ///
    /// Replicas do not exclude each other's claims: each Region decides by itself, and the last writer wins. So a store whose client
    /// is for another Region refuses every claim, without a call, by an error of the kind
    /// [`Config`](crate::ErrorKind::Config): nothing runs there, nothing is replayed, and what a queue delivers is reported as
    /// failed. Reads pass. The same configuration can thus be deployed to all Regions. `docs/dynamodb.md` in the repository
    /// describes a failover.
    pub fn home_region(mut self, region: impl Into<String>) -> Self {
        self.home_region = Some(region.into());
        self
    }

    /// The store, with a client of the caller's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is a [`home_region`](Self::home_region) and the client has no Region; if
    /// a name, or the sort key's value, is empty, or if a name occurs twice,
    /// contains a quotation mark, or begins with `#` or `:`; or if the prefix of [`Powertools`] is empty, or they are to have a
    /// [`listing_index`](Self::listing_index).
    #[cfg_attr(not(feature = "powertools"), expect(unused_mut, reason = "nothing is left to be set"))]
    pub fn build(mut self, client: Client) -> Result<DynamoDbStore, Error> {
        self.schema.check()?;
        #[cfg(feature = "powertools")]
        if let Some(function) = &self.powertools {
            if self.schema.has_listing_index {
                return Err(Error::config("records of AWS Powertools have no index for lists"));
            }
            self.schema.powertools = Some(Shared::new(function)?);
        }
        let home = Home::new(self.home_region.as_deref(), &client)?;
        Ok(DynamoDbStore::from_parts(client, self.schema, self.calls, home))
    }

    /// The store, with a client as [`DynamoDbStore::from_env`] makes it. Needs the feature `ring` or `aws-lc`.
    ///
    /// # Errors
    ///
    /// As of [`build`](Self::build).
    #[cfg(any(feature = "ring", feature = "aws-lc"))]
    pub async fn load(self) -> Result<DynamoDbStore, Error> {
        self.schema.check()?;
        let sdk_config = Self::sdk_config().await;
        let mut store = self.build(Client::new(&sdk_config))?;
        let endpoint = std::env::var(ENDPOINT_VARIABLE).ok().or_else(|| sdk_config.endpoint_url().map(str::to_owned));
        store.endpoint = endpoint.map(Into::into);
        Ok(store)
    }

    /// The SDK's configuration from the environment, with the timeouts and the retries that suit the store. TLS uses ring or
    /// AWS-LC, by the feature `ring` or `aws-lc`, and ring if both are enabled. A client of another table, or of another service,
    /// may be built from it too.
    #[cfg(any(feature = "ring", feature = "aws-lc"))]
    pub async fn sdk_config() -> SdkConfig {
        Self::sdk_config_with(http_client()).await
    }

    /// The same on an HTTP client of the caller's, which brings its own TLS: it needs neither `ring` nor `aws-lc`.
    ///
    /// # Examples
    ///
    /// With `aws-smithy-http-client = { version = "1", features = ["rustls-aws-lc"] }`. For FIPS the feature is
    /// `rustls-aws-lc-fips` and the mode `CryptoMode::AwsLcFips`.
    ///
    /// ```no_run
    /// # #[cfg(feature = "aws-lc")]
    /// # async fn init() -> Result<(), lambda_once::Error> {
    /// use aws_sdk_dynamodb::Client;
    /// use aws_smithy_http_client::{
    ///     Builder,
    ///     tls::{Provider, rustls_provider::CryptoMode},
    /// };
    /// use lambda_once::store::dynamodb::Config;
    ///
    /// let https = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
    /// let client = Client::new(&Config::sdk_config_with(https).await);
    /// let store = Config::from_env()?.build(client)?;
    /// # Ok(()) }
    /// ```
    pub async fn sdk_config_with(http_client: impl HttpClient + 'static) -> SdkConfig {
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .operation_timeout(OPERATION_TIMEOUT)
            .build();
        aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(http_client)
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(SDK_ATTEMPTS))
            .load()
            .await
    }
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
