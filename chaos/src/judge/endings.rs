//! No message is lost, and no key is stuck once faults have stopped.

use super::{
    Index, Violation,
    index::{Message, Moment},
};
use crate::history::{Answer, End, Entry, History, Key, KeyId, Ms, Policy};

/// The longest time after which a request of a worker arrives.
const LATE: Ms = 5_000;

pub(super) fn check(history: &History, index: &Index, key: KeyId, of: &Key, found: &mut Vec<Violation>) {
    let rows: Vec<u32> = index.runs_of(key).flat_map(|run| (0..run.rows).map(|_| run.number)).collect();
    if rows.len() > 1 {
        let text = format!("rows of the runs {rows:?} were committed");
        found.push(Violation { property: "a transaction commits once", key, at: index.end, text });
    }
    for run in index.runs_of(key).filter(|run| run.rows > 0) {
        if !matches!(run.ended, None | Some((End::Returned, _))) {
            let text = format!("the row of run {}, which had failed, was committed", run.number);
            found.push(Violation { property: "a failed transaction commits nothing", key, at: index.end, text });
        }
    }
    for message in index.messages_of(key) {
        message_of(history, index, key, message, found);
    }
    if of.entry == Entry::Http && !index.calls_of(key).any(|call| is_final(of, call.told.map(|(answer, _)| answer))) {
        let text = "no request has a final response".to_owned();
        found.push(Violation { property: "no key is stuck", key, at: index.end, text });
    }
}

fn is_final(of: &Key, answer: Option<Answer>) -> bool {
    match answer {
        Some(Answer::Result { .. }) => true,
        Some(Answer::Abandoned) => of.policy == Policy::Refuse,
        _ => false,
    }
}

fn message_of(history: &History, index: &Index, key: KeyId, message: &Message, found: &mut Vec<Violation>) {
    let of = &history.keys[key as usize];
    let mut violate = |at, property, text: &str| found.push(Violation { property, key, at, text: text.to_owned() });
    if let Some((_, at)) = message.acknowledged {
        if of.is_transaction {
            let rows: u32 = index.runs_of(key).map(|run| run.rows).sum();
            if rows == 0 {
                violate(at.at, "no message is lost", "it was acknowledged without a row");
            }
            return;
        }
        let is_done = index.runs_of(key).any(|run| run.effect.is_some_and(|effect| effect < at));
        if !is_done && !is_superseded(history, index, of, at) {
            violate(at.at, "no message is lost", "it was acknowledged without an effect");
        }
    } else if let Some(at) = message.dead_lettered {
        if !of.is_poison && !may_be_refused(index, key, of, message, at.at) {
            violate(at.at, "no message is lost", "it was dead-lettered, and nothing had happened to its deliveries");
        }
    } else {
        violate(index.end, "no message is lost", "it is neither acknowledged nor dead-lettered");
    }
}

/// Returns whether a newer operation of the entity took effect before.
fn is_superseded(history: &History, index: &Index, of: &Key, at: Moment) -> bool {
    let Some((entity, sequence)) = of.order else { return false };
    index
        .runs
        .iter()
        .filter(|run| run.effect.is_some_and(|effect| effect < at))
        .any(|run| history.keys[run.key as usize].order.is_some_and(|(of, newer)| of == entity && newer > sequence))
}

/// Returns whether by this time a run was lost, or a fault may have left a claim without a run, so that the key is
/// abandoned.
fn may_be_refused(index: &Index, key: KeyId, of: &Key, message: &Message, at: Ms) -> bool {
    if of.policy != Policy::Refuse {
        return false;
    }
    // If the message was sent after an operator's action, nothing before that action counts. A claim may be late.
    let since = index.amended_before(key, message.sent);
    let is_since = |at: Ms| since.is_none_or(|since| at + LATE >= since.at);
    index.runs_of(key).any(|run| is_since(run.began.at) && run.began.at <= at && index.may_be_lost(run, at))
        || index.messages_of(key).chain([message]).flat_map(|message| &message.deliveries).any(|invocation| {
            index.invocations.get(invocation).is_some_and(|of| {
                let until = of.responded.or(of.deadline).unwrap_or(at).min(at);
                is_since(until)
                    && (index.is_store_disturbed(of.worker, of.began, until)
                        || index.kill_of(of.worker, of.began, until).is_some())
            })
        })
}
