//! Records that another version, or another program, has written.

use std::time::Duration;

use lambda_once::{
    Error, ErrorKind, ErrorStatus, RedisStore, Store,
    clock::{Clock, ManualClock, Timestamp},
    record::StoredResult,
    store::{
        ClaimRequest, Claimed, FinalStatus, Settled, Settlement,
        amend::{Amend, AmendRequest, Amended, Amendment},
    },
};
use redis::aio::MultiplexedConnection;

use super::{command, direct, store};
use crate::support::requests::{
    HAND_BACK, LAPSE, LEASE, MARGIN, RELEASE, RENEW, RETENTION, claim, claim_one, complete, is_granted, json, read_one,
    rival, settle_one,
};
use crate::support::{
    FUTURE,
    servers::Server,
    wire::{Protocol, Proxy, host_and_port},
};

struct World {
    server: Server,
    store: RedisStore,
    direct: MultiplexedConnection,
}

impl World {
    async fn new() -> Self {
        let server = Server::start("valkey", &[]);
        Self { store: store(server.url()), direct: direct(server.url()).await, server }
    }

    /// Records a claim, and changes one of its fields.
    async fn altered(&mut self, field: &str, value: &str) -> ClaimRequest {
        let request = claim();
        assert!(is_granted(&claim_one(&self.store, &request).await));
        command::<u32>(&mut self.direct, &["HSET", &name(&request), field, value]).await;
        request
    }
}

/// Returns the documented name of a record.
fn name(request: &ClaimRequest) -> String {
    let hex = request.key.to_hex();
    format!("once:{{{}}}{}", &hex[..32], &hex[32..])
}

fn is_of_format(error: &Error) -> bool {
    (error.kind(), error.status()) == (ErrorKind::Format, ErrorStatus::Temporary)
}

/// Returns the server's time.
async fn now(direct: &mut MultiplexedConnection) -> Timestamp {
    let (seconds, micros): (u64, u64) = command(direct, &["TIME"]).await;
    Timestamp::from_millis(seconds * 1_000 + micros / 1_000)
}

