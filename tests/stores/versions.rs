//! Several versions of this library on one table, as during a deployment: workers of the next version, and of the one
//! after it, together with workers of this version.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_once::{
    Error, ErrorKind, Store,
    clock::ManualClock,
    record::{KeyHash, NEWEST_KNOWN_VERSION, RECORD_VERSION, Record, Status},
    store::{
        ClaimRequest, Claimed, FinalStatus, Grant, Refusal, ResultData, Settled, Settlement,
        amend::{Amend, AmendRequest, Amended, Amendment},
    },
};
use serde_json::json as value;
use tokio_postgres::types::Type;

use crate::support::{
    self,
    requests::{
        HAND_BACK, LAPSE, RENEW, RETENTION, claim, claim_one, claims, complete, entity, granted, is_granted, is_replay,
        json, ordered, read_one, rival, settle_one,
    },
    stores::{Backend, Records, on_each_server, on_each_store},
};

/// The next version.
const NEXT: u32 = NEWEST_KNOWN_VERSION;
const UNKNOWN: u32 = NEWEST_KNOWN_VERSION + 1;

/// The name of an attribute that only the next version writes, and its value.
const ATTRIBUTE: &str = "hint";
const HINT: &str = "written-by-the-next-version";

/// Records that two versions share, and a store of this version.
#[derive(Clone)]
struct World {
    backend: Backend,
    held: Records,
    clock: ManualClock,
    store: Arc<dyn Amend>,
}

/// The last record that a worker has written.
#[derive(Clone, Copy)]
enum Item {
    Record,
    Mark,
}

impl World {
    async fn new(backend: Backend) -> Self {
        let clock = support::future_clock();
        let held = Records::new(backend, clock.clone()).await;
        let store = held.store().await;
        Self { backend, held, clock, store }
    }

    /// Rewrites an item as this version of the library writes it, bypassing the store. A deleted item stays deleted.
    /// PostgreSQL's tables have no additional column.
    async fn rewrite(&self, key: &KeyHash, item: Item, version: u32) {
        let hex = key.to_hex();
        let (of_entity, operation) = hex.split_at(32);
        match self.backend {
            Backend::Memory => {
                let record = self.held.store().await.read(&[*key], ResultData::Include).await.remove(0).unwrap();
                let Some(mut record) = record else { return };
                record.version = version;
                record.unknown.insert(ATTRIBUTE.to_owned(), value!(HINT));
                self.held.insert([(*key, record)]);
            }
            Backend::DynamoDb(_) => {
                let id = match item {
                    Item::Record => format!("once#{hex}"),
                    Item::Mark => format!("once#{of_entity}mark"),
                };
                let client = support::client(&support::dynamodb_endpoint()).await;
                let update = client.update_item().table_name(self.held.name()).key("id", AttributeValue::S(id));
                let update = update.update_expression(format!("SET v = :v, {ATTRIBUTE} = :hint"));
                let update = update.condition_expression("attribute_exists(id)");
                let update = update.expression_attribute_values(":v", AttributeValue::N(version.to_string()));
                let written =
                    update.expression_attribute_values(":hint", AttributeValue::S(HINT.to_owned())).send().await;
                let is_gone = |error: &aws_sdk_dynamodb::operation::update_item::UpdateItemError| {
                    error.is_conditional_check_failed_exception()
                };
                assert!(written.as_ref().err().is_none_or(|error| error.as_service_error().is_some_and(is_gone)));
            }
            Backend::Redis | Backend::RedisCluster => {
                let name = match item {
                    Item::Record => format!("{}:{{{of_entity}}}{operation}", self.held.name()),
                    Item::Mark => format!("{}:{{{of_entity}}}mark", self.held.name()),
                };
                const SET: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'v', ARGV[1], ARGV[2], ARGV[3]) end";
                let mut eval = ::redis::cmd("EVAL");
                eval.arg(SET).arg(1).arg(name).arg(version).arg(ATTRIBUTE).arg(HINT);
                if self.backend == Backend::Redis {
                    let client = ::redis::Client::open(support::server("REDIS_URL")).unwrap();
                    eval.exec_async(&mut client.get_multiplexed_async_connection().await.unwrap()).await.unwrap();
                } else {
                    let urls = support::server("REDIS_CLUSTER_URL");
                    let client = ::redis::cluster::ClusterClient::new(urls.split(',')).unwrap();
                    eval.exec_async(&mut client.get_async_connection().await.unwrap()).await.unwrap();
                }
            }
            Backend::Postgres => {
                let client = support::postgres::client(&support::postgres::connection().await).await;
                let (table, column, bytes) = match item {
                    Item::Record => ("once_records", "key_hash", key.as_bytes().as_slice()),
                    Item::Mark => ("once_marks", "entity", &key.as_bytes()[..16]),
                };
                let update = format!("UPDATE {table} SET v = $1 WHERE scope = $2 AND {column} = $3");
                let (version, name) = (version.cast_signed(), self.held.name());
                client
                    .query_typed(&update, &[(&version, Type::INT4), (&name, Type::TEXT), (&bytes, Type::BYTEA)])
                    .await
                    .unwrap();
            }
        }
    }

    /// Claims as a worker of the next version.
    async fn claimed_by_the_next(&self, claim: &ClaimRequest) -> Grant {
        let grant = granted(&self.store, claim).await;
        self.rewrite(&claim.key, Item::Record, NEXT).await;
        if claim.order.is_some() {
            self.rewrite(&claim.key, Item::Mark, NEXT).await;
        }
        grant
    }

    /// Settles as a worker of the next version.
    async fn settled_by_the_next(&self, claim: &ClaimRequest, settlement: Settlement) {
        self.settled(claim, settlement).await;
        self.rewrite(&claim.key, Item::Record, NEXT).await;
        if claim.order.is_some() {
            self.rewrite(&claim.key, Item::Mark, NEXT).await;
        }
    }

    async fn settled(&self, claim: &ClaimRequest, settlement: Settlement) {
        assert_eq!(settle_one(&self.store, claim, settlement).await.unwrap(), Settled::Done { found: None });
    }

    /// Asserts that a write of this version has kept the attribute of the next version.
    async fn has_hint(&self, claim: &ClaimRequest, when: &str) {
        if self.backend != Backend::Postgres {
            let raw = self.held.raw(&claim.key).await;
            assert!(raw.windows(HINT.len()).any(|bytes| bytes == HINT.as_bytes()), "the attribute is lost by {when}");
        }
    }

    async fn record(&self, claim: &ClaimRequest) -> Record {
        read_one(&self.store, claim).await.expect("a record")
    }

    async fn amend(&self, claim: &ClaimRequest, amendment: Amendment) -> Result<Amended, Error> {
        let request = AmendRequest::new(claim.key, &self.record(claim).await, amendment);
        self.store.amend(&[request]).await.remove(0)
    }
}

