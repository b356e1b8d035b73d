//! Records that wait for their keys (B6), sorted by time and polled together within a limit.

use std::{collections::BTreeSet, time::Duration};

use crate::{clock::Timestamp, idempotency::engine::LeaseWait};

/// The maximum number of keys in one poll.
const MAX_POLLED: usize = 25;

/// The pause after a poll for each key that it reads, which limits polls to a hundred keys per second.
const PAUSE_FOR_A_KEY: Duration = Duration::from_millis(10);

/// The waiting records, with the times of their next actions.
#[derive(Debug)]
pub(super) struct Waits {
    /// By the time at which the key is free for a claim or the wait is over.
    by_end: BTreeSet<(Timestamp, usize)>,
    /// By the time of their next poll.
    by_poll: BTreeSet<(Timestamp, usize)>,
    is_polling: bool,
    next_poll: Timestamp,
}

impl Waits {
    pub(super) fn new() -> Self {
        Self { by_end: BTreeSet::new(), by_poll: BTreeSet::new(), is_polling: false, next_poll: Timestamp::EPOCH }
    }

    pub(super) fn insert(&mut self, index: usize, wait: &LeaseWait) {
        self.by_end.insert((wait.ends_at(), index));
        self.by_poll.insert((wait.poll_at(), index));
    }

    /// Removes a record. Returns whether it was waiting.
    pub(super) fn remove(&mut self, index: usize, wait: &LeaseWait) -> bool {
        self.by_poll.remove(&(wait.poll_at(), index));
        self.by_end.remove(&(wait.ends_at(), index))
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.by_end.iter().map(|(_, index)| *index)
    }

    /// Returns the next record whose key is free or whose wait is over.
    pub(super) fn next_end(&self, now: Timestamp) -> Option<usize> {
        self.by_end.first().filter(|(time, _)| *time <= now).map(|(_, index)| *index)
    }

    /// Returns the records to poll now in one call. When one is due, the next ones share its call.
    pub(super) fn start_poll(&mut self, now: Timestamp) -> Vec<usize> {
        let is_due = self.by_poll.first().is_some_and(|(time, _)| *time <= now);
        if self.is_polling || now < self.next_poll || !is_due {
            return Vec::new();
        }
        let polled: Vec<usize> = self.by_poll.iter().take(MAX_POLLED).map(|(_, index)| *index).collect();
        self.is_polling = true;
        self.next_poll = now.after(PAUSE_FOR_A_KEY * u32::try_from(polled.len()).unwrap_or(u32::MAX));
        polled
    }

    pub(super) fn end_poll(&mut self) {
        self.is_polling = false;
    }

    /// Returns the time of the next action if nothing else happens before.
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        let poll = self.by_poll.first().filter(|_| !self.is_polling).map(|(time, _)| self.next_poll.max(*time));
        self.by_end.first().map(|(time, _)| *time).into_iter().chain(poll).min()
    }
}
