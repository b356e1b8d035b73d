//! Keeps records in the process's memory, for tests and demonstrations.
//!
//! ```
//! use std::time::Duration;
//! use lambda_once::{Failure, Idempotency, MemoryStore, Outcome, clock::{ManualClock, Timestamp}};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
//! let clock = ManualClock::at(Timestamp::from_seconds(2_000_000_000));
//! let builder = Idempotency::builder(MemoryStore::with_clock(clock.clone())).clock(clock.clone());
//! let once = builder.retention(Duration::from_secs(3_600)).build()?;
//! let charge = || once.operation("charge", "order 7").run(|| async { Ok::<_, Failure>(()) });
//! assert!(matches!(charge().await?, Outcome::Executed(())));
//! assert!(matches!(charge().await?, Outcome::Replayed(())));
//! clock.advance(Duration::from_secs(3_601));
//! assert!(matches!(charge().await?, Outcome::Executed(())), "the record has expired");
//! # Ok(()) }
//! ```

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Answers, BoxFuture, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled,
    Store, StoreId,
    amend::{Amend, AmendRequest, Amended, ResolveRequest},
    listing::{Cursor, List, ListRequest, ListedRecord, Page},
    ordering,
    rules::Change,
};
use crate::{
    clock::{Clock, SystemClock},
    error::Error,
    order::{Entity, Mark},
    record::{KeyHash, Record},
};

/// The same as in a request to DynamoDB, so that batches run alike in tests.
const BATCH: usize = 25;

/// A store in the process's memory, **for tests and demonstrations only**: other execution environments do not see it,
/// and its records are lost when the process ends. It never deletes expired records, which DynamoDB may also keep for
/// days.
///
/// Clones share their records.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    id: StoreId,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<KeyHash, Record>,
    marks: HashMap<Entity, Mark>,
}

impl MemoryStore {
    /// Creates an empty store on the system clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// Creates an empty store on `clock`.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { state: Arc::default(), clock: Arc::new(clock), id: StoreId::unique() }
    }

    /// Inserts a record unchanged and without applying any rule, for tests that need a state which the protocol does
    /// not reach.
    pub fn insert(&self, key: KeyHash, record: Record) {
        self.lock().records.insert(key, record);
    }

    /// Deletes a record as TTL or an operator would. Returns `None` if there was none.
    pub fn remove(&self, key: &KeyHash) -> Option<Record> {
        self.lock().records.remove(key)
    }

    /// Returns the mark of the entity that the key belongs to.
    pub fn mark(&self, key: &KeyHash) -> Option<Mark> {
        self.lock().marks.get(&Entity::of(key)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim_one(&self, request: &ClaimRequest) -> Result<Claimed, Error> {
        let mut state = self.lock();
        let (record, mark) = state.of(&request.key);
        let (change, mark, answer) = ordering::claim(record, mark, request, self.clock.now())?;
        state.apply(request.key, change, mark);
        Ok(answer)
    }

    fn amend_one(&self, request: &AmendRequest) -> Result<Amended, Error> {
        let mut state = self.lock();
        let (record, mark) = state.of(&request.key);
        let (change, mark, answer) = ordering::amend(record, mark, request, self.clock.now())?;
        state.apply(request.key, change, mark);
        Ok(answer)
    }

    fn resolve_one(&self, request: &ResolveRequest) -> Result<Amended<Mark>, Error> {
        let mut state = self.lock();
        let (mark, answer) = ordering::resolve(state.marks.get(&request.entity), request, self.clock.now())?;
        if let Some(mark) = mark {
            state.marks.insert(request.entity, mark);
        }
        Ok(answer)
    }

    fn settle_one(&self, request: &SettleRequest) -> Result<Settled, Error> {
        let mut state = self.lock();
        let (record, mark) = state.of(&request.key);
        let (change, mark, answer) = ordering::settle(Ok(record.cloned()), mark, request, self.clock.now())?;
        state.apply(request.key, change, mark);
        Ok(answer)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Amend for MemoryStore {
    fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
        Box::pin(async move { requests.iter().map(|request| self.amend_one(request)).collect() })
    }

    fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
        Box::pin(async move {
            let state = self.lock();
            entities.iter().map(|entity| Ok(state.marks.get(entity).cloned())).collect()
        })
    }

    fn resolve<'a>(&'a self, request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
        Box::pin(async move { self.resolve_one(request) })
    }
}

impl List for MemoryStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(async move {
            let after = request.after.as_ref().map(|cursor| KeyHash::from_hex(cursor.as_str()));
            let after = after.map(|key| key.ok_or_else(Cursor::unreadable)).transpose()?;
            let (state, now) = (self.lock(), self.clock.now());
            let mut keys: Vec<&KeyHash> = state.records.keys().filter(|key| Some(**key) > after).collect();
            keys.sort_unstable();
            let page = &keys[..keys.len().min(request.reads() as usize)];
            let next = page.last().filter(|_| page.len() < keys.len()).map(|key| Cursor::new(key.to_hex()));
            let records = page.iter().filter_map(|key| {
                let record = state.records.get(key).filter(|record| request.includes(record, now))?;
                Some(ListedRecord { key: **key, record: record.without_data() })
            });
            Ok(Page { records: records.collect(), read: page.len() as u64, next })
        })
    }
}

