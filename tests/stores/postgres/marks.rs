//! Order markers: the contents of their table, and their deletion.

use lambda_once::{
    clock::ManualClock,
    order::Entity,
    record::KeyHash,
    store::{
        FinalStatus, Refusal,
        amend::{Amend, AmendRequest, Amended, Amendment, Resolution, ResolveRequest},
        postgres::{PostgresStore, tokio_postgres::Client},
    },
};

use super::{sessions::*, *};

/// A store with separate tables, and a client that reads them.
struct Marks {
    store: PostgresStore,
    clock: ManualClock,
    table: String,
    admin: Client,
}

impl Marks {
    async fn new() -> Self {
        let (clock, records) = (support::future_clock(), support::unique_name("orders"));
        let connection = support::postgres::connection().await;
        let admin = support::postgres::client(&connection).await;
        let store = support::postgres::config(connection).table(&records).build().unwrap().with_clock(clock.clone());
        store.migrate().await.unwrap();
        Self { store, clock, table: format!("\"{records}_marks\""), admin }
    }

    async fn count(&self) -> i64 {
        self.admin.query_one(&format!("SELECT count(*) FROM {}", self.table), &[]).await.unwrap().get(0)
    }

    /// Returns the number of in-doubt operations in the entity's order marker.
    async fn doubts(&self, entity: &KeyHash) -> i32 {
        let count = format!("SELECT cardinality(doubt_keys) FROM {} WHERE entity = $1", self.table);
        self.admin.query_one(&count, &[&&entity.as_bytes()[..16]]).await.unwrap().get(0)
    }

    async fn change(&self, change: &str, entity: &KeyHash) {
        let update = format!("UPDATE {} SET {change} WHERE entity = $1", self.table);
        assert_eq!(self.admin.execute(&update, &[&&entity.as_bytes()[..16]]).await.unwrap(), 1);
    }

