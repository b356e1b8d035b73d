//! No operation takes effect after a newer one of its entity.

use super::{Index, Violation};
use crate::history::{History, Ms};

pub(super) fn check(history: &History, index: &Index, found: &mut Vec<Violation>) {
    if !history.terms.clocks_hold {
        return;
    }
    let mut effects: Vec<(Ms, u32, u64, u32, Ms)> = Vec::new();
    for run in &index.runs {
        if let (Some(at), Some((entity, sequence))) = (run.effect, history.keys[run.key as usize].order) {
            effects.push((at, entity, sequence, run.key, run.counts_from));
        }
    }
    effects.sort_unstable();
    for (place, (at, entity, sequence, key, _)) in effects.iter().enumerate() {
        let newer = effects[..place].iter().find(|(earlier, of, newer, _, counts_from)| {
            earlier < at && of == entity && newer > sequence && history.terms.remember(*counts_from, *at)
        });
        if let Some((earlier, _, newer, _, _)) = newer {
            let text = format!("sequence {sequence} after sequence {newer} of {earlier} ms");
            found.push(Violation { property: "no older effect after a newer one", key: *key, at: *at, text });
        }
    }
}
