//! The life of each record, from the event to its report. Only this file changes a record's state.
//!
//! ```text
//! incoming → decoded → claiming → ready → running → settling → decided → reported
//!                ↑         ↓
//!                └──── waiting              following → reported
//! ```

use std::sync::Arc;

use super::steps::Run;
use crate::{
    batch::{
        record::RecordInfo,
        report::{Decision, RecordReport, Report},
        source::Source,
    },
    error::Error,
    idempotency::{
        claim::Claim,
        engine::{Extras, LeaseWait},
        guard::drop_contained,
    },
    record::{Difference, Fingerprint, KeyHash},
};

/// What a record is in the batch.
enum Life<R, T> {
    /// As the event has it.
    Incoming(R),
    /// It is being decoded.
    Opened,
    /// It wants a claim.
    Decoded(Work<T>),
    /// Its claim is being made.
    Claiming(Work<T>),
    /// Its key is held elsewhere, and it waits for that to end.
    Waiting(Work<T>, Box<LeaseWait>),
    /// It runs when its turn comes: under its claim, or unprotected.
    Ready(Work<T>, Option<Claim>),
    Running,
    /// It has run, and its end is being recorded.
    Settling,
    /// It has the key of an earlier record, and shares that one's outcome.
    Following(Follows),
    /// Its outcome is known, and counts when its turn comes.
    Decided(Decision),
    /// Nothing changes any more. What was decided of its key is kept for those that follow it.
    Reported(Option<Decision>, Option<Follows>, RecordReport),
}

/// A decoded record.
pub(super) struct Work<T> {
    pub(super) payload: T,
    /// `None` if it runs unprotected.
    pub(super) operation: Option<Operation>,
}

/// A record that is decoded, and what few of them have; or why there is nothing to do for it.
pub(super) type Decoded<T> = Result<(Work<T>, Option<Box<Extras>>), NoWork>;

/// Why there is nothing to do for a record.
pub(super) enum NoWork {
    /// It is no work, and is acknowledged.
    Ignored,
    /// It cannot be decoded, or has no key.
    Failed(Error),
}

/// The key and fingerprint that a record claims. Its sequence and label are stored separately ([`Entities`](super::entities::Entities)),
/// because few records have them, and all candidates are moved often.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) key: KeyHash,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// A record's place behind an earlier one with the same key.
#[derive(Clone, Copy)]
pub(super) struct Follows {
    pub(super) leader: usize,
    /// Whether its payload is the leader's too.
    pub(super) same_payload: bool,
    /// The parts in which the two payloads differ, as far as they are known.
    pub(super) difference: Difference,
}

struct Entry<S: Source, T> {
    life: Life<S::Record, T>,
    /// Known as soon as it is opened.
    info: Option<Arc<RecordInfo>>,
    key: Option<KeyHash>,
    /// Kept where it may have to be dead-lettered.
    body: Option<S::Body>,
    /// Whether it has waited for its key once.
    has_waited: bool,
}

/// The records of one event, in its order.
pub(super) struct Records<S: Source, T> {
    source: S,
    entries: Vec<Entry<S, T>>,
    /// The first record that has not been opened.
    next: usize,
}

