//! One live run per key and entity, and runs after a loss, by the policy of the key.

use super::{Index, Run, Violation, outcomes::decision};
use crate::history::{Answer, End, History, Key, Policy, Terms};

pub(super) fn check(history: &History, index: &Index, found: &mut Vec<Violation>) {
    if !history.terms.clocks_hold {
        return;
    }
    exclusion(history, index, found);
    decisions(index, found);
    for (key, of) in (0..).zip(&history.keys) {
        let runs: Vec<(u32, &Run)> = index.runs_of(key).collect();
        policy(&history.terms, of, key, &runs, index, found);
        if history.terms.is_calm {
            calm(of, key, &runs, found);
        }
    }
    executed(&history.terms, index, found);
}

/// Runs of one key or of one entity do not overlap.
fn exclusion(history: &History, index: &Index, found: &mut Vec<Violation>) {
    let entity = |run: &Run| history.keys[run.key as usize].order.map(|(entity, _)| entity);
    for (later, run) in index.runs.iter().enumerate() {
        for earlier in &index.runs[..later] {
            let is_same = earlier.key == run.key;
            if (is_same || (entity(run).is_some() && entity(run) == entity(earlier)))
                && run.began < earlier.active_until()
            {
                let text = format!("a run began while that of {} ms was live", earlier.began);
                let property = if is_same { "one live run per key" } else { "one live run per entity" };
                found.push(Violation { property, key: run.key, at: run.began, text });
            }
        }
    }
}

/// While a run is live, no other run's outcome is recorded.
fn decisions(index: &Index, found: &mut Vec<Violation>) {
    for (number, run) in (0..).zip(&index.runs) {
        for shown in &index.outcomes[run.key as usize] {
            let is_other = shown.outcome.is_some_and(|outcome| outcome.run() != number);
            if is_other && run.began < shown.at && shown.at < run.active_until() {
                let text = format!("{shown:?} during run {number} of {} ms", run.began);
                found.push(Violation { property: "a live run keeps its key", key: run.key, at: shown.at, text });
            }
        }
    }
}

/// Checks each pair of runs of a key, within the retention of the earlier one's record.
fn policy(terms: &Terms, key: &Key, id: u32, runs: &[(u32, &Run)], index: &Index, found: &mut Vec<Violation>) {
    for (place, (_, run)) in runs.iter().enumerate() {
        let mut violate = |property, text| found.push(Violation { property, key: id, at: run.began, text });
        if let Some(outcome) = decision(terms, &index.outcomes[id as usize], run.began, run.began) {
            violate("a decided key does not run", format!("it ran after {outcome:?} was recorded"));
        }
        if run.effects > 1 {
            violate("a run takes effect once", format!("{} effects", run.effects));
        }
        for (number, earlier) in
            runs[..place].iter().filter(|(_, earlier)| terms.remember(earlier.counts_from, run.began))
        {
            let has_effect = earlier.effect.is_some_and(|effect| effect <= run.began);
            if has_effect && key.policy != Policy::Rerun {
                let text = format!("{:?}: run {number} took effect, and another began", key.policy);
                violate("at most one effect", text);
            }
            if !index.is_loss(*number, earlier) {
                continue;
            }
            if key.policy == Policy::Refuse {
                violate("nothing runs after a loss under Refuse", format!("run {number} was lost, and another began"));
            }
            if !run.took_over {
                violate("a run after a loss is told so", format!("run {number} was lost, and a later one not told"));
            }
            if run.payload != earlier.payload {
                violate("a lost payload keeps its key", format!("run {number} had another payload"));
            }
            if run.began < earlier.holds_until {
                let text = format!("run {number} was lost and held the key until {} ms", earlier.holds_until);
                violate("a lost run keeps its lease", text);
            }
        }
    }
}

/// Without faults every operation runs once.
fn calm(key: &Key, id: u32, runs: &[(u32, &Run)], found: &mut Vec<Violation>) {
    for (_, run) in runs {
        if run.took_over && !runs.iter().any(|(_, run)| run.ended.is_some_and(|(end, _)| end.is_loss())) {
            let text = "nothing was lost".to_owned();
            found.push(Violation { property: "nothing is taken over without a loss", key: id, at: run.began, text });
        }
    }
    let returned = runs.iter().filter(|(_, run)| matches!(run.ended, Some((End::Returned, _))));
    let count = returned.count();
    if count > 1 && !key.is_poison {
        let text = format!("{count} runs returned a result");
        found.push(Violation { property: "without faults one run returns", key: id, at: 0, text });
    }
}

/// *Executed* means that no earlier run can have taken effect.
fn executed(terms: &Terms, index: &Index, found: &mut Vec<Violation>) {
    for call in &index.calls {
        let Some((at, Answer::Executed(Some(executed)))) = call.told else { continue };
        let Some(began) = index.runs.get(executed as usize).map(|run| run.began) else { continue };
        let lost = index.runs_of(call.key).find(|(number, run)| {
            *number < executed && index.is_loss(*number, run) && terms.remember(run.counts_from, began)
        });
        if let Some((number, _)) = lost {
            let text = format!("run {number} was lost before run {executed}");
            found.push(Violation { property: "Executed means no earlier effect", key: call.key, at, text });
        }
    }
}
