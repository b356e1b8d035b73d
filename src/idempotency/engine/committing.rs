//! Commits outcomes in one transaction with the handler's writes.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    Engine,
    calls::{MAX_CALL_TIME, silent},
    ending::{Conclusion, End},
    settling::{RELEASE_FOR, request_of},
};
use crate::{
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    idempotency::{
        claim::Claim,
        guard::catch_panic,
        policy::AfterUnknown,
        verdict::{Failure, Verdict},
        window::Window,
    },
    record::{KeyHash, Owner, Record, Status},
    store::{ClaimRequest, Claimed, ResultData, SettleRequest, Settled, Settlement, transaction::Transactional},
};

pub(super) const COMMIT: &str = "commit";

/// Maps the error of a failed commit to a verdict on the operation.
pub(crate) type Classifier = Arc<dyn Fn(&Error) -> Verdict + Send + Sync>;

/// The transaction of one run, on any store. It is abandoned when dropped.
pub(crate) trait Commit: Send + Sync {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claimed, Error>>;
    fn commit<'a>(&'a self, request: Option<&'a SettleRequest>) -> BoxFuture<'a, Result<Settled, Error>>;
    fn check_unanswered(&self) -> BoxFuture<'_, Result<(), Error>>;
    fn abandon(&self) -> BoxFuture<'static, Result<(), Error>>;
    fn verdict(&self, error: &Error) -> Verdict;
}

/// A transaction and its store.
pub(crate) struct OpenTransaction<S: Transactional> {
    pub(crate) store: S,
    pub(crate) transaction: S::Transaction,
    pub(crate) classifier: Option<Classifier>,
}

impl<S: Transactional> Commit for OpenTransaction<S> {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claimed, Error>> {
        self.store.claim_within(&self.transaction, request)
    }

    fn commit<'a>(&'a self, request: Option<&'a SettleRequest>) -> BoxFuture<'a, Result<Settled, Error>> {
        self.store.commit(&self.transaction, request)
    }

    fn check_unanswered(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.store.check_unanswered(&self.transaction)
    }

    fn abandon(&self) -> BoxFuture<'static, Result<(), Error>> {
        self.store.abandon(&self.transaction)
    }

    fn verdict(&self, error: &Error) -> Verdict {
        // The function is user code, and may panic.
        let verdict = self.classifier.as_ref().and_then(|classify| catch_panic(|| classify(error)));
        verdict.unwrap_or_default()
    }
}

impl<S: Transactional> Drop for OpenTransaction<S> {
    fn drop(&mut self) {
        drop(self.store.abandon(&self.transaction));
    }
}

/// The outcome of a failed commit, as the following settle shows.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing was committed, and nothing will be.
    Undone,
    Committed,
    /// Nothing of this run was committed, and a successor decides, by this record if there is one.
    Overtaken(Option<Box<Record>>),
    Undecided,
}

impl Engine {
    /// Ends the transaction of a run. A success is committed and recorded with it. Anything else that must be recorded
    /// remains in the end. `window` limits the transaction of a run without a claim.
    pub(crate) async fn commit<T: Send>(&self, mut end: End<T>, window: Window, writes: Box<dyn Commit>) -> End<T> {
        if !matches!(end.conclusion, Conclusion::Completed(_)) {
            let abandoned = match &end.claim {
                Some(claim) => self.abandon(claim, &*writes).await,
                None => self.abandon_alone(window, &*writes).await,
            };
            if let Err(error) = abandoned {
                let key = end.claim.as_ref().map(Claim::key);
                doubt(key, error, &mut end);
                end.held_until = end.claim.as_ref().map(Claim::lease_until);
            }
            return end;
        }
        match end.take_due() {
            Some((claim, settlement)) => self.commit_claimed(claim, settlement, end, writes).await,
            None => self.commit_alone(self.time_without_claim(window), end, writes).await,
        }
    }

    /// Returns the time that is left to end a transaction without a claim. No lease limits it.
    pub(super) fn time_without_claim(&self, window: Window) -> Duration {
        let now = self.clock.now();
        window.deadline().map_or(Duration::MAX, |_| window.settles_until(now, true).since(now))
    }

    /// Commits the writes of a successful run without a record, and waits for the response for this long.
    async fn commit_alone<T: Send>(&self, time: Duration, mut end: End<T>, writes: Box<dyn Commit>) -> End<T> {
        if let Err(error) = self.within_transaction(time, COMMIT, writes.commit(None)).await {
            if may_be_committed(&error) {
                tell_doubt(None, &error);
            }
            end.conclude(match verdict_of(&error, Verdict::Unknown, &*writes) {
                Verdict::Superseded => Conclusion::Superseded,
                verdict => Conclusion::NotCommitted(Failure::new(verdict, error)),
            });
        }
        end
    }

    /// Abandons the transaction of a run under this claim, and leaves time for the following settle.
    async fn abandon(&self, claim: &Claim, writes: &dyn Commit) -> Result<(), Error> {
        let now = self.clock.now();
        confirm_within(claim.granted().window.settles_until(now, true).since(now) / 2, writes.abandon()).await
    }

