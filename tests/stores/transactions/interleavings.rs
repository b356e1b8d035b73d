//! Plain and transactional operations of one entity, interleaved at random. They are shuffled and duplicated, requests
//! are lost or late, workers die, and leases lapse.
//!
//! The entity's state is a separate item that lists every version it was set to. A plain handler sets it by its own
//! call. Time may jump at any moment except during that call, because no order is guaranteed if a lease lapses during
//! such a write.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_dynamodb::types::{AttributeValue, Update};
use futures_util::future::join_all;
use lambda_once::{
    Claim, DynamoDbStore, Failure, Outcome, OutcomeKind, PostgresStore, Verdict,
    clock::Clock,
    store::{dynamodb::Writes, postgres::Transaction},
};
use tokio::{
    sync::RwLock,
    time::{sleep, timeout},
};

use super::{DEBIT, Database, World, on_each_database};
use crate::support::cases;

const ENTITY: &str = "account 7";
const WORKERS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the number of versions, which is three fifths of `ORDER_VERSIONS`.
fn versions() -> u64 {
    cases("ORDER_VERSIONS", 30) * 3 / 5
}

/// The way in which an operation takes effect, the same in every delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Transactional,
    WithoutClaim,
}

impl Kind {
    fn of(version: u64) -> Self {
        [Self::Plain, Self::Transactional, Self::WithoutClaim][(version % 3) as usize]
    }
}

/// A database with an item that lists its versions.
trait State: Database {
    async fn create_state(reader: &Self::Reader, name: &str);
    /// Sets a version immediately.
    fn set(reader: Arc<Self::Reader>, name: String, version: u64) -> impl Future<Output = ()> + Send;
    /// Sets a version when the transaction commits.
    fn set_within(
        transaction: Self::Transaction,
        name: &str,
        version: u64,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    fn history(reader: &Self::Reader, name: &str) -> impl Future<Output = Vec<u64>> + Send;
}

/// The item, and the lock that keeps time from jumping while a plain handler writes it.
struct Account<D: State> {
    name: String,
    reader: Arc<D::Reader>,
    time: Arc<RwLock<()>>,
}

impl<D: State> Account<D> {
    async fn create() -> Self {
        let name = crate::support::unique_name("state");
        let reader = Arc::new(D::create_ledger(&name).await);
        D::create_state(&reader, &name).await;
        Self { name, reader, time: Arc::default() }
    }

    async fn history(&self) -> Vec<u64> {
        D::history(&self.reader, &self.name).await
    }

    /// Ends all leases, while no plain handler writes.
    async fn lapse(&self, world: &World<D>) {
        let _nobody_writes = self.time.write().await;
        world.lapse();
    }

