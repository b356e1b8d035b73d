//! Mutation tests. Each rule of batches has a bug that is planted around the service and that the checker finds. A few
//! bugs are against other rules, or delay settles. `first_plans.txt` lists the first plan of the search that
//! finds each bug. `make plants` writes it.

use std::{
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use proptest::strategy::{Strategy, ValueTree};

use crate::{
    CASES,
    checker::Promise,
    generate::plan,
    plan::Plan,
    search::{runner, try_out},
};

/// A bug in the store, the source, the handler or the settings of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlantedBug {
    ReleasedAfterSuccess,
    OwnerIgnored,
    GrantedTwice,
    InProgressToldAsCompleted,
    MismatchToldAsFinal,
    SettleLostAndAcknowledged,
    ChunkIgnored,
    SettlesHeldBack,
    PollsRepeated,
    OrderIgnored,
    WrongIdentifier,
    EmptyIdentifier,
    FailureForgotten,
    FailuresReversed,
    NamelessAccepted,
    LastReceiveHidden,
    DuplicatesHidden,
    Detached,
    BeginsLate,
    FailureSpreads,
    DecoderMarkIgnored,
    DecoderPanicIgnored,
    HeldUntilForgotten,
    TogetherIgnored,
    ConcurrencyExceeded,
    ClockBehind,
    PollsLookQuick,
    PolicyIgnored,
    PermanentFailuresSwapped,
    ExpectedDurationIgnored,
    WaitsWithoutLimit,
    LastAttemptTimeoutIgnored,
    PingsAreWork,
    AllOrErrorForgotten,
    ConsecutiveUnasked,
    EnvelopeCompared,
}

