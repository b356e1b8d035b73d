//! No operation takes effect after a newer one of its entity.

use std::collections::HashMap;

use super::{Index, Violation, index::Run};
use crate::history::History;

pub(super) fn check(history: &History, index: &Index, found: &mut Vec<Violation>) {
    let mut effects: Vec<_> = index.runs.iter().filter_map(|run| Some((run.effect?, run))).collect();
    effects.sort_by_key(|(effect, _)| *effect);
    let mut of_entities: HashMap<u32, Vec<(u64, &Run)>> = HashMap::new();
    for (effect, run) in effects {
        let Some((entity, sequence)) = history.keys[run.key as usize].order else { continue };
        let before = of_entities.entry(entity).or_default();
        // A process that was frozen since before the newer run began may finish an instruction just after it thaws.
        let is_broken = |(newer, other): &&(u64, &Run)| {
            *newer > sequence && !index.stood_still(run.worker, other.began.at, effect.at)
        };
        if let Some((newer, other)) = before.iter().find(is_broken) {
            let text =
                format!("entity {entity}: sequence {sequence} took effect after {newer} of run {}", other.number);
            found.push(Violation { property: "no older effect after a newer one", key: run.key, at: effect.at, text });
        }
        before.push((sequence, run));
    }
}
