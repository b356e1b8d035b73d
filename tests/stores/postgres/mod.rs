//! PostgreSQL: round trips, races, locks, outages, and what is on record.

mod access;
mod calls;
mod clock;
mod engine;
mod locks;
mod maintenance;
mod outages;
mod proxy;
mod races;
mod rows;
mod sessions;

use std::time::Duration;

use lambda_once::{
    Error, ErrorKind, ErrorStatus, Store,
    record::{Fingerprint, KeyHash, Owner, Record, StoredData, StoredResult},
    store::{ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled, Settlement, Takeover},
};

use crate::support;

const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);
const RETENTION: Duration = Duration::from_secs(3_600);

const RELEASE: Settlement = Settlement::Release { took_over: false };
const HAND_BACK: Settlement = Settlement::Release { took_over: true };

fn random<const N: usize>() -> [u8; N] {
    std::array::from_fn(|_| fastrand::u8(..))
}

fn claims(count: usize) -> Vec<ClaimRequest> {
    (0..count).map(|_| claim()).collect()
}

/// A claim on a key of its own.
fn claim() -> ClaimRequest {
    ClaimRequest {
        key: KeyHash::from_bytes(random()),
        fingerprint: Some(Fingerprint::from_bytes([1; 32])),
        owner: Owner::from_bytes(random()),
        lease: LEASE,
        skew_margin: MARGIN,
        retention: RETENTION,
        takeover: Takeover::Allowed,
        result_data: ResultData::Include,
    }
}

/// A claim by somebody else on the same operation.
fn rival(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { owner: Owner::from_bytes(random()), ..claim.clone() }
}

fn complete(text: &str) -> Settlement {
    Settlement::Complete { result: json(text), retention: RETENTION }
}

fn json(text: &str) -> StoredResult {
    StoredResult { data: Some(StoredData::Json(text.to_owned())), dropped: false }
}

fn settle_of(claim: &ClaimRequest, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: claim.fingerprint, settlement }
}

async fn claim_one(store: &impl Store, claim: &ClaimRequest) -> Result<Claimed, Error> {
    store.claim(std::slice::from_ref(claim)).await.remove(0)
}

async fn granted(store: &impl Store, claim: &ClaimRequest) -> Grant {
    match claim_one(store, claim).await.unwrap() {
        Claimed::Granted(grant) => grant,
        refused => panic!("expected a grant, got {refused:?}"),
    }
}

async fn settle_one(store: &impl Store, claim: &ClaimRequest, settlement: Settlement) -> Result<Settled, Error> {
    store.settle(&[settle_of(claim, settlement)]).await.remove(0)
}

async fn read_one(store: &impl Store, claim: &ClaimRequest) -> Option<Record> {
    store.read(&[claim.key], ResultData::Include).await.remove(0).unwrap()
}

fn of(error: &Error) -> (ErrorKind, ErrorStatus) {
    (error.kind(), error.status())
}

const UNAVAILABLE: (ErrorKind, ErrorStatus) = (ErrorKind::Unavailable, ErrorStatus::Temporary);
const AMBIGUOUS: (ErrorKind, ErrorStatus) = (ErrorKind::Unavailable, ErrorStatus::Ambiguous);
const TIMEOUT: (ErrorKind, ErrorStatus) = (ErrorKind::Timeout, ErrorStatus::Temporary);
const FORMAT: (ErrorKind, ErrorStatus) = (ErrorKind::Format, ErrorStatus::Temporary);
const TABLE: (ErrorKind, ErrorStatus) = (ErrorKind::Table, ErrorStatus::Temporary);
const ACCESS_DENIED: (ErrorKind, ErrorStatus) = (ErrorKind::AccessDenied, ErrorStatus::Temporary);
