//! Checks of claims.

use futures_util::future::join_all;

use super::*;

const RIVALS: usize = 64;

/// Sends each claim from a separate task, so that they really meet on several threads.
async fn at_once(subject: &Subject, claims: &[ClaimRequest]) -> Vec<Claimed> {
    let tasks = claims.iter().map(|claim| {
        let (store, claim) = (Arc::clone(&subject.store), claim.clone());
        tokio::spawn(async move { only(store.claim(&[claim]).await) })
    });
    let answers = join_all(tasks.collect::<Vec<_>>()).await;
    answers.into_iter().map(|answer| answer.expect("no panic")).collect()
}

fn granted(answers: &[Claimed]) -> usize {
    answers.iter().filter(|answer| matches!(answer, Claimed::Granted(_))).count()
}

/// A new key is granted, and a rival claim then finds it in progress.
// Tests C1, C6, C8.
pub async fn a_new_key_is_granted_and_then_in_progress(subject: &Subject) {
    let claim = new_claim();
    let grant = subject.granted(&claim).await;
    expect("C8: a new key has one attempt and replaces nothing", (grant.attempt, grant.prior_status), (1, None));
    let found = subject.in_progress(&rival(&claim), "while a claim stands").await;
    expect("C6: a refusal has the lease and the attempts on record", found, (Some(grant.lease_until), 1));

    let record = subject.record(claim.key, "a granted claim").await;
    expect("a granted claim is INPROGRESS", record.status, Status::InProgress);
    expect("S1: a record has the owner of its claim", record.owner, Some(claim.owner));
    expect("C2: a record has the fingerprint of its claim", record.fingerprint, claim.fingerprint);
    expect("C6: a record has the lease of its grant", record.lease_until, Some(grant.lease_until));
}

/// Of 64 simultaneous claims on one key exactly one is granted, in each of several rounds.
// Tests C1, C6, P5.
pub async fn of_many_claims_exactly_one_is_granted(subject: &Subject) {
    for _ in 0..rounds() {
        let claim = new_claim();
        let claims: Vec<_> = (0..RIVALS).map(|_| rival(&claim)).collect();
        let answers = at_once(subject, &claims).await;
        expect("C1: of many claims on a new key one is granted", granted(&answers), 1);
        let waiting = |answer: &&Claimed| matches!(answer, Claimed::Refused(Refusal::InProgress { .. }));
        let waiting = answers.iter().filter(waiting).count();
        expect("C6: of many claims on a new key all but one are in progress", waiting, RIVALS - 1);
    }
}

/// A claim that is sent again after a lost response is granted, with the recorded lease and history.
// Tests C5.
pub async fn a_claim_sent_again_gets_its_first_grant(subject: &Subject) {
    let claim = new_claim();
    let first = subject.granted(&claim).await;
    subject.advance(LEASE / 2).await;
    let again = subject.granted(&claim).await;
    expect("C5: a claim that is sent again moves neither its lease nor its attempt", again, first);
}

/// A claim that is sent again when its lease and the margin have passed takes over, like any other claim, because the
/// write's condition does not name the owner. If takeovers are refused, it is granted with the recorded values.
// Tests C5, C7.
pub async fn a_lapsed_claim_sent_again_takes_over(subject: &Subject) {
    let (claim, strict) = (new_claim(), ClaimRequest { takeover: Takeover::Refused, ..new_claim() });
    subject.granted(&claim).await;
    let first = subject.granted(&strict).await;
    subject.advance(LAPSE).await;
    let again = subject.took_over(&claim).await;
    expect("C7: a lapsed claim that is sent again is another attempt", again.attempt, 2);
    let lease_until = subject.record(claim.key, "a takeover").await.lease_until;
    expect("C7: a record has the lease of its takeover", lease_until, Some(again.lease_until));
    let again = subject.granted(&strict).await;
    expect("C5: where takeovers are refused, a lapsed claim that is sent again is its own", again, first);
}

/// A claim is taken over when its lease and the margin have passed, and not before.
// Tests C6, C7, L3, P6.
pub async fn a_lapsed_claim_is_taken_over_and_a_live_one_is_not(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LEASE).await;
    subject.in_progress(&rival(&claim), "within the margin after its lease").await;
    subject.advance(LAPSE - LEASE).await;
    let grant = subject.took_over(&rival(&claim)).await;
    expect("a takeover is another attempt", grant.attempt, 2);
}

