//! The outcome of a key is decided once within its retention, and every response agrees with it.

use super::{Call, Index, Shown, Violation};
use crate::history::{Answer, Entry, History, KeyId, Ms, Outcome, Terms};

pub(super) fn check(history: &History, index: &Index, found: &mut Vec<Violation>) {
    for (key, outcomes) in (0..).zip(&index.outcomes) {
        once(&history.terms, key, outcomes, found);
    }
    for run in &index.runs {
        let asked = index.calls.get(run.call as usize).map(|call| call.asked);
        let decided = asked.and_then(|at| decision(&history.terms, &index.outcomes[run.key as usize], at, run.began));
        if let Some(outcome) = decided {
            let text = format!("it ran for call {}, which was made after {outcome:?} was recorded", run.call);
            found.push(Violation { property: "a decided key does not run", key: run.key, at: run.began, text });
        }
    }
    for call in &index.calls {
        let Some((at, answer)) = call.told else { continue };
        let outcomes = &index.outcomes[call.key as usize];
        let mut violate = |property, text| found.push(Violation { property, key: call.key, at, text });
        if let Some(run) = answer.result() {
            match index.runs.get(run as usize) {
                None => violate("answers are of runs", format!("{answer:?} is the result of no run")),
                Some(run) if run.key != call.key => violate("answers are of the key", format!("{answer:?}")),
                Some(run) if run.payload != call.payload => {
                    violate("answers are of the payload", format!("payload {} got {answer:?}", call.payload));
                }
                Some(_) => {}
            }
        }
        if let Answer::Executed(Some(run)) | Answer::TookOver(Some(run)) = answer
            && index.runs.get(run as usize).is_some_and(|run| run.took_over != matches!(answer, Answer::TookOver(_)))
        {
            violate("answers show a takeover", format!("{answer:?}, and the run was told otherwise"));
        }
        if !is_recorded(answer, outcomes, at) && !follows_unrecorded(history, index, call) {
            violate("answers are recorded", format!("{answer:?}, but the store has shown only {outcomes:?}"));
        }
        if !is_justified(history, index, call, answer, at) {
            violate(
                "refusals have a reason",
                format!("{answer:?} to payload {}, and nothing justifies it", call.payload),
            );
        }
        let decided = decision(&history.terms, outcomes, call.asked, at);
        if let Some(outcome) = decided
            && !agrees(answer, outcome, |run| index.runs[run as usize].payload == call.payload)
            && !(answer == Answer::Mismatch && meets_other_payload(history, index, call))
        {
            violate("a decided key is replayed", format!("{answer:?}, asked for after {outcome:?} was recorded"));
        }
    }
}

/// Returns whether the history contains the reason for a refusal. *Superseded* needs a completion at or above the
/// sequence in the same entity, and *mismatch* a call with another payload.
fn is_justified(history: &History, index: &Index, call: &Call, answer: Answer, told: Ms) -> bool {
    match answer {
        Answer::Superseded => {
            let Some((entity, sequence)) = history.keys[call.key as usize].order else { return false };
            (0..).zip(&history.keys).any(|(key, of): (u32, _)| {
                let is_newer = of.order.is_some_and(|order| order.0 == entity && order.1 >= sequence);
                is_newer && index.is_completed(key, told)
            })
        }
        Answer::Mismatch => {
            let mut calls = index.calls.iter().filter(|other| other.key == call.key && other.asked <= told);
            calls.any(|other| other.payload != call.payload)
        }
        _ => true,
    }
}

/// Returns whether the same batch may contain the message before it with the same key that ran and was not recorded. Its
/// duplicate gets its verdict, and a batch shows that as a replay.
fn follows_unrecorded(history: &History, index: &Index, call: &Call) -> bool {
    history.keys[call.key as usize].entry == Entry::Queue
        && index.calls.iter().any(|other| {
            let is_leader = other.key == call.key && other.asked == call.asked && other.payload == call.payload;
            is_leader && matches!(other.told, Some((_, Answer::Ran(_))))
        })
}

/// Returns whether the same batch may contain the key with another payload. The later one is a mismatch then, whatever
/// is on record.
fn meets_other_payload(history: &History, index: &Index, call: &Call) -> bool {
    history.keys[call.key as usize].entry == Entry::Queue
        && index
            .calls
            .iter()
            .any(|other| other.key == call.key && other.asked == call.asked && other.payload != call.payload)
}

fn once(terms: &Terms, key: KeyId, outcomes: &[Shown], found: &mut Vec<Violation>) {
    for pair in outcomes.windows(2) {
        let [before, after] = pair else { continue };
        if let Some(outcome) = before.outcome.filter(|_| terms.remember(before.counts_from, after.at)) {
            let text = format!("{outcome:?} of {} ms became {:?}", before.at, after.outcome);
            found.push(Violation { property: "outcomes are decided once", key, at: after.at, text });
        }
    }
}

/// Returns the outcome that is recorded from before the call until after the response.
pub(super) fn decision(terms: &Terms, outcomes: &[Shown], asked: Ms, told: Ms) -> Option<Outcome> {
    let shown = outcomes.iter().rev().find(|shown| shown.at < asked)?;
    shown.outcome.filter(|_| terms.remember(shown.counts_from, told))
}

/// Returns whether the store has shown the outcome that the response contains.
fn is_recorded(answer: Answer, outcomes: &[Shown], at: Ms) -> bool {
    let mut shown = outcomes.iter().filter(|shown| shown.at <= at).filter_map(|shown| shown.outcome);
    match answer {
        Answer::Executed(result) | Answer::TookOver(result) | Answer::Recovered(result) | Answer::Replayed(result) => {
            shown.any(|outcome| match (outcome, result) {
                (Outcome::Completed(run), Some(result)) => run == result,
                (Outcome::Completed(_), None) => true,
                (Outcome::Failed(_), _) => false,
            })
        }
        Answer::ReplayedFailure => shown.any(|outcome| matches!(outcome, Outcome::Failed(_))),
        _ => true,
    }
}

/// Returns whether a call that was made after the decision may get this response.
fn agrees(answer: Answer, outcome: Outcome, is_same_payload: impl Fn(u32) -> bool) -> bool {
    match (answer, outcome) {
        (Answer::Error | Answer::Lost | Answer::NotStarted | Answer::Failed, _) => true,
        (Answer::Replayed(result), Outcome::Completed(run)) => {
            is_same_payload(run) && result.is_none_or(|result| result == run)
        }
        (Answer::ReplayedFailure, Outcome::Failed(run)) => is_same_payload(run),
        (Answer::Mismatch, outcome) => !is_same_payload(outcome.run()),
        _ => false,
    }
}
