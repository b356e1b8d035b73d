//! Checks of settles.

use super::*;

/// A completed operation answers every later claim with its result, at once and after the lease.
pub async fn a_completed_operation_replays_its_result(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    assert_eq!(subject.settle(&claim, complete("[1]")).await, Settled::Done { found: None });
    for _ in 0..2 {
        assert_eq!(subject.completed(&rival(&claim)).await, json("[1]"));
        assert_eq!(subject.completed(&claim).await, json("[1]"), "its own holder included");
        subject.advance(LAPSE).await;
    }
}

/// A failed operation answers every later claim with its failure.
pub async fn a_failed_operation_replays_its_failure(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    assert_eq!(subject.settle(&claim, fail("{}")).await, Settled::Done { found: None });
    for _ in 0..2 {
        assert_eq!(subject.failed(&rival(&claim)).await, json("{}"));
        subject.advance(LAPSE).await;
    }
}

/// Results come back byte for byte: text, bytes, none, dropped.
pub async fn results_come_back_as_they_were_stored(subject: &Subject) {
    for result in [
        json("\"é😀\\u0000\""),
        json("null"),
        StoredResult::of(StoredData::Deflated((0..=255).collect())),
        StoredResult::default(),
        StoredResult::DROPPED,
    ] {
        let claim = new_claim();
        subject.granted(&claim).await;
        let settlement = Settlement::Complete { result: result.clone(), retention: RETENTION };
        assert_eq!(subject.settle(&claim, settlement).await, Settled::Done { found: None });
        assert_eq!(subject.completed(&rival(&claim)).await, result);
    }
}

/// Results are left out where they are not asked for, and nowhere else.
pub async fn results_are_left_out_where_they_are_not_asked_for(subject: &Subject) {
    for settlement in [complete("[1]"), fail("{}")] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.settle(&claim, settlement.clone()).await;
        let stored = subject.read(claim.key).await.expect("the outcome");
        let without = ClaimRequest { result_data: ResultData::Omit, ..rival(&claim) };
        let read = subject.store.read(&[claim.key], ResultData::Omit).await.remove(0).expect("the store answers");
        assert_eq!(read, Some(stored.without_data()));
        for (request, result) in [(&without, StoredResult::default()), (&rival(&claim), stored.result.clone())] {
            match subject.refused(request).await {
                Refusal::Completed(record) | Refusal::Failed(record) => {
                    assert_eq!((record.status, record.result), (stored.status, result));
                }
                refusal => panic!("expected an outcome, got {refusal:?}"),
            }
        }
    }
    // Whether a result was dropped is said in any case.
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.settle(&claim, Settlement::Complete { result: StoredResult::DROPPED, retention: RETENTION }).await;
    let without = ClaimRequest { result_data: ResultData::Omit, ..rival(&claim) };
    assert_eq!(subject.completed(&without).await, StoredResult::DROPPED);
}

/// A result of exactly the size that [`limits`](Store::limits) names is taken.
pub async fn the_largest_result_fits(subject: &Subject) {
    let size = subject.store.limits().max_result_bytes.min(1 << 20);
    let result = json(&format!("\"{}\"", "x".repeat(size - 2)));
    let claim = new_claim();
    subject.granted(&claim).await;
    let settlement = Settlement::Complete { result: result.clone(), retention: RETENTION };
    assert_eq!(subject.settle(&claim, settlement).await, Settled::Done { found: None });
    assert_eq!(subject.completed(&rival(&claim)).await, result);
}

/// A released key is as if it had never been claimed, for any payload.
pub async fn a_released_key_is_free(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    assert_eq!(subject.settle(&claim, RELEASE).await, Settled::Done { found: None });
    assert_eq!(subject.read(claim.key).await, None);
    let grant = subject.granted(&misuse(&claim)).await;
    assert_eq!((grant.attempt, grant.prior_status), (1, None));
}

/// A settle whose answer was lost is sent again: it succeeds and changes nothing.
pub async fn a_settle_sent_again_succeeds(subject: &Subject) {
    for settlement in [complete("1"), fail("1"), RELEASE, HAND_BACK] {
        let claim = new_claim();
        subject.granted(&claim).await;
        assert_eq!(subject.settle(&claim, settlement.clone()).await, Settled::Done { found: None });
        let before = subject.read(claim.key).await;
        let again = subject.settle(&claim, settlement.clone()).await;
        assert_eq!(shown(again), before.as_ref().map(Record::without_data), "{settlement:?}");
        assert_eq!(subject.read(claim.key).await, before, "{settlement:?}");
    }
    // A release is done as soon as the key is not in progress under its owner, whoever came after it.
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.settle(&claim, RELEASE).await;
    let next = rival(&claim);
    subject.granted(&next).await;
    assert!(shown(subject.settle(&claim, RELEASE).await).is_some_and(|record| record.owner == Some(next.owner)));
    assert_eq!(
        subject.settle(&next, complete("1")).await,
        Settled::Done { found: None },
        "the next claim still stands"
    );
}

