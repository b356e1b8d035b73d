//! Two records with one key and different payloads in one batch, of sources besides SQS.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    AfterUnknown, BoxError, BoxFuture, ErrorKind, Failure, Idempotency, Key, MemoryStore, OutcomeKind,
    batch::{DeadLetter, DeadLetters, stream::StreamOrder},
    testing::{self, Redeliver, kafka, kinesis, rabbitmq},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tokio::{
    join,
    time::{Instant, sleep},
};

use crate::support::clock::TokioClock;

/// Keeps the reasons of its letters.
#[derive(Clone, Debug, Default)]
struct Letters(Arc<Mutex<Vec<String>>>);

impl DeadLetters for Letters {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        self.0.lock().unwrap().push(letter.reason.to_string());
        Box::pin(async { Ok(()) })
    }
}

async fn work(job: Value) -> Result<(), Failure> {
    sleep(Duration::from_millis(job["ms"].as_u64().unwrap_or_default())).await;
    Ok(())
}

fn two_payloads() -> [testing::Record; 2] {
    [1, 2].map(|cents| testing::record(&json!({ "id": "7", "cents": cents })))
}

/// Otherwise the same batch would be delivered until the broker gives up.
#[tokio::test(start_paused = true)]
async fn a_mismatch_within_a_batch_of_all_or_nothing_is_dead_lettered() {
    let outcomes = [Ok(OutcomeKind::Executed), Ok(OutcomeKind::Mismatch)];
    let letters = Letters::default();
    let service = testing::engine().kafka(Key::pointer("/id"), work).all_or_error().dead_letters(letters.clone());
    let processed = testing::deliver(&service, &kafka::batch(two_payloads())).await;
    assert!(processed.response.is_ok(), "{processed:?}");
    assert_eq!(processed.outcomes(), outcomes);
    assert_eq!(letters.0.lock().unwrap().len(), 1);

    let letters = Letters::default();
    let service = testing::engine().mq(Key::pointer("/id"), work).dead_letters(letters.clone());
    let processed = testing::deliver(&service, &rabbitmq::batch(two_payloads())).await;
    assert!(processed.response.is_ok(), "{processed:?}");
    assert_eq!(processed.outcomes(), outcomes);
    assert_eq!(letters.0.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_with_a_superseded_record_of_the_batch_is_dead_lettered() {
    let letters = Letters::default();
    let supersede = async |_: Value| Err::<(), _>(Failure::superseded("shipped already"));
    let service = testing::engine().mq(Key::pointer("/id"), supersede).dead_letters(letters.clone());
    for delivery in [OutcomeKind::Superseded; 2] {
        let processed = testing::deliver(&service, &rabbitmq::batch(two_payloads())).await;
        assert!(processed.response.is_ok(), "{processed:?}");
        assert_eq!(processed.outcomes(), [Ok(delivery), Ok(OutcomeKind::Mismatch)]);
    }
    assert_eq!(letters.0.lock().unwrap().len(), 2, "one for each delivery");
}

/// A run of the first payload has left no outcome. In separate batches both records would be abandoned, too.
#[tokio::test(start_paused = true)]
async fn both_payloads_of_an_abandoned_key_are_dead_lettered() {
    let [first, second] = two_payloads();
    let (outcomes, letters) = after_a_panic(AfterUnknown::Refuse, first, two_payloads()).await;
    assert_eq!((outcomes, letters), (vec![Ok(OutcomeKind::Abandoned); 2], 2));
    // Only the second record may run, once it is delivered without the first.
    let [_, other] = two_payloads();
    let (outcomes, letters) = after_a_panic(AfterUnknown::Rerun, second, two_payloads()).await;
    assert_eq!((outcomes, letters), (vec![Ok(OutcomeKind::Abandoned), Ok(OutcomeKind::Mismatch)], 1));
    let (outcomes, _) = after_a_panic(AfterUnknown::Rerun, other.clone(), [other]).await;
    assert_eq!(outcomes, [Ok(OutcomeKind::TookOver)]);
}

/// Delivers a record whose handler panics and, after its lease, a batch. Returns its outcomes, and the number of letters.
async fn after_a_panic<const N: usize>(
    policy: AfterUnknown,
    record: testing::Record,
    batch: [testing::Record; N],
) -> (Vec<Result<OutcomeKind, ErrorKind>>, usize) {
    let letters = Letters::default();
    let (clock, runs) = (TokioClock::new(), Arc::new(AtomicU32::new(0)));
    let work = move |_: Value| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_ne!(run, 0, "half done");
            Ok::<_, Failure>(())
        }
    };
    let store = MemoryStore::with_clock(clock.clone());
    let builder = Idempotency::builder(store).clock(clock).scope("letters").after_unknown(policy);
    let once = builder.build().unwrap();
    let service = once.mq(Key::pointer("/id"), work).dead_letters(letters.clone()).dead_letter_abandoned(true);
    let deliver = async |event| service.process(LambdaEvent::new(event, Context::default())).await;
    assert!(deliver(rabbitmq::batch([record]).delivery(1)).await.response.is_err());
    sleep(Duration::from_secs(60)).await;
    let processed = deliver(rabbitmq::batch(batch).delivery(1)).await;
    let sent = letters.0.lock().unwrap().len();
    (processed.outcomes(), sent)
}

/// The checkpoint cannot pass it, so nothing behind it is worth a wait (B6).
#[tokio::test(start_paused = true)]
async fn a_mismatch_within_the_batch_ends_waits_behind_it() {
    let once = testing::engine().named("orders");
    let elsewhere = once.kinesis(Key::pointer("/id"), work);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let journal = Arc::clone(&seen);
    let service = once.kinesis(Key::pointer("/id"), work).order(StreamOrder::None);
    let service = service.on_record(move |report| journal.lock().unwrap().push(report.index));
    let slow = || testing::record(&json!({ "id": "8", "ms": 8_000 }));
    let [first, second] = two_payloads();
    let (held, batch) = (kinesis::batch([slow()]), kinesis::batch([first, second, slow()]));
    // Its lease ends while the other invocation could wait for it.
    let hold = elsewhere.process(LambdaEvent::new(held.delivery(1), testing::context(Duration::from_secs(10))));
    let here = async {
        sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        let processed =
            service.process(LambdaEvent::new(batch.delivery(1), testing::context(Duration::from_secs(60)))).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(processed.reported().len(), 2, "{processed:?}");
        assert_eq!(seen.lock().unwrap()[..2], [0, 1], "a leader comes before its duplicate");
    };
    join!(hold, here);
}
