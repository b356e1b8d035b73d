//! Renewals that are lost, repeated or late, with the server's own clock if it has one. A late request is judged by its
//! time of arrival.

use std::{sync::Arc, time::Duration};

use lambda_once::{
    ErrorStatus, Store,
    clock::{Clock, SystemClock, Timestamp},
    record::{KeyHash, Owner, Record, StoredResult},
    store::{ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled, Settlement, Takeover},
};

use super::{Backend, LOSSES, Purpose, read};
use crate::support::{
    stores::{Records, on_each_proxied_store},
    wire::{self, Fault, Proxy},
};

/// A lease that a busy machine does not exceed between two requests.
const LEASE: Duration = Duration::from_secs(1);
const MARGIN: Duration = Duration::from_millis(100);
const RETENTION: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(30);

/// A granted claim, of a store behind the proxy.
struct World {
    proxy: Proxy,
    store: Arc<dyn Store>,
    direct: Arc<dyn Store>,
    claim: ClaimRequest,
}

impl World {
    /// Creates a world with a claim that has this lease.
    async fn new(backend: Backend, lease: Duration) -> Self {
        let records = Records::on_its_own_clock(backend).await;
        let (protocol, url) = backend.wire();
        let proxy = Proxy::start(protocol, wire::host_and_port(&url)).await;
        let store = records.store_at(&proxy.in_place_of(&url)).await;
        let claim = ClaimRequest {
            key: KeyHash::from_bytes([7; 32]),
            fingerprint: None,
            owner: Owner::from_bytes([1; 16]),
            lease,
            skew_margin: MARGIN,
            retention: RETENTION,
            takeover: Takeover::Allowed,
            result_data: ResultData::Include,
            order: None,
            operation: "orders".into(),
            label: None,
        };
        let world = Self { proxy, store, direct: records.store().await, claim };
        // The client may have to send a script before the server has its hash.
        let warm = ClaimRequest { key: KeyHash::from_bytes([8; 32]), lease: LONG, ..world.claim.clone() };
        granted(&*world.direct, &warm).await;
        let renewed = world.direct.settle(&[renewal(&warm, LONG)]).await.remove(0);
        assert!(matches!(renewed, Ok(Settled::Renewed { .. })), "{renewed:?}");
        granted(&*world.store, &world.claim).await;
        world
    }

    fn on_renewal(&self) -> Fault<'_> {
        self.proxy.on(|request| Purpose::of(request) == Purpose::Renew)
    }

    /// Renews the claim through the proxy, with this lease.
    async fn renew(&self, lease: Duration) -> Result<Settled, lambda_once::Error> {
        self.renew_and_keep(lease, RETENTION).await
    }

    async fn renew_and_keep(&self, lease: Duration, retention: Duration) -> Result<Settled, lambda_once::Error> {
        let settlement = Settlement::Renew { lease, skew_margin: MARGIN, retention };
        self.store.settle(&[SettleRequest { settlement, ..renewal(&self.claim, lease) }]).await.remove(0)
    }

    async fn record(&self) -> Option<Record> {
        read(&*self.direct, self.claim.key).await
    }

    async fn lease(&self) -> Timestamp {
        self.record().await.unwrap().lease_until.unwrap()
    }

    /// Returns the next owner's claim, which bypasses the proxy.
    fn rival(&self) -> ClaimRequest {
        ClaimRequest { owner: Owner::from_bytes([2; 16]), ..self.claim.clone() }
    }

    /// Waits until the lease has ended for others, too.
    async fn lapse(&self) {
        let lapses = self.lease().await.after(MARGIN + Duration::from_millis(5));
        tokio::time::sleep(lapses.since(SystemClock.now())).await;
    }
}

fn renewal(claim: &ClaimRequest, lease: Duration) -> SettleRequest {
    let settlement = Settlement::Renew { lease, skew_margin: MARGIN, retention: RETENTION };
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: None, settlement, order: None }
}