/// A holder past its lease can neither complete, fail, release nor renew over its successor, before and after that has
/// settled.
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
                assert_eq!(subject.settle(&next, outcome.clone()).await, Settled::Done { found: None });
            }
            let before = subject.read(claim.key).await.expect("the successor's record");
            for settlement in &late {
                let answer = subject.settle(&claim, settlement.clone()).await;
                if matches!(settlement, Settlement::Release { .. }) {
                    assert_eq!(shown(answer), Some(before.without_data()), "there is nothing left to release");
                } else {
                    assert_eq!(answer, Settled::LeaseLost { current: Some(Box::new(before.clone())) });
                }
                assert_eq!(subject.read(claim.key).await.as_ref(), Some(&before), "{settlement:?}");
            }
        }
    }
}

/// A settle never brings back a record that is gone.
pub async fn a_settle_creates_no_record(subject: &Subject) {
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    for settlement in [complete("1"), fail("1"), renew, RELEASE, HAND_BACK] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.settle(&claim, RELEASE).await;
        let answer = subject.settle(&claim, settlement.clone()).await;
        if matches!(settlement, Settlement::Release { .. }) {
            assert_eq!(answer, Settled::Done { found: None });
        } else {
            assert_eq!(answer, Settled::LeaseLost { current: None }, "{settlement:?}");
        }
        assert_eq!(subject.read(claim.key).await, None, "{settlement:?}");
    }
}

/// An outcome that is recorded is not replaced by another, not even by its own owner.
pub async fn an_outcome_is_decided_once(subject: &Subject) {
    for (first, second) in [(complete("1"), fail("2")), (fail("1"), complete("2"))] {
        let claim = new_claim();
        subject.granted(&claim).await;
        assert_eq!(subject.settle(&claim, first).await, Settled::Done { found: None });
        let decided = subject.read(claim.key).await.expect("the outcome");
        assert_eq!(
            subject.settle(&claim, second).await,
            Settled::LeaseLost { current: Some(Box::new(decided.clone())) }
        );
        for release in [RELEASE, HAND_BACK] {
            assert_eq!(shown(subject.settle(&claim, release).await), Some(decided.without_data()));
        }
        assert_eq!(subject.read(claim.key).await, Some(decided));
    }
}

/// A claim that took over is handed back: the next one takes over at once, and knows it.
pub async fn a_taken_over_claim_is_handed_back(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = rival(&claim);
    subject.granted(&taker).await;
    assert_eq!(subject.settle(&taker, HAND_BACK).await, Settled::Done { found: None });
    let record = subject.read(claim.key).await.expect("it is handed back, not deleted");
    assert_eq!((record.status, record.owner), (Status::InProgress, None));

    let next = rival(&claim);
    let grant = subject.granted(&next).await;
    assert!(grant.took_over());
    assert_eq!(grant.attempt, 3);
    assert!(matches!(subject.settle(&taker, complete("1")).await, Settled::LeaseLost { .. }));
    assert_eq!(subject.settle(&next, complete("2")).await, Settled::Done { found: None });
    assert_eq!(subject.completed(&rival(&claim)).await, json("2"));
}

/// A claim and its release arrive a second time, after another claim of the key has come and lapsed: the claim takes over
/// from that, and its old release, which knows nothing of it, leaves the record. The next claim still learns of the
/// outcome that was lost.
pub async fn a_late_release_does_not_forget_a_takeover(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    assert_eq!(subject.settle(&claim, RELEASE).await, Settled::Done { found: None });
    subject.granted(&rival(&claim)).await;
    subject.advance(LAPSE).await;
    assert!(subject.granted(&claim).await.took_over());
    let before = subject.read(claim.key).await.expect("the record that was taken over");

    let answer = subject.settle(&claim, RELEASE).await;
    assert_eq!(answer, Settled::LeaseLost { current: Some(Box::new(before.clone())) });
    assert_eq!(subject.read(claim.key).await, Some(before));
    subject.advance(LAPSE).await;
    assert!(subject.granted(&rival(&claim)).await.took_over());
}

/// A renewed claim stands for another lease, and its record with it.
pub async fn a_renewed_claim_stands_longer(subject: &Subject) {
    let claim = ClaimRequest { retention: Duration::ZERO, ..new_claim() };
    let grant = subject.granted(&claim).await;
    for _ in 0..3 {
        subject.advance(LEASE / 2).await;
        let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: Duration::ZERO };
        match subject.settle(&claim, renew).await {
            Settled::Renewed { lease_until } => assert!(lease_until > grant.lease_until),
            other => panic!("expected a renewal, got {other:?}"),
        }
    }
    assert!(matches!(subject.refused(&rival(&claim)).await, Refusal::InProgress { .. }));
    assert_eq!(subject.settle(&claim, complete("1")).await, Settled::Done { found: None });
}

