//! Checks of claims.

use futures_util::future::join_all;

use super::*;

const ROUNDS: usize = 100;
const RIVALS: usize = 64;

/// Sends each claim from a task of its own, so that on several threads they really meet.
async fn at_once(subject: &Subject, claims: &[ClaimRequest]) -> Vec<Claimed> {
    let tasks = claims.iter().map(|claim| {
        let (store, claim) = (Arc::clone(&subject.store), claim.clone());
        tokio::spawn(async move { store.claim(&[claim]).await.remove(0) })
    });
    let answers = join_all(tasks.collect::<Vec<_>>()).await;
    answers.into_iter().map(|answer| answer.expect("no panic").expect("the store answers")).collect()
}

/// A key that was never seen is granted; somebody else's claim then finds it in progress.
pub async fn a_new_key_is_granted_and_then_in_progress(subject: &Subject) {
    let claim = new_claim();
    let grant = subject.granted(&claim).await;
    assert_eq!((grant.attempt, grant.prior_status), (1, None));
    let refusal = subject.refused(&rival(&claim)).await;
    assert_eq!(refusal, Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 1 });

    let record = subject.read(claim.key).await.expect("the claim is on record");
    assert_eq!(record.status, Status::InProgress);
    assert_eq!((record.owner, record.fingerprint), (Some(claim.owner), claim.fingerprint));
    assert_eq!(record.lease_until, Some(grant.lease_until));
}

/// Of 64 claims of one key at once exactly one is granted, 100 times over.
pub async fn of_many_claims_exactly_one_is_granted(subject: &Subject) {
    for _ in 0..ROUNDS {
        let claim = new_claim();
        let claims: Vec<_> = (0..RIVALS).map(|_| rival(&claim)).collect();
        let answers = at_once(subject, &claims).await;
        let granted = answers.iter().filter(|answer| matches!(answer, Claimed::Granted(_))).count();
        assert_eq!(granted, 1, "of {RIVALS} claims");
        let waiting = |answer: &&Claimed| matches!(answer, Claimed::Refused(Refusal::InProgress { .. }));
        assert_eq!(answers.iter().filter(waiting).count(), RIVALS - 1);
    }
}

/// A claim whose answer was lost is sent again: it is granted, with the lease and the history of the record.
pub async fn a_claim_sent_again_is_granted_as_the_record_says(subject: &Subject) {
    let claim = new_claim();
    let first = subject.granted(&claim).await;
    subject.advance(LEASE / 2).await;
    assert_eq!(subject.granted(&claim).await, first, "neither the lease nor the attempt moves");
}

/// A claim that is sent again when its lease and the margin have passed takes over, as any other would: the write's
/// condition does not name the owner. Where takeovers are refused, it is granted as the record says.
pub async fn a_lapsed_claim_sent_again_takes_over(subject: &Subject) {
    let (claim, strict) = (new_claim(), ClaimRequest { takeover: Takeover::Refused, ..new_claim() });
    subject.granted(&claim).await;
    let first = subject.granted(&strict).await;
    subject.advance(LAPSE).await;
    let again = subject.granted(&claim).await;
    assert!(again.took_over() && again.attempt == 2, "{again:?}");
    assert_eq!(subject.read(claim.key).await.and_then(|record| record.lease_until), Some(again.lease_until));
    assert_eq!(subject.granted(&strict).await, first);
}

/// A claim is taken over when its lease and the margin have passed, and not before.
pub async fn a_lapsed_claim_is_taken_over_and_a_standing_one_is_not(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LEASE).await;
    assert!(matches!(subject.refused(&rival(&claim)).await, Refusal::InProgress { .. }), "within the margin");
    subject.advance(LAPSE - LEASE).await;
    let grant = subject.granted(&rival(&claim)).await;
    assert!(grant.took_over());
    assert_eq!(grant.attempt, 2);
}

/// A takeover whose answer was lost is sent again: it still knows that it took over.
pub async fn a_takeover_sent_again_still_took_over(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = rival(&claim);
    let grant = subject.granted(&taker).await;
    assert_eq!(subject.granted(&taker).await, grant);
    assert!(grant.took_over());
}

/// Of many who find a lapsed claim one takes it over.
pub async fn a_lapsed_claim_is_taken_over_once(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let claims: Vec<_> = (0..RIVALS).map(|_| rival(&claim)).collect();
    let answers = at_once(subject, &claims).await;
    let granted = answers.iter().filter(|answer| matches!(answer, Claimed::Granted(_))).count();
    assert_eq!(granted, 1, "of {RIVALS} claims");
}

/// Where takeover is refused, a lapsed claim stays abandoned, handed back or not.
pub async fn an_abandoned_claim_stays_so_where_takeover_is_refused(subject: &Subject) {
    let claim = new_claim();
    let refusing = |claim: &ClaimRequest| ClaimRequest { takeover: Takeover::Refused, ..rival(claim) };
    subject.granted(&claim).await;
    assert!(matches!(subject.refused(&refusing(&claim)).await, Refusal::InProgress { .. }));
    subject.advance(LAPSE).await;
    assert_eq!(subject.refused(&refusing(&claim)).await, Refusal::Abandoned { attempt: 1 });

    let taker = rival(&claim);
    subject.granted(&taker).await;
    assert_eq!(subject.settle(&taker, HAND_BACK).await, Settled::Done { found: None });
    assert_eq!(subject.refused(&refusing(&claim)).await, Refusal::Abandoned { attempt: 2 });
}

