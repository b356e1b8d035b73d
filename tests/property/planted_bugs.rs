//! Bugs that are planted around the service: every rule of batches, and every defect of handlers that block, hang and
//! wait, has one that the checker finds. `make plants` lists them.

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
    checker::Promise,
    generate::small_plan,
    plan::Plan,
    search::{number, runner, try_out},
};

/// A bug in the store, the source, the handler or the settings that a plan is performed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlantedBug {
    ReleasedAfterSuccess,
    OwnerIgnored,
    GrantedTwice,
    InProgressToldAsCompleted,
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
    LongestRunIgnored,
    PingsAreWork,
    AllOrErrorForgotten,
    ConsecutiveUnasked,
    EnvelopeCompared,
}

/// How a bug is found.
enum Found {
    /// By a plan that breaks one of these promises.
    Here(PlantedBug, &'static [Promise]),
    /// It cannot be planted around the service. By this test: its file, and its name.
    By(&'static str, &'static str),
}
use Found::{By, Here};

/// Number of plans within which a bug is found.
const WITHIN: usize = 2_000;

/// Each rule or defect, a bug against it, and how it is found.
const PLANTED: &[(&str, &str, Found)] = &[
    ("B1", "failures are answered in reverse order", Here(PlantedBug::FailuresReversed, &[Promise::Answer])),
    (
        "B1",
        "one failure in a call fails the records beside it",
        Here(PlantedBug::FailureSpreads, &[Promise::Settlement]),
    ),
    ("B2", "a record without an id is accepted", Here(PlantedBug::NamelessAccepted, &[Promise::Answer])),
    ("B2", "a failure is named by an empty id", Here(PlantedBug::EmptyIdentifier, &[Promise::Answer])),
    ("B3", "the second record with a key gets a key of its own", Here(PlantedBug::DuplicatesHidden, &[Promise::Once])),
    (
        "B4",
        "the source hides that records have an order",
        Here(PlantedBug::OrderIgnored, &[Promise::Order, Promise::Answer, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "B4",
        "several records of an order go together, and nobody said that they may",
        Here(PlantedBug::ConsecutiveUnasked, &[Promise::Order]),
    ),
    ("B4", "one handler more runs than is allowed", Here(PlantedBug::ConcurrencyExceeded, &[Promise::Bounds])),
    ("B4", "a call gets one record more than is allowed", Here(PlantedBug::TogetherIgnored, &[Promise::Bounds])),
    ("B5", "the clock is 600 ms behind", Here(PlantedBug::ClockBehind, &[Promise::Bounds])),
    (
        "B6",
        "a claim is granted although another stands",
        Here(PlantedBug::GrantedTwice, &[Promise::Record, Promise::Once]),
    ),
    (
        "B6",
        "a record in progress elsewhere is acknowledged",
        Here(PlantedBug::InProgressToldAsCompleted, &[Promise::Record]),
    ),
    (
        "B6",
        "what is around a message is compared too",
        Here(PlantedBug::EnvelopeCompared, &[Promise::Answer, Promise::Report, Promise::Once]),
    ),
    ("B6", "anybody may settle a claim", Here(PlantedBug::OwnerIgnored, &[Promise::Record, Promise::Once])),
    ("B7", "the last failure is not answered", Here(PlantedBug::FailureForgotten, &[Promise::Answer])),
    (
        "B7",
        "a failure does not fail the invocation that it should fail",
        Here(PlantedBug::AllOrErrorForgotten, &[Promise::Answer]),
    ),
    (
        "B7",
        "what is no work is taken for work",
        Here(PlantedBug::PingsAreWork, &[Promise::Answer, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "B7",
        "another record is answered than the one that failed",
        Here(PlantedBug::WrongIdentifier, &[Promise::Answer]),
    ),
    (
        "B7",
        "the policy for permanent failures is the other one",
        Here(PlantedBug::PermanentFailuresSwapped, &[Promise::Answer, Promise::Report, Promise::Order]),
    ),
    (
        "B7",
        "the redelivery hook is not told until when a key is held",
        Here(PlantedBug::HeldUntilForgotten, &[Promise::Redelivery]),
    ),
    (
        "B8",
        "a completion is answered, and not written",
        Here(PlantedBug::SettleLostAndAcknowledged, &[Promise::Record, Promise::Once]),
    ),
    (
        "B8",
        "the record of a success is deleted",
        Here(PlantedBug::ReleasedAfterSuccess, &[Promise::Record, Promise::Once]),
    ),
    (
        "B9",
        "a checkpoint passes over a failure",
        By("tests/batch/sources/streams.rs", "of_several_failures_the_lowest_sequence_number_is_the_checkpoint"),
    ),
    (
        "B10",
        "work goes on when its future is dropped",
        Here(PlantedBug::Detached, &[Promise::Bounds, Promise::Settlement]),
    ),
    (
        "B11",
        "the last receive of a record does not show",
        Here(PlantedBug::LastReceiveHidden, &[Promise::DeadLetter, Promise::Report, Promise::Bounds]),
    ),
    (
        "B12",
        "claims are made in larger chunks than the store takes",
        Here(PlantedBug::ChunkIgnored, &[Promise::ClaimsAhead]),
    ),
    (
        "B12",
        "claims run ahead although a lost outcome is refused",
        Here(PlantedBug::PolicyIgnored, &[Promise::ClaimsAhead]),
    ),
    ("A", "outcomes are sent 100 ms late", Here(PlantedBug::SettlesHeldBack, &[Promise::Settlement])),
    ("B", "a handler begins 700 ms after the time was checked", Here(PlantedBug::BeginsLate, &[Promise::Bounds])),
    (
        "C",
        "several claims stand while a handler blocks its thread",
        Here(PlantedBug::PollsLookQuick, &[Promise::ClaimsAhead]),
    ),
    (
        "D",
        "a record hangs on its last receive until the stop point",
        Here(PlantedBug::LongestRunIgnored, &[Promise::Bounds]),
    ),
    ("E", "a wait has no limit", Here(PlantedBug::WaitsWithoutLimit, &[Promise::Waiting])),
    (
        "F",
        "a decoder's mark is ignored",
        Here(PlantedBug::DecoderMarkIgnored, &[Promise::Answer, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "F",
        "a decoder's panic is a permanent failure",
        Here(PlantedBug::DecoderPanicIgnored, &[Promise::Answer, Promise::Report, Promise::DeadLetter]),
    ),
    (
        "G",
        "an invocation in which nothing can start looks like one that failed for now",
        Here(PlantedBug::ExpectedDurationIgnored, &[Promise::Progress]),
    ),
    ("H", "every poll is repeated", Here(PlantedBug::PollsRepeated, &[Promise::Waiting])),
];

/// The number of the first plan that finds the bug, from 1.
fn find(bug: PlantedBug, promises: &[Promise]) -> Result<usize, String> {
    let plans = small_plan();
    let seed = number("PROPERTY_SEED", 0);
    for case in 0..WITHIN {
        let plan = plans.new_tree(&mut runner(seed, case)).unwrap().current();
        let Err(violation) = try_out(&plan, Some(bug)) else { continue };
        // It may break other promises, too.
        if !promises.contains(&violation.promise) {
            continue;
        }
        let saved: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        if try_out(&saved, Some(bug)).is_ok() {
            return Err("the saved plan does not find it again".to_owned());
        }
        return match try_out(&plan, None) {
            Ok(()) => Ok(case + 1),
            Err(violation) => Err(format!("a plan fails without the bug: {violation}")),
        };
    }
    Err(format!("not found in {WITHIN} cases"))
}

/// Whether a test file has a test of this name.
fn has_test(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default();
    ["(", "<"].iter().any(|next| text.contains(&format!("fn {name}{next}")))
}

/// One line for a bug: how it is found, or an error if it is not.
fn look_for((rule, text, found): &(&str, &str, Found)) -> Result<String, String> {
    let line = |how: String| format!("{rule:4} {text}: {how}");
    match found {
        Here(bug, promises) => match find(*bug, promises) {
            Ok(cases) => Ok(line(format!("found after {cases} cases"))),
            Err(error) => Err(line(error)),
        },
        By(file, name) if has_test(file, name) => Ok(line(format!("found by {file}::{name}"))),
        By(file, name) => Err(line(format!("there is no {file}::{name}"))),
    }
}

#[test]
fn every_planted_bug_is_found() {
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let nth = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(planted) = PLANTED.get(nth)
                {
                    let line = look_for(planted);
                    lines.lock().unwrap().push((nth, line));
                }
            });
        }
    });
    let mut lines = lines.into_inner().unwrap();
    lines.sort_by_key(|(nth, _)| *nth);
    for (_, line) in &lines {
        match line {
            Ok(line) | Err(line) => println!("{line}"),
        }
    }
    let missed: Vec<&String> = lines.iter().filter_map(|(_, line)| line.as_ref().err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_rule_of_batches_and_every_defect_has_a_planted_bug() {
    let rules = (1..=12).map(|number| format!("B{number}"));
    let defects = ('A'..='H').map(String::from);
    for label in rules.chain(defects) {
        assert!(PLANTED.iter().any(|(rule, ..)| *rule == label), "{label}");
    }
}
