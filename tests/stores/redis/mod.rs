//! What only Redis and Valkey do: full memory, lost scripts, restarts, fail-overs, and connections that die.

mod connections;
mod failover;
mod memory;
mod permissions;
mod records;
mod restarts;
mod scripts;
mod warnings;

use std::time::Duration;

use lambda_once::{
    Error, RedisStore, Store,
    record::{Fingerprint, KeyHash, Owner, StoredData, StoredResult},
    store::{ClaimRequest, Claimed, Refusal, ResultData, SettleRequest, Settled, Settlement, Takeover, redis::Config},
};
use redis::aio::MultiplexedConnection;

const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);
const RETENTION: Duration = Duration::from_secs(3600);
const RELEASE: Settlement = Settlement::Release { took_over: false };
const HAND_BACK: Settlement = Settlement::Release { took_over: true };
const RENEW: Settlement = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fastrand::fill(&mut bytes);
    bytes
}

/// A claim of a key that no other test has.
fn new_claim() -> ClaimRequest {
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

/// Somebody else's claim of the same operation.
fn rival(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { owner: Owner::from_bytes(random()), ..claim.clone() }
}

fn result(text: impl Into<String>) -> StoredResult {
    StoredResult { data: Some(StoredData::Json(text.into())), dropped: false }
}

fn complete(text: impl Into<String>) -> Settlement {
    Settlement::Complete { result: result(text), retention: RETENTION }
}

async fn claim(store: &RedisStore, request: &ClaimRequest) -> Result<Claimed, Error> {
    store.claim(std::slice::from_ref(request)).await.remove(0)
}

async fn settle(store: &RedisStore, request: &ClaimRequest, settlement: Settlement) -> Result<Settled, Error> {
    store.settle(&[settle_request(request, settlement)]).await.remove(0)
}

fn settle_request(claim: &ClaimRequest, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: claim.fingerprint, settlement }
}

fn is_granted(answer: &Result<Claimed, Error>) -> bool {
    matches!(answer, Ok(Claimed::Granted(_)))
}

fn is_replay(answer: &Result<Claimed, Error>, text: &str) -> bool {
    matches!(answer, Ok(Claimed::Refused(Refusal::Completed(record))) if record.result == result(text))
}

/// A store on a server of the test's own.
fn store(url: &str) -> RedisStore {
    Config::new(url).build().unwrap()
}

/// A connection past the store.
async fn direct(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Sends a command past the store.
async fn command<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(connection).await.unwrap()
}
