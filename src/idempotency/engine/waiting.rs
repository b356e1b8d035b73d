//! Waits: for what becomes of an operation that somebody else is running.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    Candidate, Standing,
    calls::{Backoff, CALL_AT_LEAST, within},
};
use crate::{
    Idempotency,
    clock::Timestamp,
    error::{Error, ErrorKind},
    idempotency::window::Window,
    record::{Owner, Record},
    store::{
        ClaimRequest, Refusal, ResultData,
        rules::{self, Judgement},
    },
};

/// What a read of a record that was in progress has shown.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The operation may be claimed.
    Free,
    /// It may not, for this reason.
    Refused(Refusal),
    /// The store did not say.
    Trouble(Error),
}

impl Idempotency {
    /// Claims a single operation. While somebody else is running it, waits for up to `budget`, and never beyond the stop
    /// point, for what becomes of it. The answer is that of a claim.
    ///
    /// The record is only read meanwhile, and claimed once more when it may be free: a read grants nothing.
    pub(crate) async fn claim_or_wait(
        &self,
        candidate: Candidate,
        window: Window,
        budget: Duration,
    ) -> Result<Standing, Error> {
        let ends = self.clock.now().after(budget).min(window.stop);
        let mut standing = self.claim_one(candidate, window).await?;
        let mut backoff = Backoff::default();
        let mut trouble = None;
        while let Standing::Refused(Refusal::InProgress { lease_until, .. }) = standing
            && let left = ends.before(CALL_AT_LEAST).since(self.clock.now())
            && !left.is_zero()
        {
            let lapses = lease_until.map(|until| rules::lapses(until, self.settings.skew_margin));
            // Where it has lapsed by our clock, but not by the store's, it is claimed at the usual pauses.
            let until_lapse = lapses.map(|lapses| lapses.since(self.clock.now())).filter(|time| !time.is_zero());
            sleep(backoff.next_look().min(left).min(until_lapse.unwrap_or(left))).await;
            let is_free = lapses.is_some_and(|lapses| lapses <= self.clock.now())
                || match self.look(candidate, ends).await? {
                    Seen::Free => true,
                    Seen::Refused(refusal) => {
                        standing = Standing::Refused(refusal);
                        false
                    }
                    Seen::Trouble(error) => {
                        trouble = Some(error);
                        false
                    }
                };
            if is_free {
                standing = self.claim_one(candidate, window).await?;
            }
        }
        if let (Standing::Refused(Refusal::InProgress { .. }), Some(error)) = (&standing, trouble) {
            tracing::warn!(target: "lambda_once", key = %candidate.key, %error, "the running operation could not be watched all the time");
        }
        Ok(standing)
    }

    async fn look(&self, candidate: Candidate, ends: Timestamp) -> Result<Seen, Error> {
        self.watch(&[candidate], ends).await.pop().unwrap_or(Ok(Seen::Free))
    }

    /// Looks at the records of operations that were in progress, by the same rules as a claim. One answer each, in order.
    pub(crate) async fn watch(&self, candidates: &[Candidate], ends: Timestamp) -> Vec<Result<Seen, Error>> {
        let keys: Vec<_> = candidates.iter().map(|candidate| candidate.key).collect();
        let left = ends.since(self.clock.now());
        let found = within(left, "read", keys.len(), self.store.read(&keys, ResultData::Include)).await;
        candidates.iter().zip(found).map(|(candidate, record)| self.seen(*candidate, record)).collect()
    }

    fn seen(&self, candidate: Candidate, record: Result<Option<Record>, Error>) -> Result<Seen, Error> {
        let record = match record {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Seen::Free),
            // An answer about the record, not trouble with the store.
            Err(error) if error.kind() == ErrorKind::Format => return Err(error),
            Err(error) => return Ok(Seen::Trouble(error)),
        };
        let request = ClaimRequest {
            key: candidate.key,
            fingerprint: candidate.fingerprint,
            // Nobody's.
            owner: Owner::from_bytes([0; 16]),
            lease: Duration::ZERO,
            skew_margin: self.settings.skew_margin,
            retention: Duration::ZERO,
            takeover: self.settings.after_unknown.takeover(),
            result_data: ResultData::Include,
        };
        Ok(match rules::judge(&record, &request, self.clock.now())? {
            Judgement::Refused(refusal) => Seen::Refused(refusal),
            Judgement::Free | Judgement::Mine(_) => Seen::Free,
        })
    }
}
