//! A store that returns immediately and keeps nothing, so that only the library's own work remains.

use lambda_once::{
    BoxFuture, Error, Store,
    clock::{Clock, SystemClock},
    record::{KeyHash, Record},
    store::{Answers, ClaimRequest, Claimed, Grant, Limits, Refusal, ResultData, SettleRequest, Settled, StoreId},
};

/// The store's result for claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantStore {
    /// Every claim is granted.
    Grants,
    /// Every claim is refused.
    Refuses,
}

impl InstantStore {
    fn answer(self, request: &ClaimRequest) -> Claimed {
        match self {
            Self::Grants => Claimed::Granted(Grant {
                lease_until: SystemClock.now().after(request.lease),
                attempt: 1,
                prior_status: None,
                has_merged_doubt: false,
            }),
            Self::Refuses => Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 1 }),
        }
    }
}

impl Store for InstantStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move { requests.iter().map(|request| Ok(self.answer(request))).collect() })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move { requests.iter().map(|_| Ok(Settled::Done { found: None })).collect() })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], _: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move { keys.iter().map(|_| Ok(None)).collect() })
    }

    // As for DynamoDB.
    fn id(&self) -> StoreId {
        StoreId::unique()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: 400_000, batch: 25, orders: false }
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}