/// The way in which a bug is found.
enum Found {
    /// By a plan that breaks one of these promises.
    Here(PlantedBug, &'static [Promise]),
    /// By this test, with its file and its name, because the bug cannot be planted around the service.
    By(&'static str, &'static str),
}
use Found::{By, Here};

/// The file with the number of the first plan that finds each bug, from 1, as lines `number rule bug`.
const FIRST_PLANS: &str = "tests/property/first_plans.txt";
/// The seed of the standard search, regardless of `PROPERTY_SEED`.
const SEED: usize = 0;

/// The rules, each with a bug against it and the way in which that is found. A bug labelled `settling` delays settles,
/// which no rule with a label forbids.
const PLANTED: &[(&str, &str, Found)] = &[
    ("B1", "failures are reported in reverse order", Here(PlantedBug::FailuresReversed, &[Promise::FailureReporting])),
    ("B1", "one failure in a call fails its other records", Here(PlantedBug::FailureSpreads, &[Promise::Settlement])),
    ("B2", "a record without an id is accepted", Here(PlantedBug::NamelessAccepted, &[Promise::FailureReporting])),
    ("B2", "a failure is reported with an empty id", Here(PlantedBug::EmptyIdentifier, &[Promise::FailureReporting])),
    (
        "B2",
        "an invocation in which nothing can start reports temporary failures",
        Here(PlantedBug::ExpectedDurationIgnored, &[Promise::Progress]),
    ),
    ("B3", "the second record with a key gets a different key", Here(PlantedBug::DuplicatesHidden, &[Promise::Once])),
    (
        "B4",
        "the source hides that records have an order",
        Here(
            PlantedBug::OrderIgnored,
            &[Promise::Order, Promise::FailureReporting, Promise::Report, Promise::DeadLetter],
        ),
    ),
    (
        "B4",
        "several records of an order are handled together without the setting",
        Here(PlantedBug::ConsecutiveUnasked, &[Promise::Order]),
    ),
    ("B4", "one handler too many runs", Here(PlantedBug::ConcurrencyExceeded, &[Promise::Bounds])),
    ("B4", "a call gets one record too many", Here(PlantedBug::TogetherIgnored, &[Promise::Bounds])),
    ("B5", "the clock is 600 ms behind", Here(PlantedBug::ClockBehind, &[Promise::Bounds])),
    ("B5", "a handler begins 700 ms after the time was checked", Here(PlantedBug::BeginsLate, &[Promise::Bounds])),
    (
        "B6",
        "a claim is granted although another is held",
        Here(PlantedBug::GrantedTwice, &[Promise::Record, Promise::Once]),
    ),
    (
        "B6",
        "a record in progress elsewhere is acknowledged",
        Here(PlantedBug::InProgressToldAsCompleted, &[Promise::Record]),
    ),
    ("B6", "a wait has no limit", Here(PlantedBug::WaitsWithoutLimit, &[Promise::Waiting])),
    ("B6", "every poll is repeated", Here(PlantedBug::PollsRepeated, &[Promise::Waiting])),
    ("B7", "the last failure is not in the response", Here(PlantedBug::FailureForgotten, &[Promise::FailureReporting])),
    (
        "B7",
        "a failure does not fail its invocation",
        Here(PlantedBug::AllOrErrorForgotten, &[Promise::FailureReporting]),
    ),
    (
        "B7",
        "a mismatch with a claim is reported as permanent",
        Here(PlantedBug::MismatchToldAsFinal, &[Promise::Record]),
    ),
    (
        "B7",
        "an ignored message is handled",
        Here(PlantedBug::PingsAreWork, &[Promise::FailureReporting, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "B7",
        "the response contains a different record than the failed one",
        Here(PlantedBug::WrongIdentifier, &[Promise::FailureReporting]),
    ),
    (
        "B7",
        "the policy for permanent failures is reversed",
        Here(PlantedBug::PermanentFailuresSwapped, &[Promise::FailureReporting, Promise::Report, Promise::Order]),
    ),
    (
        "B7",
        "the redelivery hook does not get the end of a lease",
        Here(PlantedBug::HeldUntilForgotten, &[Promise::Redelivery]),
    ),
    (
        "B7",
        "a decoder's verdict is ignored",
        Here(PlantedBug::DecoderMarkIgnored, &[Promise::FailureReporting, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "B7",
        "a decoder's panic is a permanent failure",
        Here(PlantedBug::DecoderPanicIgnored, &[Promise::FailureReporting, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "B8",
        "a completion succeeds without being written",
        Here(PlantedBug::SettleLostAndAcknowledged, &[Promise::Record, Promise::Once]),
    ),
    (
        "B8",
        "the record of a success is deleted",
        Here(PlantedBug::ReleasedAfterSuccess, &[Promise::Record, Promise::Once]),
    ),
    (
        "B9",
        "a checkpoint skips a failure",
        By("tests/batch/sources/streams.rs", "of_several_failures_the_lowest_sequence_number_is_the_checkpoint"),
    ),
    (
        "B10",
        "work continues when its future is dropped",
        Here(PlantedBug::Detached, &[Promise::Bounds, Promise::Settlement]),
    ),
    (
        "B11",
        "the last receive of a record is hidden",
        Here(PlantedBug::LastReceiveHidden, &[Promise::DeadLetter, Promise::Report, Promise::Bounds]),
    ),
    (
        "B11",
        "a record hangs on its last receive until the handler deadline",
        Here(PlantedBug::LastAttemptTimeoutIgnored, &[Promise::Bounds]),
    ),
    (
        "B12",
        "claims are made in larger chunks than the store accepts",
        Here(PlantedBug::ChunkIgnored, &[Promise::ClaimsAhead]),
    ),
    (
        "B12",
        "claims run ahead although takeovers are refused",
        Here(PlantedBug::PolicyIgnored, &[Promise::ClaimsAhead]),
    ),
    (
        "B12",
        "several claims are held while a handler blocks its thread",
        Here(PlantedBug::PollsLookQuick, &[Promise::ClaimsAhead]),
    ),
    (
        "C2",
        "the envelope of a message is also compared",
        Here(PlantedBug::EnvelopeCompared, &[Promise::FailureReporting, Promise::Report, Promise::Once]),
    ),
    ("S1", "anybody may settle a claim", Here(PlantedBug::OwnerIgnored, &[Promise::Record, Promise::Once])),
    ("settling", "outcomes are sent 100 ms late", Here(PlantedBug::SettlesHeldBack, &[Promise::Settlement])),
];

/// Returns whether a plan of the standard search, numbered from 1, finds the bug. A plan that also fails without the
/// bug is an error.
fn finds(number: usize, bug: PlantedBug, promises: &[Promise]) -> Result<bool, String> {
    let plan = plan().new_tree(&mut runner(SEED, number - 1)).unwrap().current();
    let Err(violation) = try_out(&plan, Some(bug)) else { return Ok(false) };
    // It may also break other promises.
    if !promises.contains(&violation.promise) {
        return Ok(false);
    }
    let saved: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    if try_out(&saved, Some(bug)).is_ok() {
        return Err(format!("plan {number} does not find it again once it was saved"));
    }
    try_out(&plan, None).map_err(|violation| format!("plan {number} fails without the bug: {violation}"))?;
    Ok(true)
}

/// Returns the number of the first plan of the standard search that finds the bug.
fn search(bug: PlantedBug, promises: &[Promise]) -> Result<usize, String> {
    for number in 1..=CASES {
        if finds(number, bug, promises)? {
            return Ok(number);
        }
    }
    Err(format!("not found within {CASES} plans"))
}

fn name(rule: &str, text: &str) -> String {
    format!("{rule:8} {text}")
}

/// Returns whether a test file has a test with this name.
fn has_test(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default();
    ["(", "<"].iter().any(|next| text.contains(&format!("fn {name}{next}")))
}

/// Applies a function to each bug on all processors, and returns the results in the order of the list.
fn for_each_bug<T: Send>(look: impl Fn(&str, &str, &Found) -> T + Sync) -> Vec<T> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let nth = next.fetch_add(1, Ordering::Relaxed)
                    && let Some((rule, text, found)) = PLANTED.get(nth)
                {
                    let result = look(rule, text, found);
                    results.lock().unwrap().push((nth, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(nth, _)| *nth);
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn every_planted_bug_is_found_first_by_the_plan_that_is_listed() {
    let found = for_each_bug(|rule, text, found| match found {
        Here(bug, promises) => match search(*bug, promises) {
            Ok(number) => Ok(format!("{number:4} {}\n", name(rule, text))),
            Err(error) => Err(format!("{}: {error}", name(rule, text))),
        },
        By(file, test) if has_test(file, test) => Ok(String::new()),
        By(file, test) => Err(format!("{}: there is no {file}::{test}", name(rule, text))),
    });
    let lines: String = found.into_iter().collect::<Result<_, _>>().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIRST_PLANS);
    if std::env::var_os("PROPERTY_WRITE_PLANS").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), lines, "{FIRST_PLANS} is out of date: `make plants` writes it");
}

#[test]
fn every_rule_of_batches_has_a_planted_bug() {
    for label in (1..=12).map(|number| format!("B{number}")) {
        assert!(PLANTED.iter().any(|(rule, ..)| *rule == label), "{label}");
    }
}
