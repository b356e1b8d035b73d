//! A client for a local endpoint, and tables for it.

use aws_sdk_dynamodb::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region},
    error::BoxError,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};

use crate::Error;

/// The Region used for local endpoints.
pub const REGION: &str = "us-east-1";
/// The access key used for local endpoints. DynamoDB Local wants it to be alphanumeric.
pub const ACCESS_KEY: &str = "local";
/// The secret key used for local endpoints.
pub const SECRET_KEY: &str = "local";

/// A client of the DynamoDB at `endpoint`.
///
/// It is independent of the environment, and has no TLS, so it can never reach a real account.
#[must_use]
pub fn client(endpoint: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "local"))
        .endpoint_url(endpoint)
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}

/// Creates an on-demand table with one string partition key.
///
/// # Errors
///
/// [`Error::CreateTable`]: the service refused, for example because the table exists.
pub async fn create_table(client: &Client, table: &str, partition_key: &str) -> Result<(), Error> {
    let refused = |source: BoxError| Error::CreateTable { table: table.to_owned(), source };
    let attribute = AttributeDefinition::builder()
        .attribute_name(partition_key)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(|error| refused(error.into()))?;
    let key = KeySchemaElement::builder()
        .attribute_name(partition_key)
        .key_type(KeyType::Hash)
        .build()
        .map_err(|error| refused(error.into()))?;
    client
        .create_table()
        .table_name(table)
        .attribute_definitions(attribute)
        .key_schema(key)
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .map_err(|error| refused(error.into_service_error().into()))?;
    Ok(())
}
