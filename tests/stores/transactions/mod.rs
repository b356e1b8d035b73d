//! Operations whose writes and outcome are committed together, on databases that support it.

mod batches;
mod claimless;
mod commits;
mod cuts;
pub(crate) mod databases;
mod ended;
mod http;
mod interleavings;
mod late;
mod lost_entities;
mod misuse;
mod ordered;
mod outages;
mod undecided;

use std::time::Duration;

use lambda_once::{
    Builder, Error, Failure, Idempotency, Outcome, Store,
    record::{KeyHash, Record},
    store::ResultData,
};

use crate::support::{
    clock::TokioClock,
    stores::Records,
    wire::{self, Proxy},
};
use databases::{Database, Ledger, on_each_database};

const DEBIT: &str = "debit";
const KEY: &str = "order 7";
/// The default lease and margin, plus a millisecond.
const LAPSE: Duration = Duration::from_millis(31_001);

/// Whether an operation is claimed before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Claimed,
    WithoutClaim,
}

const MODES: [Mode; 2] = [Mode::Claimed, Mode::WithoutClaim];

/// Separate records and a ledger, a store that reaches them through a proxy, and one that reaches them directly.
struct World<D: Database> {
    proxy: Proxy,
    clock: TokioClock,
    store: D,
    direct: D,
    ledger: Ledger<D>,
    once: Idempotency,
    elsewhere: Idempotency,
}

impl<D: Database> World<D> {
    async fn new() -> Self {
        let clock = TokioClock::new();
        let records = Records::new(D::BACKEND, clock.clone()).await;
        let (protocol, url) = D::BACKEND.wire();
        let proxy = Proxy::start(protocol, wire::host_and_port(&url)).await;
        let store = D::connect(&records, &proxy.in_place_of(&url)).await;
        let direct = D::connect(&records, &url).await;
        let ledger = Ledger::create().await;
        let (once, elsewhere) = (build(engine(&store, &clock)), build(engine(&direct, &clock)));
        Self { proxy, clock, store, direct, ledger, once, elsewhere }
    }

    /// Debits the order through the proxy. The result is the row's id.
    async fn debit(&self, mode: Mode) -> Result<Outcome<String>, Error> {
        self.debit_by(&self.once, &self.store, mode, || Ok(())).await
    }

    /// Debits the order directly.
    async fn debit_elsewhere(&self, mode: Mode) -> Result<Outcome<String>, Error> {
        self.debit_by(&self.elsewhere, &self.direct, mode, || Ok(())).await
    }

    /// Enters a row through the proxy, and then ends as given.
    async fn debit_to(&self, mode: Mode, end: Failure) -> Result<Outcome<String>, Error> {
        self.debit_by(&self.once, &self.store, mode, || Err(end)).await
    }

    async fn debit_by(
        &self,
        once: &Idempotency,
        store: &D,
        mode: Mode,
        end: impl FnOnce() -> Result<(), Failure> + Send,
    ) -> Result<Outcome<String>, Error> {
        self.debit_order(KEY, once, store, mode, end).await
    }

    async fn debit_order(
        &self,
        order: &str,
        once: &Idempotency,
        store: &D,
        mode: Mode,
        end: impl FnOnce() -> Result<(), Failure> + Send,
    ) -> Result<Outcome<String>, Error> {
        let operation = once.operation(DEBIT, order).in_transaction(store);
        let work = |transaction: D::Transaction| async move {
            let id = self.ledger.enter(&transaction, order).await?;
            end()?;
            Ok::<_, Failure>(id)
        };
        match mode {
            // Boxed, because a debug build moves futures on a small stack.
            Mode::Claimed => Box::pin(operation.run(work)).await,
            Mode::WithoutClaim => Box::pin(operation.without_claim().run(work)).await,
        }
    }

    async fn rows(&self) -> Vec<String> {
        self.ledger.rows(KEY).await
    }

    /// Ends every lease, including the skew margin.
    fn lapse(&self) {
        self.clock.jump(LAPSE);
    }

    fn key(&self) -> KeyHash {
        self.once.key_hash(DEBIT, KEY).unwrap()
    }

    async fn record(&self) -> Option<Record> {
        self.direct.read(&[self.key()], ResultData::Include).await.remove(0).unwrap()
    }
}

fn engine(store: &(impl Store + Clone), clock: &TokioClock) -> Builder {
    Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").disabled(false)
}

fn build(builder: Builder) -> Idempotency {
    builder.build().unwrap()
}