/// A takeover that is sent again after a lost response still reports that it took over.
// Tests C5, C8.
pub async fn a_takeover_sent_again_still_took_over(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = rival(&claim);
    let grant = subject.took_over(&taker).await;
    let again = subject.granted(&taker).await;
    expect("C5, C8: a takeover that is sent again has the history of the record", again, grant);
}

/// Of many claims that find a lapsed one, exactly one takes it over.
// Tests C7, P5.
pub async fn a_lapsed_claim_is_taken_over_once(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let claims: Vec<_> = (0..RIVALS).map(|_| rival(&claim)).collect();
    let answers = at_once(subject, &claims).await;
    expect("C7: of many claims on a lapsed one, one takes over", granted(&answers), 1);
}

/// If takeovers are refused, a lapsed claim stays abandoned, handed back or not.
// Tests C7, P11.
pub async fn an_abandoned_claim_stays_so_where_takeover_is_refused(subject: &Subject) {
    let claim = new_claim();
    let refusing = |claim: &ClaimRequest| ClaimRequest { takeover: Takeover::Refused, ..rival(claim) };
    subject.granted(&claim).await;
    subject.in_progress(&refusing(&claim), "before the lease has passed, also where takeovers are refused").await;
    subject.advance(LAPSE).await;
    let abandoned = subject.refused(&refusing(&claim)).await;
    expect(
        "C7: where takeovers are refused, a lapsed claim is abandoned",
        abandoned,
        Refusal::Abandoned { attempt: 1 },
    );

    let taker = rival(&claim);
    subject.granted(&taker).await;
    subject.done(&taker, HAND_BACK).await;
    let abandoned = subject.refused(&refusing(&claim)).await;
    expect("C7, S9: a claim that was handed back is abandoned", abandoned, Refusal::Abandoned { attempt: 2 });
}

/// A different payload under the same key is a mismatch until the record expires: in progress, lapsed, handed back,
/// completed, failed. The refusal shows which, and takes nothing over.
// Tests C2.
pub async fn another_payload_is_a_mismatch_whatever_the_status(subject: &Subject) {
    let claim = new_claim();
    let grant = subject.granted(&claim).await;
    let standing = MismatchState::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
    subject.mismatch(&misuse(&claim), "while a claim stands", standing).await;
    subject.advance(LEASE).await;
    subject.mismatch(&misuse(&claim), "within the margin after its lease", standing).await;
    subject.advance(LAPSE - LEASE).await;
    for takeover in [Takeover::Allowed, Takeover::Refused] {
        let misuse = ClaimRequest { takeover, ..misuse(&claim) };
        subject.mismatch(&misuse, "after the lease and the margin", MismatchState::Abandoned { attempt: 1 }).await;
    }
    let taker = rival(&claim);
    expect("C2: a mismatch is no attempt", subject.granted(&taker).await.attempt, 2);
    subject.done(&taker, HAND_BACK).await;
    subject.mismatch(&misuse(&claim), "after a hand-back", MismatchState::Abandoned { attempt: 2 }).await;

    for outcome in [complete("1"), fail("1")] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.done(&claim, outcome.clone()).await;
        subject.mismatch(&misuse(&claim), &format!("after {}", outcome.as_str()), MismatchState::Final).await;
    }
}

/// A claim without a fingerprint is not compared, nor is one on a record without a fingerprint.
// Tests C2.
pub async fn a_claim_without_a_fingerprint_matches_any_payload(subject: &Subject) {
    let without = |claim: &ClaimRequest| ClaimRequest { fingerprint: None, ..rival(claim) };
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = without(&claim);
    subject.took_over(&taker).await;
    subject.done(&taker, complete("1")).await;
    // The claim that took over had no fingerprint.
    subject.replays(&misuse(&claim), json("1")).await;

    let claim = without(&new_claim());
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    subject.took_over(&misuse(&claim)).await;
}

