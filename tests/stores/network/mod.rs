//! Guarantees of an operation when requests and responses are lost, late or repeated. A proxy between the store's real
//! client and a real server simulates the network.

mod frozen;
mod late;
mod lost;
mod renewals;
mod repeated;
mod round_trips;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Builder, Error, Failure, Idempotency, Outcome, Store,
    record::{KeyHash, Record},
    store::{ResultData, SettleRequest, Settled, Settlement, dynamodb::Calls},
};

use crate::{
    purpose::Purpose,
    support::{
        assert_outcome,
        clock::TokioClock,
        stores::{Backend, Records},
        wire::{self, Fault, LateRequest, Proxy, Request, Response},
    },
};

const CHARGE: &str = "charge";
const KEY: &str = "order 7";
/// The default lease and margin.
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);

const BATCHED: Backend = Backend::DynamoDb(Calls::Batched);

/// The lost part of an exchange: the response to an applied request, or the request.
const LOSSES: [fn(Fault<'_>); 2] = [|fault| fault.drop_response(), |fault| fault.drop_request()];

/// Separate records, an engine that reaches them through the proxy, and one that reaches them directly.
struct World {
    backend: Backend,
    proxy: Proxy,
    url: String,
    records: Records,
    direct: Arc<dyn Store>,
    clock: TokioClock,
    once: Idempotency,
    elsewhere: Idempotency,
    runs: Arc<AtomicU32>,
}

impl World {
    async fn new(backend: Backend) -> Self {
        Self::with(backend, |builder| builder).await
    }

    /// Creates a world with these settings of the engine behind the proxy.
    async fn with(backend: Backend, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = TokioClock::new();
        let records = Records::new(backend, clock.clone()).await;
        let (protocol, url) = backend.wire();
        let proxy = Proxy::start(protocol, wire::host_and_port(&url)).await;
        let url = proxy.in_place_of(&url);
        let direct = records.store().await;
        let once = settings(builder(records.store_at(&url).await, &clock)).build().unwrap();
        let elsewhere = engine(Arc::clone(&direct), &clock);
        let world = Self { backend, proxy, url, records, direct, clock, once, elsewhere, runs: Arc::default() };
        // The client may have to send a script before the server has its hash.
        let warm = world.elsewhere.operation(CHARGE, "warm").run(|| async { Ok::<_, Failure>(()) });
        assert_outcome!(warm.await, Ok(Outcome::Executed(())));
        world
    }

    /// Runs the operation through the proxy, with work that succeeds with the number of its runs.
    async fn run(&self) -> Result<Outcome<u32>, Error> {
        self.run_by(&self.once).await
    }

    /// Runs the operation directly, with work that succeeds.
    async fn run_elsewhere(&self) -> Result<Outcome<u32>, Error> {
        self.run_by(&self.elsewhere).await
    }

    async fn run_by(&self, once: &Idempotency) -> Result<Outcome<u32>, Error> {
        once.operation(CHARGE, KEY)
            .run(|| async { Ok::<_, Failure>(self.runs.fetch_add(1, Ordering::SeqCst) + 1) })
            .await
    }

    /// Returns the number of runs of work that succeeds.
    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Runs the operation through the proxy, with work that ends as given.
    async fn run_to(&self, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).run(|| async { end }).await
    }

    /// Leaves a claim with an unknown outcome, bypassing the proxy.
    async fn abandon(&self) {
        let unknown =
            self.elsewhere.operation(CHARGE, KEY).run(|| async { Err::<u32, _>(Failure::unknown("timed out")) });
        assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    }

    /// Ends every lease, including the skew margin.
    fn lapse(&self) {
        self.clock.jump(LEASE + MARGIN + Duration::from_millis(1));
    }

    fn key(&self) -> KeyHash {
        self.once.key_hash(CHARGE, KEY).unwrap()
    }

    async fn record(&self) -> Option<Record> {
        read(&*self.direct, self.key()).await
    }

    /// Deletes the record of a claim, bypassing the proxy.
    async fn delete(&self) {
        let owner = self.record().await.unwrap().owner.unwrap();
        let settlement = Settlement::Release;
        let release = SettleRequest { key: self.key(), owner, fingerprint: None, settlement, order: None };
        assert_eq!(self.direct.settle(&[release]).await.remove(0).unwrap(), Settled::Done { found: None });
        assert_eq!(self.record().await, None);
    }

    /// Prepares a fault for the next request of this purpose.
    fn on(&self, purpose: Purpose) -> Fault<'_> {
        self.proxy.on(move |request| Purpose::of(request) == purpose)
    }

    /// Prepares a fault for the next request that takes over a claim.
    fn on_takeover(&self) -> Fault<'_> {
        self.on(if self.backend == BATCHED { Purpose::Takeover } else { Purpose::Claim })
    }

    /// Returns the number of requests with this purpose that the client has sent.
    fn sent(&self, purpose: Purpose) -> usize {
        self.proxy.requests().iter().filter(|request| Purpose::of(request) == purpose).count()
    }

    /// Asserts that every requested fault has occurred.
    fn all_struck(&self) {
        assert_eq!(self.proxy.pending_faults(), 0, "faults that found no request");
    }

    /// Runs the operation in another process, which dies when the network keeps one of its requests.
    async fn die(&self, end: Result<u32, Failure>, kept: &mut LateRequest) -> Request {
        let once = engine(self.records.store_at(&self.url).await, &self.clock);
        tokio::select! {
            outcome = once.operation(CHARGE, KEY).run(|| async { end }) => panic!("should still wait: {outcome:?}"),
            request = kept.arrived() => request,
        }
    }

    /// Delivers a request late, and asserts that it is refused and changes nothing.
    async fn assert_refused(&self, late: LateRequest) {
        self.assert_changes_nothing(late, false).await;
    }

    /// Delivers a request late, and asserts that it changes nothing and that the server reports whether it was applied.
    async fn assert_changes_nothing(&self, mut late: LateRequest, is_applied: bool) {
        let before = self.record().await;
        let response = late.deliver().await;
        assert_eq!(response.is_applied(), Some(is_applied), "{response:?}");
        assert_eq!(self.record().await, before);
    }
}

fn engine(store: impl Store, clock: &TokioClock) -> Idempotency {
    builder(store, clock).build().unwrap()
}

fn builder(store: impl Store, clock: &TokioClock) -> Builder {
    Idempotency::builder(store).clock(clock.clone()).scope("tests").disabled(false)
}

async fn read(store: &dyn Store, key: KeyHash) -> Option<Record> {
    store.read(&[key], ResultData::Include).await.remove(0).unwrap()
}

/// Asserts that the response reports that the request was applied.
fn assert_applied(response: &Response) {
    assert_eq!(response.is_applied(), Some(true), "{response:?}");
}

fn transient() -> Result<u32, Failure> {
    Err(Failure::transient("try again"))
}

fn permanent() -> Result<u32, Failure> {
    Err(Failure::permanent("no such card"))
}
