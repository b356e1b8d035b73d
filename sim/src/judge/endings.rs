//! No message is lost, and no key is stuck once faults have stopped.

use super::{Call, Index, Violation};
use crate::history::{Answer, Entry, History, Key, KeyId, Ms, Policy};

pub(super) fn check(history: &History, index: &Index, found: &mut Vec<Violation>) {
    let end = history.events.last().map_or(0, |event| event.at);
    for message in &index.messages {
        let key = &history.keys[message.key as usize];
        let mut violate = |at, property, text| found.push(Violation { property, key: message.key, at, text });
        match (message.acknowledged, message.dead_lettered) {
            (None, None) => {
                violate(end, "no message is lost", "it is neither acknowledged nor dead-lettered".to_owned())
            }
            (Some(at), _)
                // A late claim that clocks let pass may bring an expired operation back.
                if (history.terms.retention.is_none() || history.terms.clocks_hold)
                    && !is_done(history, index, message.key, message.payload, at) =>
            {
                let text = format!("it was acknowledged without an effect of payload {}", message.payload);
                violate(at, "no message is lost", text);
            }
            (None, Some((at, true)))
                if !may_be_refused(history, index, message.key)
                    && !key.is_poison
                    && !is_misused(index, message.key, message.payload) =>
            {
                let text = "a message failed until it was dead-lettered, without any fault".to_owned();
                violate(at, "no key is stuck", text);
            }
            _ => {}
        }
    }
    for (key, of) in (0..).zip(&history.keys).filter(|(_, of)| of.entry != Entry::Queue) {
        let calls = || index.calls.iter().filter(move |call| call.is_audit && call.key == key);
        if let Some(last) = calls().next_back()
            && !calls().any(|call| is_final(history, index, of, call))
        {
            let text = format!("the last answer is {:?}", last.told);
            found.push(Violation { property: "no key is stuck", key, at: end, text });
        }
    }
    if history.terms.is_calm {
        index.calls.iter().for_each(|call| calm(index, call, found));
    }
}

/// Returns whether a lost run, or a late claim, may have left the key abandoned. Without faults there is no late claim.
fn may_be_refused(history: &History, index: &Index, key: KeyId) -> bool {
    let is_lost = || index.runs_of(key).any(|(_, run)| run.ended.is_some_and(|(end, _)| end.is_loss()));
    history.keys[key as usize].policy == Policy::Refuse && (!history.terms.is_calm || is_lost())
}

/// Returns whether a call that was made after all faults had stopped has a final response.
fn is_final(history: &History, index: &Index, of: &Key, call: &Call) -> bool {
    let Some((_, answer)) = call.told else { return false };
    match answer {
        Answer::Executed(_)
        | Answer::TookOver(_)
        | Answer::Recovered(_)
        | Answer::Ran(_)
        | Answer::Replayed(_)
        | Answer::ReplayedFailure
        | Answer::FailedPermanently
        | Answer::Superseded => true,
        Answer::Mismatch => of.policy == Policy::Refuse || is_misused(index, call.key, call.payload),
        Answer::Abandoned => of.policy == Policy::Refuse && !history.terms.is_calm,
        _ => false,
    }
}

/// Returns whether the operation, or a newer one of its entity, took effect before this time. If it is ordered, that must
/// also be recorded, because older operations wait for it.
fn is_done(history: &History, index: &Index, key: u32, payload: u8, at: Ms) -> bool {
    let order = history.keys[key as usize].order;
    // The mark of an entity can outlive the record of the same sequence. Another payload is then superseded (G1).
    let is_outlived = history.terms.retention.is_some()
        && index.calls.iter().any(|call| call.key == key && matches!(call.told, Some((_, Answer::Superseded))));
    index.runs.iter().filter(|run| run.effect.is_some_and(|effect| effect <= at)).any(|run| {
        let of = history.keys[run.key as usize].order;
        let is_newer = matches!((order, of), (Some(ours), Some(theirs)) if ours.0 == theirs.0 && ours.1 < theirs.1);
        let is_of_operation = (run.key == key && (run.payload == payload || is_outlived)) || is_newer;
        is_of_operation && (order.is_none() || index.is_completed(run.key, at))
    })
}

/// Returns whether the key belongs to another payload: by its outcome, or by a claim that was lost, perhaps before its run
/// began. The claim of a superseded operation remains.
fn is_misused(index: &Index, key: u32, payload: u8) -> bool {
    let calls = || index.calls.iter().filter(|call| call.key == key);
    let is_superseded = calls().any(|call| matches!(call.told, Some((_, Answer::Superseded))));
    let is_claimed = is_superseded && calls().any(|call| call.payload != payload);
    let mut outcomes = index.outcomes[key as usize].iter().filter_map(|shown| shown.outcome);
    is_claimed || outcomes.any(|outcome| index.runs[outcome.run() as usize].payload != payload)
}

/// Without faults no call finds a key abandoned, unless its handler left that open.
fn calm(index: &Index, call: &Call, found: &mut Vec<Violation>) {
    let Some((at, Answer::Abandoned)) = call.told else { return };
    if !index.runs_of(call.key).any(|(_, run)| run.ended.is_some_and(|(end, _)| end.is_loss())) {
        let text = "nothing was lost".to_owned();
        found.push(Violation { property: "nothing is abandoned without a loss", key: call.key, at, text });
    }
}