/// Fingerprints with equal first halves belong to one payload, whatever a later version writes in the second halves.
// Tests C2.
pub async fn the_first_half_of_a_fingerprint_decides(subject: &Subject) {
    let of_halves = |first, second| {
        let mut bytes = [first; 32];
        bytes[16..].fill(second);
        Some(Fingerprint::from_bytes(bytes))
    };
    let claim = ClaimRequest { fingerprint: of_halves(1, 2), ..new_claim() };
    let same = |claim: &ClaimRequest| ClaimRequest { fingerprint: of_halves(1, 3), ..rival(claim) };
    let other = |claim: &ClaimRequest| ClaimRequest { fingerprint: of_halves(4, 2), ..rival(claim) };
    let grant = subject.granted(&claim).await;
    subject.in_progress(&same(&claim), "while a claim on the same payload stands").await;
    let standing = MismatchState::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
    subject.mismatch(&other(&claim), "while a claim stands", standing).await;
    subject.advance(LAPSE).await;
    subject.mismatch(&other(&claim), "after the lease and the margin", MismatchState::Abandoned { attempt: 1 }).await;
    let taker = same(&claim);
    subject.took_over(&taker).await;
    subject.done(&taker, complete("1")).await;
    subject.replays(&claim, json("1")).await;
    subject.mismatch(&other(&claim), "after complete", MismatchState::Final).await;
}

/// A mismatch names the parts in which the payload differs from the one on record, whatever the status, and none if one of the
/// fingerprints has no parts.
// Tests C2.
pub async fn a_mismatch_names_the_parts_that_differ(subject: &Subject) {
    const RULE: &str = "C2: a mismatch names the parts that differ from those on record";
    let of_parts = |whole, [path, query, headers, body]: [u8; 4]| {
        let mut bytes = [whole; 32];
        let parts = [path, query, headers, body].map(|byte| [byte; 4]);
        bytes[16..].copy_from_slice(parts.as_flattened());
        Some(Fingerprint::from_bytes(bytes))
    };
    let claim = ClaimRequest { fingerprint: of_parts(1, [1, 2, 3, 4]), ..new_claim() };
    let other = |parts| ClaimRequest { fingerprint: of_parts(2, parts), ..rival(&claim) };
    let differences = [
        ([1, 2, 3, 9], Difference::of([PayloadPart::Body])),
        ([1, 9, 3, 9], Difference::of([PayloadPart::Query, PayloadPart::Body])),
        ([9, 2, 9, 4], Difference::of([PayloadPart::MethodAndPath, PayloadPart::Headers])),
        ([0, 0, 0, 0], Difference::UNKNOWN),
    ];
    let grant = subject.granted(&claim).await;
    let standing = MismatchState::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
    for (parts, difference) in differences {
        expect(RULE, subject.mismatch(&other(parts), "while a claim stands", standing).await, difference);
    }
    subject.advance(LAPSE).await;
    let lapsed = MismatchState::Abandoned { attempt: 1 };
    for (parts, difference) in differences {
        expect(RULE, subject.mismatch(&other(parts), "after the lease and the margin", lapsed).await, difference);
    }
    let taker = rival(&claim);
    subject.took_over(&taker).await;
    subject.done(&taker, complete("1")).await;
    for (parts, difference) in differences {
        expect(RULE, subject.mismatch(&other(parts), "after complete", MismatchState::Final).await, difference);
    }
}

/// Payloads of different versions are not compared. A claim gets the same result as without a fingerprint, and takes
/// over a lapsed claim. Its record has the claim's version.
// Tests C2.
pub async fn payloads_of_different_versions_are_not_compared(subject: &Subject) {
    const RULE: &str = "C2: the record has the payload and the version of its last claim";
    let of_version = |byte, version| Some(Fingerprint::from_bytes([byte; 32]).with_payload_version(version));
    // 12 and 2 share the last digit, 20 and 2 the first, and the greatest takes the most space.
    let versions = [1, 2, 12, 20, 0, u32::MAX];
    for (old, new) in versions.into_iter().flat_map(|old| versions.map(|new| (old, new))) {
        let claim = ClaimRequest { fingerprint: of_version(1, old), ..new_claim() };
        let other = |claim: &ClaimRequest| ClaimRequest { fingerprint: of_version(2, new), ..rival(claim) };
        let grant = subject.granted(&claim).await;
        let stored = subject.read(claim.key).await.and_then(|record| record.fingerprint);
        expect(RULE, stored, claim.fingerprint);
        if old == new {
            let standing = MismatchState::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
            subject.mismatch(&other(&claim), "while a claim stands", standing).await;
            subject.advance(LAPSE).await;
            let lapsed = MismatchState::Abandoned { attempt: 1 };
            subject.mismatch(&other(&claim), "after the lease and the margin", lapsed).await;
            let same = rival(&claim);
            subject.took_over(&same).await;
            continue;
        }
        subject.in_progress(&other(&claim), "while a claim on a payload of another version stands").await;
        subject.advance(LAPSE).await;
        let taker = other(&claim);
        subject.took_over(&taker).await;
        let stored = subject.read(claim.key).await.and_then(|record| record.fingerprint);
        expect(RULE, stored, taker.fingerprint);
        subject.done(&taker, complete("1")).await;
        subject.replays(&rival(&claim), json("1")).await;
        let misuse = ClaimRequest { fingerprint: of_version(3, new), ..rival(&claim) };
        subject.mismatch(&misuse, "after complete", MismatchState::Final).await;
    }
}

