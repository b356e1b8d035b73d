//! The sorted set that lists read instead of scanning the keys.

use std::{collections::BTreeSet, time::Duration};

use lambda_once::{
    Error, ErrorKind, ErrorStatus, RedisStore,
    clock::ManualClock,
    store::{
        ClaimRequest, FinalStatus, Settlement,
        amend::{Amend, AmendRequest, Amended, Amendment},
        listing::{Cursor, List, ListRequest, ListedState},
        redis::Config,
    },
};

use super::{PATIENCE, command, direct, orders::ordered, permissions};
use crate::support::{
    FUTURE,
    requests::{
        HAND_BACK, LAPSE, RELEASE, RENEW, RETENTION, claim, claim_one, claims, complete, granted, is_granted, json,
        read_one, rival, settle_one,
    },
    server,
    servers::Server,
};

fn config(url: &str) -> Config {
    Config::new(url).connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

fn indexed(url: &str, clock: &ManualClock) -> RedisStore {
    config(url).listing_index(true).build().unwrap().with_clock(clock.clone())
}

fn fail(retention: Duration) -> Settlement {
    let result = json("\"declined\"");
    Settlement::Record { outcome: FinalStatus::Failed, result, retention }
}

/// The names of records, by the documentation.
fn names<'a>(requests: impl IntoIterator<Item = &'a ClaimRequest>) -> BTreeSet<String> {
    let name = |request: &ClaimRequest| {
        let hex = request.key.to_hex();
        format!("once:{{{}}}{}", &hex[..32], &hex[32..])
    };
    requests.into_iter().map(name).collect()
}

async fn entries(server: &Server) -> BTreeSet<String> {
    command(&mut direct(server.url()).await, &["ZRANGE", "once:open", "0", "-1"]).await
}