    /// Applies the effect of a plain operation, whose handler ends with its lease, as required.
    async fn set(&self, claim: Claim, clock: impl Clock, version: u64) -> Result<(), Failure> {
        let time = Arc::clone(&self.time).read_owned().await;
        if clock.now() >= claim.lease_until() {
            return Err(Failure::unknown("the lease has ended"));
        }
        let set = D::set(Arc::clone(&self.reader), self.name.clone(), version);
        // A task, which continues even if its worker dies.
        let written = tokio::spawn(async move {
            set.await;
            drop(time);
        });
        written.await.map_err(|_| Failure::unknown("the task has ended"))
    }
}

async fn pause() {
    sleep(Duration::from_millis(fastrand::u64(0..4))).await;
}

fn trouble() -> Result<(), Failure> {
    match fastrand::u8(..) {
        0..8 => Err(Failure::transient("busy")),
        8..12 => Err(Failure::unknown("timed out")),
        _ => Ok(()),
    }
}

/// Delivers a version once, and returns its outcome if the worker survives.
async fn deliver<D: State>(world: &World<D>, account: &Account<D>, version: u64) -> Option<OutcomeKind> {
    let key = version.to_string();
    let operation = world.once.operation(DEBIT, &key).ordered_by(ENTITY, version);
    let clock = world.clock.clone();
    let within = async |transaction: D::Transaction| {
        pause().await;
        D::set_within(transaction, &account.name, version).await?;
        pause().await;
        trouble()
    };
    let plainly = async |claim: Option<Claim>| {
        pause().await;
        let end = trouble();
        // Older operations may run after a transient failure, which therefore comes before the effect.
        if end.as_ref().is_err_and(|failure| failure.verdict() == Verdict::Transient) {
            return end;
        }
        account.set(claim.expect("it is protected"), clock, version).await?;
        pause().await;
        end
    };
    let run = async {
        match Kind::of(version) {
            Kind::Plain => Box::pin(operation.run_with(plainly)).await,
            Kind::Transactional => Box::pin(operation.in_transaction(&world.store).run(within)).await,
            Kind::WithoutClaim => Box::pin(operation.in_transaction(&world.store).without_claim().run(within)).await,
        }
    };
    let life = if fastrand::u8(..) < 24 { Duration::from_millis(fastrand::u64(1..40)) } else { PATIENCE };
    timeout(life, run).await.ok()?.ok().as_ref().map(Outcome::kind)
}

async fn versions_are_set_in_order_and_the_newest_is_the_last<D: State>() {
    let world = World::<D>::new().await;
    let account = Account::<D>::create().await;
    world.proxy.on(|_| fastrand::u32(..40) == 0).times(usize::MAX).drop_response();
    world.proxy.on(|_| fastrand::u32(..40) == 0).times(usize::MAX).drop_request();
    let mut late = world.proxy.on(|_| fastrand::u32(..12) == 0).times(usize::MAX).hold();
    let network = async {
        loop {
            late.arrived().await;
            if fastrand::bool() {
                account.lapse(&world).await;
            }
            // Other deliveries continue meanwhile.
            sleep(Duration::from_millis(fastrand::u64(10..50))).await;
            late.release();
        }
    };
    // Each version is sent twice.
    let newest = versions();
    let mut versions: Vec<u64> = (1..=newest).chain(1..=newest).collect();
    fastrand::shuffle(&mut versions);
    let queue = Mutex::new(VecDeque::from(versions));
    let worker = async || {
        loop {
            let next = queue.lock().unwrap().pop_front();
            let Some(version) = next else { return };
            if fastrand::u8(..) < 12 {
                account.lapse(&world).await;
            }
            let outcome = deliver(&world, &account, version).await;
            let is_acknowledged =
                outcome.is_some_and(|outcome| outcome.can_acknowledge() && outcome != OutcomeKind::Unrecorded);
            if !is_acknowledged {
                queue.lock().unwrap().push_back(version);
                pause().await;
                continue;
            }
            let history = account.history().await;
            match outcome {
                Some(OutcomeKind::Superseded) => {
                    assert!(history.iter().any(|newer| *newer >= version), "{version} is superseded by nothing");
                }
                outcome => assert!(history.contains(&version), "{version} is lost: {outcome:?}, {history:?}"),
            }
        }
    };
    let workers = timeout(PATIENCE, join_all((0..WORKERS).map(|_| worker())));
    tokio::select! {
        done = workers => drop(done.expect("every version is acknowledged in the end")),
        () = network => {}
    }
    let history = account.history().await;
    assert!(history.is_sorted(), "an older version was set after a newer one: {history:?}");
    assert_eq!(history.last(), Some(&newest));
    let is_repeated = |pair: &[u64]| pair[0] == pair[1] && Kind::of(pair[0]) != Kind::Plain;
    assert!(!history.windows(2).any(is_repeated), "a transaction took effect twice: {history:?}");
}

on_each_database!(versions_are_set_in_order_and_the_newest_is_the_last);

impl State for PostgresStore {
    async fn create_state(reader: &Self::Reader, name: &str) {
        let state = format!(
            "CREATE TABLE \"{name}-item\" (history bigint[] NOT NULL); INSERT INTO \"{name}-item\" VALUES ('{{}}')"
        );
        reader.batch_execute(&state).await.unwrap();
    }

    async fn set(reader: Arc<Self::Reader>, name: String, version: u64) {
        reader.execute(&append(&name), &[&version.cast_signed()]).await.unwrap();
    }

    async fn set_within(transaction: Transaction, name: &str, version: u64) -> Result<(), Failure> {
        transaction.client().await?.execute(&append(name), &[&version.cast_signed()]).await?;
        Ok(())
    }

    async fn history(reader: &Self::Reader, name: &str) -> Vec<u64> {
        let history = format!("SELECT history FROM \"{name}-item\"");
        let history: Vec<i64> = reader.query_one(&history, &[]).await.unwrap().get(0);
        history.into_iter().map(i64::cast_unsigned).collect()
    }
}

/// The item's lock makes the order of the history the order of the commits.
fn append(name: &str) -> String {
    format!("UPDATE \"{name}-item\" SET history = history || $1::bigint")
}

const ITEM: &str = "item";
const APPEND: &str = "SET history = list_append(if_not_exists(history, :none), :version)";

fn values(version: u64) -> [(&'static str, AttributeValue); 2] {
    let version = AttributeValue::N(version.to_string());
    [(":none", AttributeValue::L(Vec::new())), (":version", AttributeValue::L(vec![version]))]
}

impl State for DynamoDbStore {
    /// The first update creates the item.
    async fn create_state(_: &Self::Reader, _: &str) {}

    async fn set(reader: Arc<Self::Reader>, name: String, version: u64) {
        let mut update = reader.update_item().table_name(name).key("id", AttributeValue::S(ITEM.to_owned()));
        for (placeholder, value) in values(version) {
            update = update.expression_attribute_values(placeholder, value);
        }
        update.update_expression(APPEND).send().await.unwrap();
    }

    async fn set_within(transaction: Writes, name: &str, version: u64) -> Result<(), Failure> {
        let mut update = Update::builder().table_name(name).key("id", AttributeValue::S(ITEM.to_owned()));
        for (placeholder, value) in values(version) {
            update = update.expression_attribute_values(placeholder, value);
        }
        transaction.update(update.update_expression(APPEND).build()?)?;
        Ok(())
    }

    async fn history(reader: &Self::Reader, name: &str) -> Vec<u64> {
        let get = reader.get_item().table_name(name).key("id", AttributeValue::S(ITEM.to_owned()));
        let item = get.consistent_read(true).send().await.unwrap().item.unwrap_or_default();
        let versions = item.get("history").map(|history| history.as_l().unwrap().as_slice()).unwrap_or_default();
        versions.iter().map(|version| version.as_n().unwrap().parse().unwrap()).collect()
    }
}