impl<S: Source, T> Records<S, T> {
    pub(super) fn new(source: S, records: Vec<S::Record>) -> Self {
        let entry =
            |record| Entry { life: Life::Incoming(record), info: None, key: None, body: None, has_waited: false };
        Self { source, entries: records.into_iter().map(entry).collect(), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Opens the next record, in the order of the event.
    pub(super) fn open_next(&mut self) -> Option<(usize, Arc<RecordInfo>, S::Body)> {
        let index = self.next;
        let entry = self.entries.get_mut(index)?;
        self.next += 1;
        let Life::Incoming(record) = std::mem::replace(&mut entry.life, Life::Opened) else { return None };
        let (info, body) = self.source.open(record);
        let info = Arc::new(info);
        entry.info = Some(Arc::clone(&info));
        Some((index, info, body))
    }

    /// Keeps the body, in case the record has to be dead-lettered.
    pub(super) fn keep_body(&mut self, index: usize, body: S::Body) {
        self.entries[index].body = Some(body);
    }

    /// It is decoded and wants a claim.
    pub(super) fn decoded(&mut self, index: usize, work: Work<T>) {
        let entry = &mut self.entries[index];
        entry.key = work.operation.map(|operation| operation.key);
        entry.life = Life::Decoded(work);
    }

    /// It is decoded and runs without a claim.
    pub(super) fn unprotected(&mut self, index: usize, work: Work<T>) {
        self.entries[index].life = Life::Ready(work, None);
    }

    /// It has the key of an earlier record.
    pub(super) fn follow(&mut self, index: usize, work: Work<T>, follows: Follows) {
        let entry = &mut self.entries[index];
        entry.key = work.operation.map(|operation| operation.key);
        entry.life = Life::Following(follows);
        drop_contained(work.payload);
    }

    /// Its claim is made: for the first time, or once more after it has waited.
    pub(super) fn claim(&mut self, index: usize) -> Option<Operation> {
        let entry = &mut self.entries[index];
        let work = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Decoded(work) | Life::Waiting(work, _) => work,
            other => {
                entry.life = other;
                return None;
            }
        };
        let operation = work.operation;
        entry.life = Life::Claiming(work);
        operation
    }

    /// Its claim is granted.
    pub(super) fn granted(&mut self, index: usize, claim: Claim) {
        let entry = &mut self.entries[index];
        entry.life = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Claiming(work) => Life::Ready(work, Some(claim)),
            other => other,
        };
    }

