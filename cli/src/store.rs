//! The store that an operator works on.

use std::{convert::Infallible, sync::Arc};

use anyhow::{Context, Result, bail};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Region},
};
use lambda_once::{
    Idempotency, MemoryStore, Outcome, PostgresStore, RedisStore,
    clock::{Clock, SystemClock},
    record::{KeyHash, Record},
    store::{ResultData, amend::Amend, dynamodb, listing::List, postgres, redis},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    args::{ByKey, One},
    aws::{self, ATTEMPT_TIMEOUT},
    id,
    output::Usage,
    settings::Settings,
    spec::{Spec, Table},
    state::State,
};

/// A store that can be listed and amended.
pub(crate) trait Records: Amend + List {}

impl<S: Amend + List> Records for S {}

/// Opens the store.
///
/// # Errors
///
/// Settings that cannot be used. Connections are opened by the first call.
pub(crate) async fn open(settings: &Settings) -> Result<Arc<dyn Records>> {
    let prefix = settings.prefix.clone();
    Ok(match settings.store()? {
        Spec::DynamoDb(table) => {
            let config = dynamodb::Config::new(&table.name).listing_index(table.has_index);
            let config = match prefix {
                Some(prefix) => config.key_prefix(prefix),
                None => config,
            };
            Arc::new(config.build(client(table).await).map_err(Usage::of)?)
        }
        Spec::Redis { url, is_cluster, has_index } => Arc::new(redis_store(url, (*is_cluster, *has_index), prefix)?),
        Spec::Postgres { url, schema, table, has_index } => {
            Arc::new(postgres_store(url, (schema.clone(), table.clone()), *has_index, prefix)?)
        }
    })
}

/// Opens the store, or returns `None` if the settings name none.
///
/// # Errors
///
/// As of [`open`].
pub(crate) async fn open_if_known(settings: &Settings) -> Result<Option<Arc<dyn Records>>> {
    if settings.store().is_err() { Ok(None) } else { open(settings).await.map(Some) }
}

