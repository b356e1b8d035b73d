//! Stores with a limit.

use lambda_once::{
    BoxFuture, Error,
    record::{KeyHash, Record},
    store::{Answers, ClaimRequest, Claimed, Limits, ResultData, SettleRequest, Settled, Store, StoreId},
};

/// A store that accepts results up to a size.
#[derive(Debug)]
pub(crate) struct Limited<S> {
    pub(crate) store: S,
    pub(crate) max_result_bytes: usize,
}

impl<S: Store> Store for Limited<S> {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        self.store.claim(requests)
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        self.store.settle(requests)
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        self.store.read(keys, data)
    }

    fn id(&self) -> StoreId {
        self.store.id()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: self.max_result_bytes, ..self.store.limits() }
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.store.warm_up()
    }
}
