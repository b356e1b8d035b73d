//! Ordered requests, with their round trips and locks.

use futures_util::future::join_all;
use lambda_once::{
    clock::Timestamp,
    order::{Entity, Mark, Sequence},
    record::{KeyHash, Status},
    store::{
        FinalStatus, Refusal,
        amend::{Amend, AmendRequest, Amended, Amendment, Resolution, ResolveRequest},
        postgres::PostgresStore,
        transaction::Transactional,
    },
};
use tokio::task::JoinHandle;

use super::{proxy::Proxy, sessions::*, *};
use crate::support::wire;

/// Begins a transaction that holds the order marker of an entity.
async fn holding(entity: &KeyHash) -> Transaction {
    let transaction = Transaction::begin().await;
    let hexadecimal = entity.to_string();
    transaction.execute(&format!("SELECT FROM once_marks WHERE entity = '\\x{}' FOR UPDATE", &hexadecimal[..32])).await;
    transaction
}

async fn completed(store: &PostgresStore, entity: &KeyHash, sequence: u64) -> ClaimRequest {
    let claim = ordered(entity, sequence);
    granted(store, &claim).await;
    assert_eq!(settle_one(store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
    claim
}

/// A claim that waits for its entity.
struct Waiting {
    store: PostgresStore,
    entity: KeyHash,
    /// The transaction that holds the entity.
    transaction: Transaction,
    claim: JoinHandle<Result<Claimed, Error>>,
}

impl Waiting {
    async fn begin() -> Self {
        let connection = support::postgres::role(&[]).await;
        let store = support::postgres::config(connection.clone()).build().unwrap();
        let (sessions, entity) = (Sessions::of(&connection).await, entity());
        completed(&store, &entity, 1).await;
        let transaction = holding(&entity).await;
        let claim = tokio::spawn({
            let (store, claim) = (store.clone(), ordered(&entity, 2));
            async move { claim_one(&store, &claim).await }
        });
        sessions.until_waiting(1).await;
        Self { store, entity, transaction, claim }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_claim_takes_two_round_trips_and_so_does_its_settle() {
    let proxy = Proxy::start(&support::postgres::connection().await).await;
    let store = support::postgres::config(proxy.connection()).pool_size(1).build().unwrap();
    store.warm_up().await.unwrap();
    let (entity, patience) = (entity(), Duration::from_secs(30));
    let first = ordered(&entity, 5);
    for settlement in [RENEW, complete("1")] {
        proxy.expect_round_trips(&[4, 3]);
        if settlement == RENEW {
            tokio::time::timeout(patience, granted(&store, &first)).await.expect("they are sent together");
            proxy.expect_round_trips(&[4, 3]);
        }
        let settle = tokio::time::timeout(patience, settle_one(&store, &first, settlement));
        settle.await.expect("they are sent together").unwrap();
        assert_eq!(proxy.statements(), 7);
    }
    // A ROLLBACK follows a refusal.
    for refused in [rival(&first), ordered(&entity, 4)] {
        proxy.expect_round_trips(&[4, 1]);
        let answer = tokio::time::timeout(patience, claim_one(&store, &refused)).await.expect("they are sent together");
        assert!(matches!(answer.unwrap(), Claimed::Refused(Refusal::Completed(_) | Refusal::Superseded { .. })));
        assert_eq!(proxy.statements(), 5);
    }
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_for_the_entity_has_its_whole_lease() {
    let waiting = Waiting::begin().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let now = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now: i64 = admin.query_one(now, &[]).await.unwrap().get(0);
    waiting.transaction.roll_back().await;
    let Claimed::Granted(Grant { lease_until, .. }) = waiting.claim.await.unwrap().unwrap() else {
        panic!("the entity is free")
    };
    assert!(lease_until >= Timestamp::from_millis(now.cast_unsigned()).after(LEASE), "{lease_until:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_locked_entity_sees_the_committed_state() {
    let role = support::postgres::role(&["lock_timeout = '200ms'"]).await;
    let store = support::postgres::config(role).build().unwrap();
    let (entity, other) = (entity(), entity());
    let done = completed(&store, &entity, 5).await;
    let holder = ordered(&entity, 7);
    let grant = granted(&store, &holder).await;
    let transaction = holding(&entity).await;
    let refused = async |claim: &ClaimRequest| match claim_one(&store, claim).await.unwrap() {
        Claimed::Refused(refusal) => refusal,
        granted => panic!("expected a refusal, got {granted:?}"),
    };
    assert!(matches!(refused(&rival(&done)).await, Refusal::Completed(_)));
    assert_eq!(refused(&ordered(&entity, 4)).await, Refusal::Superseded { newest: 5_u64.into() });
    let held = Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 0 };
    assert_eq!(refused(&ordered(&entity, 8)).await, held);
    assert_eq!(granted(&store, &holder).await, grant, "its own claim is sent again");
    // The other claims of a batch are granted.
    let batch = [claim(), ordered(&entity, 8), ordered(&other, 1)];
    assert_eq!(store.claim(&batch).await.iter().map(is_granted).collect::<Vec<_>>(), [true, false, true]);

    let settles = [settle_of(&holder, complete("1")), settle_of(&batch[2], complete("1"))];
    let mut settled = store.settle(&settles).await;
    assert_eq!(settled.remove(1).unwrap(), Settled::Done { found: None });
    assert_eq!(of(&settled.remove(0).unwrap_err()), TIMEOUT);
    transaction.roll_back().await;
    assert_eq!(settle_one(&store, &holder, complete("1")).await.unwrap(), Settled::Done { found: None });
    // Nothing but the lock blocks this one.
    let transaction = holding(&entity).await;
    assert_eq!(refused(&ordered(&entity, 8)).await, Refusal::InProgress { lease_until: None, attempt: 0 });
    transaction.roll_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_locked_entities_delay_claims_no_longer_than_the_engine_waits() {
    support::postgres::connection().await;
    let url = support::postgres::url();
    let proxy = wire::Proxy::start(wire::Protocol::Postgres, wire::host_and_port(&url)).await;
    let config = support::postgres::config(proxy.in_place_of(&url).parse().unwrap());
    let store = config.lock_timeout(Duration::from_millis(200)).build().unwrap();
    let entities: Vec<_> = (0..20).map(|_| entity()).collect();
    let mut transactions = Vec::new();
    for entity in &entities {
        completed(&store, entity, 1).await;
        transactions.push(holding(entity).await);
    }
    let batch: Vec<_> = entities.iter().map(|entity| ordered(entity, 2)).collect();
    proxy.reset();
    let answers = tokio::time::timeout(Duration::from_secs(3), store.claim(&batch)).await.unwrap();
    let begun = proxy.requests().iter().filter(|request| request.command == "BEGIN").count();
    assert_eq!(begun, 2, "the others are not waited for");
    let held = Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 });
    assert!(answers.into_iter().all(|answer| answer.unwrap() == held));
    for transaction in transactions {
        transaction.roll_back().await;
    }
    assert!(store.claim(&batch).await.iter().all(is_granted), "nothing was lost");
}

/// A call that is dropped while it waits leaves nothing behind, even if its statements are on their way.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_dropped_leaves_the_entity_free() {
    let waiting = Waiting::begin().await;
    waiting.claim.abort();
    assert!(waiting.claim.await.unwrap_err().is_cancelled());
    waiting.transaction.roll_back().await;
    granted(&waiting.store, &ordered(&waiting.entity, 3)).await;
}

/// Claims and settles of few entities, batches with the same records in any order, and a purge run concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ordered_requests_plain_batches_and_a_purge_do_not_deadlock() {
    const WORKERS: u64 = 8;
    const ROUNDS: u64 = 25;
    // A separate table, because the purge would delete expired records of other tests.
    let config = support::postgres::config(support::postgres::connection().await);
    let store = config.table(support::unique_name("records")).pool_size(24).build().unwrap();
    store.migrate().await.unwrap();
    let entities: Vec<_> = (0..3).map(|_| entity()).collect();
    let workers = (0..WORKERS).map(|worker| {
        let (store, entities) = (store.clone(), entities.clone());
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let sequence = round * WORKERS + worker;
                let mut batch: Vec<_> = entities.iter().map(|entity| ordered(entity, sequence)).collect();
                batch.extend(claims(3));
                fastrand::shuffle(&mut batch);
                let answers = store.claim(&batch).await;
                assert!(answers.iter().all(Result::is_ok), "{answers:?}");
                // Plain requests for the records of ordered ones, too.
                let plain = |claim: &ClaimRequest| ClaimRequest { order: None, ..rival(claim) };
                let mut rivals: Vec<_> = batch.iter().map(plain).collect();
                fastrand::shuffle(&mut rivals);
                let settles: Vec<_> = batch.iter().map(|claim| settle_of(claim, complete("1"))).collect();
                let (claimed, settled, purged) =
                    tokio::join!(store.claim(&rivals), store.settle(&settles), store.purge_expired(100));
                assert!(claimed.iter().all(Result::is_ok), "{claimed:?}");
                assert!(settled.iter().all(Result::is_ok), "{settled:?}");
                purged.unwrap();
            }
        })
    });
    for worker in join_all(workers.collect::<Vec<_>>()).await {
        worker.unwrap();
    }
}

