//! Claims in at most three steps, each one request for all keys that need it.
//!
//! 1. `INSERT` creates the records that do not exist.
//! 2. A consistent `SELECT` shows what is in the way of the others.
//! 3. `UPDATE` replaces what may be replaced, if that is still so.
//!
//! A record that turns out to be gone after the first step is inserted, and looked at, once more.

use super::{
    Member,
    statements::{Replaceable, Replacement},
};
use crate::{
    clock::Timestamp,
    error::Error,
    record::Status,
    store::{
        Answers, ClaimRequest, Claimed, Grant, Refusal,
        dynamodb::{DynamoDbStore, item::Item, single::side_by_side},
        rules::{self, Judgement},
    },
};

/// What the record in the way of a claim means for it.
enum Found {
    Answer(Claimed),
    Replaceable(Replaceable),
}

/// The claims of one call, by their place in it.
struct Claims<'a> {
    store: &'a DynamoDbStore,
    requests: &'a [ClaimRequest],
    begun: Timestamp,
    answers: Vec<Option<Result<Claimed, Error>>>,
    /// Those that go one by one after all.
    unfit: Vec<usize>,
}

impl DynamoDbStore {
    /// `begun` is when the call began: leases count from there.
    pub(in crate::store::dynamodb) async fn claim_batched(
        &self,
        requests: &[ClaimRequest],
        begun: Timestamp,
    ) -> Answers<Claimed> {
        let answers = requests.iter().map(|_| None).collect();
        let mut claims = Claims { store: self, requests, begun, answers, unfit: Vec::new() };
        let conflicts = claims.insert((0..requests.len()).collect()).await;
        let (replaceable, mut gone) = claims.look(conflicts).await;
        gone.extend(claims.replace(replaceable).await);
        let conflicts = claims.insert(gone).await;
        // What cannot be decided in these steps changes faster than they follow: somebody is at work on it.
        claims.look(conflicts).await;
        claims.send_unfit_alone().await;
        let changing = || Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }));
        claims.answers.into_iter().map(|answer| answer.unwrap_or_else(changing)).collect()
    }

    /// What the item means for a claim made at `now`.
    fn judge(&self, item: &Item, request: &ClaimRequest, now: Timestamp) -> Result<Found, Error> {
        // An expired item is no record, whatever it holds.
        if self.schema.is_expired(item, now) {
            return Ok(Found::Replaceable(self.replaceable(item, Replacement::Expired)));
        }
        let record = self.schema.record(item, request.result_data, "claim")?;
        Ok(match rules::judge(&record, request, now)? {
            Judgement::Free => Found::Replaceable(self.replaceable(item, Replacement::Lapsed)),
            Judgement::Mine(grant) => Found::Answer(Claimed::Granted(grant)),
            Judgement::Refused(refusal) => Found::Answer(Claimed::Refused(refusal)),
        })
    }

    fn replaceable(&self, item: &Item, by: Replacement) -> Replaceable {
        let names = &self.schema.names;
        Replaceable {
            by,
            status: item.get(&names.status).cloned(),
            attempt: item.get(&names.attempt).cloned(),
            version: item.get(&names.version).cloned(),
            has_fingerprint: item.contains_key(&names.validation),
        }
    }
}

