//! Several connections to the same records.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    error::Error,
    future::BoxFuture,
    record::{KeyHash, Record},
    store::{
        Answers, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled, Store,
        StoreId,
    },
};

/// Sends calls to two stores in turn.
#[derive(Debug)]
pub(super) struct InTurn {
    first: Arc<dyn Store>,
    second: Arc<dyn Store>,
    is_second: AtomicBool,
}

impl InTurn {
    pub(super) fn new(first: Arc<dyn Store>, second: Arc<dyn Store>) -> Self {
        Self { first, second, is_second: AtomicBool::new(false) }
    }

    fn next(&self) -> &dyn Store {
        if self.is_second.fetch_xor(true, Ordering::Relaxed) { &*self.second } else { &*self.first }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for InTurn {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        self.next().claim(requests)
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        self.next().settle(requests)
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        self.next().read(keys, data)
    }

    fn limits(&self) -> Limits {
        self.first.limits()
    }

    fn id(&self) -> StoreId {
        self.first.id()
    }

    fn format(&self) -> RecordFormat {
        self.first.format()
    }

    fn database(&self) -> Database<'_> {
        self.first.database()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            self.first.warm_up().await?;
            self.second.warm_up().await
        })
    }
}