    /// Its key is held elsewhere, and it waits for that to end.
    pub(super) fn wait(&mut self, index: usize, wait: LeaseWait) {
        let entry = &mut self.entries[index];
        entry.has_waited = true;
        entry.life = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Claiming(work) => Life::Waiting(work, Box::new(wait)),
            other => other,
        };
    }

    pub(super) fn has_waited(&self, index: usize) -> bool {
        self.entries[index].has_waited
    }

    /// The wait of a record that waits.
    pub(super) fn wait_of(&self, index: usize) -> Option<&LeaseWait> {
        match &self.entries[index].life {
            Life::Waiting(_, wait) => Some(wait),
            _ => None,
        }
    }

    pub(super) fn wait_mut(&mut self, index: usize) -> Option<&mut LeaseWait> {
        match &mut self.entries[index].life {
            Life::Waiting(_, wait) => Some(wait),
            _ => None,
        }
    }

    /// Returns the operation that a decoded or waiting record claims next.
    pub(super) fn claims_next(&self, index: usize) -> Option<Operation> {
        match &self.entries[index].life {
            Life::Decoded(work) | Life::Waiting(work, _) => work.operation,
            _ => None,
        }
    }

    /// The claim of a record that is ready to run.
    pub(super) fn claim_of(&self, index: usize) -> Option<&Claim> {
        match &self.entries[index].life {
            Life::Ready(_, claim) => claim.as_ref(),
            _ => None,
        }
    }

    /// It does not run. Its claim is to be released; dropping its payload runs code of the user's.
    pub(super) fn give_up(&mut self, index: usize) -> Option<Claim> {
        let entry = &mut self.entries[index];
        if matches!(entry.life, Life::Running | Life::Settling) {
            return None;
        }
        let (work, claim) = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Ready(work, claim) => (work, claim),
            Life::Decoded(work) | Life::Claiming(work) | Life::Waiting(work, _) => (work, None),
            other => {
                entry.life = other;
                return None;
            }
        };
        drop_contained(work.payload);
        claim
    }

    /// Its handler begins.
    pub(super) fn begin(&mut self, index: usize) -> Option<Run<T>> {
        let entry = &mut self.entries[index];
        match (std::mem::replace(&mut entry.life, Life::Running), &entry.info) {
            (Life::Ready(Work { payload, .. }, claim), Some(info)) => {
                Some(Run { index, payload, claim, info: Arc::clone(info) })
            }
            (other, _) => {
                entry.life = other;
                None
            }
        }
    }

    /// Its handler has ended, and that is to be recorded.
    pub(super) fn settle(&mut self, index: usize) {
        self.entries[index].life = Life::Settling;
    }

    /// Its outcome is known.
    pub(super) fn decide(&mut self, index: usize, decision: Decision) {
        self.open(index);
        self.entries[index].life = Life::Decided(decision);
    }

    /// Opens a record that was not looked at in its turn.
    fn open(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if !matches!(entry.life, Life::Incoming(_)) {
            return;
        }
        if let Life::Incoming(record) = std::mem::replace(&mut entry.life, Life::Opened) {
            entry.info = Some(Arc::new(self.source.open(record).0));
        }
    }

    /// What is known of its outcome.
    pub(super) fn decision(&self, index: usize) -> Option<&Decision> {
        match &self.entries[index].life {
            Life::Decided(decision) | Life::Reported(Some(decision), ..) => Some(decision),
            _ => None,
        }
    }

    pub(super) fn decision_mut(&mut self, index: usize) -> Option<&mut Decision> {
        match &mut self.entries[index].life {
            Life::Decided(decision) | Life::Reported(Some(decision), ..) => Some(decision),
            _ => None,
        }
    }

    /// What is known of the report on it.
    pub(super) fn report(&self, index: usize) -> Option<Report> {
        self.decision(index).map(|decision| decision.report)
    }

    /// The record whose key it has.
    pub(super) fn follows_of(&self, index: usize) -> Option<Follows> {
        match self.entries[index].life {
            Life::Following(follows) | Life::Reported(_, Some(follows), _) => Some(follows),
            _ => None,
        }
    }

    pub(super) fn is_reported(&self, index: usize) -> bool {
        matches!(self.entries[index].life, Life::Reported(..))
    }

    /// Whether nothing is known of its outcome.
    pub(super) fn is_undecided(&self, index: usize) -> bool {
        !matches!(self.entries[index].life, Life::Following(_) | Life::Decided(_) | Life::Reported(..))
    }

    /// What its source says of it; it is opened for that if need be.
    pub(super) fn info(&mut self, index: usize) -> Arc<RecordInfo> {
        self.open(index);
        // It is known of every record that was opened.
        self.entries[index].info.clone().unwrap_or_else(|| Arc::new(RecordInfo::new("")))
    }

    /// What its source says of it, if it has been opened.
    pub(super) fn known(&self, index: usize) -> Option<&RecordInfo> {
        self.entries[index].info.as_deref()
    }

    pub(super) fn key(&self, index: usize) -> Option<KeyHash> {
        self.entries[index].key
    }

    /// Whether its body is kept.
    pub(super) fn has_body(&self, index: usize) -> bool {
        self.entries[index].body.is_some()
    }

    pub(super) fn take_body(&mut self, index: usize) -> Option<S::Body> {
        self.entries[index].body.take()
    }

    /// Nothing changes any more.
    pub(super) fn conclude(&mut self, index: usize, report: RecordReport) {
        let follows = self.follows_of(index);
        let entry = &mut self.entries[index];
        entry.body = None;
        let decision = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Decided(decision) => Some(decision),
            _ => None,
        };
        entry.life = Life::Reported(decision, follows, report);
    }

    /// The reports, in the order of the event.
    pub(super) fn into_reports(self) -> Vec<RecordReport> {
        let report = |entry: Entry<S, T>| match entry.life {
            Life::Reported(_, _, report) => Some(report),
            _ => None,
        };
        self.entries.into_iter().filter_map(report).collect()
    }
}
