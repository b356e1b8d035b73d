//! One live run per key, and runs and effects after a loss, by the policy of the key.

use super::{
    Index, Violation,
    index::{Moment, Run},
};
use crate::history::{End, Key, KeyId, Policy};

pub(super) fn check(index: &Index, key: KeyId, of: &Key, found: &mut Vec<Violation>) {
    let runs: Vec<&Run> = index.runs_of(key).collect();
    let shown = index.shown.get(&key);
    for (place, run) in runs.iter().enumerate() {
        // If its worker was stalled between the decision to begin the run and the begin, the time of the decision counts.
        let decided = index.may_be_decided(run);
        let is_before = |shown: &&Moment| {
            if decided < run.began.at { shown.at < decided } else { **shown < run.began }
        };
        if let Some(shown) = shown.filter(is_before) {
            let text =
                format!("run {} began after its outcome was shown to be recorded, at {} ms", run.number, shown.at);
            found.push(Violation { property: "a decided key does not run", key, at: run.began.at, text });
        }
        for earlier in &runs[..place] {
            let violations = pair(index, key, of, earlier, run);
            // Decided before the other began, it may count as the first.
            let may_be_first = decided < run.began.at && decided <= earlier.began.at;
            if !(may_be_first && pair(index, key, of, run, earlier).is_empty()) {
                found.extend(violations);
            }
        }
    }
}

fn pair(index: &Index, key: KeyId, of: &Key, earlier: &Run, run: &Run) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut violate = |property, text| found.push(Violation { property, key, at: run.began.at, text });
    let (first, second) = (earlier.number, run.number);
    // A process that was frozen past its lease may finish the instruction that it was about to execute, just after it thaws.
    let is_overlapping =
        |moment: &Moment| *moment > run.began && !index.stood_still(earlier.worker, run.began.at, moment.at);
    if [earlier.effect, earlier.ended.map(|(_, at)| at)].iter().flatten().any(is_overlapping) {
        violate("one live run per key", format!("run {second} began while run {first} was live"));
    }
    // An end after that, of a frozen process, has changed nothing.
    let ended = earlier.ended.filter(|(_, at)| *at < run.began).map(|(end, _)| end);
    let is_released = ended == Some(End::Transient);
    // A transaction that was not committed is released, although its handler had returned.
    let is_rolled_back = of.is_transaction && ended == Some(End::Returned);
    let holds_until = index.holds_until(earlier);
    if !is_released && !is_rolled_back && run.began.at < holds_until {
        let text = format!("run {second} began before {holds_until} ms, until when run {first} held the key");
        violate("a lost run keeps its lease", text);
    }
    if earlier.rows > 0 {
        // The outcome is a part of the same commit, so no loss of a response undoes it.
        violate("a decided key does not run", format!("run {first} was committed before run {second}"));
        return found;
    }
    if is_released {
        return found;
    }
    if ended.is_some() && !index.may_be_lost(earlier, run.began.at) {
        violate(
            "a decided key does not run",
            format!("run {first} had ended and nothing was lost before run {second}"),
        );
    }
    let is_certain = matches!(ended, None | Some(End::Unknown));
    if is_certain && !run.took_over {
        violate("a run after a loss is told so", format!("run {first} was lost, and run {second} not told"));
    }
    if is_certain && of.policy == Policy::Refuse && !index.may_be_released(earlier, run.began) {
        violate("nothing runs after a loss under Refuse", format!("run {first} was lost, and run {second} began"));
    }
    // An effect after the operator has looked for it is the operator's risk.
    let is_in_time = |effect| effect < run.began && !index.may_be_released(earlier, effect);
    if earlier.effect.is_some_and(is_in_time) && run.effect.is_some() && of.policy != Policy::Rerun {
        violate("at most one effect", format!("{:?}: runs {first} and {second} took effect", of.policy));
    }
    found
}
