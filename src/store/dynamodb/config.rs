//! Builds a store from its settings, and the SDK configuration for its client.

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
/// The variable that takes precedence over the endpoint of all services.
/// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html>
#[cfg(any(feature = "ring", feature = "aws-lc"))]
const ENDPOINT_VARIABLE: &str = "AWS_ENDPOINT_URL_DYNAMODB";
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(3);
const SDK_ATTEMPTS: u32 = 2;

/// The number of keys in a request to DynamoDB.
///
/// [`Auto`](Self::Auto) minimizes the number of requests, then the cost, then CPU time. For one new key both forms take
/// one request to claim and one to settle. For an existing key, a single request returns the blocking item, and a batch
/// takes a second one to read it. For several keys a batch always takes fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// One key: one `UpdateItem`, `DeleteItem` or `GetItem`. Several keys: [`Batched`](Self::Batched).
    #[default]
    Auto,
    /// Always one key per request.
    Single,
    /// Always up to 25 keys in one `BatchExecuteStatement`. Statements that DynamoDB does not accept in a batch are
    /// sent key by key. If the role lacks the permission, or the endpoint does not support the operation, all later
    /// ones are too. Each cause is logged once.
    Batched,
}

/// Builds a [`DynamoDbStore`] with settings other than the defaults.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`attributes`](Self::attributes) | the names in [`AttributeNames`] |
/// | [`key_prefix`](Self::key_prefix) | `once#` |
/// | [`sort_key`](Self::sort_key) | none |
/// | [`calls`](Self::calls) | [`Calls::Auto`] |
/// | [`listing_index`](Self::listing_index) | none |
/// | [`home_region`](Self::home_region) | none: claims are made in the Region of the client |
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
    /// Creates the configuration for the table of this name.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            schema: Schema::new(table.into()),
            calls: Calls::default(),
            home_region: None,
            #[cfg(feature = "powertools")]
            powertools: None,
        }
    }

    /// Creates the configuration for the table named by the environment variable `IDEMPOTENCY_TABLE`.
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

    /// Sets the names of the attributes.
    pub fn attributes(mut self, names: AttributeNames) -> Self {
        self.schema.names = names;
        self
    }

    /// Sets the prefix of the partition key, before the hash.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.schema.key_prefix = prefix.into();
        self
    }

    /// Sets the name of the table's sort key and its constant value. The hash stays in the partition key, so that the
    /// load is spread.
    pub fn sort_key(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.schema.sort_key = Some((name.into(), value.into()));
        self
    }

    /// Uses records that a function with AWS Powertools recognizes, instead of the native format. See [`Powertools`].
    ///
    /// The function's prefix replaces the [`key_prefix`](Self::key_prefix). With a [`sort_key`](Self::sort_key)
    /// (Powertools' `sort_key_attr`), the sort key contains the hash, and the partition key the constant
    /// (`static_pk_value`).
    ///
    /// The store is for one operation, because Powertools' keys contain neither the operation's name nor a tenant. So
    /// an engine refuses ([`Config`](crate::ErrorKind::Config)) a second operation, multi-tenant functions, and the
    /// HTTP layer, whose keys belong to callers. Powertools has success as its only outcome. So a permanent failure is
    /// released and may run again, and operations that are ordered or superseded are refused.
    #[cfg(feature = "powertools")]
    pub fn powertools(mut self, function: Powertools) -> Self {
        self.powertools = Some(function);
        self
    }

    /// Sets the number of keys in a request.
    pub fn calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// Sets whether [lists](crate::store::listing) use a global secondary index named `open`, which contains the
    /// records without a success. Its partition key is the attribute [`open`](AttributeNames::open) (a string), its
    /// sort key is `claimed_at` (a number), and it projects only the keys. A claim writes the attribute, and a
    /// completion removes it, so each operation takes one more write unit for its claim and one for its completion. It
    /// is off by default. [`create_table`](DynamoDbStore::create_table) creates the index.
    ///
    /// A list then reads only these records. For one operation it reads one partition of the index after another, each
    /// from its oldest claim. It contains records that were claimed after the setting was enabled. An entry reaches the
    /// index within moments. Each entry is checked against its record, so a list contains no completed operation.
    pub fn listing_index(mut self, enabled: bool) -> Self {
        self.schema.has_listing_index = enabled;
        self
    }

    /// Sets the only Region in which claims are made, such as `eu-central-1`, for a global table.
    ///
    /// Replicas do not exclude each other's claims. Each Region decides by itself, and the last writer wins. So a store
    /// whose client is for a different Region refuses every claim without a call, with an error of the kind
    /// [`Config`](crate::ErrorKind::Config). Nothing runs or is replayed there, and deliveries from queues are reported
    /// as failed. Reads are allowed. The same configuration can thus be deployed to all Regions. `docs/dynamodb.md` in
    /// the repository describes a failover.
    pub fn home_region(mut self, region: impl Into<String>) -> Self {
        self.home_region = Some(region.into());
        self
    }

    /// Builds the store with the caller's client.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is a [`home_region`](Self::home_region) and the client
    /// has no Region; if a name, or the sort key's value, is empty, or if a name occurs twice, contains a quotation
    /// mark, or begins with `#` or `:`; or if the prefix of [`Powertools`] is empty, or they are combined with a
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

    /// Builds the store with a client like the one in [`DynamoDbStore::from_env`]. Needs the feature `ring` or
    /// `aws-lc`.
    ///
    /// # Errors
    ///
    /// The errors of [`build`](Self::build).
    #[cfg(any(feature = "ring", feature = "aws-lc"))]
    pub async fn load(self) -> Result<DynamoDbStore, Error> {
        self.schema.check()?;
        let sdk_config = Self::sdk_config().await;
        let mut store = self.build(Client::new(&sdk_config))?;
        let endpoint = std::env::var(ENDPOINT_VARIABLE).ok().or_else(|| sdk_config.endpoint_url().map(str::to_owned));
        store.endpoint = endpoint.map(Into::into);
        Ok(store)
    }

    /// Returns the SDK configuration from the environment, with timeouts and retries for the store. TLS uses ring or
    /// AWS-LC, by the feature `ring` or `aws-lc`, and ring if both are enabled. It is also suitable for clients of
    /// other tables or services.
    #[cfg(any(feature = "ring", feature = "aws-lc"))]
    pub async fn sdk_config() -> SdkConfig {
        Self::sdk_config_with(http_client()).await
    }

    /// Returns the same configuration with the caller's HTTP client, which brings its own TLS. It needs neither `ring`
    /// nor `aws-lc`.
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
    use crate::documented::assert_states;

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let Config { schema, calls, home_region, .. } = Config::new("t");
        assert!(home_region.is_none() && schema.sort_key.is_none());
        let prefix = schema.key_prefix;
        assert_states(
            "src/store/dynamodb/config.rs",
            [
                format!("| [`key_prefix`](Self::key_prefix) | `{prefix}` |"),
                format!("| [`calls`](Self::calls) | [`Calls::{calls:?}`] |"),
            ],
        );
        assert_states("docs/dynamodb.md", [format!("With `Calls::{calls:?}` (default)")]);
        assert_states("cli/README.md", [format!("if it is not `{prefix}` (DynamoDB)")]);
    }

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
