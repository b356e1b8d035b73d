//! Claims, settles and reads with one request for each key.

use futures_util::{StreamExt, stream};

use super::{DynamoDbStore, error};
use crate::{
    error::Error,
    record::{KeyHash, Record},
    store::{Answers, BoxFuture},
};

mod claim;
mod settle;

/// How many requests of one call are under way at once.
pub(super) const CONCURRENCY: usize = 10;

impl DynamoDbStore {
    pub(super) async fn read_one(&self, key: &KeyHash, operation: &'static str) -> Result<Option<Record>, Error> {
        let answer = self
            .client
            .get_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(key)))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| error::from_sdk(error, operation))?;
        answer.item.map(|item| self.schema.record(&item, operation)).transpose()
    }
}

/// One request for each, a bounded number at once, answers in order.
pub(super) fn side_by_side<'a, Q, A, F>(
    requests: &'a [Q],
    call: impl Fn(&'a Q) -> F + Send + 'a,
) -> BoxFuture<'a, Answers<A>>
where
    A: Send + 'a,
    F: Future<Output = Result<A, Error>> + Send + 'a,
{
    // Boxed, so that what runs them is compiled once for each kind of answer: a request costs far more than a box.
    let calls: Vec<BoxFuture<'a, Result<A, Error>>> =
        requests.iter().map(|request| -> BoxFuture<'a, _> { Box::pin(call(request)) }).collect();
    Box::pin(stream::iter(calls).buffered(CONCURRENCY).collect())
}
