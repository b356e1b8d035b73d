//! Settles with one statement each, which changes a record only while it is INPROGRESS under the request's owner.

use super::StatementResult;
use crate::store::{
    Answers, SettleRequest, Settled,
    dynamodb::{DynamoDbStore, single::side_by_side},
    rules::{self, Renewal, Resolved},
};

impl DynamoDbStore {
    pub(in crate::store::dynamodb) async fn settle_batched(&self, requests: &[SettleRequest]) -> Answers<Settled> {
        let now = self.clock.now();
        let settlements: Vec<_> = requests.iter().map(|request| rules::resolved(&request.settlement, now)).collect();
        let each = requests.iter().zip(&settlements);
        let statements = each.map(|(request, settlement)| self.statements.settle(&self.schema, request, settlement));
        let results = self.execute("settle", statements.collect()).await;
        let mut answers: Answers<Settled> = Vec::with_capacity(requests.len());
        // The settles that need another request: their position, and the blocking item or the need to be sent alone.
        let mut open = Vec::new();
        for (i, (request, result)) in requests.iter().zip(results).enumerate() {
            answers.push(match result {
                StatementResult::Done(_) => Ok(match settlements[i] {
                    Resolved::Renew(Renewal { lease_until, .. }) => Settled::Renewed { lease_until },
                    _ => Settled::Done { found: None },
                }),
                StatementResult::Refused(_) | StatementResult::Unfit => {
                    open.push((i, result));
                    continue;
                }
                other => Err(other.unexpected(request.settlement.as_str())),
            });
        }
        let given = side_by_side(&open, |(i, result)| match result {
            StatementResult::Refused(item) => Box::pin(self.explain(&requests[*i], item.as_ref())),
            _ => self.settle_one(&requests[*i]),
        });
        // In ascending order, so that each is inserted at its position.
        for ((i, _), answer) in open.iter().zip(given.await) {
            answers.insert(*i, answer);
        }
        answers
    }
}
