//! Coverage: every outcome occurs in some plan.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use crate::{
    generate::{size, small_plan},
    journal::Run,
    recorded_store::{Settling, Told},
    runner::{History, perform},
    search,
};

/// Returns the occurrences in a case.
fn occurrences(history: &History) -> BTreeSet<String> {
    let claims = history.calls.claims.iter().map(|claim| match claim.told {
        Told::InProgress(_) => "claim InProgress".to_owned(),
        Told::MismatchInProgress(_) => "claim MismatchInProgress".to_owned(),
        told => format!("claim {told:?}"),
    });
    let settles = history.calls.settles.iter().map(|settle| match settle.told {
        Settling::Lost(current) => format!("{:?} Lost to {:?}", settle.ending, current.map(|(status, _)| status)),
        told => format!("{:?} {told:?}", settle.ending),
    });
    let runs = &history.journal.runs;
    let ends = runs.iter().filter_map(|run| run.end).map(|(end, _)| format!("ended {end:?}"));
    let letters = history.journal.dead_letters.iter().map(|letter| format!("dead-lettered: {}", letter.was_sent));
    let answers = history.invocations.iter().map(|invocation| match &invocation.answer {
        Some(Ok(ids)) => format!("answered, failures: {}", !ids.is_empty()),
        Some(Err(kind)) => format!("answered {kind:?}"),
        None if runs.iter().any(|run| run.invocation == invocation.number) => "killed at work".to_owned(),
        None => "killed before any work".to_owned(),
    });
    let reports = history.invocations.iter().flat_map(|invocation| &invocation.reports);
    let reports = reports.map(|report| format!("{:?}", report.outcome));
    let flags = [
        ("took over", runs.iter().any(|run| run.claim.is_some_and(|(took_over, _)| took_over))),
        ("together", runs.iter().any(|run| run.together > 1)),
        ("consecutive", are_consecutive(history)),
        ("in an envelope", history.plan.settings.envelopes && !runs.is_empty()),
        ("unprotected", runs.iter().any(|run| run.key.is_none())),
        ("blocked", !history.journal.blocked.is_empty()),
        ("frozen", history.journal.was_frozen),
        ("redelivered", history.journal.redeliveries.iter().any(|call| !call.reports.is_empty())),
        ("polled", !history.calls.reads.is_empty()),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned());
    let all = claims.chain(settles).chain(ends).chain(letters).chain(answers).chain(reports);
    all.chain(flags).collect()
}

/// Returns whether records of one order were handled together.
fn are_consecutive(history: &History) -> bool {
    let runs = &history.journal.runs;
    let lane = |run: &Run| {
        let invocation = &history.invocations[run.invocation];
        history.plan.lane(&history.plan.records[invocation.places[run.place]])
    };
    runs.windows(2)
        .any(|pair| pair[0].began == pair[1].began && lane(&pair[0]).is_some() && lane(&pair[0]) == lane(&pair[1]))
}

const ALL: [&str; 65] = [
    "claim Granted",
    "claim Completed",
    "claim Failed",
    "claim InProgress",
    "claim Abandoned",
    "claim Mismatch",
    "claim MismatchInProgress",
    "claim MismatchAbandoned",
    "claim Nothing",
    "Complete Done",
    "Complete Nothing",
    "Complete Lost to Some(InProgress)",
    "Complete Lost to Some(Completed)",
    "Fail Done",
    "Fail Nothing",
    "Release Done",
    "Release Nothing",
    "ended Succeeded",
    "ended Recovered",
    "ended NotDone",
    "ended Transient",
    "ended Permanent",
    "ended NotReached",
    "ended Unknown",
    "ended Panicked",
    "ended Cancelled",
    "dead-lettered: true",
    "dead-lettered: false",
    "answered, failures: true",
    "answered, failures: false",
    "answered Batch",
    "answered Event",
    "killed at work",
    "killed before any work",
    "Ok(Executed)",
    "Ok(TookOver)",
    "Ok(Recovered)",
    "Ok(Unrecorded)",
    "Ok(Replayed)",
    "Ok(ReplayedFailure)",
    "Ok(Failed(Permanent))",
    "Ok(Failed(Transient))",
    "Ok(Failed(Unknown))",
    "Ok(Interrupted(Panicked))",
    "Ok(Interrupted(Cancelled))",
    "Ok(LeaseLost)",
    "Ok(InProgress)",
    "Ok(Abandoned)",
    "Ok(Mismatch)",
    "Ok(Ignored)",
    "Ok(NotStarted)",
    "Ok(Skipped)",
    "Err(KeyMissing)",
    "Err(Payload)",
    "Err(Timeout)",
    "Err(AccessDenied)",
    "took over",
    "together",
    "consecutive",
    "in an envelope",
    "unprotected",
    "blocked",
    "frozen",
    "redelivered",
    "polled",
];

/// Plans in which all of them occur, which are tried first.
const SEEN_IN: [usize; 23] = [0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 17, 21, 22, 28, 31, 37, 46, 66, 140, 174, 320, 543, 3540];

#[test]
fn every_outcome_of_a_record_occurs() {
    let plans = small_plan();
    let mut missing = BTreeSet::from(ALL);
    for case in SEEN_IN.into_iter().chain(0..20_000) {
        let plan = Arc::new(plans.new_tree(&mut search::runner(0, case)).unwrap().current());
        let found = occurrences(&perform(&plan, None));
        missing.retain(|name| !found.contains(*name));
        if missing.is_empty() {
            return;
        }
    }
    panic!("never seen: {missing:?}");
}

#[test]
fn one_batch_in_a_hundred_is_large() {
    let mut runner = TestRunner::deterministic();
    let mut sizes: Vec<usize> = (0..10_000).map(|_| size().new_tree(&mut runner).unwrap().current()).collect();
    sizes.sort_unstable();
    let large = sizes.iter().filter(|size| **size > 1_000).count();
    assert!((50..=150).contains(&large), "{large}");
    assert!(sizes[0] == 0 && sizes[9_999] > 8_000 && sizes[9_999] <= 10_000, "{:?}", sizes.last());
    assert!((20..=50).contains(&sizes[5_000]), "the logarithm is uniform: {}", sizes[5_000]);
}
