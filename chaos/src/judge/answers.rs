//! All successful responses of a key are equal, and none of them is followed by a response that its outcome is unknown.

use super::{Index, Violation, index::Run};
use crate::history::{Answer, KeyId};

pub(super) fn check(index: &Index, key: KeyId, found: &mut Vec<Violation>) {
    for call in index.calls_of(key) {
        let Some((Answer::Abandoned, at)) = call.told else { continue };
        let is_answered =
            |run: &Run| run.answered.is_some_and(|answered| answered.at < call.asked) && !index.may_be_lost(run, at.at);
        if index.shown.get(&key).is_some_and(|shown| shown.at < call.asked) || index.runs_of(key).any(is_answered) {
            let text = "its outcome is unknown, although it was recorded before".to_owned();
            found.push(Violation { property: "a recorded outcome stays", key, at: at.at, text });
        }
    }
    let mut recorded: Option<u32> = None;
    // Replays first, because they show the outcome on record.
    for wanted in [true, false] {
        for call in index.calls_of(key) {
            let Some((Answer::Result { run, is_replay }, at)) = call.told else { continue };
            if is_replay != wanted {
                continue;
            }
            let mut violate = |property, text| found.push(Violation { property, key, at: at.at, text });
            let Some(of) = index.runs.get(run as usize).filter(|of| of.key == key) else {
                violate("answers are of the key", format!("run {run} is not of this key"));
                continue;
            };
            if of.effect.is_none_or(|effect| effect > at) {
                violate("answers follow their effect", format!("run {run} had not taken effect"));
            }
            // An outcome that could not be recorded is returned to its own caller alone.
            if !is_replay && index.may_be_lost(of, at.at) {
                continue;
            }
            match recorded {
                Some(other) if other != run => {
                    violate("all answers are equal", format!("this is of run {run}, and another of run {other}"));
                }
                _ => recorded = Some(run),
            }
        }
    }
}
