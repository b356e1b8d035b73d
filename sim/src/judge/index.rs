//! The runs, calls, messages and outcomes of a history.

use crate::history::{Answer, CallId, End, Fact, History, KeyId, Ms, Outcome};

/// A run of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its key.
    pub key: KeyId,
    /// Its payload.
    pub payload: u8,
    /// The call that it serves.
    pub call: CallId,
    /// Whether it was notified of the takeover.
    pub took_over: bool,
    /// The earliest time from which the retention of its claim may count: the time of its call. The response to a claim
    /// may be seconds late.
    pub counts_from: Ms,
    /// The time at which it began.
    pub began: Ms,
    /// The time until which its lease lasts at least.
    pub holds_until: Ms,
    /// The first time at which it took effect.
    pub effect: Option<Ms>,
    /// The number of its effects.
    pub effects: u32,
    /// Its end, and the last time at which it could act.
    pub ended: Option<(End, Ms)>,
}

impl Run {
    /// Returns the last time at which the run could act.
    pub fn active_until(&self) -> Ms {
        let ended = self.ended.map_or(Ms::MAX, |(_, until)| until);
        self.effect.map_or(ended, |effect| effect.max(ended))
    }
}

/// A call and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its key.
    pub key: KeyId,
    /// Its payload.
    pub payload: u8,
    /// The time at which it was made.
    pub asked: Ms,
    /// Whether it was made after all faults had stopped.
    pub is_audit: bool,
    /// Its response, and the time of it.
    pub told: Option<(Ms, Answer)>,
}

/// A message of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its key.
    pub key: KeyId,
    /// Its payload.
    pub payload: u8,
    /// The time at which it was deleted after an acknowledgement.
    pub acknowledged: Option<Ms>,
    /// The time at which it was dead-lettered, and whether it was sent after all faults had stopped.
    pub dead_lettered: Option<(Ms, bool)>,
}

/// An outcome that the store has shown, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The time at which it was first shown.
    pub at: Ms,
    /// The outcome.
    pub outcome: Option<Outcome>,
    /// The earliest time from which its retention may count, which is the end of its run. A store that decides by
    /// its callers' clocks counts from when the request was sent.
    pub counts_from: Ms,
}

/// The events of a history by run, call, message and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// By number.
    pub runs: Vec<Run>,
    /// By number.
    pub calls: Vec<Call>,
    /// By number.
    pub messages: Vec<Message>,
    /// By key: the changes of its recorded outcome.
    pub outcomes: Vec<Vec<Shown>>,
}

impl Index {
    /// Indexes a history.
    ///
    /// # Panics
    ///
    /// If runs, calls or messages are not numbered in the order of the history.
    pub fn new(history: &History) -> Self {
        let mut index = Self { outcomes: vec![Vec::new(); history.keys.len()], ..Self::default() };
        for event in &history.events {
            index.add(event.at, event.fact);
        }
        index
    }

    fn add(&mut self, at: Ms, fact: Fact) {
        match fact {
            Fact::Began { run, key, payload, call, took_over, holds_until } => {
                assert_eq!(run as usize, self.runs.len(), "runs are numbered in order");
                let (effect, ended) = (None, None);
                let counts_from = self.calls.get(call as usize).map_or(at, |call| call.asked);
                let began = at;
                let run =
                    Run { key, payload, call, took_over, counts_from, began, holds_until, effect, effects: 0, ended };
                self.runs.push(run);
            }
            Fact::Effect { run } => {
                let run = &mut self.runs[run as usize];
                run.effect.get_or_insert(at);
                run.effects += 1;
            }
            Fact::Ended { run, end, active_until } => self.runs[run as usize].ended = Some((end, active_until)),
            Fact::Asked { call, key, payload, is_audit } => {
                assert_eq!(call as usize, self.calls.len(), "calls are numbered in order");
                self.calls.push(Call { key, payload, asked: at, is_audit, told: None });
            }
            Fact::Told { call, answer } => self.calls[call as usize].told = Some((at, answer)),
            Fact::Recorded { key, outcome } => {
                let counts_from = self.runs[outcome.run() as usize].ended.map_or(at, |(_, ended)| ended.min(at));
                self.outcomes[key as usize].push(Shown { at, outcome: Some(outcome), counts_from });
            }
            Fact::Erased { key } => {
                self.outcomes[key as usize].push(Shown { at, outcome: None, counts_from: at });
            }
            Fact::Sent { message, key, payload } => {
                assert_eq!(message as usize, self.messages.len(), "messages are numbered in order");
                self.messages.push(Message { key, payload, acknowledged: None, dead_lettered: None });
            }
            Fact::Acknowledged { message } => {
                self.messages[message as usize].acknowledged.get_or_insert(at);
            }
            Fact::DeadLettered { message, is_audit } => {
                self.messages[message as usize].dead_lettered = Some((at, is_audit));
            }
        }
    }

    /// Returns the runs of a key, with their numbers.
    pub fn runs_of(&self, key: KeyId) -> impl Iterator<Item = (u32, &Run)> {
        (0..).zip(&self.runs).filter(move |(_, run)| run.key == key)
    }

    /// Returns whether this run's result is recorded at some time.
    pub fn is_recorded(&self, number: u32) -> bool {
        let run = &self.runs[number as usize];
        self.outcomes[run.key as usize].iter().any(|shown| shown.outcome == Some(Outcome::Completed(number)))
    }

    /// Returns whether the store has shown the key's completion by this time.
    pub fn is_completed(&self, key: KeyId, at: Ms) -> bool {
        let mut shown = self.outcomes[key as usize].iter().filter(|shown| shown.at <= at);
        shown.any(|shown| matches!(shown.outcome, Some(Outcome::Completed(_))))
    }

    /// Returns whether the run left its claim behind, because it was lost, or returned without a record.
    pub fn is_loss(&self, number: u32, run: &Run) -> bool {
        match run.ended {
            Some((end, _)) if end.is_loss() => true,
            Some((End::Returned, _)) => !self.is_recorded(number),
            _ => false,
        }
    }
}
