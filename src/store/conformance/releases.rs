//! Checks of lapsed claims that an operator has released.

use super::{amendments::request, orders::Entity, *};
use crate::{
    error::ErrorKind,
    store::amend::{AmendRequest, Amendment},
};

impl Subject {
    async fn refuses_request(&self, request: &AmendRequest, rule: &str) {
        match self.amend(request).await {
            Err(error) if error.kind() == ErrorKind::Request => {}
            answer => broken(rule, "a permanent error", answer),
        }
    }

    /// Releases a lapsed claim, and expects the rest of its record to be unchanged.
    async fn release(&self, key: KeyHash) {
        let before = self.record(key, "a lapsed claim").await;
        self.amended(key, Amendment::Release, "O7: a lapsed claim is released").await;
        let after = Record { released: Some(before.attempt), ..before };
        self.unchanged(key, Some(&after), "O7: a release changes nothing else").await;
        self.has_all_but_data(key, &after).await;
    }
}

fn refusing(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { takeover: Takeover::Refused, ..rival(claim) }
}

/// A lapsed claim that is released may be taken over once even if takeovers are refused, and the grant reports the
/// takeover. A live claim, one that lapses after it, and a different payload are refused as before.
// Tests C7, O3, O7, P11.
pub async fn a_released_claim_is_taken_over_once_where_takeover_is_refused(subject: &Subject) {
    let claim = refusing(&new_claim());
    subject.granted(&claim).await;
    let read = subject.record(claim.key, "a claim").await;
    subject.stays(&request(claim.key, &read, Amendment::Release), "O3: a claim that stands is not released").await;
    subject.in_progress(&refusing(&claim), "while a claim stands").await;
    subject.advance(LAPSE).await;
    let foreign = Record { attempt: 0, ..read };
    subject.refuses_request(&request(claim.key, &foreign, Amendment::Release), "O7: no attempt, no release").await;
    subject.release(claim.key).await;
    let misused = ClaimRequest { takeover: Takeover::Refused, ..misuse(&claim) };
    subject.mismatch(&misused, "after a release", MismatchState::Abandoned { attempt: 1 }).await;

    let taker = refusing(&claim);
    let grant = subject.took_over(&taker).await;
    expect("C7: a claim over a released one counts attempts on", grant.attempt, 2);
    subject.lost(&claim, complete("1"), subject.read(claim.key).await).await;
    subject.in_progress(&refusing(&claim), "after a release was used").await;
    subject.advance(LAPSE).await;
    let abandoned = subject.refused(&refusing(&claim)).await;
    expect("C7: a release is for one attempt", abandoned, Refusal::Abandoned { attempt: 2 });

    subject.release(claim.key).await;
    let last = refusing(&claim);
    subject.took_over(&last).await;
    subject.done(&last, complete("2")).await;
    subject.replays(&rival(&claim), json("2")).await;
}

/// The released holder may still complete its operation, as long as no claim has taken over.
// Tests O7.
pub async fn a_release_does_not_end_the_claim_itself(subject: &Subject) {
    let claim = refusing(&new_claim());
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    subject.release(claim.key).await;
    subject.done(&claim, complete("1")).await;
    subject.replays(&refusing(&claim), json("1")).await;
}

/// The claim that a release was meant for passes it on when it is handed back. Others do not.
// Tests S9.
pub async fn a_handed_back_claim_passes_its_release_on(subject: &Subject) {
    let claim = refusing(&new_claim());
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    subject.release(claim.key).await;
    for attempt in 2..5 {
        let taker = refusing(&claim);
        expect("S9: a hand-back passes the release on", subject.took_over(&taker).await.attempt, attempt);
        subject.done(&taker, HAND_BACK).await;
    }
    let taker = refusing(&claim);
    subject.took_over(&taker).await;
    subject.advance(LAPSE).await;
    // Not by a release, because takeovers are allowed.
    let other = rival(&ClaimRequest { takeover: Takeover::Allowed, ..claim.clone() });
    subject.took_over(&other).await;
    subject.done(&other, HAND_BACK).await;
    let abandoned = subject.refused(&refusing(&claim)).await;
    expect("S9: only the claim that a release was for passes it on", abandoned, Refusal::Abandoned { attempt: 6 });
}

/// The rules of order apply as for any takeover: a released operation does not take effect after a newer one.
// Tests G1, O7.
pub async fn a_released_claim_in_order_keeps_the_order(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    let strict = refusing(&lost);
    let abandoned = subject.refused(&strict).await;
    expect(
        "C7: where takeovers are refused, a lapsed claim is abandoned",
        abandoned,
        Refusal::Abandoned { attempt: 1 },
    );
    subject.release(lost.key).await;
    subject.took_over(&strict).await;
    subject.done(&strict, HAND_BACK).await;
    let again = refusing(&lost);
    expect("S9: a hand-back passes the release on", subject.took_over(&again).await.attempt, 3);
    subject.done(&again, complete("1")).await;

    let late = entity.abandoned(subject, 6).await;
    entity.completed(subject, 7).await;
    subject.release(late.key).await;
    subject.superseded_by(&refusing(&late), 7_u64).await;
}
