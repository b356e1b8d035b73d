//! The results of repeated operations.

use std::{
    collections::HashMap,
    fmt::Debug,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use lambda_once::{
    BoxFuture, Error, ErrorKind, ErrorStatus, Failure, Idempotency, MemoryStore, Outcome, Results, Store,
    record::{KeyHash, Record, StoredData},
    store::{Answers, Limits, ResultData, SettleRequest, Settled},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use tracing::Level;

use super::{
    CHARGE, KEY, World, assert_outcome,
    support::{collector::Collector, delegate::delegate},
};

/// A store with a limit for results, like DynamoDB.
#[derive(Clone, Debug)]
pub(super) struct SmallStore(pub(super) MemoryStore);

pub(super) const LIMIT: usize = 400_000;

impl Store for SmallStore {
    delegate!(0: claim, settle, read, id, warm_up);

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: LIMIT, batch: 1, orders: false }
    }
}

/// A store that rejects settles, reads and `warm_up` with a permanent error of this kind.
#[derive(Clone, Debug)]
pub(super) struct RejectingStore {
    records: MemoryStore,
    kind: ErrorKind,
    settles: Arc<AtomicU32>,
}

impl RejectingStore {
    pub(super) fn new(kind: ErrorKind) -> Self {
        Self { records: MemoryStore::new(), kind, settles: Arc::default() }
    }

    fn error(&self) -> Error {
        Error::new(self.kind, ErrorStatus::Permanent, "test", "rejected")
    }
}

impl Store for RejectingStore {
    delegate!(records: claim, limits, id);

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        // It gives in, because it could otherwise be asked forever.
        if self.settles.fetch_add(1, Ordering::SeqCst) >= 3 {
            return self.records.settle(requests);
        }
        let answers: Answers<Settled> = requests.iter().map(|_| Err(self.error())).collect();
        Box::pin(ready(answers))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], _: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        let answers: Answers<Option<Record>> = keys.iter().map(|_| Err(self.error())).collect();
        Box::pin(ready(answers))
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(ready(Err::<(), _>(self.error())))
    }
}

/// Runs an operation twice, and asserts that the second call does not run it.
async fn twice<T: Serialize + DeserializeOwned + Send>(
    once: &Idempotency,
    result: impl Fn() -> T + Send + Sync,
) -> Result<Outcome<T>, Error> {
    let first = once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(result()) }).await;
    assert_eq!(first.unwrap().as_str(), "executed");
    once.operation(CHARGE, KEY).run(|| async { panic!("a second run") as Result<T, Failure> }).await
}

#[tokio::test(start_paused = true)]
async fn an_ordered_operation_is_refused_on_a_store_that_keeps_no_order() {
    let once = Idempotency::builder(SmallStore(MemoryStore::new())).scope("tests").build().unwrap();
    let run = || async { panic!("it runs") as Result<u32, Failure> };
    let error = once.operation(CHARGE, KEY).ordered_by("account 3", 1_u64).run(run).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

async fn comes_back<T: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync>(value: T) {
    let replayed = twice(&World::new().once, || value.clone()).await;
    assert_outcome!(replayed, Ok(Outcome::Replayed(back)) if back == value);
}

fn random_text(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect()
}

#[tokio::test(start_paused = true)]
async fn results_come_back_equal() {
    comes_back(()).await;
    comes_back(false).await;
    comes_back(0_u8).await;
    comes_back(String::new()).await;
    comes_back(serde_json::Value::Null).await;
    comes_back(None::<u32>).await;
    comes_back(Some(7)).await;
    comes_back(u128::MAX).await;
    comes_back(i64::MIN).await;
    comes_back(0.1_f64 + 0.2).await;
    comes_back(f64::MAX).await;
    comes_back("\u{0}\u{1f600}\"\\\n".to_owned()).await;
    comes_back(Vec::<u8>::new()).await;
}

#[tokio::test(start_paused = true)]
async fn nested_results_come_back_equal() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Line {
        Note(String),
        Item { price: u64, count: Option<u32> },
    }
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Receipt {
        id: (u64, String),
        lines: Vec<Line>,
        totals: HashMap<String, f64>,
    }
    let lines = vec![Line::Note("gift".into()), Line::Item { price: u64::MAX, count: None }];
    comes_back(Receipt { id: (7, "a".into()), lines, totals: HashMap::from([("EUR".into(), 9.95)]) }).await;
}