/// A late copy of an older renewal, with a shorter lease, finds the newer one applied: it lowers neither the lease nor the
/// expiration, and is answered by the lease on record.
pub async fn a_late_renewal_shortens_nothing(subject: &Subject) {
    let renew = |lease, retention| Settlement::Renew { lease, skew_margin: MARGIN, retention };
    let claim = ClaimRequest { retention: Duration::ZERO, ..new_claim() };
    subject.granted(&claim).await;
    let newer = subject.settle(&claim, renew(10 * LEASE, RETENTION)).await;
    let record = subject.read(claim.key).await.expect("the claim");
    assert_eq!(Some(newer.clone()), record.lease_until.map(|lease_until| Settled::Renewed { lease_until }));
    for (lease, retention) in [(LEASE, Duration::ZERO), (10 * LEASE, Duration::ZERO), (LEASE, RETENTION)] {
        // With a clock that goes on by itself an equal lease may end a little later.
        let Settled::Renewed { lease_until } = subject.settle(&claim, renew(lease, retention)).await else {
            panic!("the claim stands");
        };
        let after = subject.read(claim.key).await.expect("the claim");
        assert_eq!(after.lease_until, Some(lease_until), "the answer is what is on record");
        assert!(after.lease_until >= record.lease_until && after.expiration >= record.expiration, "{after:?}");
    }
    // What asks for more of one and less of the other gets the more.
    subject.settle(&claim, renew(20 * LEASE, Duration::ZERO)).await;
    let longer = subject.read(claim.key).await.expect("the claim");
    assert!(longer.lease_until > record.lease_until && longer.expiration >= record.expiration, "{longer:?}");
    subject.settle(&claim, renew(LEASE, 3 * RETENTION)).await;
    let kept = subject.read(claim.key).await.expect("the claim");
    assert!(kept.lease_until >= longer.lease_until && kept.expiration > longer.expiration, "{kept:?}");

    subject.advance(10 * LEASE).await;
    assert!(matches!(subject.refused(&rival(&claim)).await, Refusal::InProgress { .. }));
    assert_eq!(subject.settle(&claim, complete("1")).await, Settled::Done { found: None });
}

/// A renewal that arrives when others may take over is refused, although nobody has: its holder must have stopped.
pub async fn a_renewal_after_the_lease_and_the_margin_revives_nothing(subject: &Subject) {
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let before = subject.read(claim.key).await.expect("the claim");
    let answer = subject.settle(&claim, renew).await;
    assert_eq!(answer, Settled::LeaseLost { current: Some(Box::new(before.clone())) });
    assert_eq!(subject.read(claim.key).await, Some(before));
    assert!(subject.granted(&rival(&claim)).await.took_over());
}

/// A record expires no earlier than its retention, nor a standing one within its lease and the margin: what is rounded is
/// rounded up.
pub async fn a_record_expires_no_earlier_than_its_retention(subject: &Subject) {
    let expires_after = |record: &Record, from: Timestamp, stays: Duration| {
        let expiration = record.expiration.map(Timestamp::from_seconds);
        assert!(expiration >= Some(from.after(stays)), "{record:?} should stay for {stays:?} after {from:?}");
    };
    // Not a whole second.
    subject.advance(Duration::from_millis(1)).await;
    for outcome in [complete("1"), fail("1")] {
        let claim = new_claim();
        let claimed = subject.granted(&claim).await.lease_until.before(LEASE);
        expires_after(&subject.read(claim.key).await.expect("the claim"), claimed, RETENTION);
        subject.settle(&claim, outcome).await;
        expires_after(&subject.read(claim.key).await.expect("the outcome"), claimed, RETENTION);
    }
    for (lease, retention) in [(LEASE, RETENTION), (2 * LEASE, Duration::ZERO)] {
        let claim = ClaimRequest { retention: Duration::ZERO, ..new_claim() };
        let grant = subject.granted(&claim).await;
        expires_after(&subject.read(claim.key).await.expect("the claim"), grant.lease_until, MARGIN + A_MILLISECOND);
        let renew = Settlement::Renew { lease, skew_margin: MARGIN, retention };
        let Settled::Renewed { lease_until } = subject.settle(&claim, renew).await else { panic!("the claim stands") };
        let renewed = subject.read(claim.key).await.expect("the claim");
        expires_after(&renewed, lease_until.before(lease), retention);
        expires_after(&renewed, lease_until, MARGIN + A_MILLISECOND);
    }
}

/// The record that stood in the way of a settle that is done, without the data of its result.
fn shown(answer: Settled) -> Option<Record> {
    match answer {
        Settled::Done { found } => found.map(|record| record.without_data()),
        other => panic!("expected it to be done, got {other:?}"),
    }
}
