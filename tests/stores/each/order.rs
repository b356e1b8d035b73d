//! Ordered operations that are delivered in any order, repeatedly, by workers that die, on a store that loses requests
//! and responses. No effect follows a newer one of its entity, and the last effect has the greatest sequence.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use lambda_once::{
    Failure, Idempotency, OutcomeKind, Store,
    store::fault::{Fault, FaultStore},
};
use tokio::time::{sleep, timeout};

use crate::support::{
    cases,
    stores::{Backend, Records, on_each_store},
};

const ENTITIES: usize = 10;
const WORKERS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the number of versions of each entity (`ORDER_VERSIONS`).
fn versions() -> u64 {
    cases("ORDER_VERSIONS", 30)
}

/// An event: the entity, and its new version.
type Event = (usize, u64);

/// The versions that each entity was set to, in chronological order.
type Effects = Arc<Mutex<Vec<Vec<u64>>>>;

fn engine(store: FaultStore<impl Store>) -> Idempotency {
    let builder = Idempotency::builder(store).scope("tests").disabled(false).heartbeat(None);
    builder.lease(Duration::from_secs(1)).skew_margin(Duration::from_millis(100)).build().unwrap()
}

/// Delivers the event once, and returns whether it is acknowledged. Some deliveries are cut short, as if their worker
/// had died.
async fn deliver(once: &Idempotency, effects: &Effects, (entity, version): Event) -> bool {
    let id = format!("{entity}/{version}");
    let work = || async {
        sleep(Duration::from_millis(fastrand::u64(0..3))).await;
        if fastrand::u8(..) < 5 {
            return Err(Failure::transient("busy"));
        }
        effects.lock().unwrap()[entity].push(version);
        sleep(Duration::from_millis(fastrand::u64(0..3))).await;
        Ok(version)
    };
    let run = Box::pin(once.operation("set", &id).ordered_by(&entity, version).run(work));
    let life = if fastrand::u8(..) < 8 { Duration::from_millis(fastrand::u64(1..15)) } else { PATIENCE };
    let Ok(Ok(outcome)) = timeout(life, run).await else { return false };
    outcome.kind().can_acknowledge() && outcome.kind() != OutcomeKind::Unrecorded
}

// Tests P9, P24.
async fn no_effect_comes_after_a_newer_one_and_the_newest_is_the_last(backend: Backend) {
    let records = Records::on_its_own_clock(backend).await;
    let effects: Effects = Arc::new(Mutex::new(vec![Vec::new(); ENTITIES]));
    let newest = versions();
    let events = (0..ENTITIES).flat_map(|entity| (1..=newest).map(move |version| (entity, version)));
    // Each event is sent twice.
    let mut events: Vec<Event> = events.clone().chain(events).collect();
    fastrand::shuffle(&mut events);
    let queue = Arc::new(Mutex::new(VecDeque::from(events)));
    let workers = (0..WORKERS).map(|worker| {
        let (queue, effects) = (Arc::clone(&queue), Arc::clone(&effects));
        let store = records.store();
        async move {
            let rates = [(Fault::ErrorBefore, 0.02), (Fault::ErrorAfter, 0.03), (Fault::Throttled, 0.01)];
            let store = FaultStore::new(store.await, worker as u64);
            let once = engine(rates.into_iter().fold(store, |store, (fault, rate)| store.with_rate(fault, rate)));
            tokio::spawn(async move {
                loop {
                    let next = queue.lock().unwrap().pop_front();
                    let Some(event) = next else { return };
                    if !deliver(&once, &effects, event).await {
                        // It is redelivered after the others.
                        queue.lock().unwrap().push_back(event);
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            })
            .await
            .unwrap();
        }
    });
    timeout(PATIENCE, join_all(workers)).await.expect("every event is acknowledged in the end");
    for versions in &*effects.lock().unwrap() {
        assert!(versions.is_sorted(), "an older effect came after a newer one: {versions:?}");
        assert_eq!(versions.last(), Some(&newest));
    }
}

on_each_store!(memory, Memory; no_effect_comes_after_a_newer_one_and_the_newest_is_the_last);
on_each_store!(
    dynamodb, DynamoDb(lambda_once::store::dynamodb::Calls::Auto);
    no_effect_comes_after_a_newer_one_and_the_newest_is_the_last
);
on_each_store!(redis, Redis; no_effect_comes_after_a_newer_one_and_the_newest_is_the_last);
on_each_store!(redis_cluster, RedisCluster; no_effect_comes_after_a_newer_one_and_the_newest_is_the_last);
on_each_store!(postgres, Postgres; no_effect_comes_after_a_newer_one_and_the_newest_is_the_last);
