//! A ledger in the same database as the records.

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put, ScalarAttributeType},
};
use lambda_once::{
    DynamoDbStore, Failure, PostgresStore, Transactional,
    store::{
        dynamodb::{Calls, Writes},
        postgres::{Transaction, tokio_postgres},
    },
};

use serde_json::json;

use crate::support::{
    self, client, dynamodb_endpoint,
    stores::{Backend, Records},
    unique_name,
    wire::{self, Fault, Request},
};

/// Turns each function, which takes a [`Database`] as a type parameter, into one test per database.
macro_rules! on_each_database {
    ($($test:ident),+ $(,)?) => {
        mod dynamodb {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<lambda_once::DynamoDbStore>().await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<lambda_once::PostgresStore>().await;
                }
            )+
        }
    };
}
pub(crate) use on_each_database;

/// A database with records and rows.
pub(crate) trait Database: Transactional {
    const BACKEND: Backend;
    /// The client that reads the rows, independently of the code under test.
    type Reader: Send + Sync;

    async fn connect(records: &Records, url: &str) -> Self;
    async fn create_ledger(name: &str) -> Self::Reader;
    fn enter(
        transaction: &Self::Transaction,
        ledger: &str,
        id: &str,
        key: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// The maximum number of times that a commit is sent.
    const TRIES: usize;

    /// Returns whether a request commits.
    fn commits(request: &Request) -> bool;
    /// Returns whether a request records the outcome in a transaction.
    fn settles(request: &Request) -> bool;
    /// Makes the server refuse a commit.
    fn refuse(fault: Fault<'_>);
    /// Returns the id and the key of each row.
    async fn rows(reader: &Self::Reader, ledger: &str) -> Vec<(String, String)>;
}

/// A table with one row per effect.
pub(crate) struct Ledger<D: Database> {
    name: String,
    reader: D::Reader,
}

impl<D: Database> Ledger<D> {
    pub(crate) async fn create() -> Self {
        let name = unique_name("ledger");
        Self { reader: D::create_ledger(&name).await, name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Enters a row under a new id.
    pub(crate) async fn enter(&self, transaction: &D::Transaction, key: &str) -> Result<String, Failure> {
        let id = unique_name("row");
        self.enter_as(transaction, &id, key).await?;
        Ok(id)
    }

    /// Enters a row under this id, which fails if the row exists.
    pub(crate) async fn enter_as(&self, transaction: &D::Transaction, id: &str, key: &str) -> Result<(), Failure> {
        D::enter(transaction, &self.name, id, key).await
    }

    /// Returns the ids of the rows for a key.
    pub(crate) async fn rows(&self, key: &str) -> Vec<String> {
        let rows = self.all_rows().await.into_iter();
        rows.filter_map(|(id, of)| (of == key).then_some(id)).collect()
    }

    pub(crate) async fn all_rows(&self) -> Vec<(String, String)> {
        D::rows(&self.reader, &self.name).await
    }
}

impl Database for DynamoDbStore {
    const BACKEND: Backend = Backend::DynamoDb(Calls::Single);
    type Reader = Client;

    async fn connect(records: &Records, url: &str) -> Self {
        records.dynamodb(Calls::Single, url).await
    }

    async fn create_ledger(name: &str) -> Client {
        let client = client(&dynamodb_endpoint()).await;
        let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
        client
            .create_table()
            .table_name(name)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(id.build().unwrap())
            .key_schema(KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap())
            .send()
            .await
            .expect("the ledger is created");
        client
    }

    async fn enter(transaction: &Writes, ledger: &str, id: &str, key: &str) -> Result<(), Failure> {
        let put = Put::builder()
            .table_name(ledger)
            .item("id", AttributeValue::S(id.to_owned()))
            .item("key", AttributeValue::S(key.to_owned()))
            .condition_expression("attribute_not_exists(id)");
        Ok(transaction.put(put.build()?)?)
    }

    const TRIES: usize = 4;

    fn commits(request: &Request) -> bool {
        request.command == "TransactWriteItems"
    }

    fn settles(request: &Request) -> bool {
        Self::commits(request)
    }

    fn refuse(fault: Fault<'_>) {
        let reasons = json!([{ "Code": "None" }, { "Code": "ConditionalCheckFailed" }]);
        let body = json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "CancellationReasons": reasons,
        });
        fault.respond_json(400, &body);
    }

    async fn rows(client: &Client, ledger: &str) -> Vec<(String, String)> {
        let scan = client.scan().table_name(ledger).consistent_read(true).send().await.unwrap();
        assert_eq!(scan.last_evaluated_key(), None, "the test's rows fit into one page");
        let text = |value: &AttributeValue| value.as_s().unwrap().clone();
        scan.items().iter().map(|item| (text(&item["id"]), text(&item["key"]))).collect()
    }
}

impl Database for PostgresStore {
    const BACKEND: Backend = Backend::Postgres;
    type Reader = tokio_postgres::Client;

    async fn connect(records: &Records, url: &str) -> Self {
        records.postgres(url)
    }

    async fn create_ledger(name: &str) -> tokio_postgres::Client {
        let client = support::postgres::client(&support::postgres::connection().await).await;
        // The constraint is checked at the commit, like DynamoDB's conditions.
        let table = format!("CREATE TABLE \"{name}\" (id text, key text, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)");
        client.batch_execute(&table).await.expect("the ledger is created");
        client
    }

    async fn enter(transaction: &Transaction, ledger: &str, id: &str, key: &str) -> Result<(), Failure> {
        let insert = format!("INSERT INTO \"{ledger}\" (id, key) VALUES ($1, $2)");
        transaction.client().await?.execute(&insert, &[&id, &key]).await?;
        Ok(())
    }

    const TRIES: usize = 1;

    fn commits(request: &Request) -> bool {
        request.command == "COMMIT"
    }

    fn settles(request: &Request) -> bool {
        request.command.contains("UPDATE \"public\".\"once_records\"")
    }

    fn refuse(fault: Fault<'_>) {
        fault.respond(wire::refusal("ERROR", "40001", Some('E')));
    }

    async fn rows(client: &tokio_postgres::Client, ledger: &str) -> Vec<(String, String)> {
        let rows = client.query_typed(&format!("SELECT id, key FROM \"{ledger}\""), &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}
