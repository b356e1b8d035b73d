//! Restricts claims to the home Region. In other Regions the table is a replica.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::{
        ConfigBag, Intercept, Region, RuntimeComponents, interceptors::AfterDeserializationInterceptorContextRef,
    },
    error::BoxError,
};
use serde::Deserialize;

use crate::error::{Error, ErrorKind, ErrorStatus};

/// The time limit for reading a table's replicas in `warm_up`.
const MAX_DESCRIBE_TIME: Duration = Duration::from_millis(500);

/// The permission of a store to claim.
#[derive(Clone, Debug)]
pub(super) enum Home {
    /// No home Region is set, so claims are made in any Region.
    Anywhere,
    /// The store is in its home Region.
    Here,
    /// The store is in a different Region, and claims are refused with this message.
    Elsewhere(Arc<str>),
}

impl Home {
    /// Compares the home Region, if any, with the client's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the home Region is empty, or the client has no Region.
    pub(super) fn new(home: Option<&str>, client: &Client) -> Result<Self, Error> {
        let Some(home) = home else { return Ok(Self::Anywhere) };
        if home.is_empty() {
            return Err(Error::config("`home_region` needs the name of a Region, such as `eu-central-1`"));
        }
        match client.config().region().map(Region::as_ref) {
            Some(region) if region == home => Ok(Self::Here),
            Some(region) => Ok(Self::Elsewhere(refusal(home, region).into())),
            None => Err(Error::config(format!(
                "the client has no Region to compare with the home Region {home}: set AWS_REGION, or the Region of the \
                 client's configuration"
            ))),
        }
    }

    /// Refuses claims outside the home Region. It may have moved here by the time of a redelivery.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Anywhere | Self::Here => Ok(()),
            Self::Elsewhere(message) => {
                Err(Error::new(ErrorKind::Config, ErrorStatus::Temporary, "claim", message.to_string()))
            }
        }
    }

    /// Warns of claims that are refused, or of a table with replicas and no home Region. Reports no error, because the
    /// role may lack `dynamodb:DescribeTable`.
    pub(super) async fn warn(&self, client: &Client, table: &str) {
        match self {
            Self::Here => {}
            Self::Elsewhere(message) => tracing::warn!(target: "lambda_once", table, "{message}"),
            Self::Anywhere => {
                let replicas =
                    tokio::time::timeout(MAX_DESCRIBE_TIME, replicas(client, table)).await.unwrap_or_default();
                if !replicas.is_empty() {
                    let replicas = replicas.join(", ");
                    tracing::warn!(
                        target: "lambda_once", table, replicas,
                        "the table is a global table, and Regions do not exclude each other's claims: set \
                         `Config::home_region` to the only Region in which operations run"
                    );
                }
            }
        }
    }
}

fn refusal(home: &str, region: &str) -> String {
    format!(
        "claims are made in the home Region {home} alone, and this store is in {region}: send the operation to {home}, or \
         make {region} the home Region in the configuration of all Regions"
    )
}

/// Returns the Regions of a table's other replicas with last-writer-wins, or none if DynamoDB does not list them.
///
/// The request is a `GetItem` until it is signed. The SDK's own `DescribeTable` would add 0.1 MB to every function, for
/// the descriptions of indexes, streams and backups.
async fn replicas(client: &Client, table: &str) -> Vec<String> {
    let body = serde_json::json!({ "TableName": table }).to_string();
    let length = body.len().to_string();
    let described = Described::default();
    let answer = client
        .get_item()
        .table_name(table)
        .customize()
        .mutate_request(move |request| {
            request.headers_mut().insert("x-amz-target", "DynamoDB_20120810.DescribeTable");
            request.headers_mut().insert("content-length", length.clone());
            *request.body_mut() = body.clone().into();
        })
        .interceptor(described.clone())
        .send()
        .await;
    let found = answer.ok().and_then(|_| described.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    let Some(Table { replicas, consistency }) = found else { return Vec::new() };
    if consistency.as_deref() == Some("STRONG") {
        return Vec::new();
    }
    replicas.into_iter().map(|replica| replica.region).collect()
}

/// Keeps the response's description of the table.
#[derive(Clone, Debug, Default)]
struct Described(Arc<Mutex<Option<Table>>>);

#[derive(Debug, Deserialize)]
struct Response {
    #[serde(rename = "Table")]
    table: Table,
}

#[derive(Debug, Deserialize)]
struct Table {
    #[serde(rename = "Replicas", default)]
    replicas: Vec<Replica>,
    /// `STRONG` or `EVENTUAL`.
    #[serde(rename = "MultiRegionConsistency")]
    consistency: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Replica {
    #[serde(rename = "RegionName")]
    region: String,
}

impl Intercept for Described {
    fn name(&self) -> &'static str {
        "DescribedTable"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response().body().bytes();
        let response = body.and_then(|body| serde_json::from_slice::<Response>(body).ok());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = response.map(|response| response.table);
        Ok(())
    }
}
