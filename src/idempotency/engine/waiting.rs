//! Waits for a claim that is held elsewhere, for batches, requests, invocations and operations alike.

use std::{slice, time::Duration};

use tokio::time::sleep;

use super::{Candidate, ClaimAnswer, Engine};
use crate::{
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind},
    idempotency::window::{MIN_CALL_TIME, Window},
    record::Record,
    store::{
        Mismatch, MismatchState, Refusal, ResultData,
        rules::{self, Claimant, Judgement},
    },
};

/// The result of polling a record that was in progress.
#[derive(Debug)]
pub(crate) enum Polled {
    /// The operation may be claimed.
    Free,
    /// The operation may not be claimed, for this reason.
    Refused(Refusal),
    /// The store returned an error.
    Trouble(Error),
}

/// The next step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitStep {
    /// Sleep until this time.
    Sleep(Timestamp),
    /// Read the record, because its holder may have finished.
    Poll,
    /// Claim the key, because its lease has passed or it was released.
    Claim,
    /// The time is up, and the last refusal is final.
    GiveUp,
}

/// The times of a wait, at which the record is polled, the key is claimed again, and the wait ends.
///
/// Meanwhile the record is only read, because a read grants nothing, and the key is claimed when it may be free. The
/// wait does not read the clock.
#[derive(Clone, Debug)]
pub(crate) struct LeaseWait {
    refusal: Refusal,
    ends: Timestamp,
    /// The time at which the lease is over for others, or `None` if unknown.
    free_at: Option<Timestamp>,
    poll_at: Timestamp,
    backoff: Backoff,
    skew_margin: Duration,
    /// Whether to wait for the claim of a different payload, too.
    for_any_payload: bool,
}

impl LeaseWait {
    /// Creates a wait that begins at `now`, after a claim was refused with `refusal`, and ends at `ends`.
    pub(crate) fn new(refusal: Refusal, now: Timestamp, ends: Timestamp, skew_margin: Duration) -> Self {
        let backoff = Backoff::default();
        let mut wait =
            Self { refusal, ends, free_at: None, poll_at: now, backoff, skew_margin, for_any_payload: false };
        wait.poll_later(now);
        wait.free_at = wait.lapses_after(now);
        wait
    }

    /// Returns the same wait, also for claims of a different payload.
    #[cfg(feature = "batch")]
    pub(crate) fn for_any_payload(self) -> Self {
        Self { for_any_payload: true, ..self }
    }

    /// Returns the step to take at `now`.
    pub(crate) fn step(&self, now: Timestamp) -> WaitStep {
        match self.free_at {
            // The earlier time counts, even if the wait was not checked between the two.
            Some(free_at) if free_at <= now && free_at < self.ends => WaitStep::Claim,
            _ if now >= self.ends => WaitStep::GiveUp,
            _ if self.poll_at <= now => WaitStep::Poll,
            free_at => WaitStep::Sleep(free_at.unwrap_or(self.ends).min(self.poll_at).min(self.ends)),
        }
    }

    /// Records that a claim at `now` was refused again.
    pub(crate) fn refused_again(&mut self, refusal: Refusal, now: Timestamp) {
        self.refusal = refusal;
        self.poll_later(now);
        self.free_at = self.lapses_after(now);
    }

    /// Records the result of a poll at `now`. Returns the refusal if the operation is no longer in progress.
    pub(crate) fn polled(&mut self, polled: Polled, now: Timestamp) -> Option<Refusal> {
        match polled {
            Polled::Free => self.free_at = Some(self.free_at.map_or(now, |free_at| free_at.min(now))),
            Polled::Refused(refusal) if self.is_waited_for(&refusal) => self.refused_again(refusal, now),
            Polled::Refused(refusal) => return Some(refusal),
            Polled::Trouble(_) => self.poll_later(now),
        }
        None
    }

    /// Returns the last refusal.
    pub(crate) fn into_refusal(self) -> Refusal {
        self.refusal
    }

    /// Returns the time at which the blocking lease is over for others, if known.
    #[cfg(feature = "batch")]
    pub(crate) fn free_at(&self) -> Option<Timestamp> {
        self.free_at
    }

