//! Injects faults into a store.
//!
//! ```
//! use lambda_once::{Failure, Idempotency, MemoryStore, Outcome, store::fault::{Call, Fault, FaultStore}};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
//! let store = FaultStore::new(MemoryStore::new(), 42);
//! store.next(Call::Claim, Fault::ErrorAfter); // the claim is applied, and its response lost
//! let once = Idempotency::new(store);
//! let outcome = once.operation("charge", "order 7").run(|| async { Ok::<_, Failure>(()) }).await?;
//! assert!(matches!(outcome, Outcome::Executed(())), "the repeated claim is recognized by its owner");
//! # Ok(()) }
//! ```

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Answers, BoxFuture, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled,
    Store, StoreId,
    amend::{Amend, AmendRequest, Amended, ResolveRequest},
    listing::{List, ListRequest, Page},
};
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    order::{Entity, Mark},
    record::{KeyHash, Record},
};

/// A fault in the handling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is not applied, and is reported as failed.
    ErrorBefore,
    /// The request is applied, and is reported as failed: its response was lost.
    ErrorAfter,
    /// The request is not applied: the store's rate is exceeded.
    Throttled,
    /// The request is not applied: the caller is denied access. A claim is not retried. A settle is retried as long as
    /// there is time.
    AccessDenied,
    /// The request is not applied: the store's table is missing. Neither a claim nor a settle is retried.
    TableMissing,
    /// The request is applied, and the call returns after this time.
    Delay(Duration),
    /// The request is applied, and the call never returns.
    Silence,
}

/// The kind of requests that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// Claims.
    Claim,
    /// Settles.
    Settle,
    /// Reads of records and marks.
    Read,
    /// Amendments of records and marks.
    Amend,
    /// Lists.
    List,
}

impl Call {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Settle => "settle",
            Self::Read => "read",
            Self::Amend => "amend",
            Self::List => "list",
        }
    }
}

/// Wraps a store and injects faults into single requests: first the [queued](Self::next) faults, then random ones by
/// [rate](Self::with_rate). The same seed and the same order of requests give the same faults.
///
/// ```
/// use lambda_once::store::{fault::{Call, Fault, FaultStore}, memory::MemoryStore};
///
/// let store = FaultStore::new(MemoryStore::new(), 42).with_rate(Fault::Throttled, 0.1);
/// store.next(Call::Settle, Fault::ErrorAfter); // the next settle is applied, and its response lost
/// ```
///
/// Clones share their faults.
#[derive(Clone)]
pub struct FaultStore<S> {
    inner: S,
    rates: Vec<(Fault, f64)>,
    state: Arc<Mutex<State>>,
}

struct State {
    random: fastrand::Rng,
    queued: VecDeque<(Call, Fault)>,
    always: Vec<(Call, Fault)>,
    calls: Vec<(Call, usize)>,
}

impl<S> FaultStore<S> {
    /// Creates a store without faults.
    pub fn new(inner: S, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let state = State { random, queued: VecDeque::new(), always: Vec::new(), calls: Vec::new() };
        Self { inner, rates: Vec::new(), state: Arc::new(Mutex::new(state)) }
    }

    /// Injects the fault into this fraction of all requests.
    ///
    /// # Panics
    ///
    /// Panics if the rate is not between 0 and 1, or if all rates together exceed 1.
    #[must_use]
    pub fn with_rate(mut self, fault: Fault, rate: f64) -> Self {
        self.rates.push((fault, rate));
        let total: f64 = self.rates.iter().map(|(_, rate)| rate).sum();
        assert!((0.0..=1.0).contains(&rate) && total <= 1.0, "rates lie between 0 and 1, and so does their sum");
        self
    }

    /// Injects the fault into the next request of this kind. Faults for the same kind are injected in the order in
    /// which they were queued.
    pub fn next(&self, call: Call, fault: Fault) {
        self.lock().queued.push_back((call, fault));
    }

    /// Injects the fault into every request of this kind until [`heal`](Self::heal).
    pub fn always(&self, call: Call, fault: Fault) {
        self.lock().always.push((call, fault));
    }

