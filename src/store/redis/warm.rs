//! Opens the connection in the init phase, and checks whether the server keeps records.

use redis::Value;

use super::RedisStore;
use crate::error::Error;

/// The oldest major version of Redis that supports the flags of scripts. Valkey also reports a version of Redis.
const OLDEST_VERSION: u32 = 7;

impl RedisStore {
    /// Warns if the server may lose records, and fails if it cannot be reached.
    pub(super) async fn check_server(&self) -> Result<(), Error> {
        let mut ping = redis::cmd("PING");
        let commands = ["memory", "server"].map(|section| {
            let mut info = redis::cmd("INFO");
            info.arg(section);
            info
        });
        ping.arg("once");
        let [memory, server] = commands;
        let mut answers = self.link.send(vec![ping, memory, server]).await.into_iter();
        answers.next().transpose().map_err(|failure| failure.into_error("warm"))?;
        let mut information = String::new();
        for answer in answers {
            match answer {
                Ok(answer) => information.push_str(&text(answer)),
                // The user may not call INFO, which claims do not need.
                Err(failure) if failure.error.code().is_some() => {}
                Err(failure) => return Err(failure.into_error("warm")),
            }
        }
        warn_about(&information);
        Ok(())
    }
}

/// Returns the text of a reply to INFO. A cluster returns one text per primary.
fn text(answer: Value) -> String {
    match answer {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } => text,
        Value::Map(nodes) => nodes.into_iter().map(|(_, answer)| text(answer)).collect(),
        _ => String::new(),
    }
}

fn warn_about(information: &str) {
    let values = |name: &'static str| {
        let lines = information.lines().filter_map(|line| line.trim().split_once(':'));
        lines.filter(move |(found, _)| *found == name).map(|(_, value)| value)
    };
    match values("maxmemory_policy").find(|policy| *policy != "noeviction") {
        Some(maxmemory_policy) => tracing::warn!(
            target: "lambda_once", maxmemory_policy,
            "Redis may evict records, after which operations run again: set `maxmemory-policy` to `noeviction`"
        ),
        None if values("maxmemory_policy").next().is_none() => tracing::warn!(
            target: "lambda_once",
            "Redis does not say whether it evicts records: set `maxmemory-policy` to `noeviction`, and allow the user INFO"
        ),
        None => {}
    }
    let major = |version: &str| version.split('.').next().and_then(|number| number.parse::<u32>().ok());
    if let Some(version) = values("redis_version").find(|version| major(version) < Some(OLDEST_VERSION)) {
        tracing::warn!(target: "lambda_once", version, "Redis before 7.0 is not supported: claims will be refused");
    }
}
