//! Counts of a history.

use super::{Index, index::Run};
use crate::history::{Answer, End, Fact, History, Key, KeyId, Ms, Policy};

/// Counts of a history, and the times of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// By name.
    pub counts: Vec<(&'static str, u64)>,
    /// The times from a kill or a freeze to the next successful run or response of each key that it hit, in ascending
    /// order, with the key.
    pub recoveries: Vec<(Ms, KeyId)>,
    /// Effects of a key after its first one.
    pub repeated: u64,
}

/// Counts the events.
pub fn summarize(history: &History, index: &Index) -> Summary {
    let count = |wanted: fn(&Fact) -> bool| history.events.iter().filter(|event| wanted(&event.fact)).count() as u64;
    let repeated_of = |key| (index.runs_of(key).filter(|run| run.effect.is_some()).count() as u64).saturating_sub(1);
    let repeated = (0..).zip(&history.keys).map(|(key, _)| repeated_of(key)).sum();
    let dead = |wanted: fn(&Key) -> bool| {
        let dead = index.messages.iter().filter(|message| message.dead_lettered.is_some());
        dead.filter(|message| wanted(&history.keys[message.key as usize])).count() as u64
    };
    let acknowledged_replays = index.messages.iter().filter(|message| {
        message
            .acknowledged
            .is_some_and(|(invocation, _)| !index.runs_of(message.key).any(|run| run.invocation == Some(invocation)))
    });
    let counts = vec![
        ("operations", history.keys.len() as u64),
        ("operations with an order", history.keys.iter().filter(|key| key.order.is_some()).count() as u64),
        ("messages", index.messages.len() as u64),
        ("deliveries", count(|fact| matches!(fact, Fact::Delivered { .. }))),
        ("invocations, and receipts of consumers", index.invocations.len() as u64),
        ("HTTP requests", index.calls.len() as u64),
        ("runs of handlers", index.runs.len() as u64),
        ("runs that took over", index.runs.iter().filter(|run| run.took_over).count() as u64),
        ("effects", index.runs.iter().filter(|run| run.effect.is_some()).count() as u64),
        ("effects repeated, under Rerun after a loss", repeated),
        ("rows committed in transactions", count(|fact| matches!(fact, Fact::Row { .. }))),
        ("probes", count(|fact| matches!(fact, Fact::Probed { .. }))),
        ("messages replayed or superseded", acknowledged_replays.count() as u64),
        (
            "responses replayed",
            count(|fact| matches!(fact, Fact::Told { answer: Answer::Result { is_replay: true, .. }, .. })),
        ),
        ("messages dead-lettered, permanent failures", dead(|key| key.is_poison)),
        ("messages dead-lettered, refused", dead(|key| !key.is_poison && key.policy == Policy::Refuse)),
        ("HTTP keys refused", refused(history, index)),
        ("runs that failed or panicked", index.runs.iter().filter(|run| has_failed(run)).count() as u64),
    ];
    Summary { counts, recoveries: recoveries(index), repeated }
}

fn has_failed(run: &Run) -> bool {
    run.ended.is_some_and(|(end, _)| end != End::Returned)
}

fn refused(history: &History, index: &Index) -> u64 {
    let is_refused = |key| {
        let mut answers = index.calls_of(key).filter_map(|call| call.told);
        answers.any(|(answer, _)| answer == Answer::Abandoned)
    };
    (0..).zip(&history.keys).filter(|(key, _)| is_refused(*key)).count() as u64
}

fn recoveries(index: &Index) -> Vec<(Ms, KeyId)> {
    let mut times = Vec::new();
    for run in &index.runs {
        let until = run.answered.map_or(Ms::MAX, |answered| answered.at);
        let Some(troubles) = index.troubles.get(&run.worker) else { continue };
        let frozen = troubles.frozen.iter().map(|(begin, _)| *begin);
        let hit = troubles.killed.into_iter().chain(frozen).find(|at| (run.began.at..until).contains(at));
        let Some(hit) = hit else { continue };
        let runs = index.runs_of(run.key).filter_map(|run| match run.ended {
            Some((End::Returned, end)) if end.at > hit => Some(end.at),
            _ => None,
        });
        let told = index.calls_of(run.key).filter_map(|call| match call.told {
            Some((Answer::Result { .. }, told)) if told.at > hit => Some(told.at),
            _ => None,
        });
        let acknowledged =
            index.messages_of(run.key).filter_map(|message| Some(message.acknowledged?.1.at)).filter(|at| *at > hit);
        times.extend(runs.chain(told).chain(acknowledged).min().map(|at| (at - hit, run.key)));
    }
    times.sort_unstable();
    times
}
