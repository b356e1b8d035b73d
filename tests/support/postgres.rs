//! PostgreSQL: stores with separate scopes on one table, and roles with separate settings.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::time::Duration;

use lambda_once::{
    PostgresStore,
    store::postgres::{Config, tokio_postgres},
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::unique_name;

/// Returns the URL of the server.
pub fn url() -> String {
    std::env::var("POSTGRES_URL").expect("POSTGRES_URL is not set. Run the tests with `make test`")
}

/// Returns the configuration of connections, after creating the tables, which every role may use. Its timeouts are long
/// enough for a busy machine.
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

/// Returns the configuration of a store with a separate scope.
pub fn config(connection: tokio_postgres::Config) -> Config {
    Config::new(connection).scope(unique_name("scope")).connect_timeout(Duration::from_secs(20))
}

/// Returns a store with a separate scope.
pub async fn migrated() -> PostgresStore {
    config(connection().await).build().unwrap()
}

/// Opens a direct connection.
pub async fn client(connection: &tokio_postgres::Config) -> Client {
    let (client, connection) = connection.connect(NoTls).await.expect("PostgreSQL answers");
    tokio::spawn(connection);
    client
}

/// Returns the configuration of connections of a new role, whose sessions have these settings, such as
/// `lock_timeout = '200ms'`.
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
