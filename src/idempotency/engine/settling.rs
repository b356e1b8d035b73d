//! Settles the ends of runs, one by one or together.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    Engine,
    ending::{Conclusion, End},
};
use crate::{
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind},
    idempotency::{claim::Claim, policy::AfterUnknown, verdict::Failure},
    record::{Record, Status, StoredResult},
    store::{FinalStatus, Refusal, SettleRequest, Settled, Settlement, rules},
};

/// The maximum time for which a release is retried if the claim would end with its lease anyway. It is enough for two
/// calls without a response, and one with a response.
pub(super) const RELEASE_FOR: Duration = Duration::from_secs(7);

/// The maximum time for which a release, or a read that precedes one, is retried if the store refuses it and the claim
/// would end with its lease anyway. A rotation of credentials may take that long. A missing permission must not delay
/// every response.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// An end that a call to the store did not settle, and that is to be sent again.
#[derive(Debug)]
pub(crate) struct Unsettled<T> {
    claim: Claim,
    settlement: Settlement,
    end: End<T>,
    /// `None` if the settlement has changed since then, and can be sent immediately.
    trouble: Option<Error>,
    /// The time at which it is given up.
    until: Timestamp,
    /// The pauses before it is sent again, and whether there was one.
    backoff: Backoff,
    has_paused: bool,
}

/// The result of a call to the store for an end, which is either recorded or unrecordable, or to be sent again.
pub(crate) type SettleResult<T> = Result<End<T>, Box<Unsettled<T>>>;

impl Engine {
    /// Settles the end of a run, with retries while there is time.
    pub(crate) async fn settle<T: Send>(&self, end: End<T>) -> End<T> {
        match self.settle_once(vec![end]).await.pop() {
            Some(Ok(end)) => end,
            Some(Err(unsettled)) => self.settle_again(vec![*unsettled]).await.remove(0),
            None => End::kept(None, Conclusion::LeaseLost),
        }
    }

    /// Releases claims that nobody acted on, so that their operations may run again immediately.
    pub(crate) async fn release(&self, claims: Vec<Claim>) {
        let end = |claim| End::<()>::released(Some(claim), Conclusion::NotStarted);
        let settled = self.settle_once(claims.into_iter().map(end).collect()).await;
        let again = settled.into_iter().filter_map(|settled| settled.err().map(|unsettled| *unsettled));
        self.settle_again(again.collect()).await;
    }

    /// Settles the ends of runs of one invocation by one call to the store. Returns them in order: the settled ends,
    /// and the ends to send again.
    pub(crate) async fn settle_once<T: Send>(&self, ends: Vec<End<T>>) -> Vec<SettleResult<T>> {
        self.send_settles(ends, &[]).await
    }

    /// Settles ends by one call to the store. For repeated ends, which all have a settlement, `given_up` contains the
    /// time at which each is given up, or `None` for one that has its full time.
    async fn send_settles<T: Send>(&self, ends: Vec<End<T>>, given_up: &[Option<Timestamp>]) -> Vec<SettleResult<T>> {
        let mut result = Vec::with_capacity(ends.len());
        let (mut requests, mut kept) = (Vec::with_capacity(ends.len()), Vec::with_capacity(ends.len()));
        for end in ends {
            let mut end = end;
            match end.take_due() {
                Some((claim, settlement)) => {
                    requests.push(request_of(&claim, settlement));
                    kept.push((claim, end));
                }
                None => result.push(Ok(end)),
            }
        }
        let Some((first, _)) = kept.first() else { return result };
        let are_releases = requests.iter().all(|request| request.settlement.is_release());
        let now = self.clock.now();
        // The claims of one invocation have the same times, and an outcome has at least as much time as a release.
        let longest = self.settles_until(first, are_releases, now);
        let last = given_up.iter().map(|until| until.unwrap_or(longest)).max().unwrap_or(longest);
        let operation = name_of(&requests);
        let answers = self.within(last.since(now), operation, requests.len(), self.store.settle(&requests)).await;
        for (i, ((request, (claim, end)), answer)) in requests.into_iter().zip(kept).zip(answers).enumerate() {
            let unsettled = |claim, settlement: Settlement, end, trouble| {
                let until = given_up.get(i).copied().flatten();
                let until = until.unwrap_or_else(|| self.settles_until(&claim, settlement.is_release(), now));
                let backoff = Backoff::default();
                Unsettled { claim, settlement, end, trouble, until, backoff, has_paused: false }
            };
            result.push(self.settled(claim, request.settlement, end, answer, unsettled));
        }
        result
    }

    /// Returns the time at which a settle that is sent at `now` is given up. Outcomes are retried for as long as there
    /// is time. A release is optional, unless the operation could never run without it.
    fn settles_until(&self, claim: &Claim, is_release: bool, now: Timestamp) -> Timestamp {
        let is_optional = is_release && self.settings.after_unknown == AfterUnknown::Rerun;
        let until = claim.granted().window.settles_until(now, !is_optional);
        if is_optional { until.min(now.after(RELEASE_FOR)) } else { until }
    }