    /// Abandons the transaction of a run that nothing is settled for.
    pub(super) async fn abandon_alone(&self, window: Window, writes: &dyn Commit) -> Result<(), Error> {
        confirm_within(self.time_without_claim(window), writes.abandon()).await
    }

    async fn commit_claimed<T: Send>(
        &self,
        claim: Claim,
        settlement: Settlement,
        mut end: End<T>,
        writes: Box<dyn Commit>,
    ) -> End<T> {
        let until = claim.granted().window.settles_until(self.clock.now(), true);
        // The other half is for the settle that resolves a failed commit.
        let time = until.since(self.clock.now()) / 2;
        let request = request_of(&claim, settlement);
        let answer = self.within_transaction(time, COMMIT, writes.commit(Some(&request))).await;
        match answer {
            Ok(Settled::LeaseLost { current }) => self.lose(&claim, current, &mut end),
            Ok(Settled::Done { .. } | Settled::Renewed { .. }) => {}
            Err(mut error) => {
                // The store may have had no time to report that the handler has ended the transaction itself. In that
                // case a release would be applied.
                if (error.kind(), error.status()) == (ErrorKind::Timeout, ErrorStatus::Ambiguous) {
                    let time = until.since(self.clock.now()) / 2;
                    error = confirm_within(time, writes.check_unanswered()).await.err().unwrap_or(error);
                }
                if may_be_committed(&error) {
                    tell_doubt(Some(claim.key()), &error);
                }
                let is_certain = error.status() != ErrorStatus::Ambiguous;
                let verdict = verdict_of(&error, Verdict::Transient, &*writes);
                // The following settle may need its connection.
                drop(writes);
                self.resolve(&claim, (Failure::new(verdict, error), is_certain), until, &mut end).await;
            }
        }
        End { claim: Some(claim), ..end }
    }

    /// Resolves a failed commit. Whatever its error, an earlier attempt may have been applied, and a late one may still
    /// be. A read cannot exclude the late one, but a settle can, because the store applies either the commit or the
    /// settle. The failure comes with whether its error proves that the commit was not applied.
    async fn resolve<T: Send>(
        &self,
        claim: &Claim,
        (failure, is_certain): (Failure, bool),
        until: Timestamp,
        end: &mut End<T>,
    ) {
        let (failure, settlement) = match failure.verdict() {
            Verdict::Transient => (failure, claim.release()),
            Verdict::Permanent => {
                let settlement = self.failure(claim, &failure);
                (failure, settlement)
            }
            Verdict::Superseded => match self.supersession() {
                Ok(settlement) => (failure, settlement),
                Err(error) => (Failure::permanent(error), claim.release()),
            },
            Verdict::Unknown => return self.keep(claim, failure, end),
        };
        let request = request_of(claim, settlement);
        let fate = match self.settle_with_retries(&request, until, is_certain).await {
            Ok(answer) => fate(answer, claim.granted().owner),
            Err(trouble) => {
                tracing::error!(target: "lambda_once", key = %claim.key(), %failure, error = %trouble, "it is not known whether the transaction was committed; a later delivery finds out");
                Fate::Undecided
            }
        };
        match fate {
            Fate::Committed => {}
            Fate::Undone if failure.verdict() == Verdict::Superseded => end.conclude(Conclusion::Superseded),
            Fate::Undone => end.conclude(Conclusion::NotCommitted(failure)),
            // Again, because the response to a release need not contain the result.
            Fate::Overtaken(record) => {
                let left = until.since(self.clock.now());
                let mut found =
                    self.within(left, "read", 1, self.store.read(&[claim.key()], ResultData::Include)).await;
                let current = found.pop().and_then(Result::ok).map_or(record, |found| found.map(Box::new));
                self.lose(claim, current, end);
            }
            Fate::Undecided => self.keep(claim, Failure::unknown(failure.into_source()), end),
        }
    }

    /// Keeps the claim until its lease ends.
    fn keep<T>(&self, claim: &Claim, failure: Failure, end: &mut End<T>) {
        end.conclude(Conclusion::NotCommitted(failure));
        end.held_until = Some(claim.lease_until());
    }

    /// A release after a commit that was certainly not applied is optional under `Rerun`, and is given up like any other.
    async fn settle_with_retries(
        &self,
        request: &SettleRequest,
        mut until: Timestamp,
        is_certain: bool,
    ) -> Result<Settled, Error> {
        let operation = request.settlement.as_str();
        let is_plain_release = is_certain && request.settlement.is_release();
        if is_plain_release && self.settings.after_unknown == AfterUnknown::Rerun {
            until = until.min(self.clock.now().after(RELEASE_FOR));
        }
        let mut backoff = Backoff::default();
        loop {
            let left = until.since(self.clock.now());
            let mut answers = self.within(left, operation, 1, self.store.settle(std::slice::from_ref(request))).await;
            let answer = answers.pop().unwrap_or_else(|| Err(silent(operation)));
            if is_plain_release && answer.as_ref().is_err_and(|error| !error.retry_helps()) {
                until = self.refused_until(until);
            }
            let pause = backoff.next();
            match answer {
                Err(error) if error.may_pass() && self.clock.now().after(pause) < until => sleep(pause).await,
                answer => return answer,
            }
        }
    }
}