    /// Claims and completes an operation.
    async fn complete(&self, entity: &KeyHash, sequence: u64) -> ClaimRequest {
        let claim = ordered(entity, sequence);
        granted(&self.store, &claim).await;
        assert_eq!(settle_one(&self.store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
        claim
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_entity_has_one_row_and_unordered_operations_have_no_row() {
    let marks = Marks::new().await;
    granted(&marks.store, &claim()).await;
    assert_eq!(marks.count().await, 0);
    let entity = entity();
    for sequence in 1..=3 {
        marks.complete(&entity, sequence).await;
    }
    assert_eq!(marks.count().await, 1);
    let read = format!("SELECT newest, owner, cardinality(doubt_keys) FROM {}", marks.table);
    let row = marks.admin.query_one(&read, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), format!("{:064}", 3));
    assert_eq!((row.get::<_, Option<&[u8]>>(1), row.get::<_, i32>(2)), (None, 0));
}

/// A resolution keeps the version.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolved_mark_has_no_holder_and_keeps_its_version() {
    let marks = Marks::new().await;
    let entity = entity();
    let lost = ordered(&entity, 5);
    granted(&marks.store, &lost).await;
    marks.clock.advance(LAPSE);
    marks.change("v = 2", &entity).await;
    let of_mark = [Entity::of(&lost.key)];
    let request = ResolveRequest {
        entity: of_mark[0],
        read: marks.store.marks(&of_mark).await.remove(0).unwrap().unwrap(),
        skew_margin: MARGIN,
        retention: RETENTION,
        resolution: Resolution::TookEffect { sequence: 5_u64.into() },
    };
    assert_eq!(marks.store.resolve(&request).await.unwrap(), Amended::Changed);
    let read = format!("SELECT num_nulls(owner, key_hash, sequence, lease_until), v FROM {}", marks.table);
    let row = marks.admin.query_one(&read, &[]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_doubt_is_stored_without_a_key() {
    let marks = Marks::new().await;
    let entity = entity();
    let mut lost = Vec::new();
    for sequence in 1..=67 {
        let claim = ordered(&entity, sequence);
        granted(&marks.store, &claim).await;
        marks.clock.advance(LAPSE);
        lost.push(claim);
    }
    let row = marks.admin.query_one(&format!("SELECT doubt_keys, doubt_sequences FROM {}", marks.table), &[]).await;
    let row = row.unwrap();
    let keys: Vec<Option<&[u8]>> = row.get(0);
    let listed = lost[3..66].iter().map(|claim| Some(&claim.key.as_bytes()[..]));
    assert_eq!(keys, std::iter::once(None).chain(listed).collect::<Vec<_>>(), "the last is still the holder");
    let sequences: Vec<String> = row.get(1);
    assert_eq!(sequences, (3..=66).map(|sequence| format!("{sequence:064}")).collect::<Vec<_>>());
}

/// Another version may have listed more operations than this one does.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_lists_64_operations_in_doubt_at_most_however_many_it_had() {
    let marks = Marks::new().await;
    let (entity, hexadecimal) = (entity(), "decode(lpad(to_hex(n), 64, '0'), 'hex')");
    for sequence in 1..=67 {
        granted(&marks.store, &ordered(&entity, sequence)).await;
        marks.clock.advance(LAPSE);
        // The last is still the holder.
        assert_eq!(marks.doubts(&entity).await, (sequence as i32 - 1).min(64), "{sequence}");
    }
    for listed in [63, 64, 65, 66, 100] {
        let entity = support::requests::entity();
        granted(&marks.store, &ordered(&entity, 200)).await;
        marks.clock.advance(LAPSE);
        let list = |column| format!("(SELECT array_agg({column} ORDER BY n) FROM generate_series(1, {listed}) n)");
        let (keys, sequences) = (list(hexadecimal), list("lpad(n::text, 64, '0')"));
        marks.change(&format!("doubt_keys = {keys}, doubt_sequences = {sequences}"), &entity).await;
        let grant = granted(&marks.store, &ordered(&entity, 201)).await;
        assert_eq!((grant.has_merged_doubt, marks.doubts(&entity).await), (listed >= 64, 64), "{listed}");
    }
}

/// The lock on an entity without an order marker is a row that counts as absent.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_claim_leaves_no_mark() {
    let marks = Marks::new().await;
    let entity = entity();
    let done = marks.complete(&entity, 5).await;
    let delete = format!("DELETE FROM {}", marks.table);
    marks.admin.batch_execute(&delete).await.unwrap();
    let refused = claim_one(&marks.store, &rival(&done)).await.unwrap();
    assert!(matches!(refused, Claimed::Refused(Refusal::Completed(_))));
    assert_eq!(marks.count().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_deletes_expired_marks_after_the_records_within_its_limit() {
    let marks = Marks::new().await;
    marks.clock.set(MIDNIGHT.before(RETENTION + Duration::from_secs(1)));
    let entities: Vec<_> = (0..6).map(|_| entity()).collect();
    for entity in &entities {
        marks.complete(entity, 5).await;
    }
    marks.clock.set(MIDNIGHT.before(Duration::from_secs(1)));
    let living = entity();
    marks.complete(&living, 5).await;
    assert_eq!(marks.store.purge_expired(100).await.unwrap(), 0, "the day is not over");
    marks.clock.set(MIDNIGHT);

    let transaction = Transaction::begin().await;
    let hexadecimal = entities[0].to_string();
    let lock = format!("SELECT FROM {} WHERE entity = '\\x{}' FOR UPDATE", marks.table, &hexadecimal[..32]);
    transaction.execute(&lock).await;
    let mut steps = Vec::new();
    while steps.last() != Some(&0) {
        let purge = tokio::time::timeout(Duration::from_secs(30), marks.store.purge_expired(4));
        steps.push(purge.await.expect("it does not wait").unwrap());
    }
    assert_eq!(steps, [4, 4, 3, 0], "six records, and five marks");
    transaction.roll_back().await;
    assert_eq!(marks.store.purge_expired(4).await.unwrap(), 1);
    assert_eq!(marks.count().await, 1);
    let older = claim_one(&marks.store, &ordered(&living, 4)).await.unwrap();
    assert_eq!(older, Claimed::Refused(Refusal::Superseded { newest: 5_u64.into() }));
    granted(&marks.store, &ordered(&entities[0], 4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_format_is_an_error_that_another_deployment_may_cure() {
    let marks = Marks::new().await;
    for change in [
        "newest = repeat('x', 64)",
        "expiration = -1",
        "owner = '\\x01'",
        "owner = decode(repeat('00', 16), 'hex'), key_hash = NULL",
        "owner = decode(repeat('00', 16), 'hex'), key_hash = decode(repeat('00', 32), 'hex'), sequence = NULL, lease_until = 0",
        "doubt_keys = '{\"\\\\x01\"}'",
        "doubt_keys = '{\"\\\\x01\"}', doubt_sequences = '{1}'",
        "doubt_sequences = '{1}'",
    ] {
        let entity = entity();
        marks.complete(&entity, 5).await;
        marks.change(change, &entity).await;
        let next = ordered(&entity, 6);
        assert_eq!(of(&claim_one(&marks.store, &next).await.unwrap_err()), FORMAT, "{change}");
        if !change.contains("expiration") {
            marks.clock.advance(RETENTION);
            assert_eq!(granted(&marks.store, &next).await.attempt, 1, "{change}: an expired mark counts as absent");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_operation_is_replayed_even_if_its_mark_is_unreadable() {
    let marks = Marks::new().await;
    let entity = entity();
    let done = marks.complete(&entity, 5).await;
    marks.change("doubt_sequences = '{1}'", &entity).await;
    let again = claim_one(&marks.store, &rival(&done)).await;
    assert!(is_replay(&again, "1"), "{again:?}");
    // Its record shows that the settle was applied.
    let settled = settle_one(&marks.store, &done, complete("1")).await;
    assert!(matches!(settled, Ok(Settled::Done { found: Some(_) })), "{settled:?}");
}

/// A newer deployment may have written it.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_cannot_settle_while_the_mark_is_unreadable() {
    let marks = Marks::new().await;
    let entity = entity();
    let holder = ordered(&entity, 5);
    granted(&marks.store, &holder).await;
    marks.change("doubt_sequences = '{1}'", &entity).await;
    assert_eq!(of(&settle_one(&marks.store, &holder, complete("1")).await.unwrap_err()), FORMAT);
    marks.change("doubt_sequences = '{}'", &entity).await;
    assert_eq!(settle_one(&marks.store, &holder, complete("1")).await.unwrap(), Settled::Done { found: None });
}

// Tests G4.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_mark_that_cannot_be_read_counts_as_absent() {
    let marks = Marks::new().await;
    let (entity, unreadable) = (entity(), "doubt_keys = '{\"\\\\x01\"}', newest = repeat('9', 64), expiration = 0");
    let newest = async || {
        let select = format!("SELECT newest, cardinality(doubt_keys) FROM {}", marks.table);
        let row = marks.admin.query_one(&select, &[]).await.unwrap();
        (row.get::<_, Option<String>>(0), row.get::<_, i32>(1))
    };
    let claim = ordered(&entity, 5);
    granted(&marks.store, &claim).await;
    marks.change(unreadable, &entity).await;
    assert_eq!(marks.store.marks(&[Entity::of(&claim.key)]).await.remove(0).unwrap(), None);
    assert_eq!(settle_one(&marks.store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
    let completed = (Some(format!("{:064}", 5)), 0);
    assert_eq!(newest().await, completed);

    let next = ordered(&entity, 6);
    marks.change(unreadable, &entity).await;
    granted(&marks.store, &next).await;
    assert_eq!(newest().await, (None, 0));
    marks.clock.advance(LAPSE);
    marks.change(unreadable, &entity).await;
    let record = read_one(&marks.store, &next).await.unwrap();
    let amendment = Amendment::Settle { outcome: FinalStatus::Completed, result: json("7"), retention: RETENTION };
    let amended = marks.store.amend(&[AmendRequest::new(next.key, &record, amendment)]).await.remove(0);
    assert_eq!(amended.unwrap(), Amended::Changed);
    assert_eq!(newest().await, (Some(format!("{:064}", 6)), 0));
}

/// An unordered claim does the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_is_replaced_whatever_it_holds() {
    let marks = Marks::new().await;
    let entity = entity();
    let done = marks.complete(&entity, 5).await;
    let records = marks.table.replace("_marks", "");
    let unknown = format!("UPDATE {records} SET status = 9 WHERE key_hash = {}", literal(&done));
    marks.admin.batch_execute(&unknown).await.unwrap();
    assert_eq!(of(&claim_one(&marks.store, &rival(&done)).await.unwrap_err()), FORMAT);
    assert_eq!(settle_one(&marks.store, &done, complete("1")).await.unwrap(), Settled::LeaseLost { current: None });
    marks.clock.advance(RETENTION);
    assert_eq!(granted(&marks.store, &rival(&done)).await.attempt, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_an_unknown_version_is_left_to_newer_deployments() {
    let marks = Marks::new().await;
    let entity = entity();
    let holder = ordered(&entity, 5);
    granted(&marks.store, &holder).await;
    marks.change("v = 3", &entity).await;
    assert_eq!(of(&settle_one(&marks.store, &holder, complete("1")).await.unwrap_err()), FORMAT);
    assert_eq!(of(&claim_one(&marks.store, &ordered(&entity, 9)).await.unwrap_err()), FORMAT);
    assert!(matches!(read_one(&marks.store, &holder).await, Some(record) if record.settled_at.is_none()));
    marks.change("v = 2", &entity).await;
    assert_eq!(settle_one(&marks.store, &holder, complete("1")).await.unwrap(), Settled::Done { found: None });
    granted(&marks.store, &ordered(&entity, 9)).await;
    let read = format!("SELECT v FROM {}", marks.table);
    assert_eq!(marks.admin.query_one(&read, &[]).await.unwrap().get::<_, i32>(0), 1, "as the claim has written it");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_are_not_known_survive_every_write() {
    let marks = Marks::new().await;
    let records = marks.table.replace("_marks", "");
    for table in [&records, &marks.table] {
        let column = format!("ALTER TABLE {table} ADD COLUMN new text");
        marks.admin.batch_execute(&column).await.unwrap();
    }
    let entity = entity();
    let claim = ordered(&entity, 5);
    granted(&marks.store, &claim).await;
    marks.change("new = 'kept'", &entity).await;
    let plant = format!("UPDATE {records} SET new = 'kept' WHERE key_hash = {}", literal(&claim));
    marks.admin.batch_execute(&plant).await.unwrap();
    settle_one(&marks.store, &claim, RENEW).await.unwrap();
    marks.clock.advance(LAPSE);
    let taker = rival(&claim);
    assert!(granted(&marks.store, &taker).await.took_over());
    settle_one(&marks.store, &taker, HAND_BACK).await.unwrap();
    let next = rival(&claim);
    granted(&marks.store, &next).await;
    assert_eq!(settle_one(&marks.store, &next, complete("1")).await.unwrap(), Settled::Done { found: None });
    for table in [&records, &marks.table] {
        let kept = marks.admin.query_one(&format!("SELECT new FROM {table}"), &[]).await.unwrap();
        assert_eq!(kept.get::<_, &str>(0), "kept", "{table}");
    }
}
