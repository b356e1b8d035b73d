//! The states of each record, from the event to its report. Only this file changes a record's state.
//!
//! ```text
//! incoming → decoded → claiming → ready → running → settling → decided → reported
//!                ↑         ↓
//!                └──── waiting        duplicate → (decided →) reported
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

/// The state of a record in the batch.
enum Life<R, T> {
    /// As received in the event.
    Incoming(R),
    /// Being decoded.
    Opened,
    /// Decoded, and needs a claim.
    Decoded(Work<T>),
    /// In a pending claim call.
    Claiming(Work<T>),
    /// Waiting for its key, which is held elsewhere.
    Waiting(Work<T>, Box<LeaseWait>),
    /// Runs when its turn comes, under its claim or unprotected.
    Ready(Work<T>, Option<Claim>),
    Running,
    /// Has run, and its end is being recorded.
    Settling,
    /// Has the key of an earlier record, its leader, whose outcome decides.
    Duplicate(Duplicate),
    /// Has an outcome, which becomes final at its turn.
    Decided(Decision),
    /// Final. The decision about its key is kept for its duplicates.
    Reported(Option<Decision>, Option<Duplicate>, RecordReport),
}

/// A decoded record.
pub(super) struct Work<T> {
    pub(super) payload: T,
    /// `None` if the record runs unprotected.
    pub(super) operation: Option<Operation>,
}

/// A decoded record with its extras, which few records have, or the reason not to process it.
pub(super) type Decoded<T> = Result<(Work<T>, Option<Box<Extras>>), NoWork>;

/// The reason not to process a record.
pub(super) enum NoWork {
    /// It is ignored, and acknowledged.
    Ignored,
    /// It cannot be decoded, or has no key.
    Failed(Error),
}

/// The key and fingerprint that a record claims. Its sequence and label are stored separately
/// ([`Entities`](super::entities::Entities)), because few records have them, and all candidates are moved often.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) key: KeyHash,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// A record with the key of an earlier one, its leader (B3).
#[derive(Clone, Copy)]
pub(super) struct Duplicate {
    pub(super) leader: usize,
    /// Whether it has the same payload as the leader.
    pub(super) same_payload: bool,
    /// The known differences between the two payloads.
    pub(super) difference: Difference,
}

struct Entry<S: Source, T> {
    life: Life<S::Record, T>,
    /// Set when the record is opened.
    info: Option<Arc<RecordInfo>>,
    key: Option<KeyHash>,
    /// Kept if the record may have to be dead-lettered.
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

    /// Marks it as decoded, and in need of a claim.
    pub(super) fn decoded(&mut self, index: usize, work: Work<T>) {
        let entry = &mut self.entries[index];
        entry.key = work.operation.map(|operation| operation.key);
        entry.life = Life::Decoded(work);
    }

    /// Marks it as decoded, to run without a claim.
    pub(super) fn unprotected(&mut self, index: usize, work: Work<T>) {
        self.entries[index].life = Life::Ready(work, None);
    }

    /// Marks it as having the key of an earlier record.
    pub(super) fn duplicate(&mut self, index: usize, work: Work<T>, duplicate: Duplicate) {
        let entry = &mut self.entries[index];
        entry.key = work.operation.map(|operation| operation.key);
        entry.life = Life::Duplicate(duplicate);
        drop_contained(work.payload);
    }

    /// Marks it as being claimed, for the first time or again after a wait.
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

