//! No operation takes effect after a newer one of its entity.

use std::collections::HashMap;

use super::{Index, Violation};
use crate::history::History;

pub(super) fn check(history: &History, index: &Index, found: &mut Vec<Violation>) {
    let mut effects: Vec<_> = index.runs.iter().filter_map(|run| Some((run.effect?, run))).collect();
    effects.sort_by_key(|(effect, _)| *effect);
    let mut newest: HashMap<u32, (u64, u32)> = HashMap::new();
    for (effect, run) in effects {
        let Some((entity, sequence)) = history.keys[run.key as usize].order else { continue };
        let newest = newest.entry(entity).or_insert((sequence, run.number));
        if sequence > newest.0 {
            *newest = (sequence, run.number);
        } else if sequence < newest.0 && !index.stood_still(run.worker, run.began.at, effect.at) {
            let text =
                format!("entity {entity}: sequence {sequence} took effect after {} of run {}", newest.0, newest.1);
            found.push(Violation { property: "no older effect after a newer one", key: run.key, at: effect.at, text });
        }
    }
}