/// Another payload under the same key is a mismatch while the record stands: in progress, lapsed, handed back,
/// completed, failed. It takes nothing over.
pub async fn another_payload_is_a_mismatch_whatever_the_status(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    assert_eq!(subject.refused(&misuse(&claim)).await, Refusal::Mismatch, "in progress");
    subject.advance(LAPSE).await;
    assert_eq!(subject.refused(&misuse(&claim)).await, Refusal::Mismatch, "lapsed");
    let taker = rival(&claim);
    assert_eq!(subject.granted(&taker).await.attempt, 2, "the mismatch granted nothing");
    assert_eq!(subject.settle(&taker, HAND_BACK).await, Settled::Done { found: None });
    assert_eq!(subject.refused(&misuse(&claim)).await, Refusal::Mismatch, "handed back");

    for outcome in [complete("1"), fail("1")] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.settle(&claim, outcome.clone()).await;
        assert_eq!(subject.refused(&misuse(&claim)).await, Refusal::Mismatch, "{outcome:?}");
    }
}

/// A claim that names no payload is not compared; nor is one on a record that names none.
pub async fn a_claim_without_a_fingerprint_matches_any_payload(subject: &Subject) {
    let without = |claim: &ClaimRequest| ClaimRequest { fingerprint: None, ..rival(claim) };
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let taker = without(&claim);
    assert!(subject.granted(&taker).await.took_over());
    subject.settle(&taker, complete("1")).await;
    assert_eq!(subject.completed(&misuse(&claim)).await, json("1"), "the taker named no payload");

    let claim = without(&new_claim());
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    assert!(subject.granted(&misuse(&claim)).await.took_over());
}

/// A record whose expiration has passed counts as absent, for any payload, whether or not it has been deleted. A claim
/// over an outcome did not take over; a claim over a claim that is still there did.
pub async fn an_expired_record_counts_as_absent(subject: &Subject) {
    for (outcome, took_over) in [(Some(complete("1")), false), (Some(fail("1")), false), (None, true)] {
        let claim = new_claim();
        subject.granted(&claim).await;
        if let Some(outcome) = &outcome {
            subject.settle(&claim, outcome.clone()).await;
        }
        subject.advance(RETENTION + Duration::from_secs(1)).await;
        let is_there = subject.read(claim.key).await.is_some();
        let other = misuse(&claim);
        assert_eq!(subject.granted(&other).await.took_over(), took_over && is_there, "{outcome:?}");
        // Nothing of the old record is left.
        assert_eq!(subject.settle(&other, complete("2")).await, Settled::Done { found: None });
        assert_eq!(subject.completed(&rival(&other)).await, json("2"));
    }
}

/// A retention shorter than the lease, even none at all, lets no claim expire under its holder.
pub async fn a_live_claim_never_counts_as_expired(subject: &Subject) {
    for retention in [Duration::ZERO, LEASE / 2] {
        let claim = ClaimRequest { retention, ..new_claim() };
        subject.granted(&claim).await;
        for _ in 0..2 {
            subject.advance(LEASE / 2).await;
            assert!(matches!(subject.refused(&rival(&claim)).await, Refusal::InProgress { .. }));
            assert_eq!(subject.refused(&misuse(&claim)).await, Refusal::Mismatch);
        }
        assert_eq!(subject.settle(&claim, complete("1")).await, Settled::Done { found: None });
    }
}

/// Requests of one call are answered in their order, each for itself.
pub async fn batches_are_answered_in_order(subject: &Subject) {
    let done = new_claim();
    subject.granted(&done).await;
    subject.settle(&done, complete("1")).await;
    let running = new_claim();
    subject.granted(&running).await;

    let mut claims: Vec<_> = (0..30).map(|_| new_claim()).collect();
    claims[3] = rival(&done);
    claims[17] = rival(&running);
    claims[28] = misuse(&done);
    let answers = subject.store.claim(&claims).await;
    assert_eq!(answers.len(), claims.len());
    for (i, answer) in answers.into_iter().enumerate() {
        let answer = answer.expect("the store answers");
        match i {
            3 => assert!(matches!(answer, Claimed::Refused(Refusal::Completed(record)) if record.result == json("1"))),
            17 => assert!(matches!(answer, Claimed::Refused(Refusal::InProgress { .. }))),
            28 => assert_eq!(answer, Claimed::Refused(Refusal::Mismatch)),
            _ => assert!(matches!(answer, Claimed::Granted(_)), "{i}"),
        }
    }
    let settles: Vec<_> = claims.iter().map(|claim| settle_request(claim, complete("2"))).collect();
    let lost: Vec<_> =
        subject.store.settle(&settles).await.iter().map(|answer| !matches!(answer, Ok(Settled::Done { .. }))).collect();
    assert_eq!(lost, (0..30).map(|i| matches!(i, 3 | 17 | 28)).collect::<Vec<_>>());
    let keys = [claims[0].key, KeyHash::from_bytes(random()), running.key];
    let found: Vec<_> = subject
        .store
        .read(&keys, ResultData::Include)
        .await
        .into_iter()
        .map(|answer| answer.expect("the store answers"))
        .collect();
    let statuses: Vec<_> = found.iter().map(|record| record.as_ref().map(|record| record.status)).collect();
    assert_eq!(statuses, [Some(Status::Completed), None, Some(Status::InProgress)]);

    assert!(subject.store.claim(&[]).await.is_empty());
    assert!(subject.store.settle(&[]).await.is_empty());
    assert!(subject.store.read(&[], ResultData::Include).await.is_empty());
}

/// Warming may be repeated, and has no effect on any key.
pub async fn warming_changes_nothing(subject: &Subject) {
    subject.store.warm().await.expect("the store answers");
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.store.warm().await.expect("the store answers");
    assert!(matches!(subject.refused(&rival(&claim)).await, Refusal::InProgress { .. }));
}