    /// Stores its granted claim.
    pub(super) fn granted(&mut self, index: usize, claim: Claim) {
        let entry = &mut self.entries[index];
        entry.life = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Claiming(work) => Life::Ready(work, Some(claim)),
            other => other,
        };
    }

    /// Marks it as waiting for its key, which is held elsewhere.
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

    /// Returns the wait of a waiting record.
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

    /// Returns the claim of a record that is ready to run.
    pub(super) fn claim_of(&self, index: usize) -> Option<&Claim> {
        match &self.entries[index].life {
            Life::Ready(_, claim) => claim.as_ref(),
            _ => None,
        }
    }

    /// Marks it as not to run, and returns its claim to release. Dropping its payload runs user code.
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

    /// Marks its handler as begun.
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

    /// Marks its handler as ended, with an end to record.
    pub(super) fn settle(&mut self, index: usize) {
        self.entries[index].life = Life::Settling;
    }

    /// Marks a duplicate as one whose outcome is not its leader's, and is not final.
    pub(super) fn undecided(&mut self, index: usize) {
        self.entries[index].life = Life::Opened;
    }

    /// Stores its outcome.
    pub(super) fn decide(&mut self, index: usize, decision: Decision) {
        self.open(index);
        self.entries[index].life = Life::Decided(decision);
    }

    /// Opens a record that was not opened in its turn.
    fn open(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if !matches!(entry.life, Life::Incoming(_)) {
            return;
        }
        if let Life::Incoming(record) = std::mem::replace(&mut entry.life, Life::Opened) {
            entry.info = Some(Arc::new(self.source.open(record).0));
        }
    }

    /// Returns the decision about it, if there is one.
    pub(super) fn decision(&self, index: usize) -> Option<&Decision> {
        match &self.entries[index].life {
            Life::Decided(decision) | Life::Reported(Some(decision), ..) => Some(decision),
            _ => None,
        }
    }

    /// Returns its report as decided so far.
    pub(super) fn report(&self, index: usize) -> Option<Report> {
        self.decision(index).map(|decision| decision.report)
    }

    /// Returns its leader, if it is a duplicate.
    pub(super) fn as_duplicate(&self, index: usize) -> Option<Duplicate> {
        match self.entries[index].life {
            Life::Duplicate(duplicate) | Life::Reported(_, Some(duplicate), _) => Some(duplicate),
            _ => None,
        }
    }

    pub(super) fn is_reported(&self, index: usize) -> bool {
        matches!(self.entries[index].life, Life::Reported(..))
    }

    /// Returns whether there is no decision about it.
    pub(super) fn is_undecided(&self, index: usize) -> bool {
        !matches!(self.entries[index].life, Life::Duplicate(_) | Life::Decided(_) | Life::Reported(..))
    }

    /// Returns its metadata, after opening it if necessary.
    pub(super) fn info(&mut self, index: usize) -> Arc<RecordInfo> {
        self.open(index);
        // All opened records have it.
        self.entries[index].info.clone().unwrap_or_else(|| Arc::new(RecordInfo::new("")))
    }

    /// Returns its metadata if it has been opened.
    pub(super) fn known(&self, index: usize) -> Option<&RecordInfo> {
        self.entries[index].info.as_deref()
    }

    pub(super) fn key(&self, index: usize) -> Option<KeyHash> {
        self.entries[index].key
    }

    /// Returns whether its body is kept.
    pub(super) fn has_body(&self, index: usize) -> bool {
        self.entries[index].body.is_some()
    }

    pub(super) fn take_body(&mut self, index: usize) -> Option<S::Body> {
        self.entries[index].body.take()
    }

    /// Makes the record final.
    pub(super) fn conclude(&mut self, index: usize, report: RecordReport) {
        let duplicate = self.as_duplicate(index);
        let entry = &mut self.entries[index];
        entry.body = None;
        let decision = match std::mem::replace(&mut entry.life, Life::Opened) {
            Life::Decided(decision) => Some(decision),
            _ => None,
        };
        entry.life = Life::Reported(decision, duplicate, report);
    }

    /// Returns the reports, in the order of the event.
    pub(super) fn into_reports(self) -> Vec<RecordReport> {
        let report = |entry: Entry<S, T>| match entry.life {
            Life::Reported(_, _, report) => Some(report),
            _ => None,
        };
        self.entries.into_iter().filter_map(report).collect()
    }
}
