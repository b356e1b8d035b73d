//! No message is lost, and no key is stuck once faults have stopped.

use super::{Index, Violation, index::Message};
use crate::history::{Answer, Entry, Key, KeyId, Policy};

pub(super) fn check(index: &Index, key: KeyId, of: &Key, found: &mut Vec<Violation>) {
    for message in index.messages_of(key) {
        message_of(index, key, of, message, found);
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

fn message_of(index: &Index, key: KeyId, of: &Key, message: &Message, found: &mut Vec<Violation>) {
    let mut violate = |at, property, text: &str| found.push(Violation { property, key, at, text: text.to_owned() });
    if let Some((_, at)) = message.acknowledged {
        // An older operation of an entity is acknowledged once a newer one has taken effect.
        let is_done = index.runs_of(key).any(|run| run.effect.is_some_and(|effect| effect < at));
        if !is_done && of.order.is_none() {
            violate(at.at, "no message is lost", "it was acknowledged without an effect");
        }
    } else if let Some(at) = message.dead_lettered {
        if !of.is_poison && !may_be_refused(index, key, of, message) {
            violate(at.at, "no message is lost", "it was dead-lettered, and nothing had happened to its deliveries");
        }
    } else {
        violate(index.end, "no message is lost", "it is neither acknowledged nor dead-lettered");
    }
}

/// Returns whether a run was lost, or a fault may have left a claim without a run, so that the key is abandoned.
fn may_be_refused(index: &Index, key: KeyId, of: &Key, message: &Message) -> bool {
    if of.policy != Policy::Refuse {
        return false;
    }
    index.runs_of(key).any(|run| index.may_be_lost(run, index.end))
        || index.messages_of(key).chain([message]).flat_map(|message| &message.deliveries).any(|invocation| {
            index.invocations.get(invocation).is_some_and(|of| {
                let until = of.responded.unwrap_or(of.deadline);
                index.is_store_in_trouble(of.worker, of.began, until)
                    || index.kill_of(of.worker, of.began, until).is_some()
            })
        })
}
