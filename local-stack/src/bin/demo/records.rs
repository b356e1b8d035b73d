//! The store of the library's records, as the demo sees it.

use std::{env, process::Command};

use anyhow::{Result, bail};
use aws_sdk_dynamodb::{Client, types::Select};
#[cfg(feature = "postgres")]
use lambda_once::{PostgresStore, store::postgres::tokio_postgres};
use local_stack::create_table;
#[cfg(feature = "redis")]
use redis::aio::MultiplexedConnection;

const STORE: &str = "STORE";

/// The store of the functions, by `STORE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    DynamoDb,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "redis")]
    Redis,
}

impl Kind {
    pub(crate) fn from_env() -> Result<Self> {
        match env::var(STORE).as_deref() {
            Err(_) | Ok("" | "dynamodb") => Ok(Self::DynamoDb),
            #[cfg(feature = "postgres")]
            Ok("postgres") => Ok(Self::Postgres),
            #[cfg(feature = "redis")]
            Ok("redis") => Ok(Self::Redis),
            #[cfg(not(feature = "postgres"))]
            Ok("postgres") => bail!("the demo was built without PostgreSQL: run `make demo STORE=postgres`"),
            #[cfg(not(feature = "redis"))]
            Ok("redis") => bail!("the demo was built without Redis: run `make demo STORE=redis`"),
            Ok(other) => bail!("{STORE} is {other:?}; it may be dynamodb, postgres or redis"),
        }
    }

    /// As `STORE` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            #[cfg(feature = "postgres")]
            Self::Postgres => "postgres",
            #[cfg(feature = "redis")]
            Self::Redis => "redis",
        }
    }
}

/// An empty store.
pub(crate) enum Records {
    DynamoDb {
        client: Client,
        table: String,
    },
    #[cfg(feature = "postgres")]
    Postgres {
        url: String,
        client: tokio_postgres::Client,
    },
    #[cfg(feature = "redis")]
    Redis {
        url: String,
        connection: MultiplexedConnection,
    },
}

impl Records {
    /// For a run of this name, which is the first to use it.
    pub(crate) async fn create(kind: Kind, run: &str, dynamodb: &Client) -> Result<Self> {
        match kind {
            Kind::DynamoDb => {
                let table = format!("{run}-idempotency");
                create_table(dynamodb, &table, "id").await?;
                Ok(Self::DynamoDb { client: dynamodb.clone(), table })
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                let url = variable("POSTGRES_URL")?;
                PostgresStore::from_env()?.migrate().await?;
                let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                Self::Postgres { url, client }.if_empty().await
            }
            #[cfg(feature = "redis")]
            Kind::Redis => {
                let url = variable("REDIS_URL")?;
                let connection = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
                Self::Redis { url, connection }.if_empty().await
            }
        }
    }

    /// Refuses a server that already holds records: `count` would include them.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    async fn if_empty(self) -> Result<Self> {
        let found = self.count().await?;
        anyhow::ensure!(found == 0, "the store holds {found} records already: name an empty one");
        Ok(self)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::DynamoDb { .. } => Kind::DynamoDb,
            #[cfg(feature = "postgres")]
            Self::Postgres { .. } => Kind::Postgres,
            #[cfg(feature = "redis")]
            Self::Redis { .. } => Kind::Redis,
        }
    }

    /// The number of the library's records.
    pub(crate) async fn count(&self) -> Result<i64> {
        Ok(match self {
            Self::DynamoDb { client, table } => {
                let count = client.scan().table_name(table).select(Select::Count).consistent_read(true);
                count.send().await?.count().into()
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { client, .. } => {
                client.query_one("SELECT count(*) FROM once_records", &[]).await?.try_get(0)?
            }
            #[cfg(feature = "redis")]
            Self::Redis { connection, .. } => redis::cmd("DBSIZE").query_async(&mut connection.clone()).await?,
        })
    }

    /// Configures the functions to use them.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env(STORE, self.kind().name());
        match self {
            Self::DynamoDb { table, .. } => command.env("IDEMPOTENCY_TABLE", table),
            #[cfg(feature = "postgres")]
            Self::Postgres { url, .. } => command.env("POSTGRES_URL", url),
            #[cfg(feature = "redis")]
            Self::Redis { url, .. } => command.env("REDIS_URL", url),
        };
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))
}