    /// Returns the time at which a release, or a read that precedes one, is given up that the store has just refused.
    /// It was to be given up at `until`.
    pub(super) fn refused_until(&self, until: Timestamp) -> Timestamp {
        match self.settings.after_unknown {
            AfterUnknown::Rerun => until.min(self.clock.now().after(REFUSED_FOR)),
            // The operation could never run without it.
            AfterUnknown::Refuse | AfterUnknown::Probe => until,
        }
    }

    /// Sends settles again until each has a result, or the time is up. Returns them in order.
    pub(crate) async fn settle_again<T: Send>(&self, open: Vec<Unsettled<T>>) -> Vec<End<T>> {
        let mut ends: Vec<Option<End<T>>> = open.iter().map(|_| None).collect();
        let mut open: Vec<(usize, Unsettled<T>)> = open.into_iter().enumerate().collect();
        while !open.is_empty() {
            let (places, due): (Vec<usize>, Vec<_>) = open.into_iter().unzip();
            open = Vec::new();
            for (i, settled) in places.into_iter().zip(self.settle_once_more(due).await) {
                match settled {
                    Ok(end) => ends[i] = Some(end),
                    Err(unsettled) => open.push((i, *unsettled)),
                }
            }
        }
        ends.into_iter().flatten().collect()
    }

    /// Sends settles again, by one call to the store after a pause. Changed settlements go first, without a pause, and
    /// the others keep theirs. Returns a result for each, in order.
    pub(crate) async fn settle_once_more<T: Send>(&self, open: Vec<Unsettled<T>>) -> Vec<SettleResult<T>> {
        warn_of_refusal(&open);
        let is_changed = |unsettled: &Unsettled<T>| unsettled.trouble.is_none();
        let are_changed = open.iter().any(is_changed);
        let mut backoff = open.first().map(|open| open.backoff.clone()).unwrap_or_default();
        let pause = (!are_changed).then(|| backoff.next());
        let resumes = pause.map(|pause| self.clock.now().after(pause));
        let mut results: Vec<Option<SettleResult<T>>> = open.iter().map(|_| None).collect();
        let (mut places, mut due) = (Vec::new(), Vec::new());
        for (i, unsettled) in open.into_iter().enumerate() {
            if is_changed(&unsettled) != are_changed {
                results[i] = Some(Err(Box::new(unsettled)));
            } else if resumes.is_some_and(|resumes| resumes >= unsettled.until) {
                results[i] = Some(Ok(unsettled.give_up()));
            } else {
                places.push(i);
                due.push(unsettled.into_due());
            }
        }
        if !places.is_empty() {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            let (due, given_up): (Vec<_>, Vec<_>) = due.into_iter().unzip();
            for (i, settled) in places.into_iter().zip(self.send_settles(due, &given_up).await) {
                results[i] = Some(settled.map_err(|mut unsettled| {
                    unsettled.backoff = backoff.clone();
                    unsettled.has_paused = true;
                    unsettled
                }));
            }
        }
        results.into_iter().flatten().collect()
    }

    /// Applies the store's result to an end.
    fn settled<T>(
        &self,
        claim: Claim,
        settlement: Settlement,
        mut end: End<T>,
        answer: Result<Settled, Error>,
        unsettled: impl FnOnce(Claim, Settlement, End<T>, Option<Error>) -> Unsettled<T>,
    ) -> SettleResult<T> {
        match answer {
            Err(error) if error.may_pass() => {
                let is_refused_release = settlement.is_release() && !error.retry_helps();
                let mut unsettled = unsettled(claim, settlement, end, Some(error));
                if is_refused_release {
                    unsettled.until = self.refused_until(unsettled.until);
                }
                Err(Box::new(unsettled))
            }
            Err(error) if error.kind() == ErrorKind::Request && !error.is_retryable() && has_data(&settlement) => {
                tracing::error!(target: "lambda_once", key = %claim.key(), %error, "the store rejects the result, so it is dropped; the operation remains completed");
                Err(Box::new(unsettled(claim, without_data(settlement), end, None)))
            }
            Err(error) => Ok(unrecorded(claim, &settlement, end, &error)),
            // A run that is not recorded decides nothing, including its failure. A release that finds its lease lost
            // changes nothing, and the run keeps its outcome.
            Ok(Settled::LeaseLost { current }) if !settlement.is_release() => {
                self.lose(&claim, current, &mut end);
                Ok(End { claim: Some(claim), ..end })
            }
            Ok(_) => Ok(End { claim: Some(claim), ..end }),
        }
    }

