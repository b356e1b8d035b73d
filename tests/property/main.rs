//! Property test of batches. Random plans are performed on the real services and checked against the plan, the store
//! and the journal of the handlers.
//!
//! A plan (`plan`, `generate`) is performed (`runner`) with a source (`source`), handlers (`handler`) and a store
//! (`store`, `recorded_store`), which record all events (`journal`, `timeline`). The expected behavior is derived from
//! these alone (`checker`). `planted_bugs` shows that the checker finds bugs, `coverage` that plans reach every
//! outcome.

#![cfg(all(feature = "sqs", feature = "conformance"))]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test with paused time has one thread")]

use std::time::Duration;

#[path = "../support/clock.rs"]
mod clock;

mod checker;
mod coverage;
mod generate;
mod handler;
mod journal;
mod kill;
mod plan;
mod planted_bugs;
mod recorded_store;
mod runner;
mod saved_plans;
mod search;
mod source;
mod store;
mod timeline;

/// The number of plans, unless `PROPERTY_CASES` is set.
const CASES: usize = 500;

/// The time for which a failing plan is shrunk.
const SHRINKING: Duration = Duration::from_secs(60);

// Tests B1, B2, B3, B4, B5, B6, B7, B8, B10, B11, B12.
#[test]
fn exactly_the_undecided_records_are_reported_and_no_key_runs_twice() {
    if let Some(path) = std::env::var_os("PROPERTY_PLAN") {
        let plan = search::read(path.as_ref());
        return search::try_out(&plan, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
    let cases = search::number("PROPERTY_CASES", CASES);
    let Some(failing) = search::search(cases, None, generate::plan, SHRINKING) else { return };
    let path = failing.save();
    panic!("{}\nto run it again: PROPERTY_PLAN={}", failing.violation, path.display());
}
