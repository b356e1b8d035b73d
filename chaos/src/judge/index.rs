//! The runs, requests, messages and troubles of a history.

use std::collections::HashMap;

use super::Terms;
use crate::history::{
    Amendment, Answer, CallId, End, Fact, History, InvocationId, KeyId, MessageId, Ms, RunId, WorkerId,
};

/// The place of an event in the history, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) place: usize,
    pub(super) at: Ms,
}

/// A run of a handler.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) number: RunId,
    pub(super) key: KeyId,
    pub(super) worker: WorkerId,
    pub(super) invocation: Option<InvocationId>,
    pub(super) took_over: bool,
    pub(super) began: Moment,
    /// The earliest time from which its lease may count: its claim follows the request, or the receipt of the message.
    pub(super) claimed: Ms,
    pub(super) effect: Option<Moment>,
    pub(super) rows: u32,
    pub(super) ended: Option<(End, Moment)>,
    /// The time at which its own caller got its outcome.
    pub(super) answered: Option<Moment>,
    /// Whether its effect is a row in a transaction.
    pub(super) is_transaction: bool,
}

/// A request and its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) key: KeyId,
    worker: WorkerId,
    pub(super) asked: Ms,
    pub(super) told: Option<(Answer, Moment)>,
}

/// A message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) key: KeyId,
    pub(super) sent: Moment,
    pub(super) deliveries: Vec<InvocationId>,
    pub(super) acknowledged: Option<(InvocationId, Moment)>,
    pub(super) dead_lettered: Option<Moment>,
}

/// An invocation, or a consumer's receipt of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Invocation {
    pub(super) worker: WorkerId,
    pub(super) began: Ms,
    pub(super) deadline: Option<Ms>,
    pub(super) responded: Option<Ms>,
}

/// The troubles of a worker, by time.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    pub(super) strikes: Vec<Ms>,
    pub(super) silences: Vec<Ms>,
    pub(super) killed: Option<Ms>,
    /// From the freeze to the thaw.
    pub(super) frozen: Vec<(Ms, Ms)>,
    /// From a request to its response.
    pub(super) slow: Vec<(Ms, Ms)>,
}

/// The events of a history by run, request, message and key.
#[derive(Clone, Debug)]
pub struct Index {
    pub(super) terms: Terms,
    pub(super) runs: Vec<Run>,
    pub(super) calls: Vec<Call>,
    pub(super) messages: Vec<Message>,
    pub(super) invocations: HashMap<InvocationId, Invocation>,
    pub(super) troubles: HashMap<WorkerId, Troubles>,
    /// The times at which the server was down.
    outages: Vec<(Ms, Ms)>,
    /// The times at which the server refused requests.
    refusals: Vec<(Ms, Ms)>,
    /// The times at which the machine was stalled.
    stalls: Vec<(Ms, Ms)>,
    pub(super) runs_of: HashMap<KeyId, Vec<RunId>>,
    pub(super) calls_of: HashMap<KeyId, Vec<CallId>>,
    pub(super) messages_of: HashMap<KeyId, Vec<MessageId>>,
    /// By key: the first time at which a response, or an operator, showed that its outcome is recorded.
    pub(super) shown: HashMap<KeyId, Moment>,
    /// By key: the actions of operators.
    amendments: HashMap<KeyId, Vec<Amending>>,
    pub(super) end: Ms,
    /// By key: whether its effect is a row in a transaction.
    transactions: Vec<bool>,
}

/// An operator's action.
#[derive(Clone, Copy, Debug)]
struct Amending {
    is_release: bool,
    begin: Moment,
    /// Until then it lasts.
    end: Option<Moment>,
    /// Whether it certainly changed the record.
    is_applied: bool,
}

/// A request is sent after its handler has reported its end, and the two are recorded by different tasks.
const BEFORE_END: Ms = 20;
/// The time for which requests wait on a connection without responses, or for a server that accepts them again.
const SILENCE: Ms = 1_000;

/// Ends the last of these times that has not ended.
fn end_last(times: &mut [(Ms, Ms)], now: Ms) {
    if let Some(last) = times.iter_mut().rev().find(|(_, end)| *end == Ms::MAX) {
        last.1 = now;
    }
}

