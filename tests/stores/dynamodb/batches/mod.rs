//! Several keys in one request: failures of single statements, and events between the steps of a claim.

use std::time::Duration;

use lambda_once::{
    DynamoDbStore, Error, Store,
    record::{Fingerprint, KeyHash, Owner, StoredData, StoredResult},
    store::{
        Answers, ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled, Settlement, Takeover,
        dynamodb::{Calls, Config},
    },
};

use super::{LEASE, MARGIN, Purpose, World, support};

mod members;
mod races;
mod sizes;

pub(super) const RETENTION: Duration = Duration::from_secs(3600);

/// A store that sends batches through the proxy, and one that sends single-key requests directly.
struct Stores {
    world: World,
    store: DynamoDbStore,
    direct: DynamoDbStore,
}

impl Stores {
    async fn new() -> Self {
        let world = World::of(Calls::Batched).await;
        let build = |client, calls| {
            Config::new(&world.table).calls(calls).build(client).unwrap().with_clock(world.clock.clone())
        };
        let store = build(support::client(&world.url).await, Calls::Batched);
        let direct = build(world.direct.clone(), Calls::Single);
        Self { world, store, direct }
    }

    async fn grants(&self, requests: &[ClaimRequest]) -> Vec<Grant> {
        self.store.claim(requests).await.into_iter().map(granted).collect()
    }

    async fn settle(&self, requests: &[ClaimRequest], settlement: &Settlement) -> Answers<Settled> {
        let settles: Vec<_> = requests.iter().map(|claim| settle(claim, settlement.clone())).collect();
        self.store.settle(&settles).await
    }

    async fn claim_elsewhere(&self, request: &ClaimRequest) -> Claimed {
        self.direct.claim(std::slice::from_ref(request)).await.remove(0).unwrap()
    }

    async fn settle_elsewhere(&self, claim: &ClaimRequest, settlement: Settlement) {
        self.direct.settle(&[settle(claim, settlement)]).await.remove(0).unwrap();
    }

    /// Returns the operations of the requests that passed the proxy, with the number of statements in each.
    fn requests(&self) -> Vec<(String, usize)> {
        let statements = |body: &serde_json::Value| body["Statements"].as_array().map_or(0, Vec::len);
        let requests = self.world.proxy.requests().into_iter();
        requests.map(|request| (request.command.clone(), statements(&request.body()))).collect()
    }
}

fn granted(answer: Result<Claimed, Error>) -> Grant {
    match answer {
        Ok(Claimed::Granted(grant)) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Returns a claim of the key with this number, with a separate owner.
pub(super) fn claim(number: u8) -> ClaimRequest {
    let mut owner = [0; 16];
    getrandom::fill(&mut owner).unwrap();
    ClaimRequest {
        key: KeyHash::from_bytes([number; 32]),
        fingerprint: Some(Fingerprint::from_bytes([1; 32])),
        owner: Owner::from_bytes(owner),
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

fn claims(numbers: impl IntoIterator<Item = u8>) -> Vec<ClaimRequest> {
    numbers.into_iter().map(claim).collect()
}

fn settle(claim: &ClaimRequest, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: claim.fingerprint, settlement, order: claim.order }
}

fn complete() -> Settlement {
    complete_with("\"done\"".into())
}

fn complete_with(result: String) -> Settlement {
    let result = StoredResult::of(StoredData::Json(result));
    Settlement::complete(result, RETENTION)
}

fn batch(statements: usize) -> (String, usize) {
    ("BatchExecuteStatement".into(), statements)
}

fn single(operation: &str) -> (String, usize) {
    (operation.into(), 0)
}