fn is_in_progress(answer: &Result<Claimed, Error>) -> bool {
    matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { .. })))
}

/// Returns `true` if the error names both versions and the remedy, and a redelivery may succeed.
fn is_unknown_version<T>(answer: &Result<T, Error>) -> bool {
    let versions = format!("has format version {UNKNOWN}, this library knows versions up to {NEWEST_KNOWN_VERSION}");
    answer.as_ref().err().is_some_and(|error| {
        let message = error.to_string();
        error.kind() == ErrorKind::Format
            && error.is_retryable()
            && message.contains(&versions)
            && message.contains("finish the deployment")
    })
}

async fn the_next_version_and_this_one_take_turns_on_a_record(backend: Backend) {
    let world = World::new(backend).await;
    let done = claim();
    world.claimed_by_the_next(&done).await;
    assert!(is_in_progress(&claim_one(&world.store, &rival(&done)).await));
    world.settled_by_the_next(&done, complete("1")).await;
    assert!(is_replay(&claim_one(&world.store, &rival(&done)).await, "1"));
    assert_eq!(world.amend(&done, Amendment::Redact).await.unwrap(), Amended::Changed);
    world.has_hint(&done, "a redaction").await;
    assert_eq!(world.amend(&done, Amendment::Forget { completed: true }).await.unwrap(), Amended::Changed);

    // This version takes over from the next one, and the next one from this version.
    let lost = claim();
    world.claimed_by_the_next(&lost).await;
    world.clock.advance(LAPSE);
    let taker = rival(&lost);
    let grant = granted(&world.store, &taker).await;
    assert!(grant.took_over() && grant.attempt == 2, "{grant:?}");
    assert_eq!(world.record(&taker).await.version, RECORD_VERSION);
    world.has_hint(&taker, "a takeover").await;
    assert!(matches!(settle_one(&world.store, &lost, complete("late")).await, Ok(Settled::LeaseLost { .. })));
    assert!(matches!(settle_one(&world.store, &taker, RENEW).await, Ok(Settled::Renewed { .. })));
    world.has_hint(&taker, "a renewal").await;
    world.settled(&taker, HAND_BACK).await;
    world.has_hint(&taker, "a hand-back").await;
    let grant = world.claimed_by_the_next(&rival(&lost)).await;
    assert!(grant.took_over() && grant.attempt == 3, "{grant:?}");
    world.clock.advance(LAPSE);
    let last = rival(&lost);
    granted(&world.store, &last).await;
    world.settled(&last, complete("2")).await;
    world.has_hint(&last, "a completion").await;
    assert!(is_replay(&claim_one(&world.store, &rival(&lost)).await, "2"));
}

