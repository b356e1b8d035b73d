//! Checks of settles.

use super::*;

/// A completed operation replays its result to every later claim, immediately and after the lease.
// Tests C3, P2.
pub async fn a_completed_operation_replays_its_result(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, complete("[1]")).await;
    for _ in 0..2 {
        for claimant in [&rival(&claim), &claim] {
            subject.replays(claimant, json("[1]")).await;
        }
        subject.advance(LAPSE).await;
    }
}

/// A failed operation replays its failure to every later claim.
// Tests C4, P2.
pub async fn a_failed_operation_replays_its_failure(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, fail("{}")).await;
    for _ in 0..2 {
        let failure = subject.failed(&rival(&claim)).await;
        expect("C4: a failed operation replays its failure", failure, json("{}"));
        subject.advance(LAPSE).await;
    }
}

/// Results are returned byte for byte: text, bytes, encoded, none, dropped.
// Tests C3.
pub async fn results_come_back_as_they_were_stored(subject: &Subject) {
    for result in
        [json("\"é😀\\u0000\""), json("null"), deflated(), encoded(), StoredResult::default(), StoredResult::DROPPED]
    {
        let claim = new_claim();
        subject.granted(&claim).await;
        let settlement = Settlement::complete(result.clone(), RETENTION);
        subject.done(&claim, settlement).await;
        subject.replays(&rival(&claim), result).await;
    }
}

/// Results are omitted if and only if they are not requested.
pub async fn results_are_omitted_only_on_request(subject: &Subject) {
    for settlement in [complete("[1]"), fail("{}")] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.done(&claim, settlement.clone()).await;
        let stored = subject.record(claim.key, "an outcome").await;
        let without = ClaimRequest { result_data: ResultData::Omit, ..rival(&claim) };
        subject.has_all_but_data(claim.key, &stored).await;
        for (request, result) in [(&without, StoredResult::default()), (&rival(&claim), stored.result.clone())] {
            match subject.refused(request).await {
                Refusal::Completed(record) | Refusal::Failed(record) => {
                    let found = (record.status, record.result);
                    expect("a refusal has the result if its request asks for that", found, (stored.status, result));
                }
                refusal => broken("C3, C4: an outcome is replayed", "Refused(Completed(…)), or Failed", refusal),
            }
        }
    }
    // Whether a result was dropped is always returned.
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, Settlement::complete(StoredResult::DROPPED, RETENTION)).await;
    subject.has_all_but_data(claim.key, &subject.record(claim.key, "an outcome").await).await;
    let without = ClaimRequest { result_data: ResultData::Omit, ..rival(&claim) };
    match subject.refused(&without).await {
        Refusal::Completed(record) => {
            expect("S5: a result that was dropped is said to be", record.result, StoredResult::DROPPED)
        }
        refusal => broken("C3: an outcome is replayed", "Refused(Completed(…))", refusal),
    }
}

/// A result of exactly the maximum size in [`limits`](Store::limits) is accepted.
pub async fn the_largest_result_fits(subject: &Subject) {
    let size = subject.store.limits().max_result_bytes.min(1 << 20);
    let result = json(&format!("\"{}\"", "x".repeat(size - 2)));
    let claim = new_claim();
    subject.granted(&claim).await;
    let settlement = Settlement::complete(result.clone(), RETENTION);
    subject.done(&claim, settlement).await;
    subject.replays(&rival(&claim), result).await;
}

/// A released key is as if it had never been claimed, for any payload.
// Tests S9.
pub async fn a_released_key_is_free(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, RELEASE).await;
    subject.unchanged(claim.key, None, "S9: a release deletes the record").await;
    let grant = subject.granted(&misuse(&claim)).await;
    expect("S9: a released key is as if it were new", (grant.attempt, grant.prior_status), (1, None));
}

/// A settle that is sent again after a lost response succeeds and changes nothing.
// Tests S2.
pub async fn a_settle_sent_again_succeeds(subject: &Subject) {
    for settlement in [complete("1"), fail("1"), RELEASE, HAND_BACK] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.done(&claim, settlement.clone()).await;
        let before = subject.read(claim.key).await;
        let again = subject.settle(&claim, settlement.clone()).await;
        let rule =
            format!("S2: {} that is sent again succeeds, shows the record and changes nothing", settlement.as_str());
        expect(&rule, shown(again), before.as_ref().map(Record::without_data));
        subject.unchanged(claim.key, before.as_ref(), &rule).await;
    }
    // A release is done as soon as the key is not in progress under its owner, whoever holds it.
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.settle(&claim, RELEASE).await;
    let next = rival(&claim);
    subject.granted(&next).await;
    let owner = shown(subject.settle(&claim, RELEASE).await).and_then(|record| record.owner);
    expect("S2: a release that is sent again shows the claim that came after it", owner, Some(next.owner));
    // The next claim is still live.
    subject.done(&next, complete("1")).await;
}