async fn amend(store: &RedisStore, claim: &ClaimRequest, amendment: Amendment) {
    let record = read_one(store, claim).await.unwrap();
    let amended = store.amend(&[AmendRequest::new(claim.key, &record, amendment)]).await.remove(0).unwrap();
    assert!(matches!(amended, Amended::Changed), "{amended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_has_the_records_without_a_success() {
    let (server, clock) = (Server::start("valkey", &[]), ManualClock::at(FUTURE));
    let store = indexed(server.url(), &clock);
    let [begun, handed_back, renewed, failed] = [(); 4].map(|()| claim());
    let [done, released, forgotten, looked_up] = [(); 4].map(|()| claim());
    let [in_order, done_in_order] = [1, 2].map(|sequence| ordered(&claim(), sequence));
    let all =
        [&begun, &handed_back, &renewed, &failed, &done, &released, &forgotten, &looked_up, &in_order, &done_in_order];
    for request in all {
        granted(&store, request).await;
    }
    assert_eq!(entries(&server).await, names(all));
    for (request, settlement) in [
        (&handed_back, HAND_BACK),
        (&renewed, RENEW),
        (&failed, fail(RETENTION)),
        (&done, complete("1")),
        (&released, RELEASE),
        (&done_in_order, complete("1")),
    ] {
        settle_one(&store, request, settlement).await.unwrap();
    }
    clock.advance(LAPSE + LAPSE);
    amend(&store, &forgotten, Amendment::Forget { completed: false }).await;
    let found = Amendment::Settle { outcome: FinalStatus::Completed, result: json("1"), retention: RETENTION };
    amend(&store, &looked_up, found).await;
    amend(&store, &begun, Amendment::Release).await;
    amend(&store, &failed, Amendment::Redact).await;
    assert_eq!(entries(&server).await, names([&begun, &handed_back, &renewed, &failed, &in_order]));

    for settled in claims(20) {
        granted(&store, &settled).await;
        settle_one(&store, &settled, complete("1")).await.unwrap();
    }
    let page = store.list(&ListRequest::new(ListedState::Failed)).await.unwrap();
    assert_eq!(page.read, 5, "completed records are not read");
    assert_eq!(page.records.iter().map(|found| found.key).collect::<Vec<_>>(), [failed.key]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_expired_records_leave_ten_at_a_claim() {
    let (server, clock) = (Server::start("valkey", &[]), ManualClock::at(FUTURE));
    let store = indexed(server.url(), &clock);
    let expired = claims(25);
    for request in &expired {
        granted(&store, request).await;
    }
    clock.advance(2 * RETENTION);
    let mut claimed = Vec::new();
    // A key that is claimed anew is not expired any more.
    for (request, left) in [(&rival(&expired[7]), 24 - 10), (&claim(), 24 - 20), (&claim(), 0)] {
        granted(&store, request).await;
        claimed.push(request.clone());
        let found = entries(&server).await;
        assert!(found.is_superset(&names(&claimed)));
        assert_eq!(found.len(), claimed.len() + left);
    }
}

/// A claim removes the entries of expired records. Expirations are whole seconds.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_lives_as_long_as_its_record() {
    let (server, clock) = (Server::start("valkey", &[]), ManualClock::at(FUTURE));
    let store = indexed(server.url(), &clock);
    let [shorter, equal, longer, next, last] = [(); 5].map(|()| claim());
    let second = Duration::from_secs(1);
    // The claims themselves have `RETENTION`.
    for (request, retention) in [(&shorter, RETENTION - second), (&equal, RETENTION), (&longer, RETENTION + second)] {
        granted(&store, request).await;
        settle_one(&store, request, fail(retention)).await.unwrap();
    }
    clock.advance(RETENTION - second / 2);
    granted(&store, &next).await;
    assert_eq!(entries(&server).await, names([&equal, &longer, &next]));
    clock.advance(second);
    granted(&store, &last).await;
    assert_eq!(entries(&server).await, names([&longer, &next, &last]));
}

/// A function without the index completes operations that one with it has claimed.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_left_behind_is_not_listed() {
    let (server, clock) = (Server::start("valkey", &[]), ManualClock::at(FUTURE));
    let (store, plain) = (indexed(server.url(), &clock), config(server.url()).build().unwrap().with_clock(clock));
    let (done, gone) = (claim(), claim());
    for (request, settlement) in [(&done, complete("1")), (&gone, RELEASE)] {
        granted(&store, request).await;
        settle_one(&plain, request, settlement).await.unwrap();
    }
    assert_eq!(entries(&server).await, names([&done, &gone]));
    for state in [ListedState::InProgress, ListedState::Lapsed, ListedState::Failed] {
        let page = store.list(&ListRequest::new(state)).await.unwrap();
        assert_eq!((page.read, page.records.len()), (2, 0), "{state:?}");
    }
}

/// The index cannot be incomplete without an error.
#[tokio::test(flavor = "multi_thread")]
async fn without_permission_to_write_the_index_nothing_is_claimed() {
    let (server, clock) = (Server::start("valkey", &[]), ManualClock::at(FUTURE));
    let mut admin = direct(server.url()).await;
    permissions::allow_documented(&mut admin).await;
    let store = indexed(&permissions::as_user(server.url()), &clock);
    for rules in ["-zadd -zrange -zrem", "-zadd +zrange +zrem", "+zadd -zrange +zrem", "+zadd +zrange -zrem"] {
        permissions::allow(&mut admin, rules).await;
        let request = claim();
        let error = claim_one(&store, &request).await.unwrap_err();
        assert!(permissions::denied_in_script(&error), "{rules}: {error}");
        assert_eq!(read_one(&store, &request).await, None, "{rules}");
    }
    permissions::allow(&mut admin, "+zadd +zrange +zrem").await;
    let request = claim();
    granted(&store, &request).await;
    assert!(permissions::denied(&store.list(&ListRequest::new(ListedState::InProgress)).await.unwrap_err()));
    permissions::allow(&mut admin, "+zscan").await;
    let page = store.list(&ListRequest::new(ListedState::InProgress)).await.unwrap();
    assert_eq!(page.records.len(), 1);
    // An outcome is recorded all the same.
    permissions::allow(&mut admin, "-zrem -zadd").await;
    settle_one(&store, &request, complete("1")).await.unwrap();
    assert!(entries(&server).await.is_superset(&names([&request])));
    assert_eq!(store.list(&ListRequest::new(ListedState::InProgress)).await.unwrap().records.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_refuses_claims_but_settles_and_indexes() {
    let (server, clock) = (Server::start("valkey", &["maxmemory-policy=noeviction"]), ManualClock::at(FUTURE));
    let store = indexed(server.url(), &clock);
    let [done, failed, renewed] = [(); 3].map(|()| claim());
    for request in [&done, &failed, &renewed] {
        granted(&store, request).await;
    }
    command::<()>(&mut direct(server.url()).await, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = claim();
    let error = claim_one(&store, &refused).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Throttled, ErrorStatus::Temporary));
    assert_eq!(read_one(&store, &refused).await, None);
    for (request, settlement) in [(&done, complete("1")), (&failed, fail(RETENTION)), (&renewed, RENEW)] {
        settle_one(&store, request, settlement).await.unwrap();
    }
    assert_eq!(entries(&server).await, names([&failed, &renewed]));
}

fn assert_is_config(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("index"), "{error}");
}

/// The index and the records are in different slots.
#[cfg(feature = "redis-cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_no_index() {
    let urls = server("REDIS_CLUSTER_URL");
    let urls: Vec<&str> = urls.split(',').collect();
    assert_is_config(&Config::cluster(urls.clone()).listing_index(true).build().unwrap_err());
    // A node of a cluster, by its own address.
    let store = config(urls[0]).listing_index(true).build().unwrap();
    let request = claim();
    let answer = claim_one(&store, &request).await;
    assert!(!is_granted(&answer));
    assert_is_config(&answer.unwrap_err());
}

/// The slots of the node that a cursor belongs to have moved. A page at the start of a node can begin on the next one.
#[cfg(feature = "redis-cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_in_the_middle_of_another_node_is_not_read() {
    let store = crate::support::redis_cluster();
    for (cursor, is_read) in [("0 0", true), ("5 0", true), ("5 17", false)] {
        let after = Some(Cursor::new(cursor));
        let page = store.list(&ListRequest { after, ..ListRequest::new(ListedState::InProgress) }).await;
        let expected = if is_read { Ok(0) } else { Err((ErrorKind::Request, ErrorStatus::Permanent)) };
        let found = page.map(|page| page.records.len()).map_err(|error| (error.kind(), error.status()));
        assert_eq!(found, expected, "{cursor}");
    }
}