/// Each of the concurrent operations of one entity completes after all older ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn granted_operations_are_completed_in_order() {
    let store = support::postgres::config(support::postgres::connection().await).pool_size(24).build().unwrap();
    let entity = entity();
    let completed = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let workers = (1..=40_u64).map(|sequence| {
        let (store, completed) = (store.clone(), std::sync::Arc::clone(&completed));
        tokio::spawn(async move {
            let claim = ordered(&entity, sequence);
            loop {
                match claim_one(&store, &claim).await.unwrap() {
                    Claimed::Granted(_) => break,
                    Claimed::Refused(Refusal::Superseded { newest }) => return assert!(newest > sequence.into()),
                    Claimed::Refused(_) => tokio::task::yield_now().await,
                }
            }
            completed.lock().unwrap().push(sequence);
            assert_eq!(settle_one(&store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
        })
    });
    for worker in join_all(workers.collect::<Vec<_>>()).await {
        worker.unwrap();
    }
    let completed = completed.lock().unwrap();
    assert!(completed.is_sorted() && completed.last() == Some(&40), "{completed:?}");
}

/// An unordered claim, which takes no lock on the entity, gets in between. It has the record, and the entity has no
/// holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_claimed_without_an_order_meanwhile_does_not_hold_the_entity() {
    let url = support::postgres::url();
    let proxy = wire::Proxy::start(wire::Protocol::Postgres, wire::host_and_port(&url)).await;
    let direct = support::postgres::migrated().await;
    let scope = format!("{direct:?}").split('"').nth(1).unwrap().to_owned();
    let store = support::postgres::config(proxy.in_place_of(&url).parse().unwrap()).scope(scope).build().unwrap();
    let entity = entity();
    let claim = ordered(&entity, 5);
    let mut write = proxy.on_command("INSERT INTO \"once_records\"").hold();
    let plain = async {
        write.arrived().await;
        granted(&direct, &ClaimRequest { order: None, ..rival(&claim) }).await;
        write.release();
    };
    let (claimed, ()) = tokio::join!(claim_one(&store, &claim), plain);
    assert_eq!(claimed.unwrap(), Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }));
    granted(&direct, &ordered(&entity, 4)).await;
}

