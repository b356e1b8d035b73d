//! The store by the book: what each record must be after all that was applied to it.

use std::collections::HashMap;

use lambda_once::{
    clock::Timestamp,
    record::{Fingerprint, KeyHash, Owner, Record, Status},
    store::{ClaimRequest, Claimed, SettleRequest, Settled, Settlement, Takeover},
};

use super::{Verdict, View, ensure};
use crate::{
    desk::{Told, told},
    ground::Applied,
    journal::Attempt,
    plan::State,
    stage::{MARGIN_MS, Snapshot},
    watch::{Moment, millis},
};

/// What a record must be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    status: Status,
    owner: Option<Owner>,
    lease_until: Option<Timestamp>,
    fingerprint: Option<Fingerprint>,
    took_over: bool,
}

type Book = HashMap<KeyHash, Line>;

/// What happens, in its order.
enum Event<'a> {
    Applied(&'a Applied),
    Began(&'a Attempt),
    Looked(&'a Snapshot),
}

impl View<'_> {
    pub(super) fn check_ledger(&self) -> Verdict {
        let mut book = self.first_page();
        let applied = self.seen.applied.iter().map(|(moment, applied)| (*moment, Event::Applied(applied)));
        let began = self.seen.pages.attempts.iter().map(|attempt| (attempt.began, Event::Began(attempt)));
        let looked = self.seen.snapshots.iter().map(|snapshot| (snapshot.0, Event::Looked(snapshot)));
        let mut events: Vec<(Moment, Event<'_>)> = applied.chain(began).chain(looked).collect();
        events.sort_by_key(|(moment, _)| moment.tick);
        for (moment, event) in events {
            match event {
                Event::Applied(Applied::Claim(request, answer)) => claim(&mut book, request, answer, moment.at)?,
                Event::Applied(Applied::Settle(request, answer)) => settle(&mut book, request, answer)?,
                Event::Began(attempt) => self.check_holds(&book, attempt)?,
                Event::Looked((moment, records)) => self.check_records(&book, records, moment.at)?,
            }
        }
        Ok(())
    }

    fn first_page(&self) -> Book {
        let stands = self.seen.plan.kept.iter().filter(|(_, kept)| kept.state != State::Expired);
        let line = |key: usize| {
            let Record { status, owner, lease_until, fingerprint, .. } =
                self.seen.kept[&self.seen.hashes[&key]].clone();
            Line { status, owner, lease_until, fingerprint, took_over: false }
        };
        stands.map(|(key, _)| (self.seen.hashes[key], line(*key))).collect()
    }

    /// Whoever runs holds the claim, and knows what it replaced.
    fn check_holds(&self, book: &Book, attempt: &Attempt) -> Verdict {
        let Some(key) = attempt.key else { return Ok(()) };
        let Some((took_over, lease_until)) = attempt.claim else {
            ensure!(false, Once, "{attempt:?} has no claim");
            return Ok(());
        };
        let line = book.get(&self.seen.hashes[&key]);
        let owner = self.owner(attempt);
        let holds = |line: &&Line| line.status == Status::InProgress && line.owner.is_some() && line.owner == owner;
        let held = line.filter(holds);
        ensure!(held.is_some(), Once, "{attempt:?} runs under the claim of {owner:?}, and the record is {line:?}");
        let told = held.map(|line| (line.took_over, line.lease_until));
        ensure!(told == Some((took_over, Some(lease_until))), Record, "{attempt:?}, and the record is {line:?}");
        Ok(())
    }

    fn check_records(&self, book: &Book, records: &HashMap<KeyHash, Record>, now: Timestamp) -> Verdict {
        for (key, hash) in &self.seen.hashes {
            let stands = |record: &&Record| record.expiration.is_none_or(|end| end > now.seconds_rounded_down());
            let found = records.get(hash).filter(stands);
            let found = found.map(|record| (record.status, record.owner, record.lease_until, record.fingerprint));
            let line = book.get(hash);
            let due = line.map(|line| (line.status, line.owner, line.lease_until, line.fingerprint));
            ensure!(found == due, Record, "the record of order {key} is {found:?}, and should be {due:?}");
        }
        Ok(())
    }
}

/// What a claim has to be told.
fn judge(line: Option<&Line>, request: &ClaimRequest, now: Timestamp) -> Told {
    let Some(line) = line else { return Told::Granted };
    if line.fingerprint.is_some() && request.fingerprint.is_some() && line.fingerprint != request.fingerprint {
        return Told::Mismatch;
    }
    match (line.status, line.lease_until) {
        (Status::Completed, _) => Told::Completed,
        (Status::Failed, _) => Told::Failed,
        (Status::InProgress, _) if line.owner == Some(request.owner) => Told::Granted,
        (Status::InProgress, None) => Told::InProgress(None),
        (Status::InProgress, Some(lease_until)) if lease_until.after(millis(MARGIN_MS)) >= now => {
            Told::InProgress(Some(lease_until.as_millis()))
        }
        (Status::InProgress, Some(_)) if request.takeover == Takeover::Refused => Told::Abandoned,
        (Status::InProgress, Some(_)) => Told::Granted,
    }
}

fn claim(book: &mut Book, request: &ClaimRequest, answer: &Claimed, now: Timestamp) -> Verdict {
    let line = book.get(&request.key);
    let due = judge(line, request, now);
    let answered = told(answer);
    ensure!(answered == due, Record, "a claim is told {answered:?} and not {due:?}, and the record is {line:?}");
    let is_mine = line.is_some_and(|line| line.owner == Some(request.owner));
    if due == Told::Granted && !is_mine {
        let line = Line {
            status: Status::InProgress,
            owner: Some(request.owner),
            lease_until: Some(now.after(request.lease)),
            fingerprint: request.fingerprint,
            took_over: line.is_some(),
        };
        book.insert(request.key, line);
    }
    Ok(())
}

fn settle(book: &mut Book, request: &SettleRequest, answer: &Settled) -> Verdict {
    let line = book.get(&request.key).cloned();
    let is_mine = line.as_ref().is_some_and(|line| line.owner == Some(request.owner));
    let status = line.as_ref().map(|line| line.status);
    let holds = is_mine && status == Some(Status::InProgress);
    let is_done = match request.settlement {
        Settlement::Complete { .. } => holds || is_mine && status == Some(Status::Completed),
        Settlement::Fail { .. } => holds || is_mine && status == Some(Status::Failed),
        // A late copy of a release says what its claim was told at first: it must not forget what is known since.
        Settlement::Release { took_over } => !holds || took_over || !line.as_ref().is_some_and(|line| line.took_over),
        Settlement::Renew { .. } => holds,
    };
    let answered = matches!(answer, Settled::Done);
    ensure!(answered == is_done, Record, "{request:?} is answered by {answer:?}, and the record is {line:?}");
    let Some(line) = line.filter(|_| holds && is_done) else { return Ok(()) };
    match request.settlement {
        Settlement::Complete { .. } => drop(book.insert(request.key, Line { status: Status::Completed, ..line })),
        Settlement::Fail { .. } => drop(book.insert(request.key, Line { status: Status::Failed, ..line })),
        Settlement::Release { took_over } => {
            ensure!(took_over == line.took_over, Record, "{request:?} is not true of {line:?}");
            if took_over {
                let lease_until = Some(Timestamp::EPOCH);
                book.insert(request.key, Line { owner: None, lease_until, ..line });
            } else {
                book.remove(&request.key);
            }
        }
        Settlement::Renew { .. } => ensure!(false, Settlement, "nobody renews the claims of a batch"),
    }
    Ok(())
}
