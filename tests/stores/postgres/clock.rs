//! The server's clock, which is used unless another is given.

use lambda_once::{
    clock::Timestamp,
    store::{Refusal, postgres::tokio_postgres::Client},
};

use super::*;
use crate::support::wire::{Protocol, Proxy, host_and_port};

/// Returns the server's time.
async fn now(admin: &Client) -> Timestamp {
    let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let millis: i64 = admin.query_one(sql, &[]).await.unwrap().get(0);
    Timestamp::from_millis(millis.try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_expirations_are_counted_from_the_servers_time() {
    let store = support::postgres::migrated().await;
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let claim = claim();
    let before = now(&admin).await;
    let lease_until = granted(&store, &claim).await.lease_until;
    let after = now(&admin).await;
    assert!((before.after(LEASE)..=after.after(LEASE)).contains(&lease_until), "{before:?} {lease_until:?} {after:?}");
    let expiration = read_one(&store, &claim).await.unwrap().expiration.unwrap();
    let expected = before.after(RETENTION).seconds_rounded_up()..=after.after(RETENTION).seconds_rounded_up();
    assert!(expected.contains(&expiration));

    let before = now(&admin).await;
    let renew = Settlement::Renew { lease: 2 * LEASE, skew_margin: MARGIN, retention: RETENTION };
    let Settled::Renewed { lease_until } = settle_one(&store, &claim, renew).await.unwrap() else {
        panic!("it stands")
    };
    let after = now(&admin).await;
    assert!((before.after(2 * LEASE)..=after.after(2 * LEASE)).contains(&lease_until));
}

/// It may therefore block its key for longer than the run that sent it could have lasted.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_late_has_its_lease_from_its_arrival() {
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let url = support::postgres::url();
    let proxy = Proxy::start(Protocol::Postgres, host_and_port(&url)).await;
    let store = support::postgres::config(proxy.in_place_of(&url).parse().unwrap()).build().unwrap();
    let mut held = proxy.on_command("INSERT INTO").hold();
    let claim = claim();
    let late = async {
        held.arrived().await;
        let (sent, mut arrives) = (now(&admin).await, now(&admin).await);
        while arrives <= sent {
            arrives = now(&admin).await;
        }
        held.release();
        arrives
    };
    let (grant, arrives) = tokio::join!(granted(&store, &claim), late);
    assert!(grant.lease_until >= arrives.after(LEASE), "{arrives:?} {grant:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_by_the_servers_time() {
    let store = support::postgres::migrated().await;
    let short = ClaimRequest { lease: Duration::from_millis(20), skew_margin: Duration::from_millis(20), ..claim() };
    let grant = granted(&store, &short).await;
    let patient = ClaimRequest { skew_margin: RETENTION, ..rival(&short) };
    let in_progress = Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
    assert_eq!(claim_one(&store, &patient).await.unwrap(), Claimed::Refused(in_progress));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(granted(&store, &rival(&short)).await.took_over());
}
