//! Workers: processes that use the library as applications do.

use std::{
    env,
    io::{self, Read, Write},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use lambda_once::{
    AfterUnknown, BoxError, DynamoDbStore, Idempotency, PostgresStore, RedisStore, Store,
    clock::{Clock, SystemClock, Timestamp},
    store::{
        postgres::tokio_postgres::{self, NoTls},
        redis,
    },
};

use crate::settings::{LEASE, LONGEST_REQUEST, MARGIN, RESERVE, StoreKind};

mod consumer;
mod function;
mod handler;
mod service;

/// The environment variable that makes a process a worker, and its values.
pub const ROLE: &str = "CHAOS_ROLE";
pub(crate) const FUNCTION: &str = "function";
pub(crate) const SERVICE: &str = "service";
pub(crate) const CONSUMER: &str = "consumer";
pub(crate) const PREPARATION: &str = "preparation";
/// Its number.
pub(crate) const NUMBER: &str = "CHAOS_WORKER";
/// The address of the ledger.
pub(crate) const LEDGER: &str = "CHAOS_LEDGER";
/// The address of a consumer's queue.
pub(crate) const QUEUE: &str = "CHAOS_QUEUE";
/// The kind of its store.
pub(crate) const STORE: &str = "CHAOS_STORE";
/// The offset of its clock, in milliseconds.
pub(crate) const OFFSET: &str = "CHAOS_CLOCK_OFFSET";
/// The scope of all keys.
pub(crate) const SCOPE: &str = "chaos";
/// The URLs of the nodes of a cluster, with commas between them.
pub(crate) const CLUSTER: &str = "CHAOS_CLUSTER";
/// The table in PostgreSQL of the rows that transactions commit.
pub(crate) const ROWS: &str = "chaos_rows";

/// The longest time that a server takes to create a table after its start, on a busy machine.
const SLOWEST_START: Duration = Duration::from_secs(60);
/// The expired rows on PostgreSQL that are purged during the run.
const EXPIRED: u32 = 200_000;
/// The most operations with which DynamoDB Local is warmed up.
const WARMING: u32 = 150;

/// Performs the work of a process in this role.
pub fn work(role: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(BoxError::from).and_then(|runtime| {
        runtime.block_on(async {
            match role {
                PREPARATION => prepare().await,
                FUNCTION => function::run(Context::from_env()?).await,
                SERVICE => service::run(Context::from_env()?).await,
                CONSUMER => consumer::run(Context::from_env()?, env::var(QUEUE)?).await,
                other => Err(format!("{other}: no such role").into()),
            }
        })
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "worker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The surroundings of a worker.
struct Context {
    store: StoreKind,
    clock: OffsetClock,
    ledger: handler::Ledger,
}

impl Context {
    fn from_env() -> Result<Self, BoxError> {
        // The input ends with the coordinator, and so does this process, even if it is frozen meanwhile.
        std::thread::spawn(|| {
            let _ = io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
        let clock = OffsetClock(env::var(OFFSET)?.parse()?);
        Ok(Self { store: kind()?, clock, ledger: handler::Ledger::new(env::var(NUMBER)?.parse()?, &env::var(LEDGER)?) })
    }

    /// Returns an engine with this policy, on a store from the environment.
    async fn engine(&self, policy: AfterUnknown) -> Result<Idempotency, BoxError> {
        let store: Arc<dyn Store> = match self.store {
            // The caller's clock decides leases.
            StoreKind::DynamoDb => Arc::new(DynamoDbStore::from_env().await?.with_clock(self.clock)),
            StoreKind::Redis => Arc::new(RedisStore::from_env()?),
            StoreKind::RedisCluster => Arc::new(redis::Config::cluster(env::var(CLUSTER)?.split(',')).build()?),
            StoreKind::Postgres => Arc::new(PostgresStore::from_env()?),
        };
        self.engine_on(store, policy)
    }

    /// Returns an engine with this policy on a store.
    fn engine_on(&self, store: impl Store, policy: AfterUnknown) -> Result<Idempotency, BoxError> {
        let builder = Idempotency::builder(store)
            .clock(self.clock)
            .scope(SCOPE)
            .lease(LEASE)
            .heartbeat(LONGEST_REQUEST)
            .reserve(RESERVE)
            .skew_margin(MARGIN)
            .after_unknown(policy);
        Ok(builder.build()?)
    }
}

fn kind() -> Result<StoreKind, BoxError> {
    let name = env::var(STORE)?;
    Ok(StoreKind::named(&name).ok_or(format!("{name}: no such store"))?)
}

/// Creates the tables.
async fn prepare() -> Result<(), BoxError> {
    match kind()? {
        StoreKind::DynamoDb => {
            let store = DynamoDbStore::from_env().await?;
            // A server that has just started may create the table and respond too late. Then it is there.
            let begun = Instant::now();
            while let Err(error) = store.create_table().await {
                let once = Idempotency::builder(store.clone()).disabled(false).build()?;
                if once.warm_up().await.is_ok() {
                    break;
                }
                if begun.elapsed() > SLOWEST_START {
                    return Err(error.into());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let once = Idempotency::builder(store).disabled(false).build()?;
            // It is slow at first.
            for key in 0..WARMING {
                let begun = Instant::now();
                let done = once.operation("warming", &key).run(async || Ok::<_, lambda_once::Failure>(())).await;
                if done.is_ok() && begun.elapsed() < Duration::from_millis(60) {
                    break;
                }
            }
        }
        StoreKind::Redis | StoreKind::RedisCluster => {}
        StoreKind::Postgres => {
            PostgresStore::from_env()?.migrate().await?;
            let (client, connection) = tokio_postgres::connect(&env::var("POSTGRES_URL")?, NoTls).await?;
            tokio::spawn(connection);
            client
                .batch_execute(&format!(
                    "CREATE TABLE {ROWS} (id bigserial PRIMARY KEY, run bigint NOT NULL);
                     INSERT INTO once_records (scope, key_hash, status, attempt, expiration, v)
                     SELECT 'expired', sha256(i::text::bytea), 1, 1, 1, 1 FROM generate_series(1, {EXPIRED}) i"
                ))
                .await?;
        }
    }
    Ok(())
}

/// The system's clock, ahead or behind by some milliseconds.
#[derive(Clone, Copy, Debug)]
struct OffsetClock(i64);

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        let by = Duration::from_millis(self.0.unsigned_abs());
        if self.0 < 0 { SystemClock.now().before(by) } else { SystemClock.now().after(by) }
    }
}
