//! Records the calls of the user's code: decoder, probe, handler, dead-letter destination and redelivery hook.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use lambda_once::{batch::RecordReport, clock::Timestamp};

use crate::timeline::{Moment, Timeline, block_thread, invocation};

/// The end of a handler or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    /// The probe found that an earlier run had taken effect.
    Recovered,
    /// The probe found no effect.
    NotDone,
    Transient,
    Permanent,
    /// A record before it in its order failed in the same call.
    NotReached,
    Unknown,
    Panicked,
    /// Its future was dropped.
    Cancelled,
}

/// A record that was given to the handler, or to the probe before it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) invocation: usize,
    /// Index in the event.
    pub(crate) place: usize,
    pub(crate) key: Option<usize>,
    /// The claim as given to the handler: whether it took over, and the end of its lease.
    pub(crate) claim: Option<(bool, Timestamp)>,
    pub(crate) began: Moment,
    /// Whether it was given to the handler, not to the probe.
    pub(crate) is_handler: bool,
    /// The number of records in the call.
    pub(crate) together: usize,
    /// The return of the first poll.
    pub(crate) polled: Option<Moment>,
    /// The return of the first poll that took over 10 ms.
    pub(crate) polled_slowly: Option<Moment>,
    /// Whether it took effect, as far as an observer can tell.
    pub(crate) effect: bool,
    pub(crate) end: Option<(End, Moment)>,
}

/// A record that was given to the dead-letter destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadLettered {
    pub(crate) invocation: usize,
    pub(crate) place: usize,
    pub(crate) was_sent: bool,
}

/// A call of the redelivery hook.
#[derive(Clone, Debug)]
pub(crate) struct Redelivered {
    pub(crate) invocation: usize,
    pub(crate) reports: Vec<RecordReport>,
}

/// A period in which a thread was blocked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) runs: Vec<Run>,
    pub(crate) dead_letters: Vec<DeadLettered>,
    pub(crate) redeliveries: Vec<Redelivered>,
    /// The number of bodies that each invocation has decoded.
    pub(crate) decoded: HashMap<usize, usize>,
    /// The maximum number of concurrent handler calls in each invocation.
    pub(crate) most_open: HashMap<usize, usize>,
    /// The blocked periods, in chronological order.
    pub(crate) blocked: Vec<Blocked>,
    /// Whether the process was frozen, so that timers were late.
    pub(crate) was_frozen: bool,
    handler_runs: HashMap<usize, usize>,
    effects: HashMap<usize, usize>,
    open: HashMap<usize, usize>,
}

/// The journal of a case. Clones share their entries.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub(crate) timeline: Timeline,
    entries: Arc<Mutex<Entries>>,
}

/// A handler or probe call that has begun. Its end is recorded even if its future is dropped.
pub(crate) struct OpenRun {
    journal: Journal,
    invocation: usize,
    runs: std::ops::Range<usize>,
}

/// A record that is about to be given to the handler.
pub(crate) struct Started {
    pub(crate) place: usize,
    pub(crate) key: Option<usize>,
    pub(crate) claim: Option<(bool, Timestamp)>,
}

impl Journal {
    pub(crate) fn new(timeline: Timeline) -> Self {
        Self { timeline, entries: Arc::default() }
    }

    pub(crate) fn entries(&self) -> Entries {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap()
    }

    pub(crate) fn decoded(&self) {
        *self.lock().decoded.entry(invocation()).or_default() += 1;
    }

    /// Blocks the thread. Time passes for the whole machine.
    pub(crate) fn block(&self, time: Duration) {
        let from = self.timeline.now().at;
        block_thread(time);
        self.lock().blocked.push(Blocked { from, until: from.after(time) });
    }

    /// Returns the time that threads have been blocked.
    pub(crate) fn time_blocked(&self) -> Duration {
        self.lock().blocked.iter().map(|blocked| blocked.until.since(blocked.from)).sum()
    }

    /// Freezes the process. The wall clock advances, but timers do not.
    pub(crate) fn freeze(&self, time: Duration) {
        self.lock().was_frozen = true;
        self.timeline.clock.jump(time);
    }

    /// Returns the numbers of calls and of effects of the handler with this key.
    pub(crate) fn counts(&self, key: Option<usize>) -> (usize, usize) {
        let entries = self.lock();
        let count = |counts: &HashMap<usize, usize>| key.and_then(|key| counts.get(&key).copied()).unwrap_or(0);
        (count(&entries.handler_runs), count(&entries.effects))
    }

    pub(crate) fn dead_lettered(&self, place: usize) -> usize {
        let mut entries = self.lock();
        entries.dead_letters.push(DeadLettered { invocation: invocation(), place, was_sent: false });
        entries.dead_letters.len() - 1
    }

    pub(crate) fn sent(&self, dead_letter: usize) {
        self.lock().dead_letters[dead_letter].was_sent = true;
    }

    pub(crate) fn redelivered(&self, reports: Vec<RecordReport>) {
        self.lock().redeliveries.push(Redelivered { invocation: invocation(), reports });
    }

    /// Records that a handler call, or a probe of one record, begins.
    pub(crate) fn begin(&self, started: impl IntoIterator<Item = Started>, is_handler: bool) -> OpenRun {
        let (invocation, began) = (invocation(), self.timeline.now());
        let mut entries = self.lock();
        let entries = &mut *entries;
        let first = entries.runs.len();
        for Started { place, key, claim } in started {
            if is_handler && let Some(key) = key {
                *entries.handler_runs.entry(key).or_default() += 1;
            }
            entries.runs.push(Run {
                invocation,
                place,
                key,
                claim,
                began,
                is_handler,
                together: 0,
                polled: None,
                polled_slowly: None,
                effect: false,
                end: None,
            });
        }
        let runs = first..entries.runs.len();
        let together = runs.len();
        entries.runs[first..].iter_mut().for_each(|run| run.together = together);
        let open = entries.open.entry(invocation).or_default();
        *open += 1;
        let most = entries.most_open.entry(invocation).or_default();
        *most = (*open).max(*most);
        OpenRun { journal: self.clone(), invocation, runs }
    }
}

impl OpenRun {
    /// Records that one of the records took effect.
    pub(crate) fn effect(&self, nth: usize) {
        let mut entries = self.journal.lock();
        let entries = &mut *entries;
        let run = &mut entries.runs[self.runs.start + nth];
        run.effect = true;
        if let Some(key) = run.key {
            *entries.effects.entry(key).or_default() += 1;
        }
    }

    /// Records the return of a poll that began at `began`.
    pub(crate) fn polled(&self, began: Timestamp) {
        let now = self.journal.timeline.now();
        let is_slow = now.at.since(began) > crate::checker::SLOW_POLL;
        for run in &mut self.journal.lock().runs[self.runs.clone()] {
            run.polled.get_or_insert(now);
            if is_slow {
                run.polled_slowly.get_or_insert(now);
            }
        }
    }

    pub(crate) fn end(&self, nth: usize, end: End) {
        let now = self.journal.timeline.now();
        self.journal.lock().runs[self.runs.start + nth].end = Some((end, now));
    }
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        let now = self.journal.timeline.now();
        let mut entries = self.journal.lock();
        let end = if std::thread::panicking() { End::Panicked } else { End::Cancelled };
        for run in &mut entries.runs[self.runs.clone()] {
            run.end.get_or_insert((end, now));
        }
        *entries.open.get_mut(&self.invocation).unwrap() -= 1;
    }
}