async fn the_next_version_and_this_one_keep_one_order(backend: Backend) {
    let world = World::new(backend).await;
    let entity = entity();
    let at = |sequence| ordered(&entity, sequence);
    let first = at(1);
    world.claimed_by_the_next(&first).await;
    assert!(is_in_progress(&claim_one(&world.store, &at(2)).await), "the next version holds the entity");
    world.settled_by_the_next(&first, complete("1")).await;
    let superseded = claim_one(&world.store, &at(1)).await;
    assert_eq!(superseded.unwrap(), Claimed::Refused(Refusal::Superseded { newest: 1_u64.into() }));
    let lost = at(3);
    world.claimed_by_the_next(&lost).await;
    world.clock.advance(LAPSE);
    assert!(is_in_progress(&claim_one(&world.store, &at(2)).await), "the operation of the next version is in doubt");
    let newer = at(4);
    granted(&world.store, &newer).await;
    world.settled(&newer, complete("4")).await;
    world.settled_by_the_next(&lost, complete("3")).await;
    let superseded = claim_one(&world.store, &at(4)).await;
    assert_eq!(superseded.unwrap(), Claimed::Refused(Refusal::Superseded { newest: 4_u64.into() }));
    granted(&world.store, &at(5)).await;
}

/// Workers of both versions process the same operations concurrently. Each takes effect once, and both replay that
/// outcome.
async fn workers_of_two_versions_run_each_operation_once(backend: Backend) {
    let world = World::new(backend).await;
    let operations = claims(6);
    let effects: Arc<Mutex<HashMap<KeyHash, u32>>> = Arc::default();
    let workers = (0..6).map(|worker: usize| {
        let (world, operations, effects) = (world.clone(), operations.clone(), Arc::clone(&effects));
        let is_next = worker.is_multiple_of(2);
        tokio::spawn(async move {
            for place in 0..operations.len() {
                let claim = rival(&operations[(place + worker) % operations.len()]);
                loop {
                    match claim_one(&world.store, &claim).await {
                        Ok(Claimed::Granted(grant)) => {
                            assert!(!grant.took_over(), "no lease has ended");
                            *effects.lock().unwrap().entry(claim.key).or_default() += 1;
                            if is_next {
                                world.rewrite(&claim.key, Item::Record, NEXT).await;
                                world.settled_by_the_next(&claim, complete("1")).await;
                            } else {
                                world.settled(&claim, complete("1")).await;
                            }
                            break;
                        }
                        Ok(Claimed::Refused(Refusal::Completed(record))) => {
                            assert_eq!(record.result, json("1"));
                            break;
                        }
                        Ok(Claimed::Refused(Refusal::InProgress { .. })) => tokio::task::yield_now().await,
                        answer => panic!("{answer:?}"),
                    }
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let effects = effects.lock().unwrap();
    assert!(operations.iter().all(|operation| effects.get(&operation.key) == Some(&1)), "{effects:?}");
}

/// It is refused in every state, and nothing changes. Work continues after the record is rolled back or has expired.
async fn an_unknown_version_is_refused_until_a_rollback_or_its_expiration(backend: Backend) {
    let world = World::new(backend).await;
    let store = &world.store;
    let (lost, done) = (claim(), claim());
    granted(store, &lost).await;
    granted(store, &done).await;
    world.settled(&done, complete("1")).await;
    for operation in [&lost, &done] {
        world.rewrite(&operation.key, Item::Record, UNKNOWN).await;
    }
    let before = (world.record(&lost).await, world.record(&done).await);
    for lapse in [false, true] {
        if lapse {
            world.clock.advance(LAPSE);
        }
        for operation in [&lost, &done] {
            let answer = claim_one(store, &rival(operation)).await;
            assert!(is_unknown_version(&answer), "{answer:?}");
        }
        // It does not affect others of the same call.
        let answers = store.claim(&[claim(), rival(&lost), rival(&done), claim()]).await;
        assert!(is_granted(&answers[0]) && is_granted(&answers[3]), "{answers:?}");
        assert!(is_unknown_version(&answers[1]) && is_unknown_version(&answers[2]), "{answers:?}");
    }
    for (operation, amendment) in [(&lost, Amendment::Forget { completed: false }), (&done, Amendment::Redact)] {
        let answer = world.amend(operation, amendment).await;
        assert!(is_unknown_version(&answer), "{answer:?}");
    }
    assert_eq!((world.record(&lost).await, world.record(&done).await), before);
    assert_eq!((before.0.version, before.1.version), (UNKNOWN, UNKNOWN));

    for operation in [&lost, &done] {
        world.rewrite(&operation.key, Item::Record, NEXT).await;
    }
    assert!(granted(store, &rival(&lost)).await.took_over());
    assert!(is_replay(&claim_one(store, &rival(&done)).await, "1"));
    world.rewrite(&done.key, Item::Record, UNKNOWN).await;
    world.clock.advance(RETENTION);
    let grant = granted(store, &rival(&done)).await;
    assert_eq!((grant.attempt, grant.prior_status), (2, Some(Status::Completed)));
}

async fn a_mark_of_an_unknown_version_is_refused_until_a_rollback(backend: Backend) {
    let world = World::new(backend).await;
    let (store, entity) = (&world.store, entity());
    let (lost, holder) = (ordered(&entity, 1), ordered(&entity, 2));
    granted(store, &lost).await;
    world.clock.advance(LAPSE);
    granted(store, &holder).await;
    world.rewrite(&holder.key, Item::Mark, UNKNOWN).await;
    let before = (world.record(&lost).await, world.record(&holder).await);
    let settle = Amendment::Settle { outcome: FinalStatus::Completed, result: json("1"), retention: RETENTION };
    let is_format = |error: &Error| error.kind() == ErrorKind::Format && error.is_retryable();
    let answer = claim_one(store, &ordered(&entity, 3)).await;
    assert!(answer.as_ref().is_err_and(is_format), "{answer:?}");
    let answer = settle_one(store, &holder, complete("2")).await;
    assert!(answer.as_ref().is_err_and(is_format), "{answer:?}");
    let answer = world.amend(&lost, settle.clone()).await;
    assert!(answer.as_ref().is_err_and(is_format), "{answer:?}");
    assert_eq!((world.record(&lost).await, world.record(&holder).await), before);

    world.rewrite(&holder.key, Item::Mark, NEXT).await;
    assert_eq!(world.amend(&lost, settle).await.unwrap(), Amended::Changed);
    world.settled(&holder, complete("2")).await;
    let superseded = claim_one(store, &ordered(&entity, 2)).await;
    assert_eq!(superseded.unwrap(), Claimed::Refused(Refusal::Superseded { newest: 2_u64.into() }));
}

/// A settle that is sent again, one of a record that is gone, and one of a record that has been claimed since.
async fn an_amendment_that_changes_nothing_needs_no_readable_mark(backend: Backend) {
    let world = World::new(backend).await;
    let (store, entity) = (&world.store, entity());
    let settle = || Amendment::Settle { outcome: FinalStatus::Completed, result: json("1"), retention: RETENTION };
    let mut requests = Vec::new();
    for sequence in 1..=3 {
        let operation = ordered(&entity, sequence);
        granted(store, &operation).await;
        world.clock.advance(LAPSE);
        requests.push(AmendRequest::new(operation.key, &world.record(&operation).await, settle()));
        match sequence {
            1 => assert_eq!(world.amend(&operation, settle()).await.unwrap(), Amended::Changed),
            2 => {
                let forgotten = world.amend(&operation, Amendment::Forget { completed: false }).await;
                assert_eq!(forgotten.unwrap(), Amended::Changed);
            }
            _ => drop(granted(store, &rival(&operation)).await),
        }
    }
    world.rewrite(&requests[0].key, Item::Mark, UNKNOWN).await;
    let answers = store.amend(&requests).await;
    assert_eq!(answers[0].as_ref().unwrap(), &Amended::Changed);
    assert_eq!(answers[1].as_ref().unwrap(), &Amended::Gone);
    assert!(
        matches!(&answers[2], Ok(Amended::Unchanged { current }) if current.attempt == 2),
        "it is in progress again: {answers:?}"
    );
}

on_each_store!(
    memory, Memory;
    the_next_version_and_this_one_take_turns_on_a_record, an_unknown_version_is_refused_until_a_rollback_or_its_expiration
);
on_each_server!(
    the_next_version_and_this_one_take_turns_on_a_record,
    the_next_version_and_this_one_keep_one_order,
    workers_of_two_versions_run_each_operation_once,
    an_unknown_version_is_refused_until_a_rollback_or_its_expiration,
    a_mark_of_an_unknown_version_is_refused_until_a_rollback,
    an_amendment_that_changes_nothing_needs_no_readable_mark,
);