async fn granted(store: &dyn Store, claim: &ClaimRequest) -> Grant {
    match store.claim(std::slice::from_ref(claim)).await.remove(0) {
        Ok(Claimed::Granted(grant)) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

async fn a_lost_one_is_sent_again(backend: Backend) {
    for lose in LOSSES {
        let world = World::new(backend, LONG).await;
        lose(world.on_renewal());
        // A store may repeat it automatically.
        if let Err(error) = world.renew(LONG).await {
            assert_eq!(error.status(), ErrorStatus::Ambiguous);
        }
        let Ok(Settled::Renewed { lease_until }) = world.renew(LONG).await else { panic!("not renewed") };
        assert_eq!(world.lease().await, lease_until);
        assert_eq!(world.proxy.pending_faults(), 0);
    }
}

async fn a_repeated_one_renews_once(backend: Backend) {
    let world = World::new(backend, LONG).await;
    let before = world.lease().await;
    world.on_renewal().repeat();
    let Ok(Settled::Renewed { lease_until }) = world.renew(LONG * 2).await else { panic!("not renewed") };
    assert!(before < lease_until && lease_until <= world.lease().await);
    assert!(world.lease().await <= SystemClock.now().after(LONG * 2));
    assert_eq!(world.record().await.unwrap().attempt, 1);
}

/// The first of two renewals has the earlier lease and the later expiration.
async fn a_late_copy_shortens_no_lease(backend: Backend) {
    let world = World::new(backend, LONG).await;
    let mut late = world.on_renewal().copy();
    world.renew_and_keep(LONG, RETENTION * 2).await.unwrap();
    world.renew(LONG * 2).await.unwrap();
    let before = world.record().await.unwrap();
    let response = late.deliver().await;
    assert_eq!(response.is_applied(), Some(raises(backend)), "{response:?}");
    let after = world.record().await.unwrap();
    // A server that raises the expiration counts from the copy's delivery, and rounds up.
    let latest = SystemClock.now().after(RETENTION * 2).seconds_rounded_up();
    let most = if raises(backend) { Some(latest) } else { before.expiration };
    assert!((before.expiration..=most).contains(&after.expiration), "{before:?} {after:?}");
    assert_eq!(Record { expiration: before.expiration, ..after }, before);
}

/// The first of two renewals, which was lost, has the later lease and the earlier expiration.
async fn a_late_one_shortens_no_retention(backend: Backend) {
    let world = World::new(backend, LONG).await;
    let mut late = world.on_renewal().hang();
    tokio::select! {
        answer = world.renew_and_keep(LONG * 2, Duration::ZERO) => panic!("should still wait: {answer:?}"),
        _ = late.arrived() => {}
    }
    world.renew_and_keep(LONG, RETENTION * 2).await.unwrap();
    let before = world.record().await.unwrap().expiration;
    let response = late.deliver().await;
    assert_eq!(response.is_applied(), Some(raises(backend)), "{response:?}");
    assert_eq!(world.record().await.unwrap().expiration, before);
}

/// Returns whether a renewal that would lower one value is applied to the others. On DynamoDB, which cannot write the
/// greater of two values, its condition fails.
fn raises(backend: Backend) -> bool {
    !matches!(backend, Backend::DynamoDb(_))
}

/// A server with a clock does not let it revive a dead holder. On DynamoDB, it counts from when it was sent.
async fn a_late_one_blocks_the_key_at_most_until_its_requested_lease(backend: Backend) {
    let world = World::new(backend, LEASE).await;
    let mut late = world.on_renewal().hang();
    tokio::select! {
        answer = world.renew(LEASE * 2) => panic!("should still wait: {answer:?}"),
        _ = late.arrived() => {}
    }
    let asked_for = SystemClock.now().after(LEASE * 2);
    world.lapse().await;
    let before = world.record().await;
    let response = late.deliver().await;
    assert!(!response.is_error(), "{response:?}");
    if matches!(backend, Backend::DynamoDb(_)) {
        assert_eq!(response.is_applied(), Some(true), "{response:?}");
        assert!(world.lease().await <= asked_for);
        world.lapse().await;
    } else {
        assert_eq!(response.is_applied(), Some(false), "{response:?}");
        assert_eq!(world.record().await, before);
    }
    assert!(granted(&*world.direct, &world.rival()).await.took_over());
}

/// It requests a later lease and a later expiration than the successor's, so that only its owner is wrong.
async fn a_late_one_leaves_a_successors_claim_alone(backend: Backend) {
    let world = World::new(backend, LEASE).await;
    let mut late = world.on_renewal().hang();
    tokio::select! {
        answer = world.renew_and_keep(LONG, RETENTION * 2) => panic!("should still wait: {answer:?}"),
        _ = late.arrived() => {}
    }
    world.lapse().await;
    granted(&*world.direct, &world.rival()).await;
    let before = world.record().await;
    let response = late.deliver().await;
    assert_eq!(response.is_applied(), Some(false), "{response:?}");
    assert_eq!(world.record().await, before);
}

async fn a_late_copy_changes_neither_a_successors_claim_nor_an_outcome(backend: Backend) {
    let world = World::new(backend, LEASE).await;
    let mut late = world.on_renewal().times(2).copy();
    world.renew(LEASE).await.unwrap();
    world.renew(LEASE).await.unwrap();
    world.lapse().await;
    let rival = ClaimRequest { lease: LONG, ..world.rival() };
    granted(&*world.direct, &rival).await;
    for settlement in [None, Some(Settlement::complete(StoredResult::DROPPED, RETENTION))] {
        if let Some(settlement) = settlement {
            let settle = SettleRequest { settlement, ..renewal(&rival, LONG) };
            assert_eq!(world.direct.settle(&[settle]).await.remove(0).unwrap(), Settled::Done { found: None });
        }
        let before = world.record().await;
        assert_eq!(late.deliver().await.is_applied(), Some(false));
        assert_eq!(world.record().await, before);
    }
}

on_each_proxied_store!(
    a_lost_one_is_sent_again,
    a_repeated_one_renews_once,
    a_late_copy_shortens_no_lease,
    a_late_one_shortens_no_retention,
    a_late_one_blocks_the_key_at_most_until_its_requested_lease,
    a_late_one_leaves_a_successors_claim_alone,
    a_late_copy_changes_neither_a_successors_claim_nor_an_outcome,
);
