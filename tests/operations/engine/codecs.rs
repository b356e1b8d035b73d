//! Results that a codec encodes.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use lambda_once::{
    BoxError, ErrorKind, Failure, Idempotency, MemoryStore, Outcome, ResultCodec, Store,
    record::{EncodedData, KeyHash, StoredData, StoredResult},
    store::ResultData,
};
use tracing::Level;

use super::{CHARGE, KEY, World, assert_outcome, support::collector::Collector};

const SECRET: &str = "4111 1111 1111 1111";

/// Inverts each byte, and records its inputs.
#[derive(Debug, Default)]
struct Inverting {
    id: &'static str,
    /// The number of bytes that it adds.
    longer_by: usize,
    seen: Mutex<Vec<(KeyHash, usize)>>,
}

impl Inverting {
    fn of(id: &'static str) -> Arc<Self> {
        Arc::new(Self { id, ..Self::default() })
    }
}

fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

impl ResultCodec for Inverting {
    fn encode(&self, key: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError> {
        self.seen.lock().unwrap().push((*key, plain.len()));
        let mut bytes = inverted(plain);
        bytes.resize(plain.len() + self.longer_by, 0);
        Ok(EncodedData::new(self.id, bytes)?)
    }

    fn decode(&self, key: &KeyHash, encoded: &EncodedData) -> Result<Vec<u8>, BoxError> {
        self.seen.lock().unwrap().push((*key, encoded.bytes().len()));
        if encoded.codec() != self.id {
            return Err(format!("no key {}", encoded.codec()).into());
        }
        Ok(inverted(&encoded.bytes()[..encoded.bytes().len() - self.longer_by]))
    }
}

/// Fails in one way.
#[derive(Clone, Copy, Debug)]
enum Failing {
    Error,
    Panic,
    BadId,
}

impl ResultCodec for Failing {
    fn encode(&self, _: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError> {
        match self {
            Self::Error => Err("no key to encrypt with".into()),
            Self::Panic => panic!("in the codec"),
            Self::BadId => Ok(EncodedData::new("an id with spaces", plain.to_vec())?),
        }
    }

    fn decode(&self, _: &KeyHash, _: &EncodedData) -> Result<Vec<u8>, BoxError> {
        match self {
            Self::Error | Self::BadId => Ok(b"?{}".to_vec()),
            Self::Panic => panic!("in the codec"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_an_encoded_failure_is_not_logged_by_replays() {
    for codec in [None, Some(Inverting::of("key-1"))] {
        let is_encoded = codec.is_some();
        let engine = Idempotency::builder(MemoryStore::new()).disabled(false);
        let engine = if let Some(codec) = codec { engine.result_codec(codec) } else { engine };
        let once = engine.build().unwrap();
        let fail = || once.operation(CHARGE, KEY).run(|| async { Err::<(), _>(Failure::permanent(SECRET)) });
        assert_outcome!(fail().await, Ok(Outcome::Failed(_)));
        let (collector, guard) = Collector::install();
        assert_outcome!(fail().await, Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some(SECRET));
        drop(guard);
        let texts: Vec<_> = collector.lines().iter().map(|line| line.get("error").to_owned()).collect();
        assert_eq!(texts, [if is_encoded { "" } else { SECRET }]);
    }
}

async fn charge(once: &Idempotency) -> Result<Outcome<String>, lambda_once::Error> {
    once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(SECRET.to_owned()) }).await
}

async fn replay(once: &Idempotency) -> Result<Outcome<String>, lambda_once::Error> {
    once.operation(CHARGE, KEY).run(|| async { panic!("a second run") as Result<String, Failure> }).await
}

fn encoded(result: &StoredResult) -> &EncodedData {
    match &result.data {
        Some(StoredData::Encoded(data)) => data,
        other => panic!("no encoded result: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_stored_as_the_codec_encodes_it_and_replays() {
    let codec = Inverting::of("key-1");
    let world = World::with(|builder| builder.result_codec(Arc::clone(&codec)));
    assert_outcome!(charge(&world.once).await, Ok(Outcome::Executed(_)));
    let record = world.record().await.unwrap();
    assert_eq!(encoded(&record.result).codec(), "key-1");
    let plain = format!("j\"{SECRET}\"");
    assert_eq!(encoded(&record.result).bytes(), inverted(plain.as_bytes()));
    assert_outcome!(replay(&world.once).await, Ok(Outcome::Replayed(text)) if text == SECRET);
    let key = world.once.key_hash(CHARGE, KEY).unwrap();
    assert_eq!(*codec.seen.lock().unwrap(), [(key, plain.len()); 2], "the codec is told the record");
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_failure_goes_through_the_codec() {
    let world = World::with(|builder| builder.result_codec(Inverting::of("key-1")));
    assert_outcome!(world.run_to(Err(Failure::permanent(SECRET))).await, Ok(Outcome::Failed(_)));
    encoded(&world.record().await.unwrap().result);
    assert_outcome!(world.run().await, Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some(SECRET));
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_compressed_before_it_is_encoded() {
    let codec = Inverting::of("key-1");
    let world = World::with(|builder| builder.result_codec(Arc::clone(&codec)));
    let long = SECRET.repeat(1_000);
    let run = || async { Ok::<_, Failure>(long.clone()) };
    assert_outcome!(world.once.operation(CHARGE, KEY).run(run).await, Ok(Outcome::Executed(_)));
    assert!(codec.seen.lock().unwrap()[0].1 < 1_000);
    assert_outcome!(replay(&world.once).await, Ok(Outcome::Replayed(text)) if text == long);
}

#[tokio::test(start_paused = true)]
async fn a_result_from_before_the_codec_replays_with_it() {
    let world = World::new();
    assert_outcome!(charge(&world.once).await, Ok(Outcome::Executed(_)));
    let with_codec = world.another(|builder| builder.result_codec(Inverting::of("key-1")));
    assert_outcome!(replay(&with_codec).await, Ok(Outcome::Replayed(text)) if text == SECRET);
}

#[tokio::test(start_paused = true)]
async fn an_encoded_result_without_its_codec_is_an_error_and_no_rerun() {
    let world = World::with(|builder| builder.result_codec(Inverting::of("key-1")));
    assert_outcome!(charge(&world.once).await, Ok(Outcome::Executed(_)));
    for (other, why) in [
        (world.another(|builder| builder), "key-1"),
        (world.another(|builder| builder.result_codec(Inverting::of("key-2"))), "no key key-1"),
        (world.another(|builder| builder.result_codec(Failing::Error)), "differs from the one"),
        (world.another(|builder| builder.result_codec(Failing::Panic)), "panicked"),
    ] {
        let error = replay(&other).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::StoredResult, false));
        assert!(format!("{error:?}").contains(why), "{error:?}");
    }
    assert_outcome!(replay(&world.once).await, Ok(Outcome::Replayed(_)));
}

// Tests S6, P30.
#[tokio::test(start_paused = true)]
async fn a_result_that_the_codec_does_not_encode_is_dropped_and_never_plain() {
    for codec in [Failing::Error, Failing::Panic, Failing::BadId] {
        let world = World::with(|builder| builder.result_codec(codec));
        let (collector, guard) = Collector::install();
        assert_outcome!(charge(&world.once).await, Ok(Outcome::Executed(_)));
        drop(guard);
        let lines = collector.lines();
        assert!(lines.iter().any(|line| line.level == Level::ERROR && line.get("message").contains("result codec")));
        assert!(!format!("{lines:?}").contains(SECRET));
        assert_eq!(world.record().await.unwrap().result, StoredResult::DROPPED);
        assert_outcome!(replay(&world.once).await, Ok(Outcome::ReplayedWithoutResult));
    }
}

/// A codec and its error, which is its own source.
#[derive(Clone, Copy, Debug)]
struct Endless;

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no key to encrypt with")
    }
}

impl std::error::Error for Endless {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

impl ResultCodec for Endless {
    fn encode(&self, _: &KeyHash, _: &[u8]) -> Result<EncodedData, BoxError> {
        Err(Self.into())
    }

    fn decode(&self, _: &KeyHash, _: &EncodedData) -> Result<Vec<u8>, BoxError> {
        Err(Self.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_codec_error_whose_sources_do_not_end_drops_the_result() {
    let world = World::with(|builder| builder.result_codec(Endless));
    assert_outcome!(charge(&world.once).await, Ok(Outcome::Executed(_)));
    assert_eq!(world.record().await.unwrap().result, StoredResult::DROPPED);
}

#[tokio::test(start_paused = true)]
async fn a_result_has_to_fit_into_the_store_once_it_is_encoded() {
    use super::results::{LIMIT, SmallStore};
    // A format byte, the quotes, and the id of the codec with a space.
    let fits = LIMIT - 1 - (SECRET.len() + 2) - "key-1 ".len();
    for (longer_by, is_stored) in [(fits, true), (fits + 1, false)] {
        let store = MemoryStore::new();
        let codec = Inverting { id: "key-1", longer_by, ..Inverting::default() };
        let once = Idempotency::builder(SmallStore(store.clone())).result_codec(codec).build().unwrap();
        assert_outcome!(charge(&once).await, Ok(Outcome::Executed(_)));
        let key = once.key_hash(CHARGE, KEY).unwrap();
        let record = store.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap();
        assert_eq!((record.result.data.is_some(), record.result.dropped), (is_stored, !is_stored));
    }
}