/// The client for a table.
pub(crate) async fn client(table: &Table) -> Client {
    let mut config = Builder::from(&aws::config().await).timeout_config(aws::timeouts());
    if let Some(region) = &table.region {
        config = config.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &table.endpoint {
        config = config.endpoint_url(endpoint);
    }
    Client::from_conf(config.build())
}

/// Builds the store of Redis at a URL.
///
/// # Errors
///
/// Returns an error for settings that cannot be used.
pub(crate) fn redis_store(
    url: &str,
    (is_cluster, has_index): (bool, bool),
    prefix: Option<String>,
) -> Result<RedisStore> {
    let config = if is_cluster { redis::Config::cluster([url]) } else { redis::Config::new(url) };
    let config = config.listing_index(has_index).connect_timeout(ATTEMPT_TIMEOUT).response_timeout(ATTEMPT_TIMEOUT);
    let config = match prefix {
        Some(prefix) => config.key_prefix(prefix),
        None => config,
    };
    config.build().map_err(Usage::of)
}

/// Builds the store of PostgreSQL at a URL.
///
/// # Errors
///
/// Returns an error for settings that cannot be used.
pub(crate) fn postgres_store(
    url: &str,
    (schema, table): (Option<String>, Option<String>),
    has_index: bool,
    scope: Option<String>,
) -> Result<PostgresStore> {
    let config = postgres::Config::from_url(url).map_err(Usage::of)?.pool_size(2).connect_timeout(ATTEMPT_TIMEOUT);
    let mut config = config.listing_index(has_index);
    if let Some(schema) = schema {
        config = config.schema(schema);
    }
    if let Some(table) = table {
        config = config.table(table);
    }
    config.scope(scope.unwrap_or_default()).build().map_err(Usage::of)
}

/// Reads the records of these hashes, each with its hash, in order.
///
/// # Errors
///
/// The first of the store.
pub(crate) async fn read(store: &dyn Records, hashes: &[KeyHash], data: ResultData) -> Result<Vec<Option<Record>>> {
    let mut records = Vec::with_capacity(hashes.len());
    for chunk in hashes.chunks(store.limits().batch.max(1)) {
        for answer in store.read(chunk, data).await {
            records.push(answer?);
        }
    }
    Ok(records)
}

/// The hash of one record, and the record, by its id or its key. A record that has expired is returned if there is no other.
///
/// # Errors
///
/// * A text that is no id, or a key without a scope.
/// * A key that may be text or JSON, if there is a record of each that has not expired.
/// * The errors of the store.
pub(crate) async fn find(
    store: &dyn Records,
    settings: &Settings,
    one: &One,
    data: ResultData,
) -> Result<(KeyHash, Option<Record>)> {
    let ByKey { operation, key, entity } = &one.by_key;
    let hashes = match (&one.id, operation, key) {
        (Some(id), ..) => vec![id::parse(id).map_err(Usage::of)?],
        (None, Some(operation), Some(key)) => hashes(settings, operation, key, entity.as_deref()).await?,
        _ => unreachable!("the command line has one of both"),
    };
    let records = read(store, &hashes, data).await?;
    let now = SystemClock.now();
    let is_absent = |record: &Record| State::of(Some(record), settings.margin, now) == State::Absent;
    let mut found: Vec<(KeyHash, Record)> =
        hashes.iter().zip(records).filter_map(|(hash, record)| Some((*hash, record?))).collect();
    found.sort_by_key(|(_, record)| is_absent(record));
    if let [(first, _), (second, record), ..] = &found[..]
        && first != second
        && !is_absent(record)
    {
        let why = "choose one by its id";
        return Err(Usage(format!("the key has a record as text, {first}, and one as JSON, {second}: {why}")).into());
    }
    Ok(found.into_iter().next().map_or((hashes[0], None), |(hash, record)| (hash, Some(record))))
}

/// The hashes that the key may have: as text, and as JSON if it is JSON that is not text; likewise its entity.
async fn hashes(settings: &Settings, operation: &str, key: &str, entity: Option<&str>) -> Result<Vec<KeyHash>> {
    let keys = readings(settings, operation, key).await?;
    let Some(entity) = entity else { return Ok(keys) };
    let entities = readings(settings, operation, entity).await?;
    Ok(entities.iter().flat_map(|entity| keys.iter().map(move |key| KeyHash::ordered(entity, key))).collect())
}

/// The hashes that a key may have: as text, and as JSON if it is JSON that is not text.
///
/// # Errors
///
/// As of [`hash`].
pub(crate) async fn readings(settings: &Settings, operation: &str, text: &str) -> Result<Vec<KeyHash>> {
    let mut hashes = vec![hash(settings, operation, text).await?];
    // A parsed number would lose digits, which the handler's key has.
    if let Ok(json) = serde_json::from_str::<&RawValue>(text)
        && let Ok(hash) = hash(settings, operation, json).await
    {
        hashes.push(hash);
    }
    Ok(hashes)
}

/// The hash of a key, as the function computes it.
///
/// # Errors
///
/// Returns an error without a scope, or for a key that is missing.
pub(crate) async fn hash<K: Serialize + Sync + ?Sized>(
    settings: &Settings,
    operation: &str,
    key: &K,
) -> Result<KeyHash> {
    let mut builder = Idempotency::builder(MemoryStore::new()).scope(settings.scope()?.to_owned()).disabled(false);
    if let Some(name) = &settings.name {
        builder = builder.named(name.clone());
    }
    let once = builder.build()?;
    let Some(tenant) = &settings.tenant else { return Ok(once.key_hash(operation, key)?) };
    // Only a claim contains the hash of a tenant's key. This one is in memory.
    let claimed = once.operation(operation, key).tenant(tenant);
    match claimed.run_with(async |claim| Ok::<_, Infallible>(claim.map(|claim| claim.key().to_hex()))).await? {
        Outcome::Executed(Some(hex)) => KeyHash::from_hex(&hex).context("a hash has 64 digits"),
        other => bail!("the key was not claimed in memory: {:?}", other.kind()),
    }
}

#[cfg(test)]
mod tests {
    use lambda_once::Key;

    use super::*;
    use crate::fuzz::{of_function, settings};

    #[tokio::test]
    async fn a_number_on_the_command_line_keeps_its_digits() {
        for key in ["12345678901234567890123", "1.10", "-0.0", "1E400", "[1.10]", r#"{"a": 1e2}"#] {
            let used = of_function(Key::pointer("/id"), &format!(r#"{{"id": {key}}}"#)).await.unwrap();
            assert!(readings(&settings(), "sqs", key).await.unwrap().contains(&used), "{key}");
        }
    }
}
