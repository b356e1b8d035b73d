//! An open transaction that holds one key of a batch. It delays the batch by `lock_timeout`, and then only that key.

use lambda_once::{
    record::Status,
    store::{
        Refusal,
        amend::{Amend, AmendRequest, Amended, Amendment},
        postgres::PostgresStore,
    },
};

use super::{sessions::*, *};
use crate::support::wire;

/// Returns a store on a role with this `lock_timeout`.
async fn store() -> PostgresStore {
    let role = support::postgres::role(&["lock_timeout = '200ms'"]).await;
    support::postgres::config(role).build().unwrap()
}

/// Claims a batch with one held key, asserts that the others are granted, and returns the result of the held one.
async fn claimed_around(store: &PostgresStore, held: &ClaimRequest) -> Claimed {
    let mut batch = claims(20);
    batch[7] = rival(held);
    // The same keys in another scope.
    let others: Vec<_> = batch.iter().map(rival).collect();
    assert!(support::postgres::migrated().await.claim(&others).await.iter().all(is_granted));
    let mut answers: Vec<_> = store.claim(&batch).await.into_iter().map(Result::unwrap).collect();
    let held = answers.remove(7);
    assert!(answers.iter().all(|answer| matches!(answer, Claimed::Granted(_))), "{answers:?}");
    held
}

