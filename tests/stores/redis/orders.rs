//! The order markers of entities.

use std::{collections::HashMap, time::Duration};

use lambda_once::{
    Error, ErrorKind, ErrorStatus, RedisStore, Store,
    clock::{Clock, ManualClock},
    order::{Entity, Mark, Order, Sequence},
    record::{KeyHash, Record},
    store::{
        ClaimRequest, Claimed, Refusal, Settled,
        amend::{Amend, Amended, Resolution, ResolveRequest},
    },
};
use redis::aio::MultiplexedConnection;

use super::{command, direct, store};
use crate::support::{
    FUTURE,
    requests::{
        HAND_BACK, LAPSE, LEASE, MARGIN, RELEASE, RENEW, RETENTION, claim, claim_one, complete, granted, is_granted,
        is_replay, read_one, rival, settle_one,
    },
    server,
    servers::Server,
    wire::{Protocol, Proxy, Request, host_and_port},
};

/// The retention of order markers, longer than the retention of records.
const MARK_RETENTION: Duration = Duration::from_secs(7_200);

/// Returns a claim of an operation of the same entity as the other claim's key.
pub(super) fn ordered(entity: &ClaimRequest, sequence: u64) -> ClaimRequest {
    let claim = claim();
    let order = Order { sequence: sequence.into(), retention: MARK_RETENTION };
    ClaimRequest { key: KeyHash::ordered(&entity.key, &claim.key), order: Some(order), ..claim }
}

/// Returns the documented names of the operation's record and of its entity's order marker.
fn names(request: &ClaimRequest) -> (String, String) {
    let hex = request.key.to_hex();
    let (entity, operation) = hex.split_at(32);
    (format!("once:{{{entity}}}{operation}"), format!("once:{{{entity}}}mark"))
}

fn operation(request: &ClaimRequest) -> String {
    request.key.to_hex().split_off(32)
}

fn digits(sequence: u64) -> String {
    Sequence::from(sequence).to_digits()
}

fn is_throttled(answer: &Result<Claimed, Error>) -> bool {
    matches!(answer, Err(error) if (error.kind(), error.status()) == (ErrorKind::Throttled, ErrorStatus::Temporary))
}

struct World {
    _server: Server,
    clock: ManualClock,
    store: RedisStore,
    direct: MultiplexedConnection,
}

impl World {
    async fn new() -> Self {
        let server = Server::start("valkey", &["maxmemory-policy=noeviction"]);
        let clock = ManualClock::at(FUTURE);
        let store = store(server.url()).with_clock(clock.clone());
        Self { clock, store, direct: direct(server.url()).await, _server: server }
    }

    /// Claims an operation, and lets its lease end without a settle.
    async fn abandoned(&self, entity: &ClaimRequest, sequence: u64) -> ClaimRequest {
        let claim = ordered(entity, sequence);
        granted(&self.store, &claim).await;
        self.clock.advance(LAPSE);
        claim
    }

    async fn completed(&self, claim: &ClaimRequest, text: &str) {
        let settled = settle_one(&self.store, claim, complete(text)).await.unwrap();
        assert_eq!(settled, Settled::Done { found: None });
    }

    /// Returns the operation's record, and the order marker of its entity.
    async fn stored(&mut self, claim: &ClaimRequest) -> (Option<Record>, HashMap<String, String>) {
        (read_one(&self.store, claim).await, self.mark(claim).await)
    }

    async fn mark(&mut self, claim: &ClaimRequest) -> HashMap<String, String> {
        command(&mut self.direct, &["HGETALL", &names(claim).1]).await
    }

