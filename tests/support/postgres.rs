//! PostgreSQL: stores with scopes of their own on one table, and roles with settings of their own.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use std::time::Duration;

use lambda_once::{
    PostgresStore,
    store::postgres::{Config, tokio_postgres},
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::unique_name;

/// The URL of the server.
pub fn url() -> String {
    std::env::var("POSTGRES_URL").expect("POSTGRES_URL is not set: run the tests by `make test`")
}

/// How the tests connect: the tables are created, and every role may use it. A busy machine has time to answer.
pub async fn connection() -> tokio_postgres::Config {
    static MIGRATED: OnceCell<()> = OnceCell::const_new();
    MIGRATED
        .get_or_init(async || {
            config(url().parse().unwrap()).build().unwrap().migrate().await.expect("the tables are created");
            let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON once_records, once_marks TO PUBLIC";
            client(&url().parse().unwrap()).await.batch_execute(grant).await.unwrap();
        })
        .await;
    url().parse().unwrap()
}

/// The configuration of a store with a scope of its own.
pub fn config(connection: tokio_postgres::Config) -> Config {
    Config::new(connection).scope(unique_name("scope")).connect_timeout(Duration::from_secs(20))
}

/// A store with a scope of its own.
pub async fn migrated() -> PostgresStore {
    config(connection().await).build().unwrap()
}

/// A connection past the store.
pub async fn client(connection: &tokio_postgres::Config) -> Client {
    let (client, connection) = connection.connect(NoTls).await.expect("PostgreSQL answers");
    tokio::spawn(connection);
    client
}

/// How a new role connects, whose sessions have these settings: `lock_timeout = '200ms'`.
pub async fn role(settings: &[&str]) -> tokio_postgres::Config {
    let mut connection = connection().await;
    let name = unique_name("role");
    let admin = client(&connection).await;
    admin.batch_execute(&format!("CREATE ROLE \"{name}\" LOGIN PASSWORD 'once'")).await.unwrap();
    for setting in settings {
        admin.batch_execute(&format!("ALTER ROLE \"{name}\" SET {setting}")).await.unwrap();
    }
    connection.user(name).password("once");
    connection
}
