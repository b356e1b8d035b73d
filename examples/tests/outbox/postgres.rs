//! Four relays of an outbox in PostgreSQL, one of which is killed.

use std::collections::HashSet;

use lambda_once::{
    Error, Failure, Idempotency, Outcome, PostgresStore,
    store::postgres::{
        Config, Transaction,
        tokio_postgres::{self, Client, NoTls},
    },
};
use tokio::{process::Command, sync::mpsc, time::timeout};

use super::{
    CONCURRENCY, ORDERS, PLACE_ORDER, SHIP, TIMEOUT, consume_all, expected_ids, payload, place_all,
    queue::{Message, Relay},
    sorted,
};
use crate::support::unique;

const OUTBOX: &str = include_str!("../../src/bin/relay-postgres/schema.sql");
const TABLES: &str = "CREATE TABLE orders (id text); CREATE TABLE shipments (order_id text)";

/// A schema with separate tables for records and the application.
struct Database {
    url: String,
    relay_role: String,
    client: Client,
    store: PostgresStore,
    once: Idempotency,
}

impl Database {
    async fn create() -> Self {
        let server = std::env::var("POSTGRES_URL").expect("POSTGRES_URL is not set: run the tests by `make test`");
        let schema = unique("outbox");
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}options=-csearch_path%3D{schema}");
        let client = connect(&url).await;
        client.batch_execute(&format!("CREATE SCHEMA {schema}; {OUTBOX}; {TABLES}")).await.unwrap();
        let relay_role = unique("relay");
        let role = format!(
            "CREATE ROLE {relay_role} LOGIN PASSWORD 'relay'; GRANT USAGE ON SCHEMA {schema} TO {relay_role}; \
             GRANT SELECT, UPDATE, DELETE ON outbox TO {relay_role}"
        );
        client.batch_execute(&role).await.unwrap();
        let store = Config::from_url(&url).unwrap().pool_size(2 * CONCURRENCY).build().unwrap();
        store.migrate().await.unwrap();
        let once = Idempotency::builder(store.clone()).disabled(false).build().unwrap();
        Self { url, relay_role, client, store, once }
    }

    /// Writes the order and its message, and then ends as specified.
    async fn place(&self, order: String, end: Result<(), Failure>) -> Result<Outcome<()>, Error> {
        let id = self.once.key_hash(PLACE_ORDER, &order)?.to_hex();
        let operation = self.once.operation(PLACE_ORDER, &order).in_transaction(&self.store);
        let work = |transaction: Transaction| async move {
            let client = transaction.client().await?;
            client.execute("INSERT INTO orders (id) VALUES ($1)", &[&order]).await?;
            let message = "INSERT INTO outbox (id, payload) VALUES ($1, $2)";
            client.execute(message, &[&id, &payload(&order)]).await?;
            end
        };
        operation.run(work).await
    }

    async fn ship(&self, message: Message) -> Result<Outcome<()>, Error> {
        let operation = self.once.operation(SHIP, &message.id).wait_up_to(TIMEOUT).in_transaction(&self.store);
        let work = |transaction: Transaction| async move {
            let insert = "INSERT INTO shipments (order_id) VALUES ($1)";
            transaction.client().await?.execute(insert, &[&message.payload.trim_end()]).await?;
            Ok::<_, Failure>(())
        };
        operation.run(work).await
    }

    async fn rows(&self, table: &str, column: &str) -> Vec<String> {
        let rows = self.client.query(&format!("SELECT {column} FROM {table}"), &[]).await.unwrap();
        sorted(rows.iter().map(|row| row.get(0)))
    }

    /// A relay with only the permissions that `docs/internals/outbox.md` lists.
    fn relay(&self) -> Relay {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relay-postgres"));
        command.env("POSTGRES_URL", format!("{}&user={}&password=relay", self.url, self.relay_role));
        Relay::start(command)
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_relay_that_is_killed_are_published_by_others() {
    let database = Database::create().await;
    let expected = expected_ids(&database.once);
    place_all(|order, end| database.place(order, end)).await;
    let orders = database.rows("orders", "id").await;
    assert_eq!(orders.len(), ORDERS);
    assert_eq!(database.rows("outbox", "id").await, expected);

    // It has published a message, and blocks before the end of its batch until its output is read.
    let mut killed = database.relay();
    let first = killed.next().await.unwrap();
    let (sender, mut queue) = mpsc::unbounded_channel();
    let relays: Vec<_> = (0..3).map(|_| database.relay().forward(sender.clone())).collect();
    let mut deliveries = vec![next(&mut queue).await];
    let lost = [vec![first], killed.kill().await].concat();

    let mut published: HashSet<_> = deliveries.iter().map(|message| message.id.clone()).collect();
    while published.len() < ORDERS {
        let message = next(&mut queue).await;
        published.insert(message.id.clone());
        deliveries.push(message);
    }
    // The lock waits for the commits of the messages that have just been published.
    let lock = "BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE";
    timeout(TIMEOUT, database.client.batch_execute(lock)).await.expect("the relays commit").unwrap();
    assert_eq!(database.rows("outbox", "id").await, [""; 0]);
    database.client.batch_execute("COMMIT").await.unwrap();
    relays.iter().for_each(tokio::task::JoinHandle::abort);

    // The others have published everything, each message once, because no other relay was killed.
    assert_eq!(sorted(deliveries.iter().map(|message| message.id.clone())), expected);
    assert!(lost.iter().all(|message| published.contains(&message.id)));
    deliveries.extend(lost);
    assert!(deliveries.len() > ORDERS);
    consume_all(deliveries, |message| database.ship(message)).await;
    assert_eq!(database.rows("shipments", "order_id").await, orders);
}

async fn next(queue: &mut mpsc::UnboundedReceiver<Message>) -> Message {
    timeout(TIMEOUT, queue.recv()).await.expect("a message in time").unwrap()
}
