//! Tests of the explanations. The expectations are from docs/how-it-works.md, docs/internals/failures.md and the
//! documentation of `Amendment`.

use lambda_once::record::{EncodedData, Fingerprint, Owner, StoredResult};

use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const MARGIN: Duration = Duration::from_secs(1);

fn ago(seconds: u64) -> Timestamp {
    NOW.before(Duration::from_secs(seconds))
}

fn hash() -> KeyHash {
    KeyHash::from_bytes([0xab; 32])
}

fn explained(record: &Record) -> Explanation {
    explain(hash(), Some(record), MARGIN, NOW)
}

fn claimed() -> Record {
    Record {
        owner: Some(Owner::from_bytes([0x12; 16])),
        attempt: 2,
        claimed_at: Some(ago(600)),
        lease_until: Some(ago(570)),
        expiration: Some(1_700_086_400),
        ..Record::new(Status::InProgress)
    }
}

fn settled(status: Status, result: StoredResult) -> Record {
    Record { settled_at: Some(ago(590)), result, ..Record { status, ..claimed() } }
}

/// Returns the subcommands that are advised.
fn commands(explanation: &Explanation) -> Vec<&str> {
    let words = |advice: &'_ Advice| advice.command.split(' ').nth(1).map(str::len).unwrap_or_default();
    let start = "lambda-once ".len();
    explanation.advice.iter().map(|advice| &advice.command[start..start + words(advice)]).collect()
}

#[track_caller]
fn assert_contains_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn an_absent_operation_runs() {
    let explanation = explain(hash(), None, MARGIN, NOW);
    assert_contains_all(&explanation.happened, &["no record", "scope"]);
    assert_contains_all(&explanation.retry, &["runs"]);
    assert!(explanation.advice.is_empty());
}

#[test]
fn an_expired_record_counts_as_absent() {
    let explanation = explained(&Record { expiration: Some(1_699_999_940), ..claimed() });
    assert_contains_all(&explanation.happened, &["expired at 2023-11-14T22:12:20Z (60 s ago)", "ignored"]);
    assert!(explanation.advice.is_empty());
}

/// A claim that is held is never amended (O3), and is reported until it has lapsed.
#[test]
fn a_running_operation_is_left_alone() {
    let explanation = explained(&Record { lease_until: Some(NOW.after(Duration::from_secs(20))), ..claimed() });
    assert_contains_all(&explanation.happened, &["claimed it at 2023-11-14T22:03:20Z (10 min ago), in attempt 2"]);
    assert_contains_all(&explanation.holder, &["12121212"]);
    assert!(!explanation.holder.contains("1212121212"), "a token is not shown whole: {}", explanation.holder);
    assert_contains_all(&explanation.until, &["2023-11-14T22:13:40Z (in 20 s)", "1000 ms"]);
    assert_contains_all(&explanation.retry, &["does not run", "in progress", "redelivered", "409"]);
    assert!(explanation.advice.is_empty());
}

#[test]
fn the_explanation_of_a_takeover_mentions_the_earlier_run() {
    let running = Record { lease_until: Some(NOW), prior_status: Some(Status::InProgress), ..claimed() };
    assert_contains_all(&explained(&running).happened, &["took over from a run that left no outcome"]);
}

#[test]
fn an_abandoned_operation_may_be_decided_or_run_again() {
    let explanation = explained(&claimed());
    assert_contains_all(
        &explanation.happened,
        &["2023-11-14T22:03:50Z (9 min ago)", "without an outcome", "Nobody knows"],
    );
    assert_eq!(explanation.holder, "Nobody.");
    assert_contains_all(&explanation.until, &["2023-11-15T22:13:20Z (in 24 h)", "does not see"]);
    assert_contains_all(
        &explanation.retry,
        &[
            "`Rerun`: it runs, and the handler sees a takeover",
            "`Refuse`: it does not run",
            "`Probe`",
            "409 `outcome_unknown`",
        ],
    );
    assert_eq!(commands(&explanation), ["settle", "settle", "release", "forget"]);
    assert!(explanation.advice.iter().all(|advice| advice.command.contains(&"ab".repeat(32))));
    assert_contains_all(&explanation.advice[2].risk, &["does so again"]);
    assert_contains_all(&explanation.advice[3].effect, &["does not see"]);
}