impl Claims<'_> {
    fn lease_until(&self, i: usize) -> Timestamp {
        self.begun.after(self.requests[i].lease)
    }

    fn grant(&mut self, i: usize, attempt: u64, prior_status: Option<Status>) {
        let grant = Grant { lease_until: self.lease_until(i), attempt, prior_status };
        self.answers[i] = Some(Ok(Claimed::Granted(grant)));
    }

    /// Creates records. Returns the claims that found one in the way, or that may have been applied without an answer.
    async fn insert(&mut self, open: Vec<usize>) -> Vec<usize> {
        let now = self.store.clock.now();
        let statement = |at: usize| {
            let i = open[at];
            self.store.statements.insert(&self.store.schema, &self.requests[i], now, self.lease_until(i))
        };
        let members = self.store.execute("claim", open.len(), statement).await;
        let mut conflicts = Vec::new();
        for (i, member) in open.into_iter().zip(members) {
            match member {
                Member::Done(_) => self.grant(i, 1, None),
                Member::Exists => conflicts.push(i),
                Member::Doubtful(error) => {
                    // What is found overwrites it.
                    self.answers[i] = Some(Err(error));
                    conflicts.push(i);
                }
                Member::Unfit => self.unfit.push(i),
                other => self.answers[i] = Some(Err(other.unexpected("claim"))),
            }
        }
        conflicts
    }

    /// Reads what is in the way. Returns what may be replaced, and the claims whose way is free now.
    async fn look(&mut self, conflicts: Vec<usize>) -> (Vec<(usize, Replaceable)>, Vec<usize>) {
        let statement = |at: usize| {
            let request = &self.requests[conflicts[at]];
            self.store.statements.select(&self.store.schema, &request.key, request.result_data)
        };
        let members = self.store.execute("claim", conflicts.len(), statement).await;
        let now = self.store.clock.now();
        let mut replaceable = Vec::new();
        let mut gone = Vec::new();
        for (i, member) in conflicts.into_iter().zip(members) {
            match member {
                Member::Done(Some(item)) => {
                    if let Some(found) = self.found(i, &item, now) {
                        replaceable.push((i, found));
                    }
                }
                Member::Done(None) => gone.push(i),
                Member::Unfit => self.unfit.push(i),
                other => self.answers[i] = Some(Err(other.unexpected("claim"))),
            }
        }
        (replaceable, gone)
    }

    /// Replaces records. Returns the claims whose record is gone.
    async fn replace(&mut self, replaceable: Vec<(usize, Replaceable)>) -> Vec<usize> {
        let now = self.store.clock.now();
        let statement = |at: usize| {
            let (i, found): &(usize, Replaceable) = &replaceable[at];
            found.update(&self.store.schema, &self.requests[*i], now, self.lease_until(*i))
        };
        let members = self.store.execute("claim", replaceable.len(), statement).await;
        let now = self.store.clock.now();
        let mut gone = Vec::new();
        let mut doubtful = Vec::new();
        for ((i, found), member) in replaceable.into_iter().zip(members) {
            match member {
                Member::Done(_) => self.grant(i, found.next_attempt(), found.prior_status()),
                Member::Refused(None) => gone.push(i),
                // It was changed since it was read. If it is free again, the claim has lost that race.
                Member::Refused(Some(item)) => drop(self.found(i, &item, now)),
                Member::Unfit => self.unfit.push(i),
                Member::Doubtful(error) => {
                    doubtful.push(i);
                    self.answers[i] = Some(Err(error));
                }
                other => self.answers[i] = Some(Err(other.unexpected("claim"))),
            }
        }
        // An answer overwrites the error; what is still replaceable keeps it, so that the claim is made again.
        let (_, gone_meanwhile) = self.look(doubtful).await;
        gone.extend(gone_meanwhile);
        gone
    }

    /// Answers the claim if the item does; returns what may be replaced.
    fn found(&mut self, i: usize, item: &Item, now: Timestamp) -> Option<Replaceable> {
        match self.store.judge(item, &self.requests[i], now) {
            Ok(Found::Answer(answer)) => self.answers[i] = Some(Ok(answer)),
            Ok(Found::Replaceable(replaceable)) => return Some(replaceable),
            Err(error) => self.answers[i] = Some(Err(error)),
        }
        None
    }

    async fn send_unfit_alone(&mut self) {
        let alone = std::mem::take(&mut self.unfit);
        let given = side_by_side(&alone, |&i| self.store.claim_one(&self.requests[i], self.begun)).await;
        alone.into_iter().zip(given).for_each(|(i, answer)| self.answers[i] = Some(answer));
    }
}