impl Index {
    /// Indexes a history.
    ///
    /// # Panics
    ///
    /// If runs, requests or messages are not numbered in the order of the history.
    pub fn new(history: &History, terms: Terms) -> Self {
        let mut index = Self {
            terms,
            runs: Vec::new(),
            calls: Vec::new(),
            messages: Vec::new(),
            invocations: HashMap::new(),
            troubles: HashMap::new(),
            outages: Vec::new(),
            refusals: Vec::new(),
            stalls: Vec::new(),
            runs_of: HashMap::new(),
            calls_of: HashMap::new(),
            messages_of: HashMap::new(),
            shown: HashMap::new(),
            amendments: HashMap::new(),
            end: history.events.last().map_or(0, |event| event.at),
            transactions: history.keys.iter().map(|key| key.is_transaction).collect(),
        };
        for (place, event) in history.events.iter().enumerate() {
            index.add(Moment { place, at: event.at }, event.fact);
        }
        index
    }

    fn add(&mut self, now: Moment, fact: Fact) {
        match fact {
            Fact::Sent { message, key } => {
                assert_eq!(message as usize, self.messages.len(), "messages are numbered in order");
                self.messages.push(Message {
                    key,
                    sent: now,
                    deliveries: Vec::new(),
                    acknowledged: None,
                    dead_lettered: None,
                });
                self.messages_of.entry(key).or_default().push(message);
            }
            Fact::Invoked { invocation, worker, deadline } => {
                let began = now.at;
                self.invocations.insert(invocation, Invocation { worker, began, deadline, responded: None });
            }
            Fact::Delivered { message, invocation } => {
                self.messages[message as usize].deliveries.push(invocation);
            }
            Fact::Responded { invocation } => {
                if let Some(invocation) = self.invocations.get_mut(&invocation) {
                    invocation.responded = Some(now.at);
                }
            }
            Fact::Acknowledged { message, invocation } => self.acknowledge(now, message, invocation),
            Fact::DeadLettered { message } => self.messages[message as usize].dead_lettered = Some(now),
            Fact::Asked { call, key, worker } => {
                assert_eq!(call as usize, self.calls.len(), "requests are numbered in order");
                self.calls.push(Call { key, worker, asked: now.at, told: None });
                self.calls_of.entry(key).or_default().push(call);
            }
            Fact::Told { call, answer } => {
                let call = &mut self.calls[call as usize];
                call.told = Some((answer, now));
                if let Answer::Result { run, is_replay } = answer {
                    if is_replay {
                        self.shown.entry(call.key).or_insert(now);
                    } else if let Some(run) = self.runs.get_mut(run as usize) {
                        run.answered.get_or_insert(now);
                    }
                }
            }
            Fact::Began { run, key, worker, invocation, took_over } => {
                assert_eq!(run as usize, self.runs.len(), "runs are numbered in order");
                let is_open = |call: &&Call| call.worker == worker && call.told.is_none();
                let asked = match invocation {
                    Some(invocation) => self.invocations.get(&invocation).map(|of| of.began),
                    None => self.calls_of(key).filter(is_open).map(|call| call.asked).max(),
                };
                let claimed = asked.unwrap_or(now.at);
                self.runs.push(Run {
                    number: run,
                    key,
                    worker,
                    invocation,
                    took_over,
                    began: now,
                    claimed,
                    effect: None,
                    rows: 0,
                    ended: None,
                    answered: None,
                    is_transaction: self.transactions[key as usize],
                });
                self.runs_of.entry(key).or_default().push(run);
            }
            Fact::Effect { run } => {
                self.runs[run as usize].effect.get_or_insert(now);
            }
            Fact::Row { run } => self.runs[run as usize].rows += 1,
            Fact::Ended { run, end } => self.runs[run as usize].ended = Some((end, now)),
            Fact::Amending { key, is_release } => {
                self.amendments.entry(key).or_default().push(Amending {
                    is_release,
                    begin: now,
                    end: None,
                    is_applied: false,
                });
            }
            Fact::Amended { key, is_release, outcome } => self.amended(now, key, is_release, outcome),
            Fact::Struck { worker, is_silent } => {
                let troubles = self.troubles.entry(worker).or_default();
                if is_silent { troubles.silences.push(now.at) } else { troubles.strikes.push(now.at) }
            }
            Fact::Killed { worker } => self.troubles.entry(worker).or_default().killed = Some(now.at),
            Fact::Frozen { worker } => self.troubles.entry(worker).or_default().frozen.push((now.at, Ms::MAX)),
            Fact::Thawed { worker } => {
                if let Some(last) = self.troubles.entry(worker).or_default().frozen.last_mut() {
                    last.1 = now.at;
                }
            }
            Fact::ServerKilled => self.outages.push((now.at, Ms::MAX)),
            // The first start follows no kill.
            Fact::ServerStarted if self.outages.is_empty() && self.terms.slow_start > 0 => {
                self.outages.push((now.at, now.at));
            }
            Fact::ServerStarted => end_last(&mut self.outages, now.at),
            Fact::ServerRefuses => self.refusals.push((now.at, Ms::MAX)),
            Fact::ServerAccepts => end_last(&mut self.refusals, now.at),
            Fact::Stalled { since } => self.stalls.push((since, now.at)),
            Fact::Slow { worker, since } => self.troubles.entry(worker).or_default().slow.push((since, now.at)),
            Fact::Probed { .. } | Fact::Calm => {}
        }
    }

