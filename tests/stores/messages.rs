//! Errors of the first setup, as printed by a `main` that returns them.

use std::io::Write;

use aws_sdk_dynamodb::{Client, config::Credentials};
use lambda_once::{
    DynamoDbStore, Error, ErrorKind, ErrorStatus, Failure, Idempotency, Store,
    store::{
        dynamodb::{Calls, Config},
        postgres, redis as redis_store,
    },
};
use tokio::net::TcpListener;

use crate::support::{self, client, dynamodb_endpoint, requests, unique_name};

fn printed(error: &Error) -> String {
    format!("{error:?}")
}

/// Returns a local port without a listener.
async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_missing_table_is_named_at_the_start_and_while_running() {
    let (client, table) = (client(&dynamodb_endpoint()).await, unique_name("missing"));
    let expected = format!(
        "(table): the table `{table}` does not exist in us-east-1: create it with the partition key `id` (String) and no sort key, \
         for example by `aws dynamodb create-table`, or correct the name, the Region or the endpoint"
    );
    for calls in [Calls::Single, Calls::Batched] {
        let store = Config::new(&table).calls(calls).build(client.clone()).unwrap();
        let error = store.warm_up().await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Table, ErrorStatus::Temporary), "{error}");
        assert_eq!(error.to_string(), format!("warm {expected}"));
        assert!(printed(&error).starts_with(&format!("warm {expected}: service error: Resource")), "{error:?}");
        let once = Idempotency::new(store);
        let error = once.operation("charge", "k").run(|| async { Ok::<_, Failure>(()) }).await.unwrap_err();
        assert_eq!(error.to_string(), format!("claim {expected}"));
    }
}

#[tokio::test]
async fn a_client_without_a_region_is_a_configuration_error() {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version_latest()
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .build();
    let error = DynamoDbStore::new(Client::from_conf(config), "claims").warm_up().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Config, ErrorStatus::Permanent), "{error}");
    let expected =
        "warm (config): no AWS Region is configured: set AWS_REGION, or the Region of the client's configuration";
    assert_eq!(error.to_string(), expected);
    assert!(printed(&error).starts_with(expected), "{error:?}");
}

