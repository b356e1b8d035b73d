//! The plain description of a deployment, which collectors fill and rules read.

use std::{collections::BTreeMap, time::Duration};

/// A function, with its event source mappings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The alias or the version.
    pub(crate) qualifier: Option<String>,
    pub(crate) arn: String,
    pub(crate) timeout: Duration,
    pub(crate) role: String,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) mappings: Vec<Mapping>,
    /// Its aliases that have mappings, each with the settings of the version that it names.
    pub(crate) aliases: Vec<Function>,
    pub(crate) unread: Vec<Unread>,
}

impl Function {
    /// Returns the name of the resource in findings.
    pub(crate) fn resource(&self) -> String {
        match &self.qualifier {
            Some(qualifier) => format!("function {}:{qualifier}", self.name),
            None => format!("function {}", self.name),
        }
    }

    /// Returns what could not be read of the function and of its queues, with the errors.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let resource = self.resource();
        let parts = self.unread.iter().map(|part| format!("{resource}: {} could not be read: {}", part.what, part.why));
        let queues = self.mappings.iter().filter_map(|mapping| match &mapping.source {
            Source::UnreadQueue { arn, why } => Some((arn, why)),
            Source::Queue(Queue { redrive: Some(redrive), .. }) => match &redrive.target {
                DeadLetters::Unread { why } => Some((&redrive.target_arn, why)),
                DeadLetters::Found { .. } | DeadLetters::Missing => None,
            },
            _ => None,
        });
        parts.chain(queues.map(|(arn, why)| format!("the queue {arn} could not be read: {why}"))).collect()
    }
}

/// Something of a function that could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) what: String,
    /// The error.
    pub(crate) why: String,
}

/// An event source mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) uuid: String,
    /// False if it is disabled or being deleted.
    pub(crate) is_enabled: bool,
    pub(crate) source: Source,
    pub(crate) batch_size: u32,
    pub(crate) window: Duration,
    pub(crate) reports_failures: bool,
}

/// The source of a mapping.
#[derive(Clone, Debug, Default)]
pub(crate) enum Source {
    Queue(Queue),
    /// A queue that does not exist, by its ARN.
    MissingQueue(String),
    UnreadQueue {
        arn: String,
        /// The error.
        why: String,
    },
    /// Kinesis or DynamoDB Streams, by its ARN.
    Stream(String),
    /// A source without rules, by its ARN.
    #[default]
    Other,
}

/// An SQS queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) is_fifo: bool,
    pub(crate) visibility: Duration,
    pub(crate) retention: Duration,
    pub(crate) redrive: Option<Redrive>,
}

/// The redrive policy of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Redrive {
    pub(crate) max_receive_count: u32,
    pub(crate) target_arn: String,
    pub(crate) target: DeadLetters,
}

/// A dead-letter queue.
#[derive(Clone, Debug)]
pub(crate) enum DeadLetters {
    Found {
        url: String,
        retention: Duration,
    },
    Missing,
    Unread {
        /// The error.
        why: String,
    },
}

/// A table in DynamoDB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// `None` if there is no such table.
    pub(crate) description: Option<TableDescription>,
    /// Whether lists read its index.
    pub(crate) wants_index: bool,
    pub(crate) home_region: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TableDescription {
    pub(crate) is_active: bool,
    /// Names and types, the partition key first.
    pub(crate) key: Vec<(String, String)>,
    /// The key of the index for lists.
    pub(crate) index: Option<Vec<(String, String)>>,
    /// `None` if it is not known.
    pub(crate) ttl: Option<Ttl>,
    pub(crate) replicas: Vec<String>,
    /// Whether its replicas have multi-Region strong consistency.
    pub(crate) is_strong: bool,
    pub(crate) is_protected: bool,
    /// `None` if it is not known.
    pub(crate) has_recovery: Option<bool>,
}

/// The time to live of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    Off,
    On(String),
}

/// A server of Redis or Valkey.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    /// The URL without user and password.
    pub(crate) place: String,
    /// The prefix of the store's keys.
    pub(crate) prefix: String,
    /// From `INFO`; empty if the user may not call it.
    pub(crate) info: BTreeMap<String, String>,
    /// The save points, or `None` if the user may not read the configuration.
    pub(crate) save: Option<String>,
    /// Commands that the user may not call, or why that is not known.
    pub(crate) denied: Result<Vec<String>, String>,
    /// Whether the store is configured as a cluster. `None` if the code of a function decides.
    pub(crate) as_cluster: Option<bool>,
    pub(crate) service: Service,
}

/// The service that runs a server of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Service {
    #[default]
    Own,
    /// ElastiCache with nodes, or MemoryDB.
    Nodes,
    /// ElastiCache Serverless.
    Serverless,
}

/// A server of PostgreSQL.
#[derive(Clone, Debug, Default)]
pub(crate) struct Postgres {
    /// The URL without user and password.
    pub(crate) place: String,
    pub(crate) role: String,
    /// Such as 160004.
    pub(crate) version: i32,
    pub(crate) is_standby: bool,
    /// Settings of this session.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) records: PostgresTable,
    pub(crate) marks: PostgresTable,
    /// Whether lists read the index of open records.
    pub(crate) wants_index: bool,
    pub(crate) pooler: Pooler,
}

/// A table in PostgreSQL.
#[derive(Clone, Debug, Default)]
pub(crate) struct PostgresTable {
    /// With its schema, quoted.
    pub(crate) name: String,
    /// Columns that the library reads or writes.
    pub(crate) wanted: Vec<String>,
    /// Its schema, quoted, if the role may not use it.
    pub(crate) denied_schema: Option<String>,
    /// Empty if there is no such table.
    pub(crate) columns: Vec<String>,
    pub(crate) has_primary_key: bool,
    pub(crate) has_purge_index: bool,
    pub(crate) has_listing_index: bool,
    pub(crate) has_autovacuum: bool,
    /// Privileges that the role lacks.
    pub(crate) denied: Vec<String>,
    /// Days since the oldest row became deletable. `None` without rows, or if it was not read.
    pub(crate) oldest_days: Option<i32>,
}

/// A connection pooler between the function and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pooler {
    /// There is no sign of one.
    #[default]
    None,
    /// A port other than the server's responds, and it allows transactions.
    Likely,
    /// It returns the connection after each statement.
    Statement,
}

/// The settings in the functions' code, which the operator passes as options.
#[derive(Clone, Debug)]
pub(crate) struct Stated {
    /// True if `--store` names the store of all functions.
    pub(crate) is_store_given: bool,
    pub(crate) margin: Duration,
    pub(crate) retention: Duration,
    pub(crate) redrive_within: Option<Duration>,
    /// The `lease` setting, for work without a deadline.
    pub(crate) lease: Option<Duration>,
    pub(crate) reserve: Option<Duration>,
    pub(crate) concurrency: u32,
    /// The 99th percentile of a handler's duration.
    pub(crate) p99: Option<Duration>,
}