// Tests S5, P3.
#[tokio::test(start_paused = true)]
async fn a_result_too_large_for_the_store_is_dropped_and_the_operation_is_done() {
    let once = Idempotency::new(SmallStore(MemoryStore::new()));
    let replayed = twice(&once, || random_text(5_000_000)).await;
    assert_outcome!(replayed, Ok(Outcome::ReplayedWithoutResult));
}

// Tests S5.
#[tokio::test(start_paused = true)]
async fn a_large_result_that_compresses_comes_back_whole() {
    let once = Idempotency::new(SmallStore(MemoryStore::new()));
    let result = || "lorem ipsum ".repeat(80_000);
    assert_outcome!(twice(&once, result).await, Ok(Outcome::Replayed(back)) if back == result());
}

#[tokio::test(start_paused = true)]
async fn a_result_longer_than_4096_bytes_is_compressed() {
    for (bytes, is_compressed) in [(4_096, false), (4_097, true)] {
        let world = World::new();
        // Two bytes are the quotes.
        let outcome = world.once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>("a".repeat(bytes - 2)) }).await;
        assert_outcome!(outcome, Ok(Outcome::Executed(_)));
        let data = world.record().await.unwrap().result.data.unwrap();
        assert_eq!(matches!(data, StoredData::Deflated(_)), is_compressed, "{bytes}: {data:?}");
    }
}

// Tests S6, P3.
#[tokio::test(start_paused = true)]
async fn an_unserializable_result_is_dropped_and_the_operation_is_done() {
    let (collector, guard) = Collector::install();
    let replayed = twice(&World::new().once, || HashMap::from([((1, 2), 3)])).await;
    drop(guard);
    assert_outcome!(replayed, Ok(Outcome::ReplayedWithoutResult));
    let lines = collector.lines();
    let errors: Vec<_> = lines.iter().filter(|line| line.level == Level::ERROR).collect();
    assert!(matches!(&errors[..], [line] if line.get("message").contains("not serializable")), "{lines:?}");
}

// Tests S5, P3.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_discarded_is_not_stored() {
    let world = World::with(|builder| builder.results(Results::Discard));
    assert_outcome!(twice(&world.once, || "personal".to_owned()).await, Ok(Outcome::ReplayedWithoutResult));
    assert_eq!(world.record().await.unwrap().result.data, None);
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_failure_is_not_stored_if_results_are_discarded() {
    let world = World::with(|builder| builder.results(Results::Discard));
    assert_outcome!(world.run_to(Err(Failure::permanent("personal"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::ReplayedFailure(failure)) if failure.message.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_failure_whose_message_is_too_large_is_remembered_without_it() {
    let once = Idempotency::new(SmallStore(MemoryStore::new()));
    let fails = || async { Err::<(), _>(Failure::permanent(random_text(5_000_000))) };
    assert_outcome!(once.operation(CHARGE, KEY).run(fails).await, Ok(Outcome::Failed(_)));
    assert_outcome!(once.operation(CHARGE, KEY).run(fails).await, Ok(Outcome::ReplayedFailure(f)) if f.message.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_completion_is_sent_once_more_without_its_result() {
    for (kind, results, settles) in [
        (ErrorKind::Request, Results::Store, 2),
        (ErrorKind::Request, Results::Discard, 1),
        // Not because of the result.
        (ErrorKind::Config, Results::Store, 1),
    ] {
        let store = RejectingStore::new(kind);
        let once = Idempotency::builder(store.clone()).results(results).disabled(false).build().unwrap();
        let run = once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(7) });
        assert_outcome!(run.await, Ok(Outcome::Unrecorded(7)));
        assert_eq!(store.settles.load(Ordering::SeqCst), settles, "{kind:?}, {results:?}");
    }
}

// Tests S7.
#[tokio::test(start_paused = true)]
async fn a_stored_result_that_no_longer_decodes_is_an_error_and_never_a_rerun() {
    let world = World::new();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    for _ in 0..2 {
        let text =
            world.once.operation(CHARGE, KEY).run(|| async { panic!("a second run") as Result<String, Failure> });
        let error = text.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoredResult);
        assert!(!error.is_retryable());
    }
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_result_whose_serializer_panics_is_dropped_and_the_operation_is_done() {
    #[derive(Deserialize)]
    struct Panics;
    impl Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("in serialize");
        }
    }
    assert_outcome!(twice(&World::new().once, || Panics).await.map(|o| o.as_str()), Ok("replayed_without_result"));
}