    /// Ends a run whose lease was lost. A successor's outcome counts, and this run's does not (S8). If there is no
    /// outcome yet, the successor holds the key.
    pub(super) fn lose<T>(&self, claim: &Claim, current: Option<Box<Record>>, end: &mut End<T>) {
        end.conclude(Conclusion::LeaseLost);
        tracing::warn!(target: "lambda_once", key = %claim.key(), attempt = claim.attempt(), "the lease was lost before the outcome was recorded");
        let Some(record) = current.filter(|record| !rules::is_expired(record, self.clock.now())) else { return };
        if rules::check_version(&record, "settle").is_err() {
            return;
        }
        let fingerprints = (record.fingerprint, claim.granted().fingerprint);
        let same_payload = !matches!(fingerprints, (Some(theirs), Some(ours)) if ours.differs_from(&theirs));
        match record.status {
            Status::InProgress if same_payload => end.held_until = record.lease_until,
            Status::Completed if same_payload => {
                end.conclusion = Conclusion::Overtaken(Box::new(Refusal::Completed(record)))
            }
            Status::Failed if same_payload => end.conclusion = Conclusion::Overtaken(Box::new(Refusal::Failed(record))),
            // The key belongs to a different payload now.
            _ => {}
        }
    }
}

impl<T> End<T> {
    /// Takes the settlement to write and its claim.
    pub(super) fn take_due(&mut self) -> Option<(Claim, Settlement)> {
        let settlement = self.settlement.take()?;
        self.claim.take().map(|claim| (claim, settlement))
    }
}

impl<T> Unsettled<T> {
    /// Returns the end to send, and the time at which it is given up. A changed settlement has its full time again.
    fn into_due(self) -> (End<T>, Option<Timestamp>) {
        let until = self.trouble.is_some().then_some(self.until);
        (End { claim: Some(self.claim), settlement: Some(self.settlement), ..self.end }, until)
    }

    fn give_up(self) -> End<T> {
        match self.trouble {
            Some(error) => unrecorded(self.claim, &self.settlement, self.end, &error),
            None => self.end,
        }
    }
}

/// Warns that outcomes wait for access to be restored. Temporary errors, such as throttling, are logged only if they
/// last too long.
fn warn_of_refusal<T>(open: &[Unsettled<T>]) {
    let new = open.iter().filter(|unsettled| !unsettled.has_paused);
    let mut troubles = new.filter_map(|unsettled| Some((unsettled, unsettled.trouble.as_ref()?)));
    if let Some((unsettled, error)) = troubles.find(|(_, error)| !error.retry_helps()) {
        let (key, settle) = (unsettled.claim.key(), unsettled.settlement.as_str());
        tracing::warn!(target: "lambda_once", %key, settle, %error, "the store refused to settle a claim; it is tried again while there is time");
    }
}

/// Keeps the claim until its lease ends, because the store could not be reached.
fn unrecorded<T>(claim: Claim, settlement: &Settlement, end: End<T>, error: &Error) -> End<T> {
    log_unsettled(&claim, settlement, error);
    let conclusion = match end.conclusion {
        Conclusion::Completed(value) | Conclusion::Recovered(value) => Conclusion::Unrecorded(value),
        // Older operations wait until it is recorded.
        Conclusion::Superseded if claim.order().is_some() => {
            Conclusion::Failed(Failure::unknown("the operation is superseded, but that could not be recorded"))
        }
        other => other,
    };
    let held_until: Option<Timestamp> = Some(claim.lease_until());
    End { claim: Some(claim), settlement: None, conclusion, held_until }
}

pub(super) fn request_of(claim: &Claim, settlement: Settlement) -> SettleRequest {
    SettleRequest {
        key: claim.key(),
        owner: claim.granted().owner,
        fingerprint: claim.granted().fingerprint,
        settlement,
        order: claim.order(),
    }
}

/// Returns the common name of all requests, for errors.
fn name_of(requests: &[SettleRequest]) -> &'static str {
    let Some(first) = requests.first() else { return "settle" };
    // Numbers compare faster than names.
    let kind = |request: &SettleRequest| match &request.settlement {
        Settlement::Record { outcome: FinalStatus::Completed, .. } => 0,
        Settlement::Record { outcome: FinalStatus::Failed, .. } => 1,
        Settlement::Release | Settlement::HandBack => 2,
        Settlement::Renew { .. } => 3,
    };
    let of_first = kind(first);
    if requests.iter().all(|request| kind(request) == of_first) { first.settlement.as_str() } else { "settle" }
}

fn has_data(settlement: &Settlement) -> bool {
    settlement.result().is_some_and(|result| result.data.is_some())
}

fn without_data(settlement: Settlement) -> Settlement {
    match settlement {
        Settlement::Record { outcome, retention, .. } => {
            Settlement::Record { outcome, result: StoredResult::DROPPED, retention }
        }
        other => other,
    }
}

fn log_unsettled(claim: &Claim, settlement: &Settlement, error: &Error) {
    let key = claim.key();
    match settlement {
        Settlement::Record { outcome: FinalStatus::Completed, .. } => {
            tracing::error!(target: "lambda_once", %key, %error, "the operation is done but could not be recorded; it may run again after its lease");
        }
        Settlement::Record { outcome: FinalStatus::Failed, .. } => {
            tracing::error!(target: "lambda_once", %key, %error, "the permanent failure could not be recorded; the operation may run again after its lease");
        }
        _ => {
            tracing::warn!(target: "lambda_once", %key, %error, "the claim could not be released; it ends with its lease");
        }
    }
}
