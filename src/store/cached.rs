//! A local cache of outcomes in front of a store.
//!
//! ```no_run
//! use lambda_once::{CachedStore, DynamoDbStore};
//!
//! # async fn init() -> Result<(), lambda_once::Error> {
//! let store = CachedStore::new(DynamoDbStore::from_env().await?).max_bytes(4 * 1024 * 1024);
//! # Ok(()) }
//! ```

use std::{
    fmt,
    mem::size_of,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use lru::LruCache;

use super::{
    Answers, BoxFuture, ClaimRequest, Claimed, Database, Limits, RecordFormat, Refusal, ResultData, SettleRequest,
    Settled, Store, StoreId,
    amend::{Amend, AmendRequest, Amended, ResolveRequest},
    listing::{List, ListRequest, Page},
    rules::{self, Judgement},
};
use crate::{
    clock::{Clock, SystemClock, Timestamp},
    error::{Error, ErrorKind, ErrorStatus},
    order::{Entity, Mark},
    record::{KeyHash, Record, StoredData},
};

#[cfg(all(test, feature = "conformance"))]
mod tests;

const MAX_BYTES: usize = 1024 * 1024;
const MAX_AGE: Duration = Duration::from_secs(60);

/// Size of an entry without its result and its texts: the key and the record in memory, and an estimate for the list's
/// links, the table's slot and the allocator's overhead.
const ENTRY_BYTES: usize = size_of::<KeyHash>() + size_of::<Entry>() + 96;

/// Caches outcomes in the process's memory, in front of a store. A duplicate that reaches the same execution
/// environment again costs no call.
///
/// ```
/// use lambda_once::{CachedStore, Idempotency, MemoryStore};
///
/// let store = MemoryStore::new(); // in a function: DynamoDbStore::from_env().await?
/// let once = Idempotency::new(CachedStore::new(store));
/// ```
///
/// # Contents
///
/// COMPLETED and FAILED records, as the store returned them in a refusal. Such a record no longer changes until it
/// expires. A live claim is never cached, so the store alone decides who may run an operation.
///
/// [`rules::judge`] judges an entry as the store would. A different payload is a mismatch, and an expired record counts
/// as absent. The rest of a batch goes to the store in one call. If nothing is left, no call is made.
///
/// * The outcomes of this process's own runs are cached when their first duplicate arrives, which costs one call. The
///   result of a settle is not cached. If its response was lost or followed a retry, it does not show when and with
///   which result the record was written.
/// * Records that were read without their data ([`ResultData::Omit`]) are cached without it, and not served to a caller
///   that needs the data.
/// * Reads and settles pass through.
///
/// # Limitations
///
/// * A record that is **deleted** or [amended](crate::store::amend) in the store is served until its entry is `max_age` old, unless it
///   was amended through this cache.
/// * Each execution environment has its own cache, which is empty after a cold start. The cache saves calls and
///   guarantees nothing.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`max_bytes`](Self::max_bytes) | 1 MiB |
/// | [`max_age`](Self::max_age) | 60 s |
///
/// Clones share their entries.
#[derive(Clone)]
pub struct CachedStore<S> {
    inner: S,
    entries: Arc<Mutex<Entries>>,
    max_bytes: usize,
    max_age: Duration,
    clock: Arc<dyn Clock>,
}

impl<S> CachedStore<S> {
    /// Creates an empty cache in front of `inner`.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            entries: Arc::new(Mutex::new(Entries::new())),
            max_bytes: MAX_BYTES,
            max_age: MAX_AGE,
            clock: Arc::new(SystemClock),
        }
    }

    /// Sets the maximum size of all entries together, in bytes. An entry takes about 410 bytes and the bytes of its
    /// result, its label and the name of its operation. The least recently used entries are evicted, and an entry that
    /// exceeds the limit by itself is not cached.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the maximum time between the call to the store and the last use of an entry. A record that was deleted in
    /// the store may be replayed for this long.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets the clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(|poisoned| {
            // A panic may have left the entries half changed, so they are discarded.
            let mut entries = poisoned.into_inner();
            *entries = Entries { amendments: entries.amendments, ..Entries::new() };
            self.entries.clear_poison();
            entries
        })
    }

    /// Returns one result per request, or `None` for a request that needs the store. Returns an empty list if all of
    /// them do. The second value is the state of [`Entries::amendments`].
    fn look_up(&self, requests: &[ClaimRequest], now: Timestamp) -> (Vec<Option<Claimed>>, u64) {
        let mut answers = Vec::new();
        let mut entries = self.lock();
        for (i, request) in requests.iter().enumerate() {
            if let Some(refusal) = entries.refusal(request, now, self.max_age) {
                if answers.is_empty() {
                    answers.resize_with(requests.len(), || None);
                }
                answers[i] = Some(Claimed::Refused(refusal));
            }
        }
        (answers, entries.amendments)
    }

    /// Caches the outcomes in the store's refusals. `asked` is the time of the call, and `amendments` the state of
    /// [`Entries::amendments`] at that time.
    fn keep_refusals(
        &self,
        requests: &[ClaimRequest],
        answers: &[Result<Claimed, Error>],
        asked: Timestamp,
        amendments: u64,
    ) {
        if answers.len() != requests.len() {
            return;
        }
        let mut entries = None;
        for (request, answer) in requests.iter().zip(answers) {
            let Ok(Claimed::Refused(Refusal::Completed(record) | Refusal::Failed(record))) = answer else { continue };
            if rules::check_version(record, "claim").is_ok() {
                let entries = entries.get_or_insert_with(|| self.lock());
                // The store may have returned the record as it was before an amendment.
                if entries.amendments == amendments {
                    entries.keep(request, record, asked, self.max_bytes);
                }
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for CachedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = {
            let entries = self.lock();
            (entries.list.len(), entries.bytes)
        };
        f.debug_struct("CachedStore")
            .field("inner", &self.inner)
            .field("entries", &count)
            .field("bytes", &bytes)
            .field("max_bytes", &self.max_bytes)
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for CachedStore<S> {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            // Read before the call on purpose, because the store's results were true after this instant.
            let asked = self.clock.now();
            let (known, amendments) = self.look_up(requests, asked);
            if known.is_empty() {
                let answers = self.inner.claim(requests).await;
                self.keep_refusals(requests, &answers, asked, amendments);
                return answers;
            }
            let open = requests.iter().zip(&known).filter(|(_, known)| known.is_none());
            let open: Vec<ClaimRequest> = open.map(|(request, _)| request.clone()).collect();
            let mut given = Vec::new();
            if !open.is_empty() {
                given = self.inner.claim(&open).await;
                if given.len() != open.len() {
                    given = open.iter().map(|_| Err(miscounted())).collect();
                }
                self.keep_refusals(&open, &given, asked, amendments);
            }
            let mut given = given.into_iter();
            let answer = |known: Option<Claimed>| match known {
                Some(claimed) => Ok(claimed),
                None => given.next().unwrap_or_else(|| Err(miscounted())),
            };
            known.into_iter().map(answer).collect()
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        self.inner.settle(requests)
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        self.inner.read(keys, data)
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

impl<S: List> List for CachedStore<S> {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        self.inner.list(request)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Amend> Amend for CachedStore<S> {
    /// Amends the records, and removes their entries from this cache. The caches of other processes serve them until
    /// they are `max_age` old.
    fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
        let forget = move || {
            let mut entries = self.lock();
            entries.amendments += 1;
            requests.iter().for_each(|request| entries.remove(&request.key));
        };
        Box::pin(async move {
            forget();
            // Even if the future is dropped, because the records may be amended then, too.
            let _end = AtEnd(forget);
            self.inner.amend(requests).await
        })
    }

    fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
        self.inner.marks(entities)
    }

    fn resolve<'a>(&'a self, request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
        self.inner.resolve(request)
    }
}

fn miscounted() -> Error {
    let message = "the store returned a different number of results than there were requests";
    Error::new(ErrorKind::Request, ErrorStatus::Ambiguous, "claim", message)
}

struct Entry {
    record: Record,
    /// Whether the data of the result was requested.
    result_data: ResultData,
    /// Time of the call to the store.
    asked: Timestamp,
}

impl Entry {
    fn bytes(&self) -> usize {
        bytes(&self.record)
    }
}

/// Returns the size of an entry with this record, in bytes.
fn bytes(record: &Record) -> usize {
    let Record { result, operation, label, unknown, .. } = record;
    let texts: usize = [operation, label].into_iter().flatten().map(|text| text.len()).sum();
    let unknown = if unknown.is_empty() { 0 } else { serde_json::to_string(unknown).map_or(0, |text| text.len()) };
    ENTRY_BYTES + result.data.as_ref().map_or(0, StoredData::len) + texts + unknown
}

struct Entries {
    list: LruCache<KeyHash, Entry>,
    /// Size of all entries, in bytes.
    bytes: usize,
    /// Counts the beginnings and the ends of calls that amend records. The results of a claim are kept only if there
    /// was none since the claim began.
    amendments: u64,
}

/// Calls a function when it is dropped.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Entries {
    fn new() -> Self {
        Self { list: LruCache::unbounded(), bytes: 0, amendments: 0 }
    }

    /// Returns the store's refusal of the claim, if it is cached.
    fn refusal(&mut self, request: &ClaimRequest, now: Timestamp, max_age: Duration) -> Option<Refusal> {
        let entry = self.list.get(&request.key)?;
        if entry.result_data == ResultData::Omit && request.result_data == ResultData::Include {
            return None;
        }
        // An entry must not last longer because the clock was set back.
        if entry.asked <= now
            && now.since(entry.asked) <= max_age
            && let Ok(Judgement::Refused(refusal)) = rules::judge(&entry.record, request, now)
        {
            return Some(refusal);
        }
        self.remove(&request.key);
        None
    }

    fn keep(&mut self, request: &ClaimRequest, record: &Record, asked: Timestamp, max_bytes: usize) {
        // If two calls overlap, the results of the later one count.
        if self.list.peek(&request.key).is_some_and(|entry| entry.asked > asked) {
            return;
        }
        self.remove(&request.key);
        if bytes(record) > max_bytes {
            return;
        }
        let entry = Entry { record: record.clone(), result_data: request.result_data, asked };
        self.bytes += entry.bytes();
        self.list.put(request.key, entry);
        while self.bytes > max_bytes
            && let Some((_, least_recently_used)) = self.list.pop_lru()
        {
            self.bytes -= least_recently_used.bytes();
        }
    }

    fn remove(&mut self, key: &KeyHash) {
        if let Some(entry) = self.list.pop(key) {
            self.bytes -= entry.bytes();
        }
    }
}
