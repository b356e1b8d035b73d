//! Claims in at most three steps, each one request for all keys that need it.
//!
//! 1. `INSERT` creates the records that do not exist.
//! 2. A consistent `SELECT` reads the records that block the others.
//! 3. `UPDATE` replaces the replaceable ones, if they have not changed.
//!
//! If the item turns out to be gone after the first step, there is one more `INSERT`, and a `SELECT` of the item that
//! now blocks it. That item may be this very claim, whose first response was lost. A key that is still not decided is
//! in progress.

use super::{
    StatementResult,
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

/// The meaning of a blocking record for a claim.
enum Found {
    Answer(Claimed),
    Replaceable(Replaceable),
}

/// The claims of one call, by their position in it.
struct Claims<'a> {
    store: &'a DynamoDbStore,
    requests: &'a [ClaimRequest],
    begun: Timestamp,
    answers: Vec<Option<Result<Claimed, Error>>>,
    /// Claims that must be sent one by one.
    unfit: Vec<usize>,
}

impl DynamoDbStore {
    /// `begun` is the start of the call, from which leases count.
    pub(in crate::store::dynamodb) async fn claim_batched(
        &self,
        requests: &[ClaimRequest],
        begun: Timestamp,
    ) -> Answers<Claimed> {
        let answers = requests.iter().map(|_| None).collect();
        let mut claims = Claims { store: self, requests, begun, answers, unfit: Vec::new() };
        let conflicting = claims.insert((0..requests.len()).collect()).await;
        let (replaceable, mut gone) = claims.select(conflicting).await;
        gone.extend(claims.update(replaceable).await);
        let conflicting = claims.insert(gone).await;
        // A record that changes faster than these steps is in progress elsewhere.
        claims.select(conflicting).await;
        claims.send_unfit_alone().await;
        let in_progress = || Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }));
        claims.answers.into_iter().map(|answer| answer.unwrap_or_else(in_progress)).collect()
    }

    /// Judges the item for a claim made at `now`.
    fn judge(&self, item: &Item, request: &ClaimRequest, now: Timestamp) -> Result<Found, Error> {
        // An expired item counts as absent, whatever it contains.
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
            validation: item.get(&names.validation).cloned(),
        }
    }
}

impl Claims<'_> {
    fn lease_until(&self, i: usize) -> Timestamp {
        self.begun.after(self.requests[i].lease)
    }

    fn grant(&mut self, i: usize, attempt: u64, prior_status: Option<Status>) {
        let grant = Grant { lease_until: self.lease_until(i), attempt, prior_status, has_merged_doubt: false };
        self.answers[i] = Some(Ok(Claimed::Granted(grant)));
    }

    /// Creates records. Returns the claims that are blocked by an item.
    async fn insert(&mut self, open: Vec<usize>) -> Vec<usize> {
        let store = self.store;
        let now = store.clock.now();
        let statement = |&i: &usize| store.statements.insert(&store.schema, &self.requests[i], now, self.begun);
        let results = store.execute("claim", open.iter().map(statement).collect()).await;
        let mut conflicting = Vec::new();
        for (i, result) in open.into_iter().zip(results) {
            match result {
                StatementResult::Done(_) => self.grant(i, 1, None),
                StatementResult::Exists => conflicting.push(i),
                other => self.failed(i, other),
            }
        }
        conflicting
    }

    /// Reads the blocking items. Returns those that may be replaced, and the claims that are no longer blocked.
    async fn select(&mut self, conflicting: Vec<usize>) -> (Vec<(usize, Replaceable)>, Vec<usize>) {
        let store = self.store;
        let statement = |&i: &usize| {
            let ClaimRequest { key, result_data, .. } = &self.requests[i];
            store.statements.select(&store.schema, key, *result_data)
        };
        let results = store.execute("claim", conflicting.iter().map(statement).collect()).await;
        let now = store.clock.now();
        let mut replaceable = Vec::new();
        let mut gone = Vec::new();
        for (i, result) in conflicting.into_iter().zip(results) {
            match result {
                StatementResult::Done(Some(item)) => {
                    replaceable.extend(self.answer(i, &item, now).map(|found| (i, found)));
                }
                StatementResult::Done(None) => gone.push(i),
                other => self.failed(i, other),
            }
        }
        (replaceable, gone)
    }

    /// Replaces items. Returns the claims whose item is gone.
    async fn update(&mut self, replaceable: Vec<(usize, Replaceable)>) -> Vec<usize> {
        let store = self.store;
        let now = store.clock.now();
        let statement =
            |(i, found): &(usize, Replaceable)| found.update(&store.schema, &self.requests[*i], now, self.begun);
        let results = store.execute("claim", replaceable.iter().map(statement).collect()).await;
        let now = store.clock.now();
        let mut gone = Vec::new();
        for ((i, found), result) in replaceable.into_iter().zip(results) {
            match result {
                StatementResult::Done(_) => self.grant(i, found.next_attempt(), found.prior_status()),
                StatementResult::Refused(None) => gone.push(i),
                // It has changed since it was read. If it is free again, the claim has lost that race.
                StatementResult::Refused(Some(item)) => drop(self.answer(i, &item, now)),
                other => self.failed(i, other),
            }
        }
        gone
    }

    fn failed(&mut self, i: usize, result: StatementResult) {
        match result {
            StatementResult::Unfit => self.unfit.push(i),
            other => self.answers[i] = Some(Err(other.unexpected("claim"))),
        }
    }

    /// Decides the claim if the item does. Returns the item if it may be replaced.
    fn answer(&mut self, i: usize, item: &Item, now: Timestamp) -> Option<Replaceable> {
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
