//! One list of the events of handlers and of the store, with queries on it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use lambda_once::{
    clock::{Clock, Timestamp},
    record::KeyHash,
};
use tokio::sync::Notify;

use crate::support::clock::TokioClock;

/// An event of a handler or of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call that claims this many keys was sent.
    ClaimsSent(usize),
    /// The key is in the last claim call.
    Claiming(KeyHash),
    /// The store granted a claim.
    Granted(KeyHash),
    /// A handler was polled for the first time.
    Began(KeyHash),
    /// A handler blocked its thread until now.
    Blocked(KeyHash),
    /// A handler returned without an error.
    Returned(KeyHash),
    /// A handler returned, panicked or was dropped.
    Ended,
    /// A call that settles reached the store.
    SettlesArrived,
    /// The store recorded an outcome.
    Recorded(KeyHash),
    /// The store received a release of the key.
    Released(KeyHash),
    /// A call that reads this many keys reached the store.
    ReadArrived(usize),
    /// A read returned to its caller.
    ReadAnswered,
}

/// A run of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) key: String,
    pub(crate) began: Timestamp,
    /// The time at which it returned, panicked or was dropped.
    pub(crate) ended: Option<Timestamp>,
    /// Whether it reached its last line.
    pub(crate) succeeded: bool,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<(Timestamp, Event)>,
    runs: Vec<Run>,
    most_at_once: usize,
    dies_in: Option<usize>,
    is_dead: bool,
}

/// The list, and whether the execution environment is dead, after which nothing reaches the store. Clones share both.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    clock: TokioClock,
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
}

impl Journal {
    pub(super) fn new(clock: TokioClock) -> Self {
        Self { clock, state: Arc::default(), died: Arc::default() }
    }

    pub(crate) fn note(&self, event: Event) {
        self.state.lock().unwrap().events.push((self.clock.now(), event));
    }

    /// Records a run of another handler than the world's own.
    pub(crate) fn ran(&self, key: impl AsRef<str>) {
        drop(self.begin(key.as_ref(), None));
    }

    /// Records the beginning of a handler, and its end when the returned value is dropped.
    pub(super) fn begin(&self, key: &str, hash: Option<KeyHash>) -> Running {
        let mut state = self.state.lock().unwrap();
        let began = self.clock.now();
        state.events.extend(hash.map(|hash| (began, Event::Began(hash))));
        state.runs.push(Run { key: key.to_owned(), began, ended: None, succeeded: false });
        let at_once = state.runs.iter().filter(|run| run.ended.is_none()).count();
        state.most_at_once = at_once.max(state.most_at_once);
        Running { journal: self.clone(), index: state.runs.len() - 1, hash }
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.state.lock().unwrap().runs.clone()
    }