impl State {
    /// Returns the record of the key, and the mark of its entity.
    fn of(&self, key: &KeyHash) -> (Option<&Record>, Option<&Mark>) {
        (self.records.get(key), self.marks.get(&Entity::of(key)))
    }

    fn apply(&mut self, key: KeyHash, change: Change, mark: Option<Mark>) {
        match change {
            Change::Keep => {}
            Change::Put(record) => drop(self.records.insert(key, *record)),
            Change::Delete => drop(self.records.remove(&key)),
        }
        if let Some(mark) = mark {
            self.marks.insert(Entity::of(&key), mark);
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.lock().records.len()).field("clock", &self.clock).finish()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for MemoryStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move { requests.iter().map(|request| self.claim_one(request)).collect() })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move { requests.iter().map(|request| self.settle_one(request)).collect() })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            let state = self.lock();
            keys.iter().map(|key| Ok(state.records.get(key).map(|record| data.copy_of(record)))).collect()
        })
    }

    fn id(&self) -> StoreId {
        self.id
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: BATCH, orders: true }
    }

    fn format(&self) -> RecordFormat {
        RecordFormat::Native
    }

    fn database(&self) -> Database<'_> {
        Database::new("memory")
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::{ManualClock, Timestamp},
        record::{Owner, Status, StoredResult},
        store::{Settlement, Takeover, conformance::Subject, listing::ListedState},
    };

    async fn memory() -> Subject {
        let clock = ManualClock::at(Timestamp::from_seconds(4_000_000_000));
        let store = MemoryStore::with_clock(clock.clone());
        Subject::new(store, clock)
    }

    crate::conformance_tests!(memory().await);

    #[tokio::test]
    async fn pages_follow_each_other_without_a_gap_or_a_repetition() {
        let store = MemoryStore::default();
        let [one, two, three] = [1, 2, 3].map(|byte| KeyHash::from_bytes([byte; 32]));
        for key in [one, two, three] {
            store.insert(key, Record::new(Status::InProgress));
        }
        let mut request = ListRequest { max_reads: 2, ..ListRequest::new(ListedState::InProgress) };
        let keys = |page: &Page| page.records.iter().map(|found| found.key).collect::<Vec<_>>();
        let page = store.list(&request).await.unwrap();
        assert_eq!(keys(&page), [one, two]);
        request.after = page.next;
        let page = store.list(&request).await.unwrap();
        assert_eq!((keys(&page), page.next), (vec![three], None));
    }

    #[test]
    fn the_mark_of_an_entity_is_found_by_the_key_of_any_operation() {
        let store = MemoryStore::default();
        let key = |operation| KeyHash::from_bytes(std::array::from_fn(|place| if place < 16 { 1 } else { operation }));
        let mark = Mark { newest: Some(5_u64.into()), ..Mark::default() };
        store.lock().marks.insert(Entity::of(&key(1)), mark.clone());
        assert_eq!(store.mark(&key(2)), Some(mark));
        assert_eq!(store.mark(&KeyHash::from_bytes([2; 32])), None);
    }

    /// As in a document store in which a newer version has written them.
    #[tokio::test]
    async fn members_that_are_not_known_survive_every_write() {
        let clock = ManualClock::at(Timestamp::from_seconds(4_000_000_000));
        let store = MemoryStore::with_clock(clock.clone());
        let second = Duration::from_secs(1);
        let claim = |byte| ClaimRequest {
            key: KeyHash::from_bytes([1; 32]),
            fingerprint: None,
            owner: Owner::from_bytes([byte; 16]),
            lease: second,
            skew_margin: second,
            retention: 60 * second,
            takeover: Takeover::Allowed,
            result_data: ResultData::Include,
            order: None,
            operation: "orders".into(),
            label: None,
        };
        let settle = |byte, settlement| {
            let ClaimRequest { key, owner, fingerprint, order, .. } = claim(byte);
            store.settle_one(&SettleRequest { key, owner, fingerprint, settlement, order }).unwrap();
        };
        store.claim_one(&claim(1)).unwrap();
        let unknown = serde_json::Map::from_iter([("new".to_owned(), serde_json::json!([7]))]);
        let record = store.remove(&claim(1).key).unwrap();
        store.insert(claim(1).key, Record { unknown: unknown.clone(), ..record });
        let is_kept = || store.lock().records[&claim(1).key].unknown == unknown;
        settle(1, Settlement::Renew { lease: second, skew_margin: second, retention: second });
        assert!(is_kept(), "a renewal");
        clock.advance(3 * second);
        assert!(matches!(store.claim_one(&claim(2)), Ok(Claimed::Granted(grant)) if grant.took_over()));
        assert!(is_kept(), "a takeover");
        settle(2, Settlement::HandBack);
        assert!(is_kept(), "a hand-back");
        store.claim_one(&claim(3)).unwrap();
        settle(3, Settlement::complete(StoredResult::DROPPED, second));
        assert!(is_kept(), "a completion");
        clock.advance(2 * second);
        assert!(matches!(store.claim_one(&claim(4)), Ok(Claimed::Granted(_))));
        assert!(is_kept(), "a claim over an outcome that has expired");
    }
}