/// A holder past its lease can neither complete, fail, release nor renew over its successor, before and after that has
/// settled.
// Tests S1, S2, S3, P1.
pub async fn a_late_holder_changes_nothing(subject: &Subject) {
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    let late = [complete("\"late\""), fail("\"late\""), RELEASE, HAND_BACK, renew];
    for outcome in [complete("\"next\""), fail("\"next\"")] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.advance(LAPSE).await;
        let next = rival(&claim);
        subject.granted(&next).await;
        for settled in [false, true] {
            if settled {
                subject.done(&next, outcome.clone()).await;
            }
            let before = subject.record(claim.key, "the successor's claim or outcome").await;
            for settlement in &late {
                if settlement.is_release() {
                    let found = shown(subject.settle(&claim, settlement.clone()).await);
                    expect("S2: a late release finds nothing left to release", found, Some(before.without_data()));
                } else {
                    subject.lost(&claim, settlement.clone(), Some(before.clone())).await;
                }
                let rule = format!("S3: a late {} leaves the successor's record", settlement.as_str());
                subject.unchanged(claim.key, Some(&before), &rule).await;
            }
        }
    }
}

/// A settle never recreates a deleted record.
// Tests S1.
pub async fn a_settle_creates_no_record(subject: &Subject) {
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    for settlement in [complete("1"), fail("1"), renew, RELEASE, HAND_BACK] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.done(&claim, RELEASE).await;
        let rule = format!("S1: {} creates no record", settlement.as_str());
        if settlement.is_release() {
            subject.done(&claim, settlement).await;
        } else {
            subject.lost(&claim, settlement, None).await;
        }
        subject.unchanged(claim.key, None, &rule).await;
    }
}

/// A recorded outcome is never replaced, not even by its owner.
// Tests S1, S3, P1.
pub async fn an_outcome_is_decided_once(subject: &Subject) {
    for (first, second) in [(complete("1"), fail("2")), (fail("1"), complete("2"))] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.done(&claim, first).await;
        let decided = subject.record(claim.key, "an outcome").await;
        subject.lost(&claim, second, Some(decided.clone())).await;
        for release in [RELEASE, HAND_BACK] {
            let found = shown(subject.settle(&claim, release).await);
            expect("S2: a release after the outcome shows that", found, Some(decided.without_data()));
        }
        subject.unchanged(claim.key, Some(&decided), "S3: an outcome is decided once").await;
    }
}

/// A claim that took over is handed back. The next one takes over immediately, and reports it.
// Tests S9.
pub async fn a_taken_over_claim_is_handed_back(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = rival(&claim);
    subject.granted(&taker).await;
    subject.done(&taker, HAND_BACK).await;
    let record = subject.record(claim.key, "S9: a claim that took over and is handed back").await;
    expect("S9: a hand-back removes the owner alone", (record.status, record.owner), (Status::InProgress, None));

    let next = rival(&claim);
    let grant = subject.took_over(&next).await;
    expect("S9: after a hand-back attempts are counted on", grant.attempt, 3);
    let current = subject.read(claim.key).await;
    subject.lost(&taker, complete("1"), current).await;
    subject.done(&next, complete("2")).await;
    subject.replays(&rival(&claim), json("2")).await;
}

/// A claim and its release arrive a second time, after another claim of the key has come and lapsed. The claim takes
/// over from that one, and its old release, which was sent without a takeover, leaves the record. The next claim still
/// learns of the lost outcome.
// Tests S9.
pub async fn a_late_release_does_not_forget_a_takeover(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, RELEASE).await;
    subject.granted(&rival(&claim)).await;
    subject.advance(LAPSE).await;
    subject.took_over(&claim).await;
    let before = subject.record(claim.key, "a takeover").await;

    subject.lost(&claim, RELEASE, Some(before.clone())).await;
    subject.unchanged(claim.key, Some(&before), "S9: a release that knows of no takeover deletes none").await;
    subject.advance(LAPSE).await;
    subject.took_over(&rival(&claim)).await;
}

/// A renewal extends the claim by another lease, and its record with it.
// Tests L5.
pub async fn a_renewal_extends_the_lease(subject: &Subject) {
    let claim = ClaimRequest { retention: Duration::ZERO, ..new_claim() };
    let grant = subject.granted(&claim).await;
    for _ in 0..3 {
        subject.advance(LEASE / 2).await;
        let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: Duration::ZERO };
        let renewed = subject.renewed(&claim, renew).await;
        if renewed <= grant.lease_until {
            broken("L5: a renewed claim stands longer", &format!("later than {:?}", grant.lease_until), renewed);
        }
    }
    subject.in_progress(&rival(&claim), "while a renewed claim stands").await;
    subject.done(&claim, complete("1")).await;
}