/// An expired record does not block a claim, for any payload, whether or not it has been deleted. A claim that replaces
/// an existing claim took over, because nothing else shows that an outcome was lost. A claim that replaces an outcome
/// did not.
// Tests C1, C8.
pub async fn an_expired_record_counts_as_absent(subject: &Subject) {
    let deflated = || StoredResult::of(StoredData::Deflated(b"any bytes".to_vec()));
    let completed = |result| Settlement::complete(result, RETENTION);
    for new in [json("2"), deflated(), encoded(), StoredResult::DROPPED] {
        let old = [json("1"), deflated(), encoded(), StoredResult::DROPPED, StoredResult::SUPERSEDED].map(completed);
        for outcome in old.into_iter().chain([fail("1")]).map(Some).chain([None]) {
            let claim = new_claim();
            subject.granted(&claim).await;
            if let Some(outcome) = outcome {
                subject.done(&claim, outcome).await;
            }
            subject.advance(RETENTION + Duration::from_secs(1)).await;
            let other = misuse(&claim);
            let took_over = subject.granted(&other).await.took_over();
            expect("C1, C8: a claim over an expired record took nothing over", took_over, false);
            // No part of the old record is left.
            subject.done(&other, completed(new.clone())).await;
            subject.replays(&rival(&other), new.clone()).await;
        }
    }
}

/// No claim expires under its holder, even if the retention is shorter than the lease or zero.
// Tests L4.
pub async fn a_live_claim_never_counts_as_expired(subject: &Subject) {
    for retention in [Duration::ZERO, LEASE / 2] {
        let claim = ClaimRequest { retention, ..new_claim() };
        let lease_until = Some(subject.granted(&claim).await.lease_until);
        for _ in 0..2 {
            subject.advance(LEASE / 2).await;
            let when = "while a claim of a short retention stands (L4)";
            subject.in_progress(&rival(&claim), when).await;
            subject.mismatch(&misuse(&claim), when, MismatchState::InProgress { lease_until, attempt: 1 }).await;
        }
        subject.done(&claim, complete("1")).await;
    }
}

/// The results of a call are independent and in the order of its requests.
pub async fn batch_results_are_in_request_order(subject: &Subject) {
    const RULE: &str = "the answers of a call have the order of its requests";
    let done = new_claim();
    subject.granted(&done).await;
    subject.done(&done, complete("1")).await;
    let running = new_claim();
    subject.granted(&running).await;

    let mut claims: Vec<_> = (0..30).map(|_| new_claim()).collect();
    claims[3] = rival(&done);
    claims[17] = rival(&running);
    claims[22] = misuse(&running);
    claims[28] = misuse(&done);
    let answers = subject.store.claim(&claims).await;
    let kinds = answers.iter().map(|answer| match answer {
        Ok(Claimed::Granted(_)) => "granted",
        Ok(Claimed::Refused(Refusal::Completed(record))) if record.result == json("1") => "completed",
        Ok(Claimed::Refused(Refusal::InProgress { .. })) => "in progress",
        Ok(Claimed::Refused(Refusal::Mismatch(mismatch))) => match mismatch.state {
            MismatchState::InProgress { lease_until: Some(_), attempt: 1 } => "held",
            MismatchState::Final => "mismatch",
            _ => "another mismatch",
        },
        _ => "another answer",
    });
    let mut expected = ["granted"; 30];
    (expected[3], expected[17]) = ("completed", "in progress");
    (expected[22], expected[28]) = ("held", "mismatch");
    expect(RULE, kinds.collect::<Vec<_>>(), expected.to_vec());
    let settles: Vec<_> = claims.iter().map(|claim| settle_request(claim, complete("2"))).collect();
    let settled = subject.store.settle(&settles).await;
    let done = settled.iter().map(|answer| matches!(answer, Ok(Settled::Done { .. })));
    expect(RULE, done.collect::<Vec<_>>(), expected.map(|kind| kind == "granted").to_vec());
    let keys = [claims[0].key, KeyHash::from_bytes(random()), running.key];
    let found = subject.store.read(&keys, ResultData::Include).await;
    let statuses =
        found.iter().map(|answer| answer.as_ref().ok().map(|found| found.as_ref().map(|record| record.status)));
    let expected = vec![Some(Some(Status::Completed)), Some(None), Some(Some(Status::InProgress))];
    expect(RULE, statuses.collect::<Vec<_>>(), expected);

    const EMPTY: &str = "a call without requests has no answers";
    expect(EMPTY, subject.store.claim(&[]).await.len(), 0);
    expect(EMPTY, subject.store.settle(&[]).await.len(), 0);
    expect(EMPTY, subject.store.read(&[], ResultData::Include).await.len(), 0);
}