const NO_LEASE_KNOWN: Claimed = Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 });

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_being_settled_is_in_progress_until_its_lease() {
    let store = store().await;
    let claim = claim();
    let grant = granted(&store, &claim).await;
    let transaction = Transaction::holding(&[&claim]).await;
    let held = Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
    assert_eq!(claimed_around(&store, &claim).await, Claimed::Refused(held.clone()));
    assert_eq!(claim_one(&store, &rival(&claim)).await.unwrap(), Claimed::Refused(held));
    transaction.roll_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_lock_timeout_overrides_the_setting_of_the_role() {
    for settings in [&[][..], &["lock_timeout = '1h'"]] {
        let mut role = support::postgres::role(settings).await;
        role.options("-c statement_timeout=1h");
        let config = support::postgres::config(role).lock_timeout(Duration::from_millis(200));
        let store = config.build().unwrap();
        let claim = claim();
        let grant = granted(&store, &claim).await;
        let transaction = Transaction::holding(&[&claim]).await;
        let claimed = tokio::time::timeout(Duration::from_secs(30), claimed_around(&store, &claim)).await;
        let held = Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
        assert_eq!(claimed.expect("it waits for 200 ms"), Claimed::Refused(held));
        transaction.roll_back().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_record_is_replayed_although_it_is_locked() {
    let store = store().await;
    let claim = claim();
    granted(&store, &claim).await;
    settle_one(&store, &claim, complete("1")).await.unwrap();
    let transaction = Transaction::holding(&[&claim]).await;
    assert!(matches!(claimed_around(&store, &claim).await, Claimed::Refused(Refusal::Completed(_))));
    transaction.roll_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_being_inserted_is_in_progress_without_a_lease() {
    let store = store().await;
    let claim = claim();
    // A key of another scope with the same hash is not affected.
    granted(&support::postgres::migrated().await, &rival(&claim)).await;
    let transaction = Transaction::begin().await;
    let scope = format!("{store:?}").split('"').nth(1).unwrap().to_owned();
    let insert = format!(
        "INSERT INTO once_records (scope, key_hash, status, attempt, expiration, v) VALUES ('{scope}', {}, 1, 1, 9999999999, 1)",
        literal(&claim)
    );
    transaction.execute(&insert).await;
    assert_eq!(claimed_around(&store, &claim).await, NO_LEASE_KNOWN);
    assert_eq!(claim_one(&store, &rival(&claim)).await.unwrap(), NO_LEASE_KNOWN);
    transaction.roll_back().await;
    granted(&store, &claim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_sent_again_is_granted_while_its_record_is_locked() {
    let store = store().await;
    let claim = claim();
    let grant = granted(&store, &claim).await;
    let transaction = Transaction::holding(&[&claim]).await;
    assert_eq!(granted(&store, &claim).await, grant);
    transaction.roll_back().await;
}

/// Waiting for twenty locks one after the other would take four seconds, and the engine's call timeout is three.
const BEFORE_THE_ENGINE_GIVES_UP: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn many_locked_records_delay_their_batch_no_longer_than_one() {
    let store = store().await;
    let held = claims(20);
    assert!(store.claim(&held).await.iter().all(is_granted));
    let transaction = Transaction::holding(&held.iter().collect::<Vec<_>>()).await;
    // The same keys in another scope, where nothing holds them.
    assert!(support::postgres::migrated().await.claim(&held).await.iter().all(is_granted));

    let batch: Vec<_> = held.iter().map(rival).chain(claims(80)).collect();
    let answers = tokio::time::timeout(BEFORE_THE_ENGINE_GIVES_UP, store.claim(&batch)).await.unwrap();
    let (of_held, of_free) = answers.split_at(20);
    assert!(of_held.iter().all(|answer| matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { .. })))));
    assert!(of_free.iter().all(is_granted), "{of_free:?}");

    let settles: Vec<_> = held.iter().chain(&batch[20..]).map(|claim| settle_of(claim, complete("1"))).collect();
    let answers = tokio::time::timeout(BEFORE_THE_ENGINE_GIVES_UP, store.settle(&settles)).await.unwrap();
    let (of_held, of_free) = answers.split_at(20);
    assert!(of_held.iter().all(|answer| answer.as_ref().is_err_and(|error| of(error) == TIMEOUT)), "{of_held:?}");
    assert!(of_free.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{of_free:?}");
    transaction.roll_back().await;
}

/// A read cannot decide them, because their records permit a takeover.
#[tokio::test(flavor = "multi_thread")]
async fn many_lapsed_claims_whose_records_are_locked_leave_the_rest_free() {
    let clock = support::future_clock();
    let store = store().await.with_clock(clock.clone());
    let lapsed = claims(20);
    assert!(store.claim(&lapsed).await.iter().all(is_granted));
    clock.advance(LAPSE);
    let transaction = Transaction::holding(&lapsed.iter().collect::<Vec<_>>()).await;
    let batch: Vec<_> = lapsed.iter().map(rival).chain(claims(80)).collect();
    let answers = tokio::time::timeout(BEFORE_THE_ENGINE_GIVES_UP, store.claim(&batch)).await.unwrap();
    let (of_lapsed, of_free) = answers.split_at(20);
    assert!(of_lapsed.iter().all(|answer| matches!(answer, Ok(NO_LEASE_KNOWN))), "{of_lapsed:?}");
    assert!(of_free.iter().all(is_granted), "{of_free:?}");
    transaction.roll_back().await;
    for answer in store.claim(&batch[..20]).await {
        assert!(matches!(answer, Ok(Claimed::Granted(grant)) if grant.took_over()), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_being_inserted_end_a_call_in_time_and_leave_the_rest() {
    let store = store().await;
    let (inserted, free) = (claims(20), claims(20));
    let transaction = Transaction::begin().await;
    let scope = format!("{store:?}").split('"').nth(1).unwrap().to_owned();
    for claim in &inserted {
        let values = format!("('{scope}', {}, 1, 1, 9999999999, 1)", literal(claim));
        let columns = "scope, key_hash, status, attempt, expiration, v";
        transaction.execute(&format!("INSERT INTO once_records ({columns}) VALUES {values}")).await;
    }
    let batch: Vec<_> = inserted.iter().chain(&free).cloned().collect();
    let answers = tokio::time::timeout(BEFORE_THE_ENGINE_GIVES_UP, store.claim(&batch)).await.unwrap();
    assert!(answers[..20].iter().all(|answer| matches!(answer, Ok(NO_LEASE_KNOWN))), "{answers:?}");
    transaction.roll_back().await;
    assert!(store.claim(&batch).await.iter().all(is_granted), "nothing was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_settles_of_locked_records_fail_in_a_batch_and_they_are_repeatable() {
    let store = store().await;
    let claims = claims(20);
    assert!(store.claim(&claims).await.iter().all(|answer| matches!(answer, Ok(Claimed::Granted(_)))));
    // One claim is completed, and one released.
    let transaction = Transaction::holding(&[&claims[7], &claims[13]]).await;
    let settlement = |i: usize| if i < 10 { complete("1") } else { RELEASE };
    let settles: Vec<_> = claims.iter().enumerate().map(|(i, claim)| settle_of(claim, settlement(i))).collect();
    for (i, answer) in store.settle(&settles).await.into_iter().enumerate() {
        match i {
            7 | 13 => assert_eq!(of(&answer.unwrap_err()), TIMEOUT),
            _ => assert_eq!(answer.unwrap(), Settled::Done { found: None }),
        }
    }
    transaction.roll_back().await;
    for i in [7, 13] {
        assert_eq!(settle_one(&store, &claims[i], settlement(i)).await.unwrap(), Settled::Done { found: None });
    }
    assert_eq!(read_one(&store, &claims[7]).await.unwrap().result, json("1"));
    assert_eq!(read_one(&store, &claims[13]).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_has_waited_alone_for_its_lock_is_not_repeated() {
    support::postgres::connection().await;
    let url = support::postgres::url();
    let proxy = wire::Proxy::start(wire::Protocol::Postgres, wire::host_and_port(&url)).await;
    let config = support::postgres::config(proxy.in_place_of(&url).parse().unwrap());
    let scope = support::unique_name("locks");
    let store = config.scope(&scope).lock_timeout(Duration::from_millis(200)).build().unwrap();
    let sent = |part: &str| proxy.requests().iter().filter(|request| request.command.contains(part)).count();
    let [held, inserted] = [claim(), claim()];
    granted(&store, &held).await;
    let transaction = Transaction::holding(&[&held]).await;
    let values = format!("('{scope}', {}, 1, 1, 9999999999, 1)", literal(&inserted));
    let columns = "scope, key_hash, status, attempt, expiration, v";
    transaction.execute(&format!("INSERT INTO once_records ({columns}) VALUES {values}")).await;

    proxy.reset();
    let answers = store.claim(&[rival(&held), inserted.clone()]).await;
    for answer in answers {
        assert!(matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { .. }))), "{answer:?}");
    }
    assert_eq!(sent("INSERT INTO \"once_records\""), 2, "together, and the one that is being inserted alone");
    for alone in [rival(&held), inserted] {
        proxy.reset();
        let answer = claim_one(&store, &alone).await;
        assert!(matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { .. }))), "{answer:?}");
        assert_eq!((sent("INSERT INTO \"once_records\""), sent("SKIP LOCKED")), (1, 0));
    }
    proxy.reset();
    assert_eq!(of(&settle_one(&store, &held, complete("1")).await.unwrap_err()), TIMEOUT);
    assert_eq!((sent("UPDATE \"once_records\""), sent("SKIP LOCKED")), (1, 0));
    transaction.roll_back().await;
}

/// A change of several records.
#[derive(Clone, Copy, Debug)]
enum Change {
    Outcome,
    Release,
    Amendment,
}

impl Change {
    /// Makes the change of all records together, and asserts that none is refused.
    async fn make(self, store: PostgresStore, claims: Vec<ClaimRequest>) {
        let settlement = match self {
            Self::Outcome => complete("1"),
            Self::Release => RELEASE,
            Self::Amendment => {
                let mut requests = Vec::new();
                for claim in &claims {
                    let record = read_one(&store, claim).await.unwrap();
                    let request = AmendRequest::new(claim.key, &record, Amendment::Release);
                    requests.push(AmendRequest { skew_margin: MARGIN, ..request });
                }
                for amended in store.amend(&requests).await {
                    assert_eq!(amended.unwrap(), Amended::Changed);
                }
                return;
            }
        };
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, settlement.clone())).collect();
        for settled in store.settle(&settles).await {
            assert_eq!(settled.unwrap(), Settled::Done { found: None });
        }
    }
}

/// In the order of claims, so that no two of them deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn all_changes_lock_records_in_the_order_of_their_keys() {
    for change in [Change::Outcome, Change::Release, Change::Amendment] {
        // Other joins may sort by the keys themselves.
        let connection = support::postgres::role(&["enable_mergejoin = off", "enable_hashjoin = off"]).await;
        let clock = support::future_clock();
        let config = support::postgres::config(connection.clone()).lock_timeout(Duration::from_secs(30));
        let store = config.build().unwrap().with_clock(clock.clone());
        let sessions = Sessions::of(&connection).await;
        // The rows are inserted and changed in the opposite order.
        let mut claims = claims(3);
        claims.sort_by_key(|claim| std::cmp::Reverse(*claim.key.as_bytes()));
        for claim in &claims {
            granted(&store, claim).await;
        }
        clock.advance(LAPSE);
        let transaction = Transaction::holding(&[&claims[1]]).await;
        let made = tokio::spawn(change.make(store, claims.clone()));
        sessions.until_waiting(1).await;
        let admin = support::postgres::client(&support::postgres::connection().await).await;
        let keys: Vec<&[u8]> = claims.iter().map(|claim| claim.key.as_bytes().as_slice()).collect();
        let unlocked = "SELECT key_hash FROM once_records WHERE key_hash = ANY ($1) FOR UPDATE SKIP LOCKED";
        let rows = admin.query(unlocked, &[&keys]).await.unwrap();
        let rows: Vec<&[u8]> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(rows, [keys[0]], "{change:?}: the last of the three");
        transaction.roll_back().await;
        made.await.unwrap();
    }
}

/// A settle that has found its claim waits for the row, and then finds the claim of another.
// Tests S1.
#[tokio::test(flavor = "multi_thread")]
async fn a_settle_waits_for_a_takeover_and_leaves_its_claim() {
    let connection = support::postgres::role(&[]).await;
    let store = support::postgres::config(connection.clone()).lock_timeout(Duration::from_secs(30)).build().unwrap();
    let sessions = Sessions::of(&connection).await;
    for settlement in [complete("1"), RENEW, HAND_BACK, RELEASE] {
        let claim = claim();
        granted(&store, &claim).await;
        let transaction = Transaction::holding(&[&claim]).await;
        let settled = tokio::spawn({
            let (store, settle) = (store.clone(), settle_of(&claim, settlement.clone()));
            async move { store.settle(&[settle]).await.remove(0) }
        });
        sessions.until_waiting(1).await;
        let owner = "decode(repeat('02', 16), 'hex')";
        let take = format!("UPDATE once_records SET owner = {owner}, attempt = 2 WHERE key_hash = {}", literal(&claim));
        transaction.execute(&take).await;
        transaction.commit().await;
        match settled.await.unwrap() {
            Ok(Settled::LeaseLost { current: Some(_) }) if !settlement.is_release() => {}
            // There is nothing left to release.
            Ok(Settled::Done { found: Some(_) }) if settlement.is_release() => {}
            other => panic!("{settlement:?} of another's claim: {other:?}"),
        }
        let record = read_one(&store, &claim).await.unwrap();
        assert_eq!((record.attempt, record.status), (2, Status::InProgress), "{settlement:?}");
        assert_eq!(record.owner.unwrap().as_bytes(), &[2; 16], "{settlement:?}");
    }
}

/// An amendment that has found a lapsed claim waits for its row, and then finds the claim renewed.
// Tests O3.
#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_waits_for_a_renewal_and_leaves_the_claim() {
    let connection = support::postgres::role(&[]).await;
    let clock = support::future_clock();
    let store = support::postgres::config(connection.clone()).build().unwrap().with_clock(clock.clone());
    let sessions = Sessions::of(&connection).await;
    for amendment in [Amendment::Forget { completed: false }, Amendment::Release] {
        let claim = claim();
        granted(&store, &claim).await;
        clock.advance(LAPSE);
        let record = read_one(&store, &claim).await.unwrap();
        let request = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(claim.key, &record, amendment) };
        let transaction = Transaction::holding(&[&claim]).await;
        let amended = tokio::spawn({
            let store = store.clone();
            async move { store.amend(&[request]).await.remove(0) }
        });
        sessions.until_waiting(1).await;
        let renew =
            format!("UPDATE once_records SET lease_until = 99999999999999 WHERE key_hash = {}", literal(&claim));
        transaction.execute(&renew).await;
        transaction.commit().await;
        let Ok(Amended::Unchanged { current }) = amended.await.unwrap() else { panic!("a live claim was amended") };
        assert_eq!(read_one(&store, &claim).await, Some(*current));
    }
}