/// A late copy of an older renewal, with a shorter lease, finds the newer one applied. It lowers neither the lease nor
/// the expiration, and returns the recorded lease.
// Tests L5.
pub async fn a_late_renewal_shortens_nothing(subject: &Subject) {
    let renew = |lease, retention| Settlement::Renew { lease, skew_margin: MARGIN, retention };
    let claim = ClaimRequest { retention: Duration::ZERO, ..new_claim() };
    subject.granted(&claim).await;
    const NOT_LOWERED: &str = "L5: a renewal lowers neither the lease nor the expiration";
    let newer = subject.renewed(&claim, renew(10 * LEASE, RETENTION)).await;
    let record = subject.record(claim.key, "a renewed claim").await;
    expect("L5: a renewal is answered by the lease on record", Some(newer), record.lease_until);
    for (lease, retention) in [(LEASE, Duration::ZERO), (10 * LEASE, Duration::ZERO), (LEASE, RETENTION)] {
        // With a running clock an equal lease may end a little later.
        let renewed = subject.renewed(&claim, renew(lease, retention)).await;
        let after = subject.record(claim.key, "a renewed claim").await;
        expect("L5: a renewal is answered by the lease on record", after.lease_until, Some(renewed));
        if after.lease_until < record.lease_until || after.expiration < record.expiration {
            broken(NOT_LOWERED, &format!("at least {record:?}"), after);
        }
    }
    // A renewal with more of one and less of the other raises only the one.
    subject.renewed(&claim, renew(20 * LEASE, Duration::ZERO)).await;
    let longer = subject.record(claim.key, "a renewed claim").await;
    if longer.lease_until <= record.lease_until || longer.expiration < record.expiration {
        broken(NOT_LOWERED, &format!("a later lease than {record:?}, and no earlier expiration"), longer);
    }
    subject.renewed(&claim, renew(LEASE, 3 * RETENTION)).await;
    let kept = subject.record(claim.key, "a renewed claim").await;
    if kept.lease_until < longer.lease_until || kept.expiration <= longer.expiration {
        broken(NOT_LOWERED, &format!("a later expiration than {longer:?}, and no earlier lease"), kept);
    }

    subject.advance(10 * LEASE).await;
    subject.in_progress(&rival(&claim), "while a renewed claim stands").await;
    subject.done(&claim, complete("1")).await;
}

/// A renewal that arrives when others may take over is refused, even if no claim has, because its holder must have
/// stopped.
// Tests L5.
pub async fn a_renewal_after_the_lease_and_the_margin_revives_nothing(subject: &Subject) {
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let before = subject.record(claim.key, "a lapsed claim").await;
    subject.lost(&claim, renew, Some(before.clone())).await;
    subject.unchanged(claim.key, Some(&before), "L5: a late renewal revives nothing").await;
    subject.took_over(&rival(&claim)).await;
}

/// A record expires no earlier than its retention, and a live claim's not before the lease and the margin have passed.
/// Rounding is always up.
// Tests L4.
pub async fn a_record_expires_no_earlier_than_its_retention(subject: &Subject) {
    let expires_after = |record: &Record, from: Timestamp, stays: Duration| {
        if record.expiration.map(Timestamp::from_seconds) < Some(from.after(stays)) {
            let rule = "L4: a record expires no earlier than its retention, nor within its lease and the margin";
            broken(rule, &format!("an expiration {stays:?} after {from:?} at the earliest"), record);
        }
    };
    // Not a whole second.
    subject.advance(Duration::from_millis(1)).await;
    for outcome in [complete("1"), fail("1")] {
        let claim = new_claim();
        let claimed = subject.granted(&claim).await.lease_until.before(LEASE);
        expires_after(&subject.record(claim.key, "a claim").await, claimed, RETENTION);
        subject.done(&claim, outcome).await;
        expires_after(&subject.record(claim.key, "an outcome").await, claimed, RETENTION);
    }
    for (lease, retention) in [(LEASE, RETENTION), (2 * LEASE, Duration::ZERO)] {
        let claim = ClaimRequest { retention: Duration::ZERO, ..new_claim() };
        let grant = subject.granted(&claim).await;
        expires_after(&subject.record(claim.key, "a claim").await, grant.lease_until, MARGIN + A_MILLISECOND);
        let renew = Settlement::Renew { lease, skew_margin: MARGIN, retention };
        let lease_until = subject.renewed(&claim, renew).await;
        let renewed = subject.record(claim.key, "a renewed claim").await;
        expires_after(&renewed, lease_until.before(lease), retention);
        expires_after(&renewed, lease_until, MARGIN + A_MILLISECOND);
    }
}

/// Returns the record that a settle without a change found, without the data of its result.
fn shown(answer: Settled) -> Option<Record> {
    match answer {
        Settled::Done { found } => found.map(|record| record.without_data()),
        other => broken("S2: a settle that was applied before succeeds", "Done { … }", other),
    }
}
