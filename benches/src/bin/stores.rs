//! Measures the stores on one thread: `stores DYNAMODB DYNAMODB_WITH_LATENCY LATENCY_MS`, with `REDIS_URL` and `POSTGRES_URL`
//! in the environment; prints [`Stores`] as JSON.

use std::{
    env,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use benches::{
    library, order,
    raw::{self, Table},
    stores::{Backend, Row, Stores, by_hand, delay},
    usage,
};
use lambda_once::{
    Idempotency, PostgresStore, RedisStore, Store,
    store::{
        dynamodb::Config,
        postgres::{self, tokio_postgres},
    },
};

const SIZES: [usize; 3] = [1, 10, 100];
const ROUNDS: usize = 7;
/// Records of a measurement of CPU time, in as many batches as it takes.
const RECORDS: usize = 1_000;
/// Batches of a measurement of time.
const BATCHES: usize = 5;

type Deliver<'a> = dyn AsyncDeliver + 'a;

/// Takes a batch.
trait AsyncDeliver {
    fn deliver<'a>(&'a self, event: SqsEvent) -> futures_util::future::LocalBoxFuture<'a, Result<SqsBatchResponse>>;
}

impl<F: AsyncFn(SqsEvent) -> Result<SqsBatchResponse>> AsyncDeliver for F {
    fn deliver<'a>(&'a self, event: SqsEvent) -> futures_util::future::LocalBoxFuture<'a, Result<SqsBatchResponse>> {
        Box::pin(self(event))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let [dynamodb, slow_dynamodb, latency_ms]: [String; 3] = env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .ok()
        .context("usage: stores DYNAMODB SLOW_DYNAMODB LATENCY_MS")?;
    let latency_ms = latency_ms.parse()?;
    let latency = Duration::from_millis(latency_ms);
    let (redis, postgres) = (env::var("REDIS_URL")?, env::var("POSTGRES_URL")?);
    let slow_redis = behind(&redis, latency)?;
    let slow_postgres = behind(&postgres, latency)?;
    let mut rows = Vec::new();
    rows.extend(rows_of_dynamodb(&dynamodb, &slow_dynamodb).await?);
    rows.extend(rows_of_redis(&redis, &slow_redis).await?);
    rows.extend(rows_of_postgres(&postgres, &slow_postgres).await?);
    println!("{}", serde_json::to_string(&Stores { rows, latency_ms })?);
    Ok(())
}

/// The URL of the same server behind a network with this latency.
fn behind(url: &str, latency: Duration) -> Result<String> {
    let rest = url.split_once("://").context("a URL")?.1;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    Ok(url.replacen(address, &delay::start(address, latency)?.to_string(), 1))
}

fn engine(store: impl Store) -> Result<Idempotency> {
    library::engine(store)
}

async fn rows_of_dynamodb(url: &str, slow_url: &str) -> Result<Vec<Row>> {
    let config = Config::sdk_config().await;
    let client = |url: &str| {
        aws_sdk_dynamodb::Client::from_conf(aws_sdk_dynamodb::config::Builder::from(&config).endpoint_url(url).build())
    };
    let open = |url: &str| -> Result<_> {
        let service = library::service(&engine(Config::new("library").build(client(url))?)?);
        let table = Table::new(client(url), "by_hand".to_owned());
        Ok((service, table))
    };
    let ((service, table), (slow_service, slow_table)) = (open(url)?, open(slow_url)?);
    rows(
        Backend::DynamoDb,
        [
            &async |event| Ok(library::deliver(&service, event).await?),
            &async |event| Ok(raw::batched(&table, event).await),
            &async |event| Ok(library::deliver(&slow_service, event).await?),
            &async |event| Ok(raw::batched(&slow_table, event).await),
        ],
    )
    .await
}

async fn rows_of_redis(url: &str, slow_url: &str) -> Result<Vec<Row>> {
    let (service, slow_service) =
        (library::service(&engine(RedisStore::new(url)?)?), library::service(&engine(RedisStore::new(slow_url)?)?));
    let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let slow_connection = redis::Client::open(slow_url)?.get_multiplexed_async_connection().await?;
    rows(
        Backend::Redis,
        [
            &async |event| Ok(library::deliver(&service, event).await?),
            &async |event| by_hand::redis(&mut connection.clone(), event).await,
            &async |event| Ok(library::deliver(&slow_service, event).await?),
            &async |event| by_hand::redis(&mut slow_connection.clone(), event).await,
        ],
    )
    .await
}