    /// Returns the time at which the key may be claimed, or the wait is over.
    #[cfg(feature = "batch")]
    pub(crate) fn ends_at(&self) -> Timestamp {
        self.free_at.map_or(self.ends, |free_at| free_at.min(self.ends))
    }

    /// Returns the time of the next poll.
    #[cfg(feature = "batch")]
    pub(crate) fn poll_at(&self) -> Timestamp {
        self.poll_at
    }

    /// Returns the last refusal.
    #[cfg(feature = "batch")]
    pub(crate) fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    fn is_waited_for(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::InProgress { .. } => true,
            Refusal::Mismatch(Mismatch { state: MismatchState::InProgress { .. }, .. }) => self.for_any_payload,
            _ => false,
        }
    }

    /// Returns the time at which the blocking lease is over. If it has passed by the local clock, but not by the
    /// store's, the key is claimed again after the usual pauses.
    fn lapses_after(&self, now: Timestamp) -> Option<Timestamp> {
        let lapses = rules::lapses(self.refusal.lease_until()?, self.skew_margin);
        Some(if lapses <= now { self.poll_at } else { lapses })
    }

    fn poll_later(&mut self, now: Timestamp) {
        self.poll_at = now.after(self.backoff.next_poll());
    }
}

impl Engine {
    /// Claims a single operation. While it is running elsewhere, waits for its outcome for up to `wait_up_to`, and
    /// never beyond the handler deadline. Returns the result of the claim.
    pub(crate) async fn claim_or_wait(
        &self,
        candidate: &Candidate,
        window: Window,
        wait_up_to: Duration,
    ) -> Result<ClaimAnswer, Error> {
        let limit = self.clock.now().after(wait_up_to).min(window.stop);
        let (mut window, mut wait) = (window, None);
        loop {
            let refusal = match self.claim_one(candidate, window).await? {
                ClaimAnswer::Refused(refusal @ Refusal::InProgress { .. }) => refusal,
                decided => return Ok(decided),
            };
            if let Some(refusal) = self.wait_until_free(candidate, refusal, &mut wait, limit).await? {
                return Ok(ClaimAnswer::Refused(refusal));
            }
            if window.max_duration().is_some() {
                // Of a lease that the wait has shortened, too little might be left for a renewal.
                window = window.renewed(self.clock.now(), &self.settings);
            }
        }
    }

    /// Waits until `limit` while an operation is running elsewhere, after a claim was refused with `refusal`. Returns
    /// `None` if it may be claimed now, or else the reason for the refusal. `wait` is the wait so far.
    pub(crate) async fn wait_until_free(
        &self,
        candidate: &Candidate,
        refusal: Refusal,
        wait: &mut Option<LeaseWait>,
        limit: Timestamp,
    ) -> Result<Option<Refusal>, Error> {
        let now = self.clock.now();
        let mut current = match wait.take() {
            Some(mut wait) => {
                wait.refused_again(refusal, now);
                wait
            }
            None => LeaseWait::new(refusal, now, limit.before(MIN_CALL_TIME), self.settings.skew_margin),
        };
        let mut trouble = None;
        let refusal = loop {
            match current.step(self.clock.now()) {
                WaitStep::Sleep(until) => sleep(until.since(self.clock.now())).await,
                WaitStep::Claim => {
                    *wait = Some(current);
                    return Ok(None);
                }
                WaitStep::Poll => {
                    let polled = self
                        .poll(slice::from_ref(candidate), limit, ResultData::Include)
                        .await
                        .pop()
                        .unwrap_or(Ok(Polled::Free))?;
                    if let Polled::Trouble(error) = &polled {
                        trouble = Some(error.without_source());
                    }
                    if let Some(refusal) = current.polled(polled, self.clock.now()) {
                        return Ok(Some(refusal));
                    }
                }
                WaitStep::GiveUp => break current.into_refusal(),
            }
        };
        if let Some(error) = trouble {
            tracing::warn!(target: "lambda_once", key = %candidate.key, %error, "the running operation could not be polled all the time");
        }
        Ok(Some(refusal))
    }

