//! A queue whose effects are in PostgreSQL. The rows of an order and its outcome are committed in one transaction.

use lambda_once::{
    Failure, Idempotency, Key, PostgresStore,
    batch::in_transaction,
    store::postgres::{Config, Transaction},
};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
    account: String,
    cents: i64,
}

/// Either all of it takes effect, together with the outcome, or nothing does.
async fn debit(order: Order, transaction: Transaction) -> Result<(), Failure> {
    let client = transaction.client().await?;
    client.execute("INSERT INTO debits VALUES ($1, $2)", &[&order.id, &order.cents]).await?;
    let debit = "UPDATE accounts SET cents = cents - $1 WHERE id = $2";
    client.execute(debit, &[&order.cents, &order.account]).await?;
    Ok(())
}

/// The records of one batch run concurrently, each with a separate connection. Claims, polls and releases use another three.
const CONCURRENCY: usize = 4;

fn engine(store: &PostgresStore) -> Result<Idempotency, lambda_once::Error> {
    Idempotency::builder(store.clone()).scope("debits").build()
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let store = Config::from_env()?.pool_size(CONCURRENCY + 3).build()?;
    let once = engine(&store)?;
    let service = once.sqs(Key::pointer("/id"), in_transaction(&store, debit)).concurrency(CONCURRENCY);
    lambda_runtime::run(service.validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{
        OutcomeKind::*,
        Verdict,
        store::postgres::tokio_postgres::{self, NoTls},
        testing,
    };

    use super::*;

    /// The application's tables, beside those that `store.migrate()` creates.
    const TABLES: &str = "
        CREATE TABLE accounts (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0));
        CREATE TABLE debits (order_id text NOT NULL, cents bigint NOT NULL)";

    #[tokio::test]
    async fn an_order_is_debited_once_and_one_that_fails_leaves_no_row() -> Result<(), Box<dyn std::error::Error>> {
        let url = std::env::var("POSTGRES_URL").expect("POSTGRES_URL is not set: run the tests by `make test`");
        let schema = format!("cookbook_{:032x}", u128::from_ne_bytes(random()?));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {TABLES}")).await?;
        client.execute("INSERT INTO accounts VALUES ('a', 1000)", &[]).await?;
        let separator = if url.contains('?') { '&' } else { '?' };
        let store = Config::from_url(&format!("{url}{separator}options=-csearch_path%3D{schema}"))?.build()?;
        store.migrate().await?;

        let service = engine(&store)?.sqs(Key::pointer("/id"), in_transaction(&store, debit));
        let order = |id: &str, cents| testing::record(&Order { id: id.to_owned(), account: "a".to_owned(), cents });
        let batch = testing::sqs::batch([order("7", 600), order("8", 9_000)]);
        let too_much = Ok(Failed(Verdict::Transient));
        assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Ok(Executed), too_much]);
        assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Ok(Replayed), too_much]);

        let debits = client.query("SELECT order_id FROM debits", &[]).await?;
        assert_eq!(debits.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["7"]);
        let left: i64 = client.query_one("SELECT cents FROM accounts", &[]).await?.get(0);
        assert_eq!(left, 400);
        Ok(())
    }

    fn random() -> Result<[u8; 16], getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(bytes)
    }
}