/// Awaits the store's report on a transaction for `time`. Without a report the transaction may be committed.
async fn confirm_within(time: Duration, answer: BoxFuture<'_, Result<(), Error>>) -> Result<(), Error> {
    timeout(time.min(MAX_CALL_TIME), answer).await.unwrap_or_else(|_| {
        let message = "the store did not confirm in time that the transaction was rolled back";
        Err(Error::new(ErrorKind::Transaction, ErrorStatus::Ambiguous, COMMIT, message))
    })
}

/// The handler has ended its transaction itself, or may have, so it may have taken effect. Keeps the claim, if any,
/// whatever the handler has returned.
pub(super) fn doubt<T>(key: Option<KeyHash>, error: Error, end: &mut End<T>) {
    tell_doubt(key, &error);
    // A run that was interrupted without a settlement is in doubt already.
    if end.settlement.take().is_some() || !matches!(end.conclusion, Conclusion::Interrupted(_)) {
        end.conclude(Conclusion::NotCommitted(Failure::unknown(error)));
    }
}

pub(super) fn tell_doubt(key: Option<KeyHash>, error: &Error) {
    let key = key.map(tracing::field::display);
    tracing::error!(target: "lambda_once", key, %error, "the operation may have taken effect without an outcome: look at its data before it runs again");
}

/// Returns whether this is the error of a transaction that its handler has ended itself, or may have.
pub(super) fn may_be_committed(error: &Error) -> bool {
    (error.status(), error.kind()) == (ErrorStatus::Ambiguous, ErrorKind::Transaction)
}

/// Returns the verdict on a failed commit. Only a rejection of the handler's writes is classified.
pub(super) fn verdict_of(error: &Error, if_open: Verdict, writes: &dyn Commit) -> Verdict {
    match (error.status(), error.kind()) {
        _ if may_be_committed(error) => Verdict::Unknown,
        (ErrorStatus::Ambiguous, _) => if_open,
        (_, ErrorKind::Transaction) => writes.verdict(error),
        _ => Verdict::Transient,
    }
}

fn fate(answer: Settled, owner: Owner) -> Fate {
    let (record, is_lost) = match answer {
        Settled::Done { found } => (found, false),
        Settled::LeaseLost { current } => (current, true),
        Settled::Renewed { .. } => (None, false),
    };
    let standing = record.as_ref().map(|record| (record.owner == Some(owner), record.status));
    match standing {
        // This settle itself has recorded that, because an earlier attempt of it was applied.
        Some((true, Status::Completed)) if record.as_ref().is_some_and(|record| record.result.superseded) => {
            Fate::Undone
        }
        Some((true, Status::Completed)) => Fate::Committed,
        // The settle was refused although the claim is still held, so a late commit is not ruled out.
        Some((true, Status::InProgress)) => Fate::Undecided,
        Some((false, Status::Completed | Status::Failed)) => Fate::Overtaken(record),
        _ if is_lost => Fate::Overtaken(record),
        _ => Fate::Undone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn the_settle_after_a_commit_shows_its_fate() {
        let [ours, theirs] = [1, 2].map(|byte| Owner::from_bytes([byte; 16]));
        let record = |owner, status| Some(Box::new(Record { owner: Some(owner), attempt: 1, ..Record::new(status) }));
        let done = |found| fate(Settled::Done { found }, ours);
        let lost = |current| fate(Settled::LeaseLost { current }, ours);
        assert_eq!(done(None), Fate::Undone, "the release was applied, so that no commit will be");
        assert_eq!(done(record(ours, Status::Completed)), Fate::Committed);
        let mut superseded = record(ours, Status::Completed);
        superseded.as_mut().unwrap().result.superseded = true;
        assert_eq!(done(superseded), Fate::Undone, "that was the settle itself");
        assert_eq!(done(record(ours, Status::Failed)), Fate::Undone, "and so was that");
        assert_eq!(done(record(theirs, Status::InProgress)), Fate::Undone, "it was released before");
        for status in [Status::Completed, Status::Failed] {
            assert_eq!(done(record(theirs, status)), Fate::Overtaken(record(theirs, status)));
            assert_eq!(lost(record(theirs, status)), Fate::Overtaken(record(theirs, status)));
        }
        let running = record(theirs, Status::InProgress);
        assert_eq!(lost(running.clone()), Fate::Overtaken(running));
        assert_eq!(lost(None), Fate::Overtaken(None));
        // A late copy of the claim has taken over, so the release was refused. The commit may still arrive.
        assert_eq!(lost(record(ours, Status::InProgress)), Fate::Undecided);
    }
}
