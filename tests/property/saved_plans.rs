//! Tests that saved plans of every version load and keep their meaning.

use crate::{
    plan::{PayloadChoice, Plan, Waiting},
    search::try_out,
};

/// Plans that were saved before kills, blocking handlers, payloads, waits and redelivery existed.
const FIRST_VERSION: [&str; 2] =
    [include_str!("saved_plans/frozen_fifo.json"), include_str!("saved_plans/late_requests.json")];

/// Plans that have shown a defect of the library, fixed since.
const FAILED_ONCE: [&str; 3] = [
    include_str!("saved_plans/unordered_behind_failed_lane.json"),
    include_str!("saved_plans/head_behind_claims_ahead.json"),
    include_str!("saved_plans/last_delivery_with_a_millisecond_left.json"),
];

/// Plans that have shown an error of the checker.
const MISJUDGED_ONCE: [&str; 4] = [
    include_str!("saved_plans/a_refused_claim_in_doubt_is_read_to_be_withdrawn.json"),
    include_str!("saved_plans/a_lease_is_learnt_from_a_later_refusal.json"),
    include_str!("saved_plans/a_read_to_withdraw_sees_the_lease_over.json"),
    include_str!("saved_plans/a_looked_up_record_is_skipped_and_its_duplicate_replayed.json"),
];

#[test]
fn a_plan_that_was_saved_before_loads_and_passes() {
    for text in FIRST_VERSION.into_iter().chain(FAILED_ONCE).chain(MISJUDGED_ONCE) {
        let plan: Plan = serde_json::from_str(text).unwrap();
        try_out(&plan, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_plan_that_was_saved_before_has_nothing_that_it_does_not_name() {
    for text in FIRST_VERSION {
        let plan: Plan = serde_json::from_str(text).unwrap();
        let settings = &plan.settings;
        assert_eq!((settings.payload, settings.waiting), (PayloadChoice::Body, Waiting::OrderedOnly));
        assert_eq!((settings.wait_up_to_ms, settings.last_attempt_timeout_ms, settings.redelivery), (None, None, None));
        assert!(!settings.dead_letter_abandoned && !plan.kills());
        assert!(!settings.ignores && !settings.all_or_error && !settings.consecutive && !settings.envelopes);
        assert!(plan.records.iter().all(|record| record.blocks_ms == 0 && record.trace == 0));
    }
}

#[test]
fn a_saved_plan_is_read_as_it_was() {
    for text in FIRST_VERSION {
        let saved: serde_json::Value = serde_json::from_str(text).unwrap();
        let plan: Plan = serde_json::from_str(text).unwrap();
        let written = serde_json::to_value(&plan).unwrap();
        assert!(is_part_of(&saved, &written), "{saved}\n{written}");
    }
}

/// Returns whether a value contains every member of another value.
fn is_part_of(part: &serde_json::Value, whole: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (part, whole) {
        (Object(part), Object(whole)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|other| is_part_of(value, other)))
        }
        (Array(part), Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(one, other)| is_part_of(one, other))
        }
        (part, whole) => part == whole,
    }
}