    /// An acknowledged message whose key has no run in the invocation was replayed.
    fn acknowledge(&mut self, now: Moment, message: MessageId, invocation: InvocationId) {
        let entry = &mut self.messages[message as usize];
        entry.acknowledged = Some((invocation, now));
        let key = entry.key;
        let mut is_own = false;
        for number in self.runs_of.get(&key).into_iter().flatten() {
            let run = &mut self.runs[*number as usize];
            if run.invocation == Some(invocation) {
                is_own = true;
                run.answered.get_or_insert(now);
            }
        }
        if !is_own {
            self.shown.entry(key).or_insert(now);
        }
    }

    pub(super) fn runs_of(&self, key: KeyId) -> impl DoubleEndedIterator<Item = &Run> + Clone {
        self.runs_of.get(&key).into_iter().flatten().map(|run| &self.runs[*run as usize])
    }

    pub(super) fn calls_of(&self, key: KeyId) -> impl Iterator<Item = &Call> {
        self.calls_of.get(&key).into_iter().flatten().map(|call| &self.calls[*call as usize])
    }

    pub(super) fn messages_of(&self, key: KeyId) -> impl Iterator<Item = &Message> {
        self.messages_of.get(&key).into_iter().flatten().map(|message| &self.messages[*message as usize])
    }

    /// Returns whether a request of the worker to the store may have failed in this time.
    pub(super) fn is_store_disturbed(&self, worker: WorkerId, from: Ms, until: Ms) -> bool {
        let is_within = |begin: Ms, end: Ms| begin <= until && end.saturating_add(SILENCE) >= from;
        let warm_at = |end: Ms| end.saturating_add(self.terms.slow_start.saturating_sub(SILENCE));
        self.outages.iter().any(|(begin, end)| is_within(*begin, warm_at(*end)))
            || self.refusals.iter().chain(&self.stalls).any(|(begin, end)| is_within(*begin, *end))
            || self.troubles.get(&worker).is_some_and(|troubles| {
                let any = |times: &[Ms], from| {
                    let next = times.partition_point(|at| *at < from);
                    times.get(next).is_some_and(|at| *at <= until)
                };
                any(&troubles.strikes, from)
                    || any(&troubles.silences, from.saturating_sub(SILENCE))
                    || troubles.frozen.iter().any(|(begin, end)| is_within(*begin, *end))
                    || troubles.slow.iter().any(|(begin, end)| *begin <= until && *end >= from)
            })
    }

    fn amended(&mut self, now: Moment, key: KeyId, is_release: bool, outcome: Amendment) {
        let actions = self.amendments.entry(key).or_default();
        if outcome == Amendment::Refused {
            actions.pop();
        } else if let Some(last) = actions.last_mut() {
            last.end = Some(now);
            last.is_applied = outcome == Amendment::Applied;
            if last.is_applied && !is_release {
                self.shown.entry(key).or_insert(now);
            }
        }
    }

    /// Returns whether an operator may have released the key of the run between the decision to begin it and this moment.
    pub(super) fn may_be_released(&self, run: &Run, until: Moment) -> bool {
        let from = self.may_be_decided(run);
        let releases = self.amendments.get(&run.key).into_iter().flatten().filter(|action| action.is_release);
        let is_between = |action: &Amending| action.begin < until && action.end.is_none_or(|end| end.at >= from);
        releases.copied().any(|action| is_between(&action))
    }

