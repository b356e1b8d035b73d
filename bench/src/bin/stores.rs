//! Measures the stores on one thread: `stores DYNAMODB DYNAMODB_WITH_LATENCY LATENCY_MS`, with `REDIS_URL` and
//! `POSTGRES_URL` in the environment. Prints [`Stores`] as JSON.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_dynamodb::{Client, config::Builder};
use benches::{
    cell::Column,
    column::Deliver,
    library, order,
    stores::{Backend, Row, Stores, by_hand, delay},
    stub, usage,
};
use lambda_once::{
    RedisStore, Store,
    store::{
        dynamodb::Config as SdkConfig,
        postgres::{self, tokio_postgres},
    },
};

const SIZES: [usize; 3] = [1, 10, 100];
const ROUNDS: usize = 7;
/// The number of records of a CPU time measurement, in as many batches as necessary.
const RECORDS: usize = 1_000;
/// The number of batches of a time measurement.
const BATCHES: usize = 5;

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
    let mut rows = rows_of_stub().await?;
    rows.extend(rows_of_dynamodb(&dynamodb, &slow_dynamodb).await?);
    rows.extend(rows_of_redis(&redis, &slow_redis).await?);
    rows.extend(rows_of_postgres(&postgres, &slow_postgres).await?);
    println!("{}", serde_json::to_string(&Stores { rows, latency_ms })?);
    Ok(())
}

/// Returns the URL of the same server behind a network with this latency.
fn behind(url: &str, latency: Duration) -> Result<String> {
    let rest = url.split_once("://").context("a URL")?.1;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    Ok(url.replacen(address, &delay::start(address, latency)?.to_string(), 1))
}

async fn rows_of_dynamodb(url: &str, slow_url: &str) -> Result<Vec<Row>> {
    let config = SdkConfig::sdk_config().await;
    let client = |url: &str| Client::from_conf(Builder::from(&config).endpoint_url(url).build());
    let library = |url: &str| Column::Batched.open(client(url), "library");
    let by_hand = |url: &str| Column::RawPartiql.open(client(url), "by_hand");
    rows(Backend::DynamoDb, [library(url)?, by_hand(url)?, library(slow_url)?, by_hand(slow_url)?]).await
}

async fn rows_of_redis(url: &str, slow_url: &str) -> Result<Vec<Row>> {
    let by_hand = async |url: &str| -> Result<Deliver> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let deliver: Deliver = Box::new(move |event| {
            let mut connection = connection.clone();
            Box::pin(async move { by_hand::redis(&mut connection, event).await })
        });
        Ok(deliver)
    };
    let library = |url: &str| through(RedisStore::new(url)?);
    rows(Backend::Redis, [library(url)?, by_hand(url).await?, library(slow_url)?, by_hand(slow_url).await?]).await
}

async fn rows_of_postgres(url: &str, slow_url: &str) -> Result<Vec<Row>> {
    let store = |url: &str| postgres::Config::from_url(url)?.build();
    store(url)?.migrate().await?;
    let by_hand = async |url: &str| -> Result<Deliver> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(by_hand::TABLE).await?;
        let client = Arc::new(client);
        let deliver: Deliver = Box::new(move |event| {
            let client = Arc::clone(&client);
            Box::pin(async move { by_hand::postgres(&client, event).await })
        });
        Ok(deliver)
    };
    let library = |url: &str| through(store(url)?);
    rows(Backend::Postgres, [library(url)?, by_hand(url).await?, library(slow_url)?, by_hand(slow_url).await?]).await
}

/// Returns the library on a store.
fn through(store: impl Store) -> Result<Deliver> {
    let service = library::service(&library::engine(store)?);
    Ok(Box::new(move |event| {
        let service = service.clone();
        Box::pin(async move { Ok(library::deliver(&service, event).await?) })
    }))
}

/// Only new records, for which every condition holds.
async fn rows_of_stub() -> Result<Vec<Row>> {
    let client = || stub::client(Duration::ZERO);
    let pair = [Column::Batched.open(client(), "records")?, Column::RawPartiql.open(client(), "records")?];
    let mut rows = Vec::new();
    for size in SIZES {
        rows.push(row(Backend::DynamoDbStub, size, false, &pair, None).await?);
    }
    Ok(rows)
}

/// Returns the rows of a store: the library and hand-written code, without and with latency.
async fn rows(store: Backend, [library, by_hand, slow_library, slow_by_hand]: [Deliver; 4]) -> Result<Vec<Row>> {
    let (pair, slow_pair) = ([library, by_hand], [slow_library, slow_by_hand]);
    let mut rows = Vec::new();
    for size in SIZES {
        for duplicates in [false, true] {
            rows.push(row(store, size, duplicates, &pair, Some(&slow_pair)).await?);
        }
    }
    Ok(rows)
}

async fn row(
    store: Backend,
    size: usize,
    duplicates: bool,
    [library, by_hand]: &[Deliver; 2],
    slow: Option<&[Deliver; 2]>,
) -> Result<Row> {
    let (mut cpu, mut walls) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        cpu[0].push(cpu_us(library, size, duplicates).await?);
        cpu[1].push(cpu_us(by_hand, size, duplicates).await?);
        if let Some([library, by_hand]) = slow {
            walls[0].push(wall_ms(library, size, duplicates).await?);
            walls[1].push(wall_ms(by_hand, size, duplicates).await?);
        }
    }
    let [library_us, by_hand_us] = cpu.map(median);
    Ok(Row { store, duplicates, size, library_us, by_hand_us, walls_ms: slow.map(|_| walls.map(median)) })
}

/// Returns the CPU time of this thread for a record, in microseconds.
async fn cpu_us(deliver: &Deliver, size: usize, duplicates: bool) -> Result<f64> {
    let batches = RECORDS / size;
    let mut spent = Duration::ZERO;
    for _ in 0..batches {
        let event = prepared(deliver, size, duplicates).await?;
        let begun = usage::thread_cpu();
        let response = deliver(event).await?;
        spent += usage::thread_cpu() - begun;
        ensure!(response.batch_item_failures.is_empty(), "a record failed");
    }
    Ok(spent.as_secs_f64() * 1e6 / (batches * size) as f64)
}

/// Returns the time for a batch, in milliseconds.
async fn wall_ms(deliver: &Deliver, size: usize, duplicates: bool) -> Result<f64> {
    let mut spent = Duration::ZERO;
    for _ in 0..BATCHES {
        let event = prepared(deliver, size, duplicates).await?;
        let begun = Instant::now();
        let response = deliver(event).await?;
        spent += begun.elapsed();
        ensure!(response.batch_item_failures.is_empty(), "a record failed");
    }
    Ok(spent.as_secs_f64() * 1e3 / BATCHES as f64)
}

/// Returns the event of a batch whose records are new or completed.
async fn prepared(deliver: &Deliver, size: usize, duplicates: bool) -> Result<SqsEvent> {
    static DRAWN: AtomicUsize = AtomicUsize::new(0);
    let first = DRAWN.fetch_add(size, Ordering::Relaxed);
    let ids: Vec<String> = (first..first + size).map(|i| format!("3f1c9a52-00000000-{i:018}")).collect();
    if duplicates {
        let handled = order::handled();
        deliver(order::event(&ids)?).await?;
        ensure!(order::handled() == handled + size, "a record was not new");
    }
    Ok(order::event(&ids)?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
