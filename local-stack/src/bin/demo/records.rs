//! The store of the library's records, as the demo sees it.

use std::{env, process::Command};

use anyhow::{Context, Result, bail, ensure};
use aws_sdk_dynamodb::{Client, types::Select};
use lambda_once::{PostgresStore, store::postgres::tokio_postgres};
use local_stack::create_table;
use redis::aio::MultiplexedConnection;

const STORE: &str = "STORE";
const POSTGRES_URL: &str = "POSTGRES_URL";
const REDIS_URL: &str = "REDIS_URL";

/// Which store the functions use, by `STORE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    DynamoDb,
    Postgres,
    Redis,
}

impl Kind {
    pub(crate) fn from_env() -> Result<Self> {
        match env::var(STORE).as_deref() {
            Err(_) | Ok("" | "dynamodb") => Ok(Self::DynamoDb),
            Ok("postgres") => Ok(Self::Postgres),
            Ok("redis") => Ok(Self::Redis),
            Ok(other) => bail!("{STORE} is {other:?}; it may be dynamodb, postgres or redis"),
        }
    }

    /// As `STORE` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }

    /// The feature of the functions that it needs.
    pub(crate) fn feature(self) -> Option<&'static str> {
        match self {
            Self::DynamoDb => None,
            Self::Postgres => Some("postgres"),
            Self::Redis => Some("redis"),
        }
    }
}

/// An empty store.
pub(crate) enum Records {
    DynamoDb { client: Client, table: String },
    Postgres { url: String, client: tokio_postgres::Client },
    Redis { url: String, connection: MultiplexedConnection },
}

impl Records {
    /// For a run of this name, which is the first to use it.
    pub(crate) async fn create(kind: Kind, run: &str, dynamodb: &Client) -> Result<Self> {
        let records = match kind {
            Kind::DynamoDb => {
                let table = format!("{run}-idempotency");
                create_table(dynamodb, &table, "id").await?;
                return Ok(Self::DynamoDb { client: dynamodb.clone(), table });
            }
            Kind::Postgres => {
                let url = variable(POSTGRES_URL)?;
                PostgresStore::from_env()?.migrate().await?;
                let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                Self::Postgres { url, client }
            }
            Kind::Redis => {
                let url = variable(REDIS_URL)?;
                let connection = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
                Self::Redis { url, connection }
            }
        };
        let found = records.count().await?;
        ensure!(found == 0, "the store holds {found} records already: name an empty one");
        Ok(records)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::DynamoDb { .. } => Kind::DynamoDb,
            Self::Postgres { .. } => Kind::Postgres,
            Self::Redis { .. } => Kind::Redis,
        }
    }

    /// How many records the library has.
    pub(crate) async fn count(&self) -> Result<i64> {
        Ok(match self {
            Self::DynamoDb { client, table } => {
                let count = client.scan().table_name(table).select(Select::Count).consistent_read(true);
                count.send().await?.count().into()
            }
            Self::Postgres { client, .. } => {
                client.query_one("SELECT count(*) FROM once_records", &[]).await?.try_get(0)?
            }
            Self::Redis { connection, .. } => redis::cmd("DBSIZE").query_async(&mut connection.clone()).await?,
        })
    }

    /// Tells the functions where they are.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env(STORE, self.kind().name());
        match self {
            Self::DynamoDb { table, .. } => command.env("IDEMPOTENCY_TABLE", table),
            Self::Postgres { url, .. } => command.env(POSTGRES_URL, url),
            Self::Redis { url, .. } => command.env(REDIS_URL, url),
        };
    }
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}
