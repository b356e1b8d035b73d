//! One request for each key.

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
    Q: Sync,
    A: Send + 'a,
    F: Future<Output = Result<A, Error>> + Send + 'a,
{
    Box::pin(stream::iter(requests.iter().map(call)).buffered(CONCURRENCY).collect())
}
