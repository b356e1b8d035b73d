//! What was asked of the user's code: decoding, probes, handlers, letters.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use lambda_once::clock::Timestamp;

use crate::watch::{Moment, Watch, invocation};

/// How a handler or a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    /// The probe found that an earlier run had taken effect.
    Recovered,
    /// The probe found that none had.
    NotDone,
    Transient,
    Permanent,
    Unknown,
    Panicked,
    /// Its future was dropped.
    CutOff,
}

/// A record that was handed to the handler, or to the probe before it.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) invocation: usize,
    /// Its place in the event.
    pub(crate) place: usize,
    pub(crate) key: Option<usize>,
    /// What the handler was told of its claim: whether it took over, and when its lease ends.
    pub(crate) claim: Option<(bool, Timestamp)>,
    pub(crate) began: Moment,
    /// Whether it was handed to the handler.
    pub(crate) ran: bool,
    /// Whether it took effect, as far as an observer can tell.
    pub(crate) effect: bool,
    pub(crate) end: Option<(End, Moment)>,
}

/// A record that was to be put aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter {
    pub(crate) invocation: usize,
    pub(crate) place: usize,
    pub(crate) sent: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) letters: Vec<Letter>,
    /// How many bodies each invocation has decoded.
    pub(crate) decoded: HashMap<usize, usize>,
    /// The most calls of handlers that were open at once in each invocation.
    pub(crate) most_open: HashMap<usize, usize>,
    /// The most records that were handed over at once.
    pub(crate) most_together: usize,
    /// Whether a handler has blocked its thread, so that no timer could keep its time.
    pub(crate) blocked: bool,
    runs: HashMap<usize, usize>,
    effects: HashMap<usize, usize>,
    open: HashMap<usize, usize>,
}

/// Clones share their pages.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub(crate) watch: Watch,
    pages: Arc<Mutex<Pages>>,
}

/// A call of the handler that is under way; its end is noted however it ends.
pub(crate) struct Entry {
    journal: Journal,
    invocation: usize,
    attempts: Vec<usize>,
}

/// What is noted of a record when it is handed over.
pub(crate) struct Handed {
    pub(crate) place: usize,
    pub(crate) key: Option<usize>,
    pub(crate) claim: Option<(bool, Timestamp)>,
}

impl Journal {
    pub(crate) fn new(watch: Watch) -> Self {
        Self { watch, pages: Arc::default() }
    }

    pub(crate) fn pages(&self) -> Pages {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap()
    }

    pub(crate) fn decoded(&self) {
        *self.lock().decoded.entry(invocation()).or_default() += 1;
    }

    pub(crate) fn blocked(&self) {
        self.lock().blocked = true;
    }

    /// How often the handler of this key was called, and how often it took effect.
    pub(crate) fn counts(&self, key: Option<usize>) -> (usize, usize) {
        let pages = self.lock();
        let count = |counts: &HashMap<usize, usize>| key.and_then(|key| counts.get(&key).copied()).unwrap_or(0);
        (count(&pages.runs), count(&pages.effects))
    }

    pub(crate) fn letter(&self, place: usize) -> usize {
        let mut pages = self.lock();
        pages.letters.push(Letter { invocation: invocation(), place, sent: false });
        pages.letters.len() - 1
    }

    pub(crate) fn sent(&self, letter: usize) {
        self.lock().letters[letter].sent = true;
    }

    /// Records are handed to the handler, or one to the probe.
    pub(crate) fn begin(&self, handed: impl IntoIterator<Item = Handed>, ran: bool) -> Entry {
        let (invocation, began) = (invocation(), self.watch.now());
        let mut pages = self.lock();
        let pages = &mut *pages;
        let first = pages.attempts.len();
        for Handed { place, key, claim } in handed {
            if ran && let Some(key) = key {
                *pages.runs.entry(key).or_default() += 1;
            }
            let attempt = Attempt { invocation, place, key, claim, began, ran, effect: false, end: None };
            pages.attempts.push(attempt);
        }
        let attempts: Vec<usize> = (first..pages.attempts.len()).collect();
        pages.most_together = pages.most_together.max(attempts.len());
        let open = pages.open.entry(invocation).or_default();
        *open += 1;
        let most = pages.most_open.entry(invocation).or_default();
        *most = (*open).max(*most);
        Entry { journal: self.clone(), invocation, attempts }
    }
}

impl Entry {
    /// Notes that one of the records took effect.
    pub(crate) fn effect(&self, nth: usize) {
        let mut pages = self.journal.lock();
        let pages = &mut *pages;
        let attempt = &mut pages.attempts[self.attempts[nth]];
        attempt.effect = true;
        if let Some(key) = attempt.key {
            *pages.effects.entry(key).or_default() += 1;
        }
    }

    pub(crate) fn end(&self, nth: usize, end: End) {
        let now = self.journal.watch.now();
        self.journal.lock().attempts[self.attempts[nth]].end = Some((end, now));
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let now = self.journal.watch.now();
        let mut pages = self.journal.lock();
        let end = if std::thread::panicking() { End::Panicked } else { End::CutOff };
        for attempt in &self.attempts {
            pages.attempts[*attempt].end.get_or_insert((end, now));
        }
        *pages.open.get_mut(&self.invocation).unwrap() -= 1;
    }
}
