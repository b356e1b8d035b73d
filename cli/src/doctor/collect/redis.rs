//! A server of Redis or Valkey.

use std::{collections::BTreeMap, time::Duration};

use ::redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection, cmd};
use anyhow::{Context, Result};

use super::super::facts::{Redis, Service};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Names of ElastiCache Serverless contain the first, names of ElastiCache and MemoryDB one of the others.
const SERVERLESS: &str = ".serverless.";
const NODES: [&str; 2] = [".cache.amazonaws.com", ".memorydb."];

/// Describes the server at a URL, with the permissions of its user on keys with this prefix.
///
/// # Errors
///
/// Returns an error if the server cannot be reached.
pub(crate) async fn redis(
    url: &str,
    place: String,
    prefix: &str,
    has_index: bool,
    as_cluster: Option<bool>,
) -> Result<Redis> {
    let client = Client::open(url).context("the URL of Redis cannot be read")?;
    let timeouts =
        AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&timeouts)
        .await
        .with_context(|| format!("no connection to {place}"))?;
    let service = service(&place);
    let info = info(&mut connection).await;
    let save = cmd("CONFIG").arg("GET").arg("save").query_async(&mut connection).await;
    let save = save.ok().and_then(|found: BTreeMap<String, String>| found.get("save").cloned());
    // On a cluster the code of a function can only use `Config::cluster`.
    let is_cluster = as_cluster.unwrap_or(info.get("cluster_enabled").map(String::as_str) == Some("1"));
    let denied = denied(&mut connection, prefix, has_index, is_cluster).await;
    Ok(Redis { place, prefix: prefix.to_owned(), info, save, denied, as_cluster, service })
}

fn service(place: &str) -> Service {
    if place.contains(SERVERLESS) {
        Service::Serverless
    } else if NODES.iter().any(|name| place.contains(name)) {
        Service::Nodes
    } else {
        Service::Own
    }
}

async fn info(connection: &mut MultiplexedConnection) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for section in ["server", "memory", "persistence", "replication", "cluster"] {
        let text: Result<String, _> = cmd("INFO").arg(section).query_async(connection).await;
        let text = text.unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
        values.extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    values
}

/// Queries the server, which checks the commands without calling them.
async fn denied(
    connection: &mut MultiplexedConnection,
    prefix: &str,
    has_index: bool,
    is_cluster: bool,
) -> Result<Vec<String>, String> {
    let mut script = cmd("EVAL");
    script.arg(include_str!("permissions.lua")).arg(0).arg(prefix);
    script.arg(has_index.to_string()).arg(is_cluster.to_string());
    let denied = script.query_async(connection).await;
    denied.or_else(|error: RedisError| match error.code() {
        Some("NOPERM") => Ok(vec!["eval".to_owned()]),
        _ => Err(format!("`redis.acl_check_cmd` was refused: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_recognized_by_its_host_name() {
        for (place, expected) in [
            ("rediss://orders-abc123.serverless.use1.cache.amazonaws.com:6379", Service::Serverless),
            ("rediss://master.orders.abc123.use1.cache.amazonaws.com:6379", Service::Nodes),
            ("rediss://clustercfg.orders.abc123.memorydb.us-east-1.amazonaws.com:6379", Service::Nodes),
            ("redis://127.0.0.1:6379", Service::Own),
        ] {
            assert_eq!(service(place), expected, "{place}");
        }
    }
}