/// An operator's statement waits for a write to the mark, and then finds that the mark has changed since it was read.
// Tests O8.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolution_waits_for_a_write_to_its_mark() {
    let connection = support::postgres::role(&[]).await;
    let clock = support::future_clock();
    let store = support::postgres::config(connection.clone()).build().unwrap().with_clock(clock.clone());
    let (sessions, entity) = (Sessions::of(&connection).await, entity());
    let lost = ordered(&entity, 5);
    granted(&store, &lost).await;
    clock.advance(2 * lost.lease);
    let entity_of_mark = Entity::of(&lost.key);
    let request = ResolveRequest {
        entity: entity_of_mark,
        read: store.marks(&[entity_of_mark]).await.remove(0).unwrap().expect("a mark"),
        skew_margin: Duration::ZERO,
        retention: lost.retention,
        resolution: Resolution::NoEffect { sequences: vec![5_u64.into()] },
    };
    let transaction = holding(&entity).await;
    let resolved = tokio::spawn({
        let (store, request) = (store.clone(), request.clone());
        async move { store.resolve(&request).await }
    });
    sessions.until_waiting(1).await;
    let newest = Sequence::from(4_u64);
    let change = format!("UPDATE once_marks SET newest = '{}' WHERE entity = ", newest.to_digits());
    transaction.execute(&format!("{change}'\\x{entity_of_mark}'")).await;
    transaction.commit().await;
    let current = Box::new(Mark { newest: Some(newest), ..request.read });
    assert_eq!(resolved.await.unwrap().unwrap(), Amended::Unchanged { current });
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_transactions_learn_that_the_entity_is_locked() {
    let role = support::postgres::role(&["lock_timeout = '200ms'"]).await;
    let clock = support::future_clock();
    let store = support::postgres::config(role).build().unwrap().with_clock(clock.clone());
    let entity = entity();
    let lost = ordered(&entity, 5);
    granted(&store, &lost).await;
    clock.advance(LAPSE);
    let record = read_one(&store, &lost).await.unwrap();
    let settle = Amendment::Settle { outcome: FinalStatus::Completed, result: json("1"), retention: RETENTION };
    let amendments = [AmendRequest::new(lost.key, &record, settle)];
    let of_mark = Entity::of(&lost.key);
    let resolution = ResolveRequest {
        entity: of_mark,
        read: store.marks(&[of_mark]).await.remove(0).unwrap().expect("a mark"),
        skew_margin: MARGIN,
        retention: RETENTION,
        resolution: Resolution::NoEffect { sequences: vec![5_u64.into()] },
    };
    let next = ordered(&entity, 6);

    let transaction = holding(&entity).await;
    let amended = store.amend(&amendments).await.remove(0).unwrap_err();
    for error in [amended, store.resolve(&resolution).await.unwrap_err()] {
        assert_eq!(of(&error), TIMEOUT);
        let cause = "another transaction holds the record for longer than `lock_timeout`";
        assert!(error.to_string().contains(cause), "{error}");
    }
    let refused = store.open();
    let claimed = Transactional::claim_within(&store, &refused, &next).await.unwrap();
    assert_eq!(claimed, Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }));
    assert!(refused.client().await.is_err_and(|error| error.kind() == ErrorKind::Config), "it has ended");

    // An error other than the lock's.
    let unreadable = format!("UPDATE once_marks SET newest = repeat('x', 64) WHERE entity = '\\x{of_mark}'");
    transaction.execute(&unreadable).await;
    transaction.commit().await;
    assert_eq!(of(&store.resolve(&resolution).await.unwrap_err()), FORMAT);
    assert_eq!(of(&Transactional::claim_within(&store, &store.open(), &next).await.unwrap_err()), FORMAT);
}

