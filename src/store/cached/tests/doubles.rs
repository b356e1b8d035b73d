//! Stores with unusual behavior.

use super::*;

/// A store whose claims return five seconds after they are applied, at the second poll, and whose amendments are not
/// applied as long as somebody waits for them.
#[derive(Debug)]
pub(super) struct Slow(pub(super) MemoryStore, pub(super) ManualClock);

impl Store for Slow {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        let answers = self.0.claim(requests);
        Box::pin(async {
            let answers = answers.await;
            tokio::task::yield_now().await;
            self.1.advance(Duration::from_secs(5));
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        self.0.settle(requests)
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        self.0.read(keys, data)
    }

    fn id(&self) -> StoreId {
        self.0.id()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.0.warm_up()
    }
}

impl Amend for Slow {
    fn amend<'a>(&'a self, _: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
        Box::pin(std::future::pending())
    }
}

/// A store that returns the same result for every claim.
#[derive(Debug)]
pub(super) struct Scripted(pub(super) Vec<Claimed>);

impl Store for Scripted {
    fn claim<'a>(&'a self, _: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(std::future::ready(self.0.iter().cloned().map(Ok).collect()))
    }

    fn settle<'a>(&'a self, _: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn read<'a>(&'a self, _: &'a [KeyHash], _: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn id(&self) -> StoreId {
        StoreId::unique()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: 1, batch: 1, orders: false }
    }

    #[cfg(feature = "powertools")]
    fn format(&self) -> RecordFormat {
        use crate::key::powertools::{Dialect, PowertoolsKeys};
        RecordFormat::Powertools(PowertoolsKeys::new(Dialect::Python, "orders"))
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
