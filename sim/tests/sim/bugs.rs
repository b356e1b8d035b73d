//! Each planted bug is found within a bound.

use lambda_once_sim::{bugs::Bug, judge::judge, simulate};

/// The most histories for a bug. The page lists how many operations each takes.
const MAX_HISTORIES: u64 = 3_000;

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
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
