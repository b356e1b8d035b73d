//! A store that records its requests.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    Error, MemoryStore, Store,
    record::{KeyHash, Record},
    store::{
        Answers, BoxFuture, ClaimRequest, Claimed, Limits, ResultData, SettleRequest, Settled, Settlement, StoreId,
    },
};

/// Remembers the keys that were claimed, and how many claims were held at once.
#[derive(Clone, Debug)]
pub(crate) struct Spy {
    inner: MemoryStore,
    batch: usize,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    keys: BTreeSet<KeyHash>,
    held: BTreeSet<KeyHash>,
    most_held: usize,
    granted: usize,
    ended: usize,
    most_open: usize,
    releases: usize,
    settles_after: Duration,
}

impl Spy {
    /// `batch` is what the store says it can take in one call.
    pub(crate) fn new(inner: MemoryStore, batch: usize) -> Self {
        Self { inner, batch, seen: Arc::default() }
    }

    /// The most claims that were held at the same time.
    pub(crate) fn most_held(&self) -> usize {
        self.seen.lock().unwrap().most_held
    }

    /// The most claims that were granted at the same time whose handlers had not ended.
    pub(crate) fn most_open(&self) -> usize {
        self.seen.lock().unwrap().most_open
    }

    /// From now on a settle is applied only after this time.
    pub(crate) fn settle_after(&self, time: Duration) {
        self.seen.lock().unwrap().settles_after = time;
    }

    /// A handler has ended.
    pub(crate) fn handler_ended(&self) {
        self.seen.lock().unwrap().ended += 1;
    }

    /// How many claims are held now.
    pub(crate) fn held(&self) -> usize {
        self.seen.lock().unwrap().held.len()
    }

    /// How many releases were asked for.
    pub(crate) fn releases(&self) -> usize {
        self.seen.lock().unwrap().releases
    }

    /// The records there are of all keys that were ever claimed.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let keys: Vec<KeyHash> = self.seen.lock().unwrap().keys.iter().copied().collect();
        self.inner.read(&keys, ResultData::Include).await.into_iter().filter_map(Result::unwrap).collect()
    }
}

impl Store for Spy {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            let answers = self.inner.claim(requests).await;
            let mut seen = self.seen.lock().unwrap();
            for (request, answer) in requests.iter().zip(&answers) {
                seen.keys.insert(request.key);
                if matches!(answer, Ok(Claimed::Granted(_))) {
                    seen.held.insert(request.key);
                    seen.granted += 1;
                }
            }
            seen.most_open = seen.most_open.max(seen.granted.saturating_sub(seen.ended));
            seen.most_held = seen.most_held.max(seen.held.len());
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            let after = self.seen.lock().unwrap().settles_after;
            tokio::time::sleep(after).await;
            let answers = self.inner.settle(requests).await;
            let mut seen = self.seen.lock().unwrap();
            for request in requests {
                seen.held.remove(&request.key);
                seen.releases += usize::from(matches!(request.settlement, Settlement::Release { .. }));
            }
            answers
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        self.inner.read(keys, data)
    }

    fn id(&self) -> StoreId {
        StoreId::unique()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: self.batch, orders: true }
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.warm()
    }
}
