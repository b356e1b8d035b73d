//! The test of the test: with a bug in what surrounds the service, a case fails.

use std::time::Duration;

use proptest::strategy::Strategy;

use crate::{
    cases::{read, search, try_out},
    checker::Promise,
    generate::plan_of,
    plan::Plan,
};

/// A bug that is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// The store deletes the record of what has succeeded.
    ReleasedAfterSuccess,
    /// The store lets anybody settle a claim.
    OwnerIgnored,
    /// The store grants a claim that stands.
    GrantedTwice,
    /// The source says that nothing has an order.
    OrderIgnored,
    /// The source names another record than the one that failed.
    WrongIdentifier,
    /// The source names a record by nothing.
    EmptyIdentifier,
    /// The source leaves out a record that failed.
    FailureForgotten,
    /// The handler's work goes on when its future is dropped.
    Detached,
}

/// Among so many cases one fails.
const ENOUGH: usize = 5_000;

const SHRINKING: Duration = Duration::from_secs(3);

fn small() -> impl Strategy<Value = Plan> {
    (0..40_usize).prop_flat_map(plan_of)
}

/// With the bug a case fails by one of these promises; the plan that is saved of it fails again, and without the bug it does
/// not.
fn is_found(plant: Plant, promises: &[Promise]) {
    let failing = search(ENOUGH, Some(plant), small, SHRINKING);
    let failing = failing.unwrap_or_else(|| panic!("nobody noticed {plant:?}"));
    assert!(promises.contains(&failing.violation.promise), "{plant:?}: {}", failing.violation);
    let path = failing.save();
    let plan = read(&path);
    // Another thread may have found the same one.
    let _ = std::fs::remove_file(path);
    assert!(try_out(&plan, Some(plant)).is_err(), "{plant:?}: {plan:?}");
    try_out(&plan, None).unwrap_or_else(|violation| panic!("without {plant:?}: {violation}"));
}

#[test]
fn a_release_after_success_is_noticed() {
    is_found(Plant::ReleasedAfterSuccess, &[Promise::Record, Promise::Once]);
}

#[test]
fn a_store_that_does_not_check_owners_is_noticed() {
    is_found(Plant::OwnerIgnored, &[Promise::Record, Promise::Once]);
}

#[test]
fn a_claim_that_is_granted_twice_is_noticed() {
    is_found(Plant::GrantedTwice, &[Promise::Record, Promise::Once]);
}

#[test]
fn an_order_that_is_ignored_is_noticed() {
    is_found(Plant::OrderIgnored, &[Promise::Order, Promise::Answer, Promise::Progress]);
}

#[test]
fn the_identifier_of_the_wrong_record_is_noticed() {
    is_found(Plant::WrongIdentifier, &[Promise::Answer]);
}

#[test]
fn an_empty_identifier_is_noticed() {
    is_found(Plant::EmptyIdentifier, &[Promise::Answer]);
}

#[test]
fn a_failure_that_is_not_reported_is_noticed() {
    is_found(Plant::FailureForgotten, &[Promise::Answer]);
}

#[test]
fn work_past_the_stop_point_is_noticed() {
    is_found(Plant::Detached, &[Promise::Bounds, Promise::Settlement]);
}