/// `warm_up` may be repeated, and has no effect on any key.
pub async fn warming_changes_nothing(subject: &Subject) {
    subject.store.warm_up().await.expect("a store that can be reached is warmed");
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.store.warm_up().await.expect("a store that can be reached is warmed");
    subject.in_progress(&rival(&claim), "after the store was warmed").await;
}

/// A store returns the same id each time. A different one would separate a transaction from its store.
pub async fn a_store_keeps_its_id(subject: &Subject) {
    let ids = [(); 3].map(|()| subject.store.id());
    expect("a store returns the same id each time", ids, [ids[0]; 3]);
}

/// A record contains the operation that was claimed, the application's label, and the times of the claim and the
/// settle. A later claim leaves no part of an earlier one.
pub async fn a_record_contains_operation_label_and_times(subject: &Subject) {
    const RULE: &str = "a record contains the operation, its label, and the time of its last grant";
    const SETTLED: &str = "a record contains the time at which its last claim was completed, failed or handed back";
    let described = |record: &Record| (record.operation.clone(), record.label.clone(), record.claimed_at);
    let expected = |claim: &ClaimRequest, grant: Grant| {
        (Some(Arc::clone(&claim.operation)), claim.label.clone(), Some(grant.lease_until.before(LEASE)))
    };
    let labelled =
        |claim: ClaimRequest| ClaimRequest { operation: "orders.sqs".into(), label: Some("order 7".into()), ..claim };

    for outcome in [complete("1"), fail("1")] {
        let claim = labelled(new_claim());
        let grant = subject.granted(&claim).await;
        let record = subject.record(claim.key, "a claim").await;
        expect(RULE, described(&record), expected(&claim, grant));
        expect(SETTLED, record.settled_at, None);
        subject.advance(A_MILLISECOND).await;
        subject.done(&claim, outcome).await;
        let record = subject.record(claim.key, "an outcome").await;
        expect(RULE, described(&record), expected(&claim, grant));
        if record.settled_at <= record.claimed_at {
            broken(SETTLED, "a time after that of the claim", record);
        }
        subject.advance(RETENTION + Duration::from_secs(1)).await;
        let next = misuse(&new_claim());
        let next = ClaimRequest { key: claim.key, ..next };
        let grant = subject.granted(&next).await;
        let record = subject.record(next.key, "a claim").await;
        expect("a claim leaves no label of an earlier one", described(&record), expected(&next, grant));
        expect(SETTLED, record.settled_at, None);
    }

    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = labelled(rival(&claim));
    let grant = subject.took_over(&taker).await;
    subject.advance(A_MILLISECOND).await;
    subject.done(&taker, HAND_BACK).await;
    let record = subject.record(claim.key, "a claim that was handed back").await;
    expect(RULE, described(&record), expected(&taker, grant));
    if record.settled_at <= record.claimed_at {
        broken(SETTLED, "a time after that of the claim", record);
    }
    subject.took_over(&rival(&claim)).await;
    let record = subject.record(claim.key, "a claim").await;
    expect("a claim leaves nothing of one that was handed back", (record.label, record.settled_at), (None, None));
}