    /// Claims a single operation. Nothing is claimed past the handler deadline.
    pub(crate) async fn claim_one(&self, candidate: &Candidate, window: Window) -> Result<ClaimAnswer, Error> {
        let (mut answers, withdrawal) = self.claim(slice::from_ref(candidate), window, ResultData::Include).await;
        self.withdraw(withdrawal, window).await;
        answers.pop().unwrap_or(Ok(ClaimAnswer::OutOfTime))
    }

    /// Reads the records of operations that were in progress, and judges them as a claim would be. Returns one result
    /// per operation, in order.
    pub(crate) async fn poll(
        &self,
        candidates: &[Candidate],
        ends: Timestamp,
        result_data: ResultData,
    ) -> Vec<Result<Polled, Error>> {
        let keys: Vec<_> = candidates.iter().map(|candidate| candidate.key).collect();
        let left = ends.since(self.clock.now());
        let found = self.within(left, "read", keys.len(), self.store.read(&keys, result_data)).await;
        candidates.iter().zip(found).map(|(candidate, record)| self.judge(candidate, record)).collect()
    }

    fn judge(&self, candidate: &Candidate, record: Result<Option<Record>, Error>) -> Result<Polled, Error> {
        let record = match record {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Polled::Free),
            // This is about the record, not an error of the store.
            Err(error) if error.kind() == ErrorKind::Format => return Err(error),
            Err(error) => return Ok(Polled::Trouble(error)),
        };
        let claimant = Claimant {
            owner: None,
            fingerprint: self.compared(candidate),
            skew_margin: self.settings.skew_margin,
            takeover: self.settings.after_unknown.takeover(),
            // The same as in the read.
            result_data: ResultData::Include,
        };
        Ok(match rules::judge_for(&record, &claimant, self.clock.now())? {
            Judgement::Refused(refusal) => Polled::Refused(refusal),
            Judgement::Free | Judgement::Mine(_) => Polled::Free,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn held_until(seconds: u64) -> Refusal {
        Refusal::InProgress { lease_until: Some(at(seconds)), attempt: 1 }
    }

    /// Returns a wait since the tenth second, until the thirtieth at the latest.
    fn wait(lease_until: u64) -> LeaseWait {
        LeaseWait::new(held_until(lease_until), at(10), at(30), MARGIN)
    }

    #[test]
    fn the_key_is_claimed_when_the_lease_and_the_margin_have_passed() {
        let wait = wait(20);
        assert!(matches!(wait.step(at(10)), WaitStep::Sleep(until) if until < at(21)), "to poll");
        assert_eq!(wait.step(at(21)), WaitStep::Poll, "the margin is part of the lease");
        assert_eq!(wait.step(at(21).after(Duration::from_millis(1))), WaitStep::Claim);
    }

    #[test]
    fn the_earlier_time_counts_if_the_wait_is_checked_late() {
        assert_eq!(wait(28).step(at(40)), WaitStep::Claim, "free before the wait was over");
        assert_eq!(wait(29).step(at(40)), WaitStep::GiveUp, "not before that");
        assert_eq!(wait(35).step(at(40)), WaitStep::GiveUp);
    }

    #[test]
    fn a_key_freed_during_the_wait_is_claimed_despite_a_late_poll() {
        let mut early = wait(20);
        assert!(early.polled(Polled::Free, at(40)).is_none());
        assert_eq!(early.step(at(40)), WaitStep::Claim);
        let mut late = wait(35);
        assert!(late.polled(Polled::Free, at(40)).is_none());
        assert_eq!(late.step(at(40)), WaitStep::GiveUp);
    }

    #[test]
    fn a_renewed_lease_is_waited_for_anew_and_never_beyond_the_end() {
        let mut wait = wait(20);
        assert!(wait.polled(Polled::Refused(held_until(25)), at(15)).is_none());
        assert_ne!(wait.step(at(22)), WaitStep::Claim);
        assert_eq!(wait.step(at(27)), WaitStep::Claim);
        wait.refused_again(held_until(40), at(27));
        assert_eq!(wait.step(at(30)), WaitStep::GiveUp);
    }

    #[test]
    fn a_refusal_after_the_end_is_the_last() {
        let mut wait = wait(20);
        wait.refused_again(held_until(20), at(40));
        assert_eq!(wait.step(at(40)), WaitStep::GiveUp);
    }
}