    /// Returns the begin of the last action that had released or settled the key before this moment.
    pub(super) fn amended_before(&self, key: KeyId, at: Moment) -> Option<Moment> {
        let is_over = |action: &&Amending| action.is_applied && action.end.is_some_and(|end| end < at);
        self.amendments.get(&key)?.iter().filter(is_over).map(|action| action.begin).max()
    }

    /// Returns the time before which nobody else may have the key of the run, unless it was released.
    pub(super) fn holds_until(&self, run: &Run) -> Ms {
        self.deadline(run).unwrap_or_else(|| self.may_be_decided(run) + self.terms.shortest_hold)
    }

    fn deadline(&self, run: &Run) -> Option<Ms> {
        self.invocations.get(&run.invocation?)?.deadline
    }

    /// Returns the earliest time at which the begin of the run may have been decided: when its worker was stalled, if the run
    /// began just after the stall.
    pub(super) fn may_be_decided(&self, run: &Run) -> Ms {
        let at = run.began.at;
        let stalls = self.stalls_of(run.worker);
        let is_just_before = |(begin, end): &&(Ms, Ms)| *begin <= at && end.saturating_add(self.terms.grace) >= at;
        stalls.iter().find(is_just_before).map_or(at, |(begin, _)| *begin)
    }

    /// Returns the time at which the worker was killed, if that was in this time.
    pub(super) fn kill_of(&self, worker: WorkerId, from: Ms, until: Ms) -> Option<Ms> {
        self.troubles.get(&worker)?.killed.filter(|at| (from..=until).contains(at))
    }

    /// Returns whether the worker was stalled from `from`, or earlier, until shortly before `until`. An action at `until` may
    /// then have been decided before `from`.
    pub(super) fn stood_still(&self, worker: WorkerId, from: Ms, until: Ms) -> bool {
        let is_around = |(begin, end): &(Ms, Ms)| *begin <= from && end.saturating_add(self.terms.grace) >= until;
        self.stalls_of(worker).iter().any(is_around)
    }

    /// Returns the times at which the machine or the worker was stalled. Stalls with less than an instruction's time between
    /// them are one.
    fn stalls_of(&self, worker: WorkerId) -> Vec<(Ms, Ms)> {
        let frozen = self.troubles.get(&worker).map_or(&[][..], |troubles| &troubles.frozen);
        let mut stalls = [&self.stalls[..], frozen].concat();
        stalls.sort_unstable();
        stalls.dedup_by(|next, stall| {
            let is_one = next.0 <= stall.1.saturating_add(self.terms.grace);
            if is_one {
                stall.1 = stall.1.max(next.1);
            }
            is_one
        });
        stalls
    }

    /// Returns whether the run may have left no outcome, as of this time.
    pub(super) fn may_be_lost(&self, run: &Run, until: Ms) -> bool {
        match run.ended {
            None | Some((End::Unknown, _)) => true,
            Some((End::Transient, _)) => false,
            Some((End::Returned | End::Permanent, end)) => {
                let deadline = self.deadline(run);
                if deadline.is_some_and(|deadline| end.at + self.terms.late_end >= deadline) {
                    return true;
                }
                let is_long = deadline.is_none() && end.at >= run.claimed + self.terms.long_run;
                // Statements of a transaction are requests to the store. If one that the handler does not wait for is
                // struck, such as the end of a prepared statement, the connection is lost before the handler returns.
                let from = if is_long || run.is_transaction { run.began.at } else { end.at.saturating_sub(BEFORE_END) };
                // Its outcome is recorded before its worker responds, if ever.
                let invocation = run.invocation.and_then(|invocation| self.invocations.get(&invocation));
                let responded = invocation.and_then(|invocation| invocation.responded);
                let answered = run.answered.map(|answered| answered.at).into_iter().chain(responded).min();
                match answered.filter(|answered| *answered <= until) {
                    Some(answered) => self.is_store_disturbed(run.worker, from, answered),
                    None => {
                        self.is_store_disturbed(run.worker, from, until)
                            || self.kill_of(run.worker, from, until).is_some()
                    }
                }
            }
        }
    }
}
