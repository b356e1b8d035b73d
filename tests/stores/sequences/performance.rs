//! Performs a sequence on a store and in memory, with one clock.

use std::{fmt, sync::Arc};

use lambda_once::{
    MemoryStore, Store,
    clock::ManualClock,
    record::Record,
    store::{Answers, Claimed, Settled},
};

use super::sequence::{Names, Requests, Sequence};
use crate::support::{FUTURE, stores::Records};

/// A store, and a memory store that provides the expected results.
pub(super) struct Pair {
    records: Records,
    store: Arc<dyn Store>,
    memory: MemoryStore,
    clock: ManualClock,
}

/// A step with different results.
#[derive(Debug)]
pub(super) struct Difference {
    step: usize,
    memory: Answer,
    store: Answer,
}

/// The results of a step, with errors as text.
#[derive(Debug, PartialEq)]
enum Answer {
    Claimed(Vec<Result<Claimed, String>>),
    Settled(Vec<Result<Settled, String>>),
    Read(Vec<Result<Option<Record>, String>>),
}

impl Pair {
    /// Creates a pair with a store of these records. Both use this clock.
    pub(super) fn new(records: Records, store: Arc<dyn Store>, clock: ManualClock) -> Self {
        Self { records, store, memory: MemoryStore::with_clock(clock.clone()), clock }
    }

    /// Performs the sequence with new keys, always from the same start time.
    pub(super) async fn difference(&self, sequence: &Sequence) -> Option<Difference> {
        self.clock.set(FUTURE);
        for (number, requests) in sequence.requests(&Names::new()).iter().enumerate() {
            match requests {
                Requests::Pass(time) => {
                    self.clock.advance(*time);
                    continue;
                }
                Requests::Delete(key) => {
                    self.memory.remove(key);
                    self.records.delete(key).await;
                    continue;
                }
                _ => {}
            }
            let (memory, store) = (answer(&self.memory, requests).await, answer(&self.store, requests).await);
            if memory != store {
                return Some(Difference { step: number + 1, memory, store });
            }
        }
        None
    }

    /// Shortens a sequence with different results as far as possible, by removing one request after another.
    pub(super) async fn shortest(&self, mut sequence: Sequence) -> (Sequence, Difference) {
        let mut difference = self.difference(&sequence).await.expect("the sequence is answered differently again");
        'search: loop {
            for shorter in sequence.shorter() {
                if let Some(found) = self.difference(&shorter).await {
                    (sequence, difference) = (shorter, found);
                    continue 'search;
                }
            }
            return (sequence, difference);
        }
    }
}

async fn answer(store: &dyn Store, requests: &Requests) -> Answer {
    fn comparable<T>(answers: Answers<T>) -> Vec<Result<T, String>> {
        answers.into_iter().map(|answer| answer.map_err(|error| format!("{error:?}"))).collect()
    }
    match requests {
        Requests::Claim(claims) => Answer::Claimed(comparable(store.claim(claims).await)),
        Requests::Settle(settles) => {
            let mut answers = store.settle(settles).await;
            answers.iter_mut().for_each(drop_shown_data);
            Answer::Settled(comparable(answers))
        }
        Requests::Read(keys, data) => Answer::Read(comparable(store.read(keys, *data).await)),
        Requests::Pass(_) | Requests::Delete(_) => unreachable!("no request of a store"),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}\n  in memory: {:?}\n  the store: {:?}", self.step, self.memory, self.store)
    }
}

/// Drops the data of a record that shows an earlier settle, because stores may return it or not.
fn drop_shown_data<E>(answer: &mut Result<Settled, E>) {
    if let Ok(Settled::Done { found: Some(record) }) = answer {
        **record = record.without_data();
    }
}