    /// Removes the queued and the permanent faults. Rates are kept.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.queued.clear();
        state.always.clear();
    }

    /// Returns every call so far, with its number of requests.
    pub fn calls(&self) -> Vec<(Call, usize)> {
        self.lock().calls.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, call: Call, requests: usize) -> Vec<Option<Fault>> {
        let mut state = self.lock();
        state.calls.push((call, requests));
        let draw = |_| {
            if let Some(at) = state.queued.iter().position(|(meant, _)| *meant == call) {
                return state.queued.remove(at).map(|(_, fault)| fault);
            }
            if let Some((_, fault)) = state.always.iter().find(|(meant, _)| *meant == call) {
                return Some(*fault);
            }
            let mut drawn = state.random.f64();
            self.rates.iter().find_map(|(fault, rate)| {
                drawn -= rate;
                (drawn < 0.0).then_some(*fault)
            })
        };
        (0..requests).map(draw).collect()
    }

    /// Forwards the requests that are to be applied, and replaces the results that are to be lost.
    async fn inject<'a, Q, A, F>(
        &'a self,
        call: Call,
        requests: &'a [Q],
        send: impl FnOnce(Vec<Q>) -> F + Send,
    ) -> Answers<A>
    where
        S: Sync,
        Q: Clone + Send + Sync,
        A: Send,
        F: Future<Output = Answers<A>> + Send,
    {
        let faults = self.draw(call, requests.len());
        let refused = |fault: &Option<Fault>| refusal(call, *fault);
        let applied = requests.iter().zip(&faults).filter(|(_, fault)| refused(fault).is_none());
        let mut given = send(applied.map(|(request, _)| request.clone()).collect()).await.into_iter();
        let mut answers = Vec::with_capacity(requests.len());
        for fault in &faults {
            let answer = match refused(fault) {
                Some(error) => Err(error),
                None => given.next().unwrap_or_else(|| Err(lost(call))),
            };
            answers.push(match fault {
                Some(Fault::ErrorAfter) => Err(lost(call)),
                Some(Fault::Delay(time)) => {
                    tokio::time::sleep(*time).await;
                    answer
                }
                Some(Fault::Silence) => std::future::pending().await,
                _ => answer,
            });
        }
        answers
    }
}

fn lost(call: Call) -> Error {
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, call.as_str(), "injected: the answer was lost")
}

fn refusal(call: Call, fault: Option<Fault>) -> Option<Error> {
    let (kind, status, message) = match fault? {
        Fault::ErrorBefore => (ErrorKind::Unavailable, ErrorStatus::Temporary, "injected: not applied"),
        Fault::Throttled => (ErrorKind::Throttled, ErrorStatus::Temporary, "injected: the rate is exceeded"),
        Fault::AccessDenied => (ErrorKind::AccessDenied, ErrorStatus::Temporary, "injected: access denied"),
        Fault::TableMissing => (ErrorKind::Table, ErrorStatus::Temporary, "injected: the table is missing"),
        Fault::ErrorAfter | Fault::Delay(_) | Fault::Silence => return None,
    };
    Some(Error::new(kind, status, call.as_str(), message))
}

impl<S: fmt::Debug> fmt::Debug for FaultStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStore").field("inner", &self.inner).field("rates", &self.rates).finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for FaultStore<S> {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(self.inject(Call::Claim, requests, move |sent| async move { self.inner.claim(&sent).await }))
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(self.inject(Call::Settle, requests, move |sent| async move { self.inner.settle(&sent).await }))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(self.inject(Call::Read, keys, move |sent| async move { self.inner.read(&sent, data).await }))
    }

    fn id(&self) -> StoreId {
        self.inner.id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn format(&self) -> RecordFormat {
        self.inner.format()
    }

    fn database(&self) -> Database<'_> {
        self.inner.database()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.warm_up()
    }
}

impl<S: List> List for FaultStore<S> {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(async move {
            let list = move |sent: Vec<ListRequest>| async move {
                let mut pages = Vec::with_capacity(sent.len());
                for request in &sent {
                    pages.push(self.inner.list(request).await);
                }
                pages
            };
            self.inject(Call::List, std::slice::from_ref(request), list).await.remove(0)
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Amend> Amend for FaultStore<S> {
    fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
        Box::pin(self.inject(Call::Amend, requests, move |sent| async move { self.inner.amend(&sent).await }))
    }

    fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
        Box::pin(self.inject(Call::Read, entities, move |sent| async move { self.inner.marks(&sent).await }))
    }

    fn resolve<'a>(&'a self, request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
        Box::pin(async move {
            let resolve = move |sent: Vec<ResolveRequest>| async move {
                let mut answers = Vec::with_capacity(sent.len());
                for request in &sent {
                    answers.push(self.inner.resolve(request).await);
                }
                answers
            };
            self.inject(Call::Amend, std::slice::from_ref(request), resolve).await.remove(0)
        })
    }
}