#[tokio::test]
async fn a_missing_database_is_to_be_created_and_not_migrated() {
    let mut connection = support::postgres::connection().await;
    let database = unique_name("nowhere");
    connection.dbname(&database);
    let error = support::postgres::config(connection).build().unwrap().warm_up().await.unwrap_err();
    let expected = format!(
        "connect (table): PostgreSQL returned 3D000: database \"{database}\" does not exist; create the database, or name an existing \
         one in the URL"
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(printed(&error), expected, "each cause once");
}

#[tokio::test]
async fn a_missing_table_of_postgresql_is_created_by_a_migration() {
    let table = unique_name("missing");
    let config = support::postgres::config(support::postgres::connection().await).table(&table);
    let error = config.build().unwrap().warm_up().await.unwrap_err();
    let expected = format!(
        "warm (table): PostgreSQL returned 42P01: relation \"{table}\" does not exist; `PostgresStore::migrate` creates the table"
    );
    assert_eq!(printed(&error), expected);
}

#[tokio::test]
async fn a_missing_schema_and_a_missing_column_of_postgresql_are_named() {
    let connection = support::postgres::connection().await;
    let schema = unique_name("nowhere");
    let config = support::postgres::config(connection.clone()).schema(&schema);
    let error = config.build().unwrap().migrate().await.unwrap_err();
    let expected = format!(
        "migrate (table): PostgreSQL returned 3F000: schema \"{schema}\" does not exist; create the schema, or correct \
         `Config::schema`"
    );
    assert_eq!(error.to_string(), expected);

    let table = unique_name("older");
    let store = support::postgres::config(connection.clone()).table(&table).build().unwrap();
    store.migrate().await.unwrap();
    let admin = support::postgres::client(&connection).await;
    admin.batch_execute(&format!("ALTER TABLE \"{table}\" DROP COLUMN label")).await.unwrap();
    let text = store.warm_up().await.unwrap_err().to_string();
    assert!(text.starts_with("warm (table): PostgreSQL returned 42703: column"), "{text}");
    assert!(text.ends_with("; compare the table with `PostgresStore::schema`"), "{text}");
}

/// The variables are empty in a separate process.
#[test]
fn the_urls_of_the_environment_must_not_be_empty() {
    const TEST: &str = "messages::the_urls_of_the_environment_must_not_be_empty";
    if std::env::var("POSTGRES_URL").is_ok_and(|url| !url.is_empty()) {
        assert!(postgres::Config::from_env().is_ok() && redis_store::Config::from_env().is_ok());
        return assert!(support::process::Process::passes(TEST, &[("POSTGRES_URL", ""), ("REDIS_URL", "")]));
    }
    let of_postgres = "configure (config): set the environment variable POSTGRES_URL to the URL of the database";
    assert_eq!(postgres::Config::from_env().unwrap_err().to_string(), of_postgres);
    let of_redis = "configure (config): set the environment variable REDIS_URL, such as redis://host:6379";
    assert_eq!(redis_store::Config::from_env().unwrap_err().to_string(), of_redis);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let port = closed_port().await;
    let url = format!("postgresql://once:hunter2@127.0.0.1:{port}/orders");
    let store = postgres::Config::from_url(&url).unwrap().build().unwrap();
    let error = store.warm_up().await.unwrap_err();
    assert_eq!(
        printed(&error),
        format!(
            "connect (unavailable): no connection to PostgreSQL at 127.0.0.1:{port}: Connection refused (os error 111): error \
             connecting to server"
        )
    );

    let url = format!("redis://once:hunter2@127.0.0.1:{port}");
    let store = redis_store::Config::new(&url).build().unwrap();
    for error in
        [store.warm_up().await.unwrap_err(), requests::claim_one(&store, &requests::claim()).await.unwrap_err()]
    {
        let text = printed(&error);
        let expected = format!("(unavailable): no connection to Redis at 127.0.0.1:{port}: Connection refused");
        assert!(text.contains(&expected) && !text.contains("hunter2"), "{text}");
        assert_eq!(text.matches("Connection refused").count(), 1, "each cause once: {text}");
    }
}

#[tokio::test]
async fn addresses_of_several_hosts_are_all_named() {
    let (first, second) = (closed_port().await, closed_port().await);
    let url = format!("postgresql://once@127.0.0.1:{first},localhost:{second}/orders");
    let error = postgres::Config::from_url(&url).unwrap().build().unwrap().warm_up().await.unwrap_err();
    let expected = format!("no connection to PostgreSQL at 127.0.0.1:{first}, localhost:{second}: ");
    assert!(error.to_string().contains(&expected), "{error}");
    // An IP address is named only if it has no name.
    for (host, named) in [(Some("localhost"), "localhost"), (None, "127.0.0.1")] {
        let mut connection = postgres::tokio_postgres::Config::new();
        connection.hostaddr("127.0.0.1".parse().unwrap()).port(first).user("once");
        if let Some(host) = host {
            connection.host(host);
        }
        let error = postgres::Config::new(connection).build().unwrap().warm_up().await.unwrap_err();
        let expected = format!("no connection to PostgreSQL at {named}:{first}: ");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn an_unreadable_url_of_redis_shows_the_form_and_no_password() {
    for url in ["rediss:/once:hunter2", "hunter2", "http://once:hunter2@127.0.0.1"] {
        let error = redis_store::Config::new(url).build().unwrap_err();
        let text = printed(&error);
        let expected = "configure (config): the URL of Redis cannot be read: write \
                        redis://[user[:password]@]host[:port][/database], or rediss:// for TLS";
        assert!(text.starts_with(expected) && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_prefix_of_redis_with_braces_is_refused() {
    for prefix in ["{once}:", "once{", "}"] {
        let error = redis_store::Config::new("redis://127.0.0.1").key_prefix(prefix).build().unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Config, ErrorStatus::Permanent), "{error}");
        assert!(error.to_string().contains("must not contain braces"), "{error}");
    }
}

#[test]
fn root_certificates_of_redis_that_are_not_pem_are_named_as_such() {
    let config =
        redis_store::Config::new("rediss://127.0.0.1").root_certificates("-----BEGIN CERTIFICATE-----\nMTIz\n");
    let text = printed(&config.build().unwrap_err());
    assert!(text.starts_with("configure (config): `root_certificates` need certificates in PEM"), "{text}");
}

#[tokio::test]
async fn the_url_that_a_provider_hands_out_is_read() {
    let mut file = std::env::temp_dir();
    file.push(unique_name("roots"));
    std::fs::File::create(&file).unwrap().write_all(b"no certificate").unwrap();
    let url = format!(
        "postgresql://once:p@db.example.com/orders?sslmode=verify-full&channel_binding=require&sslrootcert={}",
        file.display()
    );
    let error = postgres::Config::from_url(&url).unwrap().build().unwrap_err();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(printed(&error), "configure (config): there is no certificate among the root certificates");
    let error =
        postgres::Config::from_url("postgresql://once:p@db/orders?pgbouncer=true&connection_limit=1").unwrap_err();
    assert_eq!(
        printed(&error),
        "configure (config): the URL of the database has the option `connection_limit`, which is not supported: use \
         `Config::pool_size`"
    );
}