    /// Returns the keys whose handlers were started, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.key).collect()
    }

    pub(crate) fn times_run(&self) -> HashMap<String, usize> {
        self.keys().into_iter().fold(HashMap::new(), |mut times, key| {
            *times.entry(key).or_default() += 1;
            times
        })
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().most_at_once
    }

    /// Returns the events so far, with their times.
    pub(crate) fn timed(&self) -> Vec<(Timestamp, Event)> {
        self.state.lock().unwrap().events.clone()
    }

    /// Returns the events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.timed().into_iter().map(|(_, event)| event).collect()
    }

    /// Returns the number of matching events.
    pub(crate) fn count(&self, is_meant: impl Fn(Event) -> bool) -> usize {
        self.events().into_iter().filter(|event| is_meant(*event)).count()
    }

    /// Returns the times at which handlers began.
    pub(crate) fn beginnings(&self) -> Vec<Timestamp> {
        let began = |(at, event)| matches!(event, Event::Began(_)).then_some(at);
        self.timed().into_iter().filter_map(began).collect()
    }

    /// Returns all keys that were ever claimed.
    pub(crate) fn claimed(&self) -> BTreeSet<KeyHash> {
        let claimed = |event| if let Event::Claiming(key) = event { Some(key) } else { None };
        self.events().into_iter().filter_map(claimed).collect()
    }

    /// Returns the number of held claims after each event.
    fn held_over_time(&self) -> Vec<usize> {
        let mut held = BTreeSet::new();
        let after = |event| {
            match event {
                Event::Granted(key) => _ = held.insert(key),
                Event::Recorded(key) | Event::Released(key) => _ = held.remove(&key),
                _ => {}
            }
            held.len()
        };
        self.events().into_iter().map(after).collect()
    }

    /// Returns the number of claims that are held now.
    pub(crate) fn held(&self) -> usize {
        self.held_over_time().pop().unwrap_or(0)
    }

    /// Returns the maximum number of claims that were held at the same time.
    pub(crate) fn most_held(&self) -> usize {
        self.held_over_time().into_iter().max().unwrap_or(0)
    }

    /// Returns the maximum number of granted claims at the same time whose handlers had not ended.
    pub(crate) fn most_open(&self) -> usize {
        let (mut open, mut most) = (0_usize, 0);
        for event in self.events() {
            match event {
                Event::Granted(_) => open += 1,
                Event::Ended => open = open.saturating_sub(1),
                _ => {}
            }
            most = open.max(most);
        }
        most
    }

    /// Returns the number of requested releases.
    pub(crate) fn releases(&self) -> usize {
        self.count(|event| matches!(event, Event::Released(_)))
    }

    /// Returns for each handler the number of earlier runs that had returned, but were not recorded, when it began.
    pub(crate) fn unrecorded_at_each_beginning(&self) -> Vec<usize> {
        let mut unrecorded = 0;
        let mut lost = Vec::new();
        for event in self.events() {
            match event {
                Event::Returned(_) => unrecorded += 1,
                Event::Recorded(_) => unrecorded -= 1,
                Event::Began(_) => lost.push(unrecorded),
                _ => {}
            }
        }
        lost
    }

    /// Returns the maximum number of claims at the same time whose handlers had not begun, without those sent in the
    /// first `from` events.
    pub(crate) fn most_unbegun_since(&self, from: usize) -> usize {
        let (mut sent, mut unbegun, mut most) = (Vec::new(), Vec::new(), 0);
        for event in self.events().into_iter().skip(from) {
            match event {
                Event::Claiming(key) => sent.push(key),
                Event::Granted(key) if sent.contains(&key) => unbegun.push(key),
                Event::Began(key) | Event::Released(key) => unbegun.retain(|other| *other != key),
                _ => {}
            }
            most = unbegun.len().max(most);
        }
        most
    }

    /// Returns the number of keys in each claim call sent after the first `from` events.
    pub(crate) fn claim_calls_since(&self, from: usize) -> Vec<usize> {
        let sent = |event| if let Event::ClaimsSent(keys) = event { Some(keys) } else { None };
        self.events().into_iter().skip(from).filter_map(sent).collect()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead
    }

    /// Lets the execution environment die when this run, counted from 0 over all invocations, has blocked its thread.
    pub(super) fn die_in(&self, run: usize) {
        self.state.lock().unwrap().dies_in = Some(run);
    }

    /// Completes when the execution environment has died.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// Replaces the dead execution environment.
    pub(super) fn revive(&self) {
        let mut state = self.state.lock().unwrap();
        (state.dies_in, state.is_dead) = (None, false);
    }
}

/// A run in progress, whose end is recorded in every case.
pub(super) struct Running {
    journal: Journal,
    index: usize,
    hash: Option<KeyHash>,
}

impl Running {
    /// Records that it has blocked its thread, and lets the execution environment die in the chosen run.
    pub(super) fn blocked(&self) {
        if let Some(hash) = self.hash {
            self.journal.note(Event::Blocked(hash));
        }
        let mut state = self.journal.state.lock().unwrap();
        if state.dies_in == Some(self.index) {
            state.is_dead = true;
            self.journal.died.notify_one();
        }
    }

    /// Records that it has reached its last line.
    pub(super) fn succeeded(&self) {
        if let Some(hash) = self.hash {
            self.journal.note(Event::Returned(hash));
        }
        self.journal.state.lock().unwrap().runs[self.index].succeeded = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.journal.clock.now();
        self.journal.state.lock().unwrap().runs[self.index].ended = Some(now);
        self.journal.note(Event::Ended);
    }
}