    async fn fill_memory(&mut self) {
        command::<()>(&mut self.direct, &["CONFIG", "SET", "maxmemory", "1"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_has_the_documented_fields_and_a_time_to_live() {
    let mut world = World::new().await;
    let entity = claim();
    let lost = world.abandoned(&entity, 5).await;
    let holder = ordered(&entity, 7);
    let lease_until = granted(&world.store, &holder).await.lease_until;
    let expiration = world.clock.now().after(MARK_RETENTION).seconds_rounded_up();
    let fields =
        |fields: &[(&str, String)]| fields.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    let held: HashMap<_, _> = fields(&[
        ("owner", holder.owner.to_hex()),
        ("holder", operation(&holder)),
        ("sequence", digits(7)),
        ("in_progress_expiration", lease_until.as_millis().to_string()),
        ("doubt", format!("{} {},", digits(5), operation(&lost))),
        ("expiration", expiration.to_string()),
        ("v", "1".to_owned()),
    ]);
    assert_eq!(world.mark(&holder).await, held);

    world.completed(&holder, "1").await;
    let free: HashMap<_, _> =
        fields(&[("newest", digits(7)), ("expiration", expiration.to_string()), ("v", "1".to_owned())]);
    assert_eq!(world.mark(&holder).await, free);
    let until: u64 = command(&mut world.direct, &["EXPIRETIME", &names(&holder).1]).await;
    assert_eq!(until, expiration);
}

/// Leases and margins that end with a second, and in its last millisecond.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_outlasts_its_holder_and_stays_expired() {
    for (claimed_after, renewed_after, expirations) in
        [(0, 1_000, [32, 33]), (1_999, 0, [33, 33]), (0, 1_999, [32, 33])]
    {
        let mut world = World::new().await;
        let order = Order { sequence: 5_u64.into(), retention: Duration::ZERO };
        let holder = ClaimRequest { order: Some(order), ..ordered(&claim(), 5) };
        let expected = expirations.map(|seconds| (FUTURE.seconds_rounded_down() + seconds).to_string());
        world.clock.advance(Duration::from_millis(claimed_after));
        granted(&world.store, &holder).await;
        assert_eq!(world.mark(&holder).await["expiration"], expected[0]);
        world.clock.advance(Duration::from_millis(renewed_after));
        settle_one(&world.store, &holder, RENEW).await.unwrap();
        let mark = world.mark(&holder).await;
        assert_eq!(mark["expiration"], expected[1]);
        world.clock.advance(LAPSE + LAPSE);
        settle_one(&world.store, &holder, RELEASE).await.unwrap();
        assert_eq!(world.mark(&holder).await, mark);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolved_mark_has_the_time_to_live_of_its_expiration() {
    let mut world = World::new().await;
    let lost = world.abandoned(&claim(), 5).await;
    let entity = Entity::of(&lost.key);
    let read = world.store.marks(&[entity]).await.remove(0).unwrap().unwrap();
    let resolution = Resolution::NoEffect { sequences: vec![5_u64.into()] };
    let retention = 3 * MARK_RETENTION;
    let request = ResolveRequest { entity, read, skew_margin: MARGIN, retention, resolution };
    assert_eq!(world.store.resolve(&request).await.unwrap(), Amended::Changed);
    let until: u64 = command(&mut world.direct, &["EXPIRETIME", &names(&lost).1]).await;
    assert_eq!(until, world.clock.now().after(retention).seconds_rounded_up());
}

/// Others may change the mark between its read and its write.
// Tests O8.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolution_is_written_once_and_not_over_a_change() {
    let server = Server::start("valkey", &[]);
    let proxy = Proxy::start(Protocol::Resp, host_and_port(server.url())).await;
    let clock = ManualClock::at(FUTURE);
    let store = store(&proxy.in_place_of(server.url())).with_clock(clock.clone());
    let mut direct = direct(server.url()).await;
    // The script, the number of keys, the key, the time, and the fields before and after.
    let writes = |request: &Request| request.arguments.len() == 20;
    for is_changed in [false, true] {
        let lost = ordered(&claim(), 5);
        granted(&store, &lost).await;
        clock.advance(LAPSE);
        let entity = Entity::of(&lost.key);
        let read = store.marks(&[entity]).await.remove(0).unwrap().unwrap();
        let resolution = Resolution::NoEffect { sequences: vec![5_u64.into()] };
        let request =
            ResolveRequest { entity, read: read.clone(), skew_margin: MARGIN, retention: RETENTION, resolution };
        proxy.reset();
        let answer = if is_changed {
            let mut write = proxy.on(writes).hold();
            let change = async {
                write.arrived().await;
                command::<u32>(&mut direct, &["HSET", &names(&lost).1, "newest", &digits(4)]).await;
                write.release();
            };
            tokio::join!(store.resolve(&request), change).0
        } else {
            store.resolve(&request).await
        };
        let current = Box::new(Mark { newest: Some(4_u64.into()), ..read });
        assert_eq!(answer.unwrap(), if is_changed { Amended::Unchanged { current } } else { Amended::Changed });
        let requests = proxy.requests();
        assert_eq!(requests.iter().filter(|request| writes(request)).count(), 1);
        assert_eq!(requests.last().map(writes), Some(!is_changed), "only a refused write is followed by a read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_doubt_is_stored_without_an_operation() {
    let mut world = World::new().await;
    let entity = claim();
    let mut lost = Vec::new();
    for sequence in 1..=67 {
        lost.push(world.abandoned(&entity, sequence).await);
    }
    let listed =
        lost[3..66].iter().zip(4..).map(|(claim, sequence)| format!("{} {},", digits(sequence), operation(claim)));
    let doubt = format!("{} ,{}", digits(3), listed.collect::<String>());
    assert_eq!(world.mark(&lost[66]).await["doubt"], doubt, "the last is still the holder");
}

/// Returns the number of in-doubt operations in the order marker.
fn doubts(mark: &HashMap<String, String>) -> usize {
    mark.get("doubt").map_or(0, |doubt| doubt.matches(',').count())
}

/// Another version may have listed more operations than this one does.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_lists_64_operations_in_doubt_at_most_however_many_it_had() {
    let mut world = World::new().await;
    let entity = claim();
    for sequence in 1..=67 {
        let lost = world.abandoned(&entity, sequence).await;
        // The last is still the holder.
        assert_eq!(doubts(&world.mark(&lost).await), (sequence as usize - 1).min(64), "{sequence}");
    }
    for listed in [63, 64, 65, 66, 100] {
        let entity = claim();
        let holder = world.abandoned(&entity, 200).await;
        // The two lowest are equal.
        let operations = (1..=listed).map(|sequence| format!("{} {},", digits(sequence.max(2)), operation(&claim())));
        let doubt: String = operations.collect();
        command::<u32>(&mut world.direct, &["HSET", &names(&holder).1, "doubt", &doubt]).await;
        let next = ordered(&entity, 201);
        assert_eq!(granted(&world.store, &next).await.has_merged_doubt, listed >= 64, "{listed}");
        let mark = world.mark(&next).await;
        assert_eq!(doubts(&mark), 64, "{listed}");
        let merged = format!("{} ,", digits(listed + 2 - 64));
        assert_eq!(mark["doubt"].starts_with(&merged), listed >= 64, "{listed}: {mark:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_has_the_slot_of_its_entitys_records() {
    let urls = server("REDIS_CLUSTER_URL");
    let mut direct = direct(urls.split(',').next().unwrap()).await;
    let (one, other) = (claim(), claim());
    let mut slots = Vec::new();
    for request in [ordered(&one, 1), ordered(&one, 2), ordered(&other, 1)] {
        let (record, mark) = names(&request);
        let slot: u16 = command(&mut direct, &["CLUSTER", "KEYSLOT", &record]).await;
        assert_eq!(command::<u16>(&mut direct, &["CLUSTER", "KEYSLOT", &mark]).await, slot);
        slots.push(slot);
    }
    assert_eq!(slots[0], slots[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_free_memory_a_claim_changes_neither_the_record_nor_the_mark() {
    let mut world = World::new().await;
    let (one, other) = (claim(), claim());
    let lost = world.abandoned(&one, 5).await;
    let before = world.stored(&lost).await;
    world.fill_memory().await;
    for (name, refused) in
        [("a new entity", ordered(&other, 1)), ("a new operation", ordered(&one, 6)), ("a takeover", rival(&lost))]
    {
        assert!(is_throttled(&claim_one(&world.store, &refused).await), "{name}");
    }
    assert_eq!(world.stored(&lost).await, before);
    assert_eq!(world.stored(&ordered(&other, 1)).await, (None, HashMap::new()));
    // A refusal needs no memory.
    let waits = claim_one(&world.store, &ordered(&one, 4)).await.unwrap();
    assert!(matches!(waits, Claimed::Refused(Refusal::InProgress { .. })), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_free_memory_a_settle_still_changes_the_record_and_the_mark() {
    let mut world = World::new().await;
    let mut holders = Vec::new();
    for _ in 0..4 {
        let entity = claim();
        world.abandoned(&entity, 5).await;
        holders.push(ordered(&entity, 7));
    }
    for holder in &holders {
        granted(&world.store, holder).await;
    }
    let [done, renewed, released, handed_back] = &holders[..] else { unreachable!("there are four") };
    world.fill_memory().await;
    world.completed(done, &format!("\"{}\"", "x".repeat(100_000))).await;
    assert_eq!(world.mark(done).await.get("newest"), Some(&digits(7)));
    let until = world.clock.now().after(LEASE).as_millis().to_string();
    world.clock.advance(Duration::from_secs(1));
    assert!(matches!(settle_one(&world.store, renewed, RENEW).await.unwrap(), Settled::Renewed { .. }));
    assert!(world.mark(renewed).await["in_progress_expiration"] > until);
    for (request, settlement) in [(released, RELEASE), (handed_back, HAND_BACK)] {
        assert_eq!(settle_one(&world.store, request, settlement).await.unwrap(), Settled::Done { found: None });
        assert_eq!(world.mark(request).await.get("owner"), None);
    }
    let superseded = claim_one(&world.store, &ordered(done, 6)).await.unwrap();
    assert_eq!(superseded, Claimed::Refused(Refusal::Superseded { newest: 7_u64.into() }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_not_known_stops_claims_and_no_settle() {
    let mut world = World::new().await;
    // They sort before every sequence.
    let (short, negative) = ("0", format!("-{:063}", 7));
    for (field, value) in [
        ("newest", "7"),
        ("newest", "newer"),
        ("newest", short),
        ("newest", &negative),
        ("sequence", "7"),
        ("sequence", short),
        ("sequence", &negative),
        ("in_progress_expiration", "soon"),
        ("doubt", "7"),
        ("doubt", "everything,"),
        ("expiration", "never"),
    ] {
        let entity = claim();
        let holder = ordered(&entity, 5);
        granted(&world.store, &holder).await;
        command::<u32>(&mut world.direct, &["HSET", &names(&holder).1, field, value]).await;
        world.clock.advance(LAPSE);
        let (refused, before) = (ordered(&entity, 9), world.mark(&holder).await);
        let error = claim_one(&world.store, &refused).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Format, ErrorStatus::Temporary), "{field}: {error}");
        assert_eq!(world.stored(&refused).await, (None, before), "{field}");
        world.completed(&holder, "1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_operation_is_replayed_even_if_its_mark_is_unreadable() {
    let mut world = World::new().await;
    let done = ordered(&claim(), 5);
    granted(&world.store, &done).await;
    world.completed(&done, "1").await;
    command::<u32>(&mut world.direct, &["HSET", &names(&done).1, "doubt", "everything,"]).await;
    let again = claim_one(&world.store, &rival(&done)).await;
    assert!(is_replay(&again, "1"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_something_else_is_left_alone_and_so_is_the_record() {
    let mut world = World::new().await;
    let request = ordered(&claim(), 5);
    let mark = names(&request).1;
    command::<()>(&mut world.direct, &["SET", &mark, "text"]).await;
    let error = claim_one(&world.store, &request).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Table, ErrorStatus::Temporary), "{error}");
    assert_eq!(read_one(&world.store, &request).await, None);
    assert_eq!(command::<String>(&mut world.direct, &["GET", &mark]).await, "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_servers_clock_a_mark_holds_its_entity_until_it_expires() {
    let server = Server::start("valkey", &[]);
    let (store, mut direct) = (store(server.url()), direct(server.url()).await);
    let entity = claim();
    let brief = ordered(&entity, 5);
    let order = Order { sequence: 5_u64.into(), retention: Duration::ZERO };
    let brief = ClaimRequest { order: Some(order), ..brief };
    granted(&store, &brief).await;
    assert!(!is_granted(&claim_one(&store, &ordered(&entity, 6)).await));
    let mark = names(&brief).1;
    let left: i64 = command(&mut direct, &["TTL", &mark]).await;
    assert!((31..=33).contains(&left), "as long as the lease and the margin: {left}");
    assert_eq!(settle_one(&store, &brief, complete("1")).await.unwrap(), Settled::Done { found: None });
    let next = ordered(&entity, 6);
    granted(&store, &next).await;
    let left: i64 = command(&mut direct, &["TTL", &mark]).await;
    assert!((7_195..=7_201).contains(&left), "{left}");
    assert!(RETENTION < MARK_RETENTION, "the mark's, not the record's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_call_of_one_entity_returns_results_in_request_order() {
    let store = store(&server("REDIS_URL"));
    let entity = claim();
    let mut requests: Vec<_> = (1..=250).map(|sequence| ordered(&entity, sequence)).collect();
    requests.extend((0..50).map(|_| claim()));
    let answers = store.claim(&requests).await;
    assert!(is_granted(&answers[0]) && answers[250..].iter().all(is_granted));
    let waits = |answer: &Result<_, _>| matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { .. })));
    assert!(answers[1..250].iter().all(waits));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_an_unknown_version_is_left_to_newer_deployments() {
    let mut world = World::new().await;
    let entity = claim();
    let holder = ordered(&entity, 5);
    granted(&world.store, &holder).await;
    let mark = names(&holder).1;
    for version in ["3", "x"] {
        command::<u32>(&mut world.direct, &["HSET", &mark, "v", version]).await;
        let before = world.stored(&holder).await;
        let of_format = |error: Error| (error.kind(), error.status()) == (ErrorKind::Format, ErrorStatus::Temporary);
        assert!(of_format(settle_one(&world.store, &holder, complete("1")).await.unwrap_err()), "{version}");
        assert!(of_format(claim_one(&world.store, &ordered(&entity, 9)).await.unwrap_err()), "{version}");
        assert_eq!(world.stored(&holder).await, before, "{version}");
    }
    for (field, value) in [("v", "2"), ("new", "kept")] {
        command::<u32>(&mut world.direct, &["HSET", &mark, field, value]).await;
    }
    world.completed(&holder, "1").await;
    granted(&world.store, &ordered(&entity, 9)).await;
    assert_eq!(world.mark(&holder).await["new"], "kept");
}

/// The mark may have fields that only its version knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_settle_keeps_the_version_of_a_mark_and_a_claim_replaces_it() {
    let mut world = World::new().await;
    let entity = claim();
    for (sequence, end) in (1..).zip([complete("1"), RELEASE, HAND_BACK]) {
        let holder = ordered(&entity, sequence);
        granted(&world.store, &holder).await;
        assert_eq!(world.mark(&holder).await["v"], "1");
        command::<u32>(&mut world.direct, &["HSET", &names(&holder).1, "v", "2"]).await;
        for settlement in [RENEW, end] {
            let settled = settle_one(&world.store, &holder, settlement).await.unwrap();
            assert!(!matches!(settled, Settled::LeaseLost { .. }), "{settled:?}");
            assert_eq!(world.mark(&holder).await["v"], "2");
        }
    }
    let holder = ordered(&entity, 4);
    granted(&world.store, &holder).await;
    command::<u32>(&mut world.direct, &["DEL", &names(&holder).1]).await;
    world.completed(&holder, "1").await;
    assert_eq!(world.mark(&holder).await["v"], "1", "of a mark that the completion creates");
}
