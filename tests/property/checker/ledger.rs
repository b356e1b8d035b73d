//! Derives the state of each record from the requests that the store applied.

use std::collections::{HashMap, HashSet};

use lambda_once::{
    clock::Timestamp,
    record::{Fingerprint, KeyHash, Owner, Record, Status},
    store::{ClaimRequest, Claimed, SettleRequest, Settled, Settlement, Takeover},
};

use super::{Checked, Evidence, ensure};
use crate::{
    journal::Run,
    plan::StoredState,
    recorded_store::{Ending, Settling, Told, result_of_claim},
    runner::{MARGIN_MS, Snapshot},
    store::Applied,
    timeline::{Moment, millis},
};

/// The expected state of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    status: Status,
    owner: Option<Owner>,
    lease_until: Option<Timestamp>,
    fingerprint: Option<Fingerprint>,
    took_over: bool,
}

type Ledger = HashMap<KeyHash, Entry>;

enum Event<'a> {
    Applied(&'a Applied),
    Began(&'a Run),
    Read(&'a Snapshot),
}

impl Evidence<'_> {
    pub(super) fn check_ledger(&self) -> Checked {
        let mut ledger = self.initial_ledger();
        let applied = self.history.applied.iter().map(|(moment, applied)| (*moment, Event::Applied(applied)));
        let began = self.history.journal.runs.iter().map(|run| (run.began, Event::Began(run)));
        let read = self.history.snapshots.iter().map(|snapshot| (snapshot.0, Event::Read(snapshot)));
        let mut events: Vec<(Moment, Event<'_>)> = applied.chain(began).chain(read).collect();
        events.sort_by_key(|(moment, _)| moment.tick);
        for (moment, event) in events {
            match event {
                Event::Applied(Applied::Claim(request, answer)) => claim(&mut ledger, request, answer, moment.at)?,
                Event::Applied(Applied::Settle(request, answer)) => settle(&mut ledger, request, answer)?,
                Event::Began(run) => self.check_holds(&ledger, run)?,
                Event::Read((moment, records)) => self.check_records(&ledger, records, moment.at)?,
            }
        }
        self.check_results()
    }

    fn initial_ledger(&self) -> Ledger {
        let stands = self.history.plan.stored.iter().filter(|(_, stored)| stored.state != StoredState::Expired);
        let entry = |key: usize| {
            let Record { status, owner, lease_until, fingerprint, .. } =
                self.history.stored[&self.history.hashes[&key]].clone();
            Entry { status, owner, lease_until, fingerprint, took_over: false }
        };
        stands.map(|(key, _)| (self.history.hashes[key], entry(*key))).collect()
    }

    /// Checks that a run holds its claim, and that it was given the status that its claim replaced.
    fn check_holds(&self, ledger: &Ledger, run: &Run) -> Checked {
        let Some(key) = run.key else { return Ok(()) };
        let Some((took_over, lease_until)) = run.claim else {
            ensure!(false, Once, "{run:?} has no claim");
            return Ok(());
        };
        let entry = ledger.get(&self.history.hashes[&key]);
        let owner = self.owner(run);
        let holds =
            |entry: &&Entry| entry.status == Status::InProgress && entry.owner.is_some() && entry.owner == owner;
        let held = entry.filter(holds);
        ensure!(held.is_some(), Once, "{run:?} runs under the claim of {owner:?}, and the record is {entry:?}");
        let told = held.map(|entry| (entry.took_over, entry.lease_until));
        ensure!(told == Some((took_over, Some(lease_until))), Record, "{run:?}, and the record is {entry:?}");
        Ok(())
    }

    fn check_records(&self, ledger: &Ledger, records: &HashMap<KeyHash, Record>, now: Timestamp) -> Checked {
        for (key, hash) in &self.history.hashes {
            let stands = |record: &&Record| record.expiration.is_none_or(|end| end > now.seconds_rounded_down());
            let found = records.get(hash).filter(stands);
            let found = found.map(|record| (record.status, record.owner, record.lease_until, record.fingerprint));
            let entry = ledger.get(hash);
            let due = entry.map(|entry| (entry.status, entry.owner, entry.lease_until, entry.fingerprint));
            ensure!(found == due, Record, "the record of order {key} is {found:?}, and should be {due:?}");
        }
        Ok(())
    }

    /// Checks that every settle that succeeded for the engine is recorded in the store.
    fn check_results(&self) -> Checked {
        let done = self.history.applied.iter().filter_map(|(_, applied)| match applied {
            Applied::Settle(request, Settled::Done { .. }) => Some((request.owner, Ending::from(&request.settlement))),
            _ => None,
        });
        let done: HashSet<_> = done.collect();
        for settle in self.history.calls.settles.iter().filter(|settle| settle.ending == Ending::Complete) {
            let is_true = settle.told != Settling::Done || done.contains(&(settle.owner, settle.ending));
            ensure!(is_true, Record, "{settle:?} was not applied");
        }
        Ok(())
    }
}

/// Returns the expected result of a claim.
fn judge(entry: Option<&Entry>, request: &ClaimRequest, now: Timestamp) -> Told {
    let Some(entry) = entry else { return Told::Granted };
    if entry.fingerprint.is_some() && request.fingerprint.is_some() && entry.fingerprint != request.fingerprint {
        return match (entry.status, entry.lease_until) {
            (Status::Completed | Status::Failed, _) => Told::Mismatch,
            (Status::InProgress, Some(until)) if until.after(millis(MARGIN_MS)) < now => Told::MismatchAbandoned,
            (Status::InProgress, until) => Told::MismatchInProgress(until.map(Timestamp::as_millis)),
        };
    }
    match (entry.status, entry.lease_until) {
        (Status::Completed, _) => Told::Completed,
        (Status::Failed, _) => Told::Failed,
        (Status::InProgress, _) if entry.owner == Some(request.owner) => Told::Granted,
        (Status::InProgress, None) => Told::InProgress(None),
        (Status::InProgress, Some(lease_until)) if lease_until.after(millis(MARGIN_MS)) >= now => {
            Told::InProgress(Some(lease_until.as_millis()))
        }
        (Status::InProgress, Some(_)) if request.takeover == Takeover::Refused => Told::Abandoned,
        (Status::InProgress, Some(_)) => Told::Granted,
    }
}

fn claim(ledger: &mut Ledger, request: &ClaimRequest, answer: &Claimed, now: Timestamp) -> Checked {
    let entry = ledger.get(&request.key);
    let due = judge(entry, request, now);
    let told = result_of_claim(answer);
    ensure!(told == due, Record, "a claim is told {told:?} and not {due:?}, and the record is {entry:?}");
    // A copy that arrives after the lease and the skew margin takes over like any other claim.
    let stands = entry.is_some_and(|entry| {
        let lapses = entry.lease_until.map(|lease_until| lease_until.after(millis(MARGIN_MS)));
        let is_taken_over = request.takeover == Takeover::Allowed && lapses.is_some_and(|lapses| lapses < now);
        entry.owner == Some(request.owner) && !is_taken_over
    });
    if due == Told::Granted && !stands {
        let entry = Entry {
            status: Status::InProgress,
            owner: Some(request.owner),
            lease_until: Some(now.after(request.lease)),
            fingerprint: request.fingerprint,
            took_over: entry.is_some(),
        };
        ledger.insert(request.key, entry);
    }
    Ok(())
}

fn settle(ledger: &mut Ledger, request: &SettleRequest, answer: &Settled) -> Checked {
    let entry = ledger.get(&request.key).cloned();
    let is_mine = entry.as_ref().is_some_and(|entry| entry.owner == Some(request.owner));
    let status = entry.as_ref().map(|entry| entry.status);
    let holds = is_mine && status == Some(Status::InProgress);
    let is_done = match request.settlement {
        Settlement::Record { outcome, .. } => holds || is_mine && status == Some(outcome.into()),
        // A late copy of a release carries the first result of its claim, and must not delete newer knowledge.
        Settlement::Release => !holds || !entry.as_ref().is_some_and(|entry| entry.took_over),
        Settlement::HandBack => true,
        Settlement::Renew { .. } => holds,
    };
    let told = matches!(answer, Settled::Done { .. });
    ensure!(told == is_done, Record, "{request:?} is answered by {answer:?}, and the record is {entry:?}");
    let Some(entry) = entry.filter(|_| holds && is_done) else { return Ok(()) };
    match request.settlement {
        Settlement::Record { outcome, .. } => {
            ledger.insert(request.key, Entry { status: outcome.into(), ..entry });
        }
        Settlement::Release => drop(ledger.remove(&request.key)),
        Settlement::HandBack => {
            ensure!(entry.took_over, Record, "{request:?} is not true of {entry:?}");
            ledger.insert(request.key, Entry { owner: None, lease_until: Some(Timestamp::EPOCH), ..entry });
        }
        Settlement::Renew { .. } => ensure!(false, Settlement, "nobody renews the claims of a batch"),
    }
    Ok(())
}
