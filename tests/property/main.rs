//! Random batches, on the real services: exactly what is not durably decided is reported, and no key runs twice.
//!
//! A case is a plan (`plan`, `generate`) that is performed (`stage`) by a source (`post`), a handler (`hand`) and a store
//! (`ground`, `desk`), which note what they see (`watch`, `journal`). What must have been is derived from that alone
//! (`checker`). `plants` shows that bugs are found.

#![cfg(all(feature = "sqs", feature = "conformance"))]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test with paused time has one thread")]

use std::time::Duration;

#[path = "../support/clock.rs"]
mod clock;

mod cases;
mod checker;
mod desk;
mod generate;
mod ground;
mod hand;
mod journal;
mod plan;
mod plants;
mod post;
mod reach;
mod stage;
mod watch;

/// How many cases are run, unless `PROPERTY_CASES` says otherwise.
const CASES: usize = 10_000;

/// How long a failing case is made smaller.
const SHRINKING: Duration = Duration::from_secs(60);

#[test]
fn exactly_what_is_not_durably_decided_is_reported_and_no_key_runs_twice() {
    if let Some(path) = std::env::var_os("PROPERTY_PLAN") {
        let plan = cases::read(path.as_ref());
        return cases::try_out(&plan, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
    let cases = cases::number("PROPERTY_CASES", CASES);
    let Some(failing) = cases::search(cases, None, generate::plan, SHRINKING) else { return };
    let path = failing.save();
    panic!("{}\nto run it again: PROPERTY_PLAN={}", failing.violation, path.display());
}
