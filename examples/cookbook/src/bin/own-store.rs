//! A custom store, on a map behind a lock, which passes the conformance suite.

use std::{collections::HashMap, future::ready, sync::Arc, sync::Mutex, sync::PoisonError};

use lambda_once::clock::{Clock, SystemClock, Timestamp};
use lambda_once::record::{KeyHash, Record};
use lambda_once::store::{Answers, ClaimRequest, Claimed, Limits, ResultData, SettleRequest, Settled, StoreId, rules};
use lambda_once::{BoxFuture, Error, Failure, Idempotency, Store};

#[derive(Clone, Debug)]
struct MapStore(Arc<Mutex<HashMap<KeyHash, Record>>>, Arc<dyn Clock>, StoreId);

type Ruled<T> = Result<(rules::Change, T), Error>;

impl MapStore {
    fn change<T>(&self, key: KeyHash, rule: impl Fn(Option<&Record>, Timestamp) -> Ruled<T>) -> Result<T, Error> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (change, answer) = rule(records.get(&key), self.1.now())?;
        match change {
            rules::Change::Keep => None,
            rules::Change::Put(record) => records.insert(key, *record),
            rules::Change::Delete => records.remove(&key),
        };
        Ok(answer)
    }
}

impl Store for MapStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        let claim = |claim: &ClaimRequest| self.change(claim.key, |record, now| rules::claim(record, claim, now));
        Box::pin(ready(requests.iter().map(claim).collect()))
    }
    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        let settle = |settle: &SettleRequest| {
            self.change(settle.key, |record, now| rules::settle(Ok(record.cloned()), settle, now))
        };
        Box::pin(ready(requests.iter().map(settle).collect()))
    }
    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        let copy = |record: Option<&Record>, _| Ok((rules::Change::Keep, record.map(|record| data.copy_of(record))));
        Box::pin(ready(keys.iter().map(|key| self.change(*key, copy)).collect()))
    }
    fn limits(&self) -> Limits {
        Limits { max_result_bytes: 1 << 20, batch: 10, orders: false }
    }
    fn id(&self) -> StoreId {
        self.2
    }
    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let once = Idempotency::new(MapStore(Arc::default(), Arc::new(SystemClock), StoreId::unique()));
    let greet = || async { Ok::<_, Failure>("hello".to_owned()) };
    once.operation("greet", "world").run(greet).await.map(|outcome| println!("{outcome:?}"))
}

#[cfg(test)]
lambda_once::conformance_tests!({
    let clock = lambda_once::clock::ManualClock::at(Timestamp::from_seconds(2_000_000_000));
    let store = MapStore(Arc::default(), Arc::new(clock.clone()), StoreId::unique());
    lambda_once::store::conformance::Subject::new(store, clock)
});
