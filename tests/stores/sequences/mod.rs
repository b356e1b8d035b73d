//! Random sequences of requests, to which every store must respond like the memory store. Each result, and each record
//! that is read, is compared in full.
//!
//! A sequence (`sequence`) is performed on both stores (`performance`). A sequence with different results is shortened
//! and printed. `STORE_SEQUENCES` sets the number of sequences per store, and `PROPERTY_SEED` selects them.

mod performance;
mod permissions;
mod sequence;

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future;

use crate::support::{
    cases, future_clock,
    stores::{Backend, Records, on_each_server},
};
use performance::Pair;
use sequence::Sequence;

/// Returns the number of sequences. All of them would take minutes on DynamoDB Local, because the SDK is slow without
/// optimization.
fn sequences(backend: Backend) -> u64 {
    let sequences: u64 = cases("STORE_SEQUENCES", 200);
    if let Backend::DynamoDb(_) = backend { sequences.div_ceil(10) } else { sequences }
}

/// The number of sequences that are performed concurrently, each with its own clock.
const LANES: u64 = 16;

async fn every_sequence_has_the_results_of_the_memory_store(backend: Backend) {
    let (sequences, seed) = (sequences(backend), cases("PROPERTY_SEED", 0));
    let is_found = AtomicBool::new(false);
    let lane = async |lane: u64| {
        let pair = pair(backend).await;
        for number in (lane..sequences).step_by(LANES as usize) {
            if is_found.load(Ordering::Relaxed) {
                break;
            }
            let sequence = Sequence::random(seed, number);
            if pair.difference(&sequence).await.is_some() {
                is_found.store(true, Ordering::Relaxed);
                return Some((number, pair.shortest(sequence).await));
            }
        }
        None
    };
    let found = future::join_all((0..LANES).map(lane)).await.into_iter().flatten().min_by_key(|(number, _)| *number);
    if let Some((number, (sequence, difference))) = found {
        panic!("sequence {number} of PROPERTY_SEED={seed}, shortened:\n{sequence}\n{difference}");
    }
}

on_each_server!(every_sequence_has_the_results_of_the_memory_store);

async fn pair(backend: Backend) -> Pair {
    let clock = future_clock();
    let records = Records::new(backend, clock.clone()).await;
    let store = records.store().await;
    Pair::new(records, store, clock)
}