async fn rows_of_postgres(url: &str, slow_url: &str) -> Result<Vec<Row>> {
    let store = |url: &str| -> Result<PostgresStore> { Ok(postgres::Config::from_url(url)?.build()?) };
    store(url)?.migrate().await?;
    let (service, slow_service) =
        (library::service(&engine(store(url)?)?), library::service(&engine(store(slow_url)?)?));
    let connect = async |url: &str| -> Result<tokio_postgres::Client> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    };
    let (client, slow_client) = (connect(url).await?, connect(slow_url).await?);
    client.batch_execute(by_hand::TABLE).await?;
    rows(
        Backend::Postgres,
        [
            &async |event| Ok(library::deliver(&service, event).await?),
            &async |event| by_hand::postgres(&client, event).await,
            &async |event| Ok(library::deliver(&slow_service, event).await?),
            &async |event| by_hand::postgres(&slow_client, event).await,
        ],
    )
    .await
}

/// The rows of a store: the library and by hand, without latency and with it.
async fn rows(store: Backend, [library, by_hand, slow_library, slow_by_hand]: [&Deliver<'_>; 4]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SIZES {
        for duplicates in [false, true] {
            let (mut library_us, mut by_hand_us) = (Vec::new(), Vec::new());
            let (mut library_ms, mut by_hand_ms) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                library_us.push(cpu_us(library, size, duplicates).await?);
                by_hand_us.push(cpu_us(by_hand, size, duplicates).await?);
                library_ms.push(wall_ms(slow_library, size, duplicates).await?);
                by_hand_ms.push(wall_ms(slow_by_hand, size, duplicates).await?);
            }
            rows.push(Row {
                store,
                duplicates,
                size,
                library_us: median(library_us),
                by_hand_us: median(by_hand_us),
                library_ms: median(library_ms),
                by_hand_ms: median(by_hand_ms),
            });
        }
    }
    Ok(rows)
}

/// The CPU time of this thread for a record, in microseconds.
async fn cpu_us(deliver: &Deliver<'_>, size: usize, duplicates: bool) -> Result<f64> {
    let batches = RECORDS / size;
    let mut spent = Duration::ZERO;
    for _ in 0..batches {
        let event = prepared(deliver, size, duplicates).await?;
        let begun = usage::thread_cpu();
        let response = deliver.deliver(event).await?;
        spent += usage::thread_cpu() - begun;
        ensure!(response.batch_item_failures.is_empty(), "a record failed");
    }
    Ok(spent.as_secs_f64() * 1e6 / (batches * size) as f64)
}

/// The time for a batch, in milliseconds.
async fn wall_ms(deliver: &Deliver<'_>, size: usize, duplicates: bool) -> Result<f64> {
    let mut spent = Duration::ZERO;
    for _ in 0..BATCHES {
        let event = prepared(deliver, size, duplicates).await?;
        let begun = Instant::now();
        let response = deliver.deliver(event).await?;
        spent += begun.elapsed();
        ensure!(response.batch_item_failures.is_empty(), "a record failed");
    }
    Ok(spent.as_secs_f64() * 1e3 / BATCHES as f64)
}

/// The event of a batch whose records are new, or done.
async fn prepared(deliver: &Deliver<'_>, size: usize, duplicates: bool) -> Result<SqsEvent> {
    static DRAWN: AtomicUsize = AtomicUsize::new(0);
    let first = DRAWN.fetch_add(size, Ordering::Relaxed);
    let ids: Vec<String> = (first..first + size).map(|i| format!("3f1c9a52-00000000-{i:018}")).collect();
    if duplicates {
        let handled = order::handled();
        deliver.deliver(order::event(&ids)?).await?;
        ensure!(order::handled() == handled + size, "a record was not new");
    }
    Ok(order::event(&ids)?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
