//! Requests to a store, and helpers for their results.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::time::Duration;

use lambda_once::{
    Error, Store,
    order::Order,
    record::{Fingerprint, KeyHash, Owner, Record, StoredData, StoredResult},
    store::{ClaimRequest, Claimed, Grant, Refusal, ResultData, SettleRequest, Settled, Settlement, Takeover},
};

pub const LEASE: Duration = Duration::from_secs(30);
pub const MARGIN: Duration = Duration::from_secs(1);
pub const RETENTION: Duration = Duration::from_secs(3_600);
/// The time until a lease has ended for others, too.
pub const LAPSE: Duration = Duration::from_millis(31_001);

pub const RELEASE: Settlement = Settlement::Release;
pub const HAND_BACK: Settlement = Settlement::HandBack;
pub const RENEW: Settlement = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };

fn random<const N: usize>() -> [u8; N] {
    std::array::from_fn(|_| fastrand::u8(..))
}

/// Returns a claim of a key that no other test uses.
pub fn claim() -> ClaimRequest {
    ClaimRequest {
        key: KeyHash::from_bytes(random()),
        fingerprint: Some(Fingerprint::from_bytes([1; 32])),
        owner: Owner::from_bytes(random()),
        lease: LEASE,
        skew_margin: MARGIN,
        retention: RETENTION,
        takeover: Takeover::Allowed,
        result_data: ResultData::Include,
        order: None,
        operation: "orders".into(),
        label: None,
    }
}

/// Returns a claim of an ordered operation of the entity that no other test uses.
pub fn ordered(entity: &KeyHash, sequence: u64) -> ClaimRequest {
    let claim = claim();
    let order = Order { sequence: sequence.into(), retention: RETENTION };
    ClaimRequest { key: KeyHash::ordered(entity, &claim.key), order: Some(order), ..claim }
}

/// Returns an entity that no other test uses.
pub fn entity() -> KeyHash {
    KeyHash::from_bytes(random())
}

pub fn claims(count: usize) -> Vec<ClaimRequest> {
    (0..count).map(|_| claim()).collect()
}

/// Returns a claim of the same operation by another owner.
pub fn rival(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { owner: Owner::from_bytes(random()), ..claim.clone() }
}

pub fn json(text: impl Into<String>) -> StoredResult {
    StoredResult::of(StoredData::Json(text.into()))
}

pub fn complete(text: impl Into<String>) -> Settlement {
    Settlement::complete(json(text), RETENTION)
}

pub fn settle_of(claim: &ClaimRequest, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: claim.fingerprint, settlement, order: claim.order }
}

pub async fn claim_one(store: &impl Store, claim: &ClaimRequest) -> Result<Claimed, Error> {
    store.claim(std::slice::from_ref(claim)).await.remove(0)
}

pub async fn granted(store: &impl Store, claim: &ClaimRequest) -> Grant {
    match claim_one(store, claim).await.unwrap() {
        Claimed::Granted(grant) => grant,
        refused => panic!("expected a grant, got {refused:?}"),
    }
}

pub async fn settle_one(store: &impl Store, claim: &ClaimRequest, settlement: Settlement) -> Result<Settled, Error> {
    store.settle(&[settle_of(claim, settlement)]).await.remove(0)
}

pub async fn read_one(store: &impl Store, claim: &ClaimRequest) -> Option<Record> {
    store.read(&[claim.key], ResultData::Include).await.remove(0).unwrap()
}

pub fn is_granted(answer: &Result<Claimed, Error>) -> bool {
    matches!(answer, Ok(Claimed::Granted(_)))
}

pub fn is_replay(answer: &Result<Claimed, Error>, text: &str) -> bool {
    matches!(answer, Ok(Claimed::Refused(Refusal::Completed(record))) if record.result == json(text))
}
