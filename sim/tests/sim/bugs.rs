//! Planted bugs are found within a bound.

use lambda_once_sim::{bugs::Bug, judge::judge, simulate};

/// The most histories for a bug, from seed 0. The page of the simulation lists how many each takes.
const MAX_HISTORIES: u64 = 200;

/// Bugs that take more. `make sim SIM_ARGS=--bugs` finds them, in the nightly.
const RARE: [Bug; 7] = [
    Bug::LeaseAloneDecides,
    Bug::SettleWithoutOwner,
    Bug::LostLeaseReportedDone,
    Bug::LateReleaseErasesTakeover,
    Bug::RenewalLowersLease,
    Bug::DoubtForgotten,
    Bug::EntityShared,
];

#[test]
fn planted_bugs_are_found() {
    for bug in Bug::ALL.iter().filter(|bug| !RARE.contains(bug)) {
        let is_found = (0..MAX_HISTORIES).any(|seed| !judge(&simulate(seed, Some(*bug)).0).is_empty());
        assert!(is_found, "{}", bug.name());
    }
}

#[test]
fn bugs_have_distinct_names() {
    for bug in Bug::ALL {
        assert_eq!(Bug::named(bug.name()), Some(*bug));
    }
    assert!(Bug::ALL.len() >= 20);
}
