//! Rows that this version did not write.

use lambda_once::{
    clock::{Clock, ManualClock},
    order::Entity,
    record::{Status, StoredResult},
    store::{
        FinalStatus, Refusal,
        amend::{Amend, AmendRequest, Amended, Amendment, Resolution, ResolveRequest},
        listing::{Cursor, List, ListRequest, ListedState},
        postgres::PostgresStore,
        transaction::Transactional,
    },
};

use super::{sessions::literal, *};
use crate::support::wire;

/// Returns the results of a claim, a read and a settle of a completed record after a change.
async fn changed(change: &str) -> (Result<Claimed, Error>, Result<Option<Record>, Error>, Result<Settled, Error>) {
    let store = support::postgres::migrated().await;
    let claim = claim();
    granted(&store, &claim).await;
    settle_one(&store, &claim, complete("1")).await.unwrap();
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let update = format!("UPDATE once_records SET {change} WHERE key_hash = $1");
    assert_eq!(admin.execute(&update, &[&claim.key.as_bytes().as_slice()]).await.unwrap(), 1);
    (
        claim_one(&store, &rival(&claim)).await,
        store.read(&[claim.key], ResultData::Include).await.remove(0),
        settle_one(&store, &claim, complete("2")).await,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_format_is_an_error_that_another_deployment_may_cure() {
    for change in [
        "status = 9",
        "encoding = 9",
        "encoding = NULL",
        "data = NULL",
        "data = '\\xff'",
        "owner = '\\x01'",
        "validation = '\\x01'",
        "attempt = -1",
        "v = -1",
    ] {
        let (claimed, read, settled) = changed(change).await;
        for error in [claimed.map(drop).unwrap_err(), read.map(drop).unwrap_err()] {
            assert_eq!(of(&error), FORMAT, "{change}: {error:?}");
        }
        assert_eq!(
            settled.unwrap(),
            Settled::LeaseLost { current: None },
            "{change}: never acknowledged by its own run"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_version_is_understood_and_the_one_after_it_is_not() {
    let (claimed, ..) = changed("v = 2").await;
    assert!(matches!(claimed.unwrap(), Claimed::Refused(Refusal::Completed(record)) if record.version == 2));
    let (claimed, read, _) = changed("v = 3").await;
    assert_eq!(of(&claimed.unwrap_err()), FORMAT);
    assert_eq!(read.unwrap().unwrap().version, 3, "who reads it judges it");
    // A lapsed claim is not taken over, but an expired record is replaced regardless of its contents.
    let (claimed, ..) = changed("v = 3, status = 0, data = NULL, encoding = NULL, lease_until = 1").await;
    assert_eq!(of(&claimed.unwrap_err()), FORMAT);
    let (claimed, ..) = changed("v = 3, status = 9, expiration = 1").await;
    assert!(matches!(claimed.unwrap(), Claimed::Granted(Grant { attempt: 2, prior_status: None, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_a_lease_is_live_until_its_record_expires() {
    let (claimed, ..) = changed("status = 0, owner = NULL, data = NULL, encoding = NULL, lease_until = NULL").await;
    assert_eq!(claimed.unwrap(), Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 1 }));
    let (claimed, ..) = changed("status = 0, owner = NULL, lease_until = NULL, expiration = 1").await;
    assert!(matches!(claimed.unwrap(), Claimed::Granted(Grant { prior_status: None, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn times_beyond_all_bounds_are_stored_as_the_latest_that_fit() {
    let store = support::postgres::migrated().await;
    let forever = Duration::MAX;
    let claim = ClaimRequest { lease: forever, skew_margin: forever, retention: forever, ..claim() };
    granted(&store, &claim).await;
    let renew = Settlement::Renew { lease: forever, skew_margin: forever, retention: forever };
    assert!(matches!(settle_one(&store, &claim, renew).await.unwrap(), Settled::Renewed { .. }));
    assert!(matches!(claim_one(&store, &rival(&claim)).await.unwrap(), Claimed::Refused(Refusal::InProgress { .. })));
    let complete = Settlement::complete(json("1"), forever);
    assert_eq!(settle_one(&store, &claim, complete).await.unwrap(), Settled::Done { found: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_share_nothing_but_the_table() {
    let (one, other) = (support::postgres::migrated().await, support::postgres::migrated().await);
    let claim = claim();
    granted(&one, &claim).await;
    assert_eq!(granted(&other, &rival(&claim)).await.attempt, 1);
    settle_one(&one, &claim, complete("1")).await.unwrap();
    assert_eq!(read_one(&other, &claim).await.unwrap().status, Status::InProgress);
}

/// Returns the stores of two scopes on one table, and their clock.
async fn two_scopes() -> (ManualClock, [PostgresStore; 2]) {
    let clock = support::future_clock();
    let table = support::unique_name("scopes");
    let connection = support::postgres::connection().await;
    let stores = ["ours", "theirs"].map(|scope| {
        let config = support::postgres::config(connection.clone()).table(&table).scope(scope);
        config.build().unwrap().with_clock(clock.clone())
    });
    stores[0].migrate().await.unwrap();
    (clock, stores)
}

/// The stores of two scopes on one table, with a claim of the same key and owner in each.
#[tokio::test(flavor = "multi_thread")]
async fn scopes_share_a_table_and_no_records() {
    let (clock, [ours, theirs]) = two_scopes().await;
    for settlement in [complete("1"), Settlement::fail(json("1"), RETENTION), RENEW, RELEASE] {
        let claim = claim();
        for store in [&ours, &theirs] {
            granted(store, &claim).await;
        }
        let before = read_one(&theirs, &claim).await;
        let name = settlement.as_str();
        let settled = settle_one(&ours, &claim, settlement).await.unwrap();
        assert!(matches!(settled, Settled::Done { .. } | Settled::Renewed { .. }), "{name}: {settled:?}");
        assert_eq!(read_one(&theirs, &claim).await, before, "{name}");
    }
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: StoredResult::default(), retention: RETENTION };
    let amendments = [settle, Amendment::Release, Amendment::Forget { completed: false }].map(Some);
    for amendment in amendments.into_iter().chain([None]) {
        let (claim, name) = (claim(), format!("{amendment:?}"));
        let successor = rival(&claim);
        for store in [&ours, &theirs] {
            granted(store, &claim).await;
        }
        clock.advance(LAPSE);
        for store in [&ours, &theirs] {
            granted(store, &successor).await;
        }
        match amendment {
            Some(amendment) => {
                clock.advance(LAPSE);
                let record = read_one(&ours, &claim).await.unwrap();
                let before = read_one(&theirs, &claim).await;
                let request = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(claim.key, &record, amendment) };
                assert_eq!(ours.amend(&[request]).await.remove(0).unwrap(), Amended::Changed, "{name}");
                assert_eq!(read_one(&theirs, &claim).await, before, "{name}");
            }
            None => {
                let before = read_one(&theirs, &claim).await;
                let handed_back = settle_one(&ours, &successor, HAND_BACK).await.unwrap();
                assert_eq!(handed_back, Settled::Done { found: None });
                assert_eq!(read_one(&theirs, &claim).await, before, "a hand-back");
            }
        }
    }
    let entity = entity();
    let [older, newer] = [1, 2].map(|sequence| ordered(&entity, sequence));
    granted(&ours, &newer).await;
    granted(&theirs, &newer).await;
    assert_eq!(settle_one(&ours, &newer, complete("1")).await.unwrap(), Settled::Done { found: None });
    assert_eq!(settle_one(&theirs, &newer, RELEASE).await.unwrap(), Settled::Done { found: None });
    granted(&theirs, &older).await;
    assert!(matches!(claim_one(&ours, &older).await.unwrap(), Claimed::Refused(Refusal::Superseded { .. })));
}

/// A matching record in another scope does not permit a change.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_another_scope_permits_no_change() {
    let (clock, [ours, theirs]) = two_scopes().await;
    let claim = claim();
    let holder = rival(&claim);
    granted(&theirs, &claim).await;
    granted(&ours, &holder).await;
    for settlement in [complete("1"), RENEW, HAND_BACK, RELEASE] {
        let name = settlement.as_str();
        let settled = settle_one(&ours, &claim, settlement).await.unwrap();
        let is_refused = matches!(settled, Settled::LeaseLost { .. } | Settled::Done { found: Some(_) });
        assert!(is_refused, "{name}: {settled:?}");
    }
    clock.advance(LAPSE);
    let record = read_one(&theirs, &claim).await.unwrap();
    for amendment in [Amendment::Release, Amendment::Forget { completed: false }] {
        let request = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(claim.key, &record, amendment) };
        let amended = ours.amend(&[request]).await.remove(0).unwrap();
        assert!(matches!(amended, Amended::Unchanged { .. }), "{amended:?}");
    }
    assert_eq!(read_one(&ours, &claim).await.unwrap().owner, Some(holder.owner));
}

/// The marks of one entity in the orders of two scopes.
#[tokio::test(flavor = "multi_thread")]
async fn scopes_share_a_table_and_no_marks() {
    let (clock, [ours, theirs]) = two_scopes().await;
    let entity = entity();
    let [settled, lost, next] = [1, 2, 3].map(|sequence| ordered(&entity, sequence));
    let of_mark = [Entity::of(&lost.key)];
    let mark_of = async |store: &PostgresStore| store.marks(&of_mark).await.remove(0).unwrap().unwrap();
    for store in [&ours, &theirs] {
        for claim in [&settled, &lost] {
            granted(store, claim).await;
            clock.advance(LAPSE);
        }
    }
    let before = mark_of(&theirs).await;

    let record = read_one(&ours, &settled).await.unwrap();
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: StoredResult::default(), retention: RETENTION };
    let settle = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(settled.key, &record, settle) };
    assert_eq!(ours.amend(&[settle]).await.remove(0).unwrap(), Amended::Changed);
    assert_eq!(mark_of(&theirs).await, before, "a settle by an operator");
    let resolution = ResolveRequest {
        entity: of_mark[0],
        read: mark_of(&ours).await,
        skew_margin: MARGIN,
        retention: RETENTION,
        resolution: Resolution::NoEffect { sequences: vec![2_u64.into()] },
    };
    assert_eq!(ours.resolve(&resolution).await.unwrap(), Amended::Changed);
    assert_eq!(mark_of(&theirs).await, before, "a resolution");
    granted(&ours, &next).await;
    assert_eq!(mark_of(&theirs).await, before, "a claim");
    for settlement in [RENEW, complete("1")] {
        let name = settlement.as_str();
        let done = settle_one(&ours, &next, settlement).await.unwrap();
        assert!(matches!(done, Settled::Done { .. } | Settled::Renewed { .. }), "{name}: {done:?}");
        assert_eq!(mark_of(&theirs).await, before, "{name}");
    }
}

/// Only an operator's forgetting ends a claim without a lease, which nothing else can judge.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_a_lease_is_only_forgotten() {
    let store = support::postgres::migrated().await;
    let claim = claim();
    granted(&store, &claim).await;
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let update = "UPDATE once_records SET lease_until = NULL WHERE key_hash = $1";
    assert_eq!(admin.execute(update, &[&claim.key.as_bytes().as_slice()]).await.unwrap(), 1);
    let record = read_one(&store, &claim).await.unwrap();
    let amended = async |amendment| {
        let request = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(claim.key, &record, amendment) };
        store.amend(&[request]).await.remove(0).unwrap()
    };
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: StoredResult::default(), retention: RETENTION };
    for amendment in [settle, Amendment::Release] {
        assert_eq!(amended(amendment).await, Amended::Unchanged { current: Box::new(record.clone()) });
    }
    assert_eq!(amended(Amendment::Forget { completed: false }).await, Amended::Changed);
    assert_eq!(read_one(&store, &claim).await, None);
}

/// The last two statements of a commit that was not applied roll back and read the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_finds_an_unknown_format_has_lost_its_lease() {
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let url = support::postgres::url();
    let proxy = wire::Proxy::start(wire::Protocol::Postgres, wire::host_and_port(&url)).await;
    let store = support::postgres::config(proxy.in_place_of(&url).parse().unwrap()).build().unwrap();
    for is_readable in [true, false] {
        let claim = claim();
        granted(&store, &claim).await;
        let update = "UPDATE once_records SET status = 9 WHERE key_hash = $1";
        assert_eq!(admin.execute(update, &[&claim.key.as_bytes().as_slice()]).await.unwrap(), 1);
        let transaction = store.open();
        transaction.client().await.unwrap();
        if !is_readable {
            let reads = |request: &wire::Request| {
                request.command.contains("\"once_records\"") && !request.command.contains("UPDATE")
            };
            proxy.on(reads).respond(wire::refusal("ERROR", "57014", Some('I')));
        }
        let settled = Transactional::commit(&store, &transaction, Some(&settle_of(&claim, complete("1")))).await;
        let expected = if is_readable { Ok(Settled::LeaseLost { current: None }) } else { Err(TIMEOUT) };
        assert_eq!(settled.map_err(|error| of(&error)), expected);
        assert_eq!(proxy.pending_faults(), 0);
    }
}

/// A record that expires in this second is absent, whatever it contains.
// Tests O2.
#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_in_an_order_finds_an_expired_record_gone() {
    let clock = support::future_clock();
    let store = support::postgres::migrated().await.with_clock(clock.clone());
    let lost = ordered(&entity(), 5);
    granted(&store, &lost).await;
    clock.advance(LAPSE);
    let record = read_one(&store, &lost).await.unwrap();
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: StoredResult::default(), retention: RETENTION };
    let requests = [AmendRequest::new(lost.key, &record, settle)];
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let now = clock.now().seconds_rounded_down();
    for (expiration, expected) in [(now + 1, Err(FORMAT)), (now, Ok(Amended::Gone))] {
        let change = format!("status = 9, expiration = {expiration}");
        let update = format!("UPDATE once_records SET {change} WHERE key_hash = {}", literal(&lost));
        assert_eq!(admin.execute(&update, &[]).await.unwrap(), 1);
        let amended = store.amend(&requests).await.remove(0);
        assert_eq!(amended.map_err(|error| of(&error)), expected, "{change}");
    }
}

/// With the index a cursor has the time of the last claim before the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_read_only_with_the_index_that_it_was_made_with() {
    let table = support::unique_name("listed");
    let connection = support::postgres::connection().await;
    let [plain, indexed] = [false, true].map(|has_index| {
        let config = support::postgres::config(connection.clone()).table(&table);
        config.listing_index(has_index).build().unwrap()
    });
    indexed.migrate().await.unwrap();
    let key = "0".repeat(64);
    let with_time = format!("5 {key}");
    for (store, cursor, is_read) in
        [(&plain, &key, true), (&plain, &with_time, false), (&indexed, &key, false), (&indexed, &with_time, true)]
    {
        let after = Some(Cursor::new(cursor));
        let page = store.list(&ListRequest { after, ..ListRequest::new(ListedState::InProgress) }).await;
        let expected = if is_read { Ok(0) } else { Err((ErrorKind::Request, ErrorStatus::Permanent)) };
        assert_eq!(page.map(|page| page.read).map_err(|error| of(&error)), expected, "{cursor}");
    }
}

/// An amendment of a record that was read before it expired.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_that_cannot_be_read_is_gone_for_an_amendment() {
    let clock = support::future_clock();
    let store = support::postgres::migrated().await.with_clock(clock.clone());
    let claim = claim();
    granted(&store, &claim).await;
    settle_one(&store, &claim, complete("1")).await.unwrap();
    let record = read_one(&store, &claim).await.unwrap();
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let now = clock.now().as_millis() / 1_000;
    for (expiration, is_gone) in [(1, true), (now, true), (now + 1, false)] {
        let key = literal(&claim);
        let expire = format!("UPDATE once_records SET status = 9, expiration = {expiration} WHERE key_hash = {key}");
        assert_eq!(admin.execute(&expire, &[]).await.unwrap(), 1);
        for amendment in [Amendment::Forget { completed: true }, Amendment::Redact] {
            let request = AmendRequest::new(claim.key, &record, amendment);
            let answer = store.amend(std::slice::from_ref(&request)).await.remove(0);
            assert_eq!(matches!(answer, Ok(Amended::Gone)), is_gone, "{request:?}, {expiration}: {answer:?}");
        }
    }
}

/// A sender may choose the label.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_the_database_may_be_unable_to_encode_is_left_out() {
    let mut connection = support::postgres::connection().await;
    let name = support::unique_name("latin");
    let admin = support::postgres::client(&connection).await;
    let create = format!("CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'");
    admin.batch_execute(&create).await.unwrap();
    let store = support::postgres::config(connection.dbname(&name).clone()).build().unwrap();
    store.migrate().await.unwrap();

    let labels = ["order 7", "🙂", "é"];
    let requests = labels.map(|label| ClaimRequest { label: Some(label.into()), ..claim() });
    let answers = store.claim(&requests).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Claimed::Granted(_)))), "{answers:?}");
    let single = ClaimRequest { label: Some("🙂".into()), ..claim() };
    granted(&store, &single).await;
    let mut stored = Vec::new();
    for request in requests.iter().chain([&single]) {
        stored.push(read_one(&store, request).await.unwrap().label);
    }
    assert_eq!(stored, [Some("order 7".into()), None, None, None]);

    drop(store);
    admin.batch_execute(&format!("DROP DATABASE \"{name}\" WITH (FORCE)")).await.unwrap();
}