#[test]
fn a_released_claim_that_took_over_leaves_the_doubt() {
    let handed_back =
        Record { owner: None, lease_until: Some(Timestamp::EPOCH), settled_at: Some(ago(590)), ..claimed() };
    let explanation = explained(&handed_back);
    assert_contains_all(
        &explanation.happened,
        &["A run left no outcome", "released the operation at 2023-11-14T22:03:30Z", "Nobody knows"],
    );
    assert!(!explanation.happened.contains("1970"), "{}", explanation.happened);
    assert_eq!(commands(&explanation), ["settle", "settle", "release", "forget"]);
}

/// A release lets the operation be taken over once, under every policy, and the run is notified.
#[test]
fn a_released_operation_runs_next() {
    let explanation = explained(&Record { released: Some(2), ..claimed() });
    assert_contains_all(&explanation.happened, &["operator has released"]);
    assert_contains_all(&explanation.retry, &["runs, under every policy", "sees a takeover (`took_over()`)"]);
    assert_eq!(commands(&explanation), ["settle", "settle", "forget"]);
}

/// Only a settle ends the doubt of an ordered operation.
#[test]
fn an_ordered_operation_stays_in_doubt_unless_it_is_settled() {
    let explanation = explained(&Record { sequence: Some(7_u64.into()), ..claimed() });
    for advice in &explanation.advice {
        let expected = if advice.command.contains("settle") { "ends the doubt" } else { "stays in doubt" };
        assert_contains_all(&advice.effect, &[expected]);
    }
}

#[test]
fn a_failure_is_replayed_until_it_is_forgotten() {
    let failed = settled(Status::Failed, failure());
    let explanation = explained(&failed);
    assert_contains_all(
        &explanation.happened,
        &["failed permanently at 2023-11-14T22:03:30Z (9 min ago)", "is stored (9 bytes)"],
    );
    assert!(!explanation.happened.contains("secret"));
    assert_contains_all(&explanation.retry, &["does not run", "recorded failure"]);
    assert_eq!(commands(&explanation), ["forget", "redact"]);
    assert_contains_all(&explanation.advice[0].effect, &["redriven"]);
}

fn failure() -> StoredResult {
    StoredResult::of(StoredData::Json("\"secret!\"".into()))
}

#[test]
fn a_success_is_replayed_and_is_forgotten_only_on_purpose() {
    let explanation = explained(&settled(Status::Completed, failure()));
    assert_contains_all(&explanation.happened, &["took effect", "completed at"]);
    assert_contains_all(&explanation.retry, &["does not run", "recorded result", "acknowledges"]);
    assert_contains_all(&explanation.until, &["A duplicate after that runs again"]);
    assert_eq!(commands(&explanation), ["redact", "forget"]);
    assert!(explanation.advice[1].command.ends_with("--done"));
    assert_contains_all(&explanation.advice[1].risk, &["second time"]);
}

#[test]
fn an_explanation_names_the_response_to_a_dropped_result() {
    let explanation = explained(&settled(Status::Completed, StoredResult::DROPPED));
    assert_contains_all(&explanation.happened, &["not stored"]);
    assert_contains_all(&explanation.retry, &["without a result", "410 `response_not_stored`"]);
}

#[test]
fn an_encoded_result_names_its_codec() {
    let encoded = StoredResult::of(StoredData::Encoded(EncodedData::new("kms-1", vec![1, 2, 3]).unwrap()));
    assert_contains_all(&explained(&settled(Status::Completed, encoded)).happened, &["encoded by the codec kms-1"]);
}

#[test]
fn a_superseded_operation_took_no_effect() {
    let explanation = explained(&settled(Status::Completed, StoredResult::SUPERSEDED));
    assert_contains_all(&explanation.happened, &["A newer operation"]);
    assert_contains_all(&explanation.retry, &["does not run", "superseded"]);
}

/// A record without a lease can only be forgotten (O3).
#[test]
fn a_claim_of_another_library_can_only_be_forgotten() {
    let explanation = explained(&Record { lease_until: None, owner: None, attempt: 0, ..claimed() });
    assert_contains_all(&explanation.happened, &["Another library"]);
    assert_eq!(commands(&explanation), ["forget"]);
}

#[test]
fn a_payload_is_compared_if_the_record_has_one() {
    let fingerprint = Some(Fingerprint::from_bytes([3; 32]));
    assert_contains_all(&explained(&Record { fingerprint, ..claimed() }).retry, &["mismatch", "422"]);
    assert!(!explained(&claimed()).retry.contains("mismatch"));
}