/// It may therefore block its key for longer than the run that sent it could have lasted.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_late_has_its_lease_from_its_arrival() {
    let mut world = World::new().await;
    let url = world.server.url();
    let proxy = Proxy::start(Protocol::Resp, host_and_port(url)).await;
    let late_store = store(&proxy.in_place_of(url));
    let mut held = proxy.on_command("EVALSHA").hold();
    let request = claim();
    let late = async {
        held.arrived().await;
        let (sent, mut arrives) = (now(&mut world.direct).await, now(&mut world.direct).await);
        while arrives <= sent {
            arrives = now(&mut world.direct).await;
        }
        held.release();
        arrives
    };
    let (granted, arrives) = tokio::join!(claim_one(&late_store, &request), late);
    let Ok(Claimed::Granted(grant)) = granted else { panic!("expected a grant, got {granted:?}") };
    assert!(grant.lease_until >= arrives.after(LEASE), "{arrives:?} {grant:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_an_unknown_format_is_neither_absent_nor_replaced() {
    let mut world = World::new().await;
    for (field, value) in [
        ("status", "PAUSED"),
        ("attempt", "often"),
        ("expiration", "never"),
        ("in_progress_expiration", "0x1"),
        ("attempt", "1.5"),
        ("expiration", "nan"),
        ("validation", "z"),
    ] {
        let request = world.altered(field, value).await;
        let error = claim_one(&world.store, &rival(&request)).await.unwrap_err();
        assert!(is_of_format(&error), "{field}: {error}");
        let error = world.store.read(&[request.key], request.result_data).await.remove(0).unwrap_err();
        assert!(is_of_format(&error), "{field}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_the_next_version_is_understood_and_one_beyond_is_refused() {
    let mut world = World::new().await;
    for (version, is_understood) in [("2", true), ("3", false), ("x", false)] {
        let request = world.altered("v", version).await;
        let words = ["HSET", &name(&request), "in_progress_expiration", "1"];
        command::<u32>(&mut world.direct, &words).await;
        match claim_one(&world.store, &rival(&request)).await {
            Ok(_) if is_understood => {}
            Err(error) if !is_understood => assert!(is_of_format(&error), "{version}: {error}"),
            other => panic!("{version}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settle_that_finds_an_unknown_format_has_lost_its_lease() {
    let mut world = World::new().await;
    let request = world.altered("status", "PAUSED").await;
    assert_eq!(settle_one(&world.store, &request, complete("1")).await.unwrap(), Settled::LeaseLost { current: None });
    assert_eq!(command::<String>(&mut world.direct, &["HGET", &name(&request), "status"]).await, "PAUSED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_holds_something_else_is_left_alone() {
    let mut world = World::new().await;
    let request = claim();
    command::<()>(&mut world.direct, &["SET", &name(&request), "text"]).await;
    let error = claim_one(&world.store, &request).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Table, ErrorStatus::Temporary), "{error}");
    assert!(error.to_string().contains("Redis returned WRONGTYPE: "), "{error}");
    assert_eq!(command::<String>(&mut world.direct, &["GET", &name(&request)]).await, "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_always_has_a_time_to_live_and_is_deleted_by_the_server() {
    let mut world = World::new().await;
    let request = claim();
    assert!(is_granted(&claim_one(&world.store, &request).await));
    for settlement in [RENEW, HAND_BACK] {
        let left: i64 = command(&mut world.direct, &["TTL", &name(&request)]).await;
        assert!((3599..=3601).contains(&left), "{left}");
        settle_one(&world.store, &request, settlement).await.unwrap();
    }
    let brief = ClaimRequest { retention: Duration::ZERO, ..claim() };
    assert!(is_granted(&claim_one(&world.store, &brief).await));
    let left: i64 = command(&mut world.direct, &["TTL", &name(&brief)]).await;
    assert!((31..=33).contains(&left), "as long as the lease and the margin: {left}");
    let settlement = Settlement::complete(json("1"), Duration::ZERO);
    assert_eq!(settle_one(&world.store, &brief, settlement).await.unwrap(), Settled::Done { found: None });
    let left: i64 = command(&mut world.direct, &["TTL", &name(&brief)]).await;
    assert!((-2..=1).contains(&left) && left != -1, "gone, or about to be: {left}");
}

/// A claim that has lapsed must be found: its record expires in the second of its last millisecond, or after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_record_expires_when_its_claim_has_lapsed() {
    let (server, clock) = (Server::start("valkey", &[]), ManualClock::at(FUTURE));
    let store = store(server.url()).with_clock(clock.clone());
    let request = ClaimRequest { retention: Duration::ZERO, ..claim() };
    assert!(is_granted(&claim_one(&store, &request).await));
    // Then lease and margin end in the last millisecond of a second.
    clock.advance(Duration::from_millis(1_999));
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: Duration::ZERO };
    settle_one(&store, &request, renew).await.unwrap();
    let expiration = read_one(&store, &request).await.unwrap().expiration;
    assert_eq!(expiration, Some(FUTURE.seconds_rounded_down() + 2 + 31));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_without_a_result_adds_no_field_for_it() {
    let mut world = World::new().await;
    let request = claim();
    assert!(is_granted(&claim_one(&world.store, &request).await));
    let settlement = Settlement::complete(StoredResult::default(), RETENTION);
    settle_one(&world.store, &request, settlement).await.unwrap();
    let mut fields: Vec<String> = command(&mut world.direct, &["HKEYS", &name(&request)]).await;
    fields.sort_unstable();
    let of_a_claim =
        ["attempt", "claimed_at", "expiration", "in_progress_expiration", "operation", "owner", "prior_status"];
    assert_eq!(fields, [&of_a_claim[..], &["settled_at", "status", "v", "validation"]].concat());
}

/// Returns the number of bytes that the server has sent.
async fn sent(direct: &mut MultiplexedConnection) -> u64 {
    let stats: String = command(direct, &["INFO", "stats"]).await;
    stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")?.parse().ok()).expect("it is counted")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settle_that_needs_no_result_is_refused_without_it() {
    let World { server: _server, store, mut direct } = World::new().await;
    let large = format!("\"{}\"", "x".repeat(500_000));
    let request = claim();
    assert!(is_granted(&claim_one(&store, &request).await));
    for settlement in [complete(&*large), complete(&*large), RELEASE, HAND_BACK] {
        let before = sent(&mut direct).await;
        assert!(matches!(settle_one(&store, &request, settlement).await, Ok(Settled::Done { .. })));
        assert!(sent(&mut direct).await - before < 100_000);
    }
    let before = sent(&mut direct).await;
    let overtaken = settle_one(&store, &rival(&request), complete("1")).await.unwrap();
    assert!(matches!(overtaken, Settled::LeaseLost { current: Some(record) } if record.result == json(&*large)));
    assert!(sent(&mut direct).await - before > 500_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_known_survives_every_write() {
    let mut world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    world.store = world.store.with_clock(clock.clone());
    let request = world.altered("new", "kept").await;
    let name = name(&request);
    settle_one(&world.store, &request, RENEW).await.unwrap();
    clock.advance(LAPSE);
    let taker = rival(&request);
    assert!(is_granted(&claim_one(&world.store, &taker).await));
    settle_one(&world.store, &taker, HAND_BACK).await.unwrap();
    let next = rival(&request);
    assert!(is_granted(&claim_one(&world.store, &next).await));
    assert_eq!(settle_one(&world.store, &next, complete("1")).await.unwrap(), Settled::Done { found: None });
    assert_eq!(command::<String>(&mut world.direct, &["HGET", &name, "new"]).await, "kept");
    // The server deletes records only by its own clock.
    clock.advance(RETENTION + Duration::from_secs(1));
    assert!(is_granted(&claim_one(&world.store, &rival(&request)).await));
    assert_eq!(command::<String>(&mut world.direct, &["HGET", &name, "new"]).await, "kept");
}

/// Only an operator's forgetting ends a claim without a lease, which nothing else can judge.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_a_lease_is_only_forgotten() {
    let mut world = World::new().await;
    let claim = claim();
    assert!(is_granted(&claim_one(&world.store, &claim).await));
    command::<u32>(&mut world.direct, &["HDEL", &name(&claim), "in_progress_expiration"]).await;
    let record = read_one(&world.store, &claim).await.unwrap();
    let amended = async |amendment| {
        let request = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(claim.key, &record, amendment) };
        world.store.amend(&[request]).await.remove(0).unwrap()
    };
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: StoredResult::default(), retention: RETENTION };
    for amendment in [settle, Amendment::Release] {
        assert_eq!(amended(amendment).await, Amended::Unchanged { current: Box::new(record.clone()) });
    }
    assert_eq!(amended(Amendment::Forget { completed: false }).await, Amended::Changed);
    assert_eq!(read_one(&world.store, &claim).await, None);
}

/// The outcome that an operator records lives as long as one that a run records, and has no other fields.
#[tokio::test(flavor = "multi_thread")]
async fn an_operators_settle_writes_an_outcome_and_its_time_to_live() {
    let mut world = World::new().await;
    let clock = ManualClock::at(now(&mut world.direct).await);
    let store = world.store.clone().with_clock(clock.clone());
    let claim = ClaimRequest { retention: LEASE, ..claim() };
    assert!(is_granted(&claim_one(&store, &claim).await));
    clock.advance(LAPSE);
    let record = read_one(&store, &claim).await.unwrap();
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: StoredResult::default(), retention: RETENTION };
    let request = AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(claim.key, &record, settle) };
    assert_eq!(store.amend(&[request]).await.remove(0).unwrap(), Amended::Changed);
    let mut fields: Vec<String> = command(&mut world.direct, &["HKEYS", &name(&claim)]).await;
    fields.sort_unstable();
    let expected = [
        "attempt",
        "claimed_at",
        "expiration",
        "in_progress_expiration",
        "operation",
        "prior_status",
        "settled_at",
        "status",
        "v",
        "validation",
    ];
    assert_eq!(fields, expected);
    let expires: u64 = command(&mut world.direct, &["PEXPIRETIME", &name(&claim)]).await;
    let settled_at = clock.now().as_millis();
    assert!((settled_at + 3_600_000..settled_at + 3_601_000).contains(&expires), "{expires} after {settled_at}");
}

/// An expired record counts as absent, whatever it contains.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_with_an_unknown_attempt_starts_again() {
    let mut world = World::new().await;
    let claim = world.altered("attempt", "many").await;
    command::<u32>(&mut world.direct, &["HSET", &name(&claim), "expiration", "1"]).await;
    let claimed = claim_one(&world.store, &rival(&claim)).await.unwrap();
    assert!(matches!(claimed, Claimed::Granted(grant) if grant.attempt == 1), "{claimed:?}");
}