// Tests O5.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_records_a_failure_although_the_mark_is_gone() {
    let clock = support::future_clock();
    let store = support::postgres::migrated().await.with_clock(clock.clone());
    let lost = ordered(&entity(), 5);
    granted(&store, &lost).await;
    clock.advance(LAPSE);
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let delete = format!("DELETE FROM once_marks WHERE entity = '\\x{}'", Entity::of(&lost.key));
    assert_eq!(admin.execute(&delete, &[]).await.unwrap(), 1);
    let record = read_one(&store, &lost).await.unwrap();
    let failed = Amendment::Settle { outcome: FinalStatus::Failed, result: json("7"), retention: RETENTION };
    let amended = store.amend(&[AmendRequest::new(lost.key, &record, failed)]).await.remove(0);
    assert_eq!(amended.unwrap(), Amended::Changed);
    assert_eq!(read_one(&store, &lost).await.unwrap().status, Status::Failed);
}

/// A session that ends may have committed first, for example if the commit waited for a standby.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_commit_is_undone_unless_its_session_ends() {
    support::postgres::connection().await;
    let url = support::postgres::url();
    let proxy = wire::Proxy::start(wire::Protocol::Postgres, wire::host_and_port(&url)).await;
    let store = support::postgres::config(proxy.in_place_of(&url).parse().unwrap()).build().unwrap();
    for (severity, code, expected) in [("FATAL", "57P01", AMBIGUOUS), ("ERROR", "40001", UNAVAILABLE)] {
        proxy.on_command("COMMIT").respond(wire::refusal(severity, code, Some('I')));
        let error = claim_one(&store, &ordered(&entity(), 5)).await.unwrap_err();
        assert_eq!(of(&error), expected, "{code}: {error}");
        assert_eq!(proxy.pending_faults(), 0);
        if severity == "FATAL" {
            let closed = tokio::time::timeout(Duration::from_secs(30), proxy.all_closed());
            closed.await.expect("its connection is not used again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_request_without_a_response_may_have_been_applied() {
    support::postgres::connection().await;
    let url = support::postgres::url();
    let proxy = wire::Proxy::start(wire::Protocol::Postgres, wire::host_and_port(&url)).await;
    let store = support::postgres::config(proxy.in_place_of(&url).parse().unwrap()).build().unwrap();
    let claim = ordered(&entity(), 5);
    proxy.on_command("BEGIN").drop_request();
    assert_eq!(of(&claim_one(&store, &claim).await.unwrap_err()), AMBIGUOUS);
    granted(&store, &claim).await;
    proxy.on_command("BEGIN").drop_request();
    assert_eq!(of(&settle_one(&store, &claim, complete("1")).await.unwrap_err()), AMBIGUOUS);
    assert_eq!(settle_one(&store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
}

/// Its claim took over from another, whose outcome is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_refused_does_not_free_the_entity() {
    let clock = support::future_clock();
    let store = support::postgres::migrated().await.with_clock(clock.clone());
    let entity = entity();
    let lost = ordered(&entity, 5);
    granted(&store, &lost).await;
    clock.advance(LAPSE);
    let taker = rival(&lost);
    let grant = granted(&store, &taker).await;
    let refused = settle_one(&store, &taker, RELEASE).await.unwrap();
    assert!(matches!(refused, Settled::LeaseLost { current: Some(record) } if record.owner == Some(taker.owner)));
    let held = Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 0 };
    assert_eq!(claim_one(&store, &ordered(&entity, 6)).await.unwrap(), Claimed::Refused(held));
}
