//! Rules for a server of Redis or Valkey.

use super::{
    super::facts::{Redis, Service},
    Report,
    Severity::{Error, Warning},
};

/// The oldest major version that supports the flags of scripts. Valkey reports a version of Redis, too.
const OLDEST_VERSION: u32 = 7;

/// Checks a server.
pub(crate) fn redis(redis: &Redis, report: &mut Report) {
    let resource = &redis.place;
    let value = |name: &str| redis.info.get(name).map(String::as_str);
    match redis.service {
        Service::Own => {
            check_memory(redis, value("maxmemory_policy"), report);
            check_persistence(redis, value("aof_enabled"), report);
        }
        Service::Nodes => {
            check_memory(redis, value("maxmemory_policy"), report);
            report.skip(
                resource,
                "persistence",
                "the service decides: ElastiCache can lose the most recent writes in a failover, MemoryDB does not",
            );
        }
        Service::Serverless => report.skip(
            resource,
            "eviction, persistence and the limit of data storage",
            "ElastiCache Serverless has no CONFIG: set no maximum for data storage, because it evicts records at that limit",
        ),
    }
    match value("redis_version") {
        Some(version) if version.split('.').next().and_then(|major| major.parse().ok()) < Some(OLDEST_VERSION) => {
            report.find(
                Error,
                "redis-version",
                resource,
                format!("Redis {version} is not supported: claims are refused."),
                "Redis 7.0 or newer, or Valkey 7.2 or newer",
            )
        }
        Some(_) => {}
        None => report.skip(resource, "the version", "the user may not call INFO"),
    }
    if value("role") == Some("slave") {
        report.find(
            Error,
            "redis-replica",
            resource,
            "The server is a replica: it refuses claims, and answers duplicates from an older copy.",
            "the URL of the primary endpoint",
        );
    }
    check_cluster(redis, value("cluster_enabled"), report);
    match &redis.denied {
        Ok(denied) if denied.is_empty() => {}
        Ok(denied) => {
            let commands: Vec<_> = denied.iter().map(|command| format!("+{command}")).collect();
            let rules = format!("~{}* {}", redis.prefix, commands.join(" "));
            report.find(
                Error,
                "redis-acl",
                resource,
                if *denied == ["asking"] {
                    "The user may not call asking: calls for keys of a moving slot fail (`timeout`).".to_owned()
                } else {
                    let commands = denied.join(", ");
                    format!("The user may not call {commands} on the records: calls are refused (`access_denied`).")
                },
                match redis.service {
                    Service::Own => format!("ACL SETUSER USER {rules}"),
                    Service::Nodes | Service::Serverless => format!(
                        "{rules} in the user's access string, by aws elasticache modify-user --append-access-string, or aws memorydb \
                         update-user --access-string with the whole string"
                    ),
                },
            );
        }
        Err(why) => report.skip(resource, "the user's permissions", why),
    }
}

fn check_memory(redis: &Redis, policy: Option<&str>, report: &mut Report) {
    match policy {
        Some("noeviction") => {}
        Some(policy) => report.find(
            Error,
            "redis-evicts",
            &redis.place,
            format!(
                "maxmemory-policy is {policy}: the server may evict live claims and outcomes, and operations run again."
            ),
            "CONFIG SET maxmemory-policy noeviction, or maxmemory-policy: noeviction in the parameter group",
        ),
        None => report.skip(&redis.place, "eviction", "the user may not call INFO"),
    }
}

fn check_persistence(redis: &Redis, append_only: Option<&str>, report: &mut Report) {
    let (severity, reason) = match (append_only, redis.save.as_deref()) {
        (Some("1"), _) => return,
        (Some(_), Some("")) => {
            (Error, "There is neither an append-only file nor a save point: a restart loses all records.")
        }
        (Some(_), _) => (Warning, "There is no append-only file: a restart loses records since the last save point."),
        (None, _) => {
            report.skip(&redis.place, "persistence", "the user may not call INFO");
            return;
        }
    };
    report.find(
        severity,
        "redis-persistence-off",
        &redis.place,
        reason,
        "CONFIG SET appendonly yes, and `appendonly yes` in the server's file. A replicated server without it can lose as much in \
         a restart",
    );
}

fn check_cluster(redis: &Redis, is_enabled: Option<&str>, report: &mut Report) {
    match (is_enabled, redis.as_cluster) {
        (Some("1"), Some(false)) => report.find(
            Error,
            "redis-cluster-as-node",
            &redis.place,
            "The server is a node of a cluster, and the store is for one node: keys of other nodes are refused.",
            "the feature `redis-cluster` and `Config::cluster`; for this tool cluster=true in the URL",
        ),
        (Some("1"), None) => report.skip(
            &redis.place,
            "whether the function uses `Config::cluster`",
            "the server is a node of a cluster, and the code decides: `RedisStore::from_env` is for one node",
        ),
        (Some("0"), Some(true)) => report.find(
            Error,
            "redis-node-as-cluster",
            &redis.place,
            "The store is for a cluster, and the server is not one.",
            "`Config::new`, or the configuration endpoint of the cluster",
        ),
        (Some(_), _) => {}
        (None, _) => report.skip(&redis.place, "cluster mode", "the user may not call INFO"),
    }
}
