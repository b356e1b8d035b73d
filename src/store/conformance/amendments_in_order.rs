//! Checks of amendments of ordered operations.

use futures_util::future::join;

use super::{
    amendments::{FORGET, request, settle_as},
    orders::Entity,
    *,
};
use crate::{
    order::Order,
    store::{
        FinalStatus,
        amend::{Amended, Amendment},
    },
};

/// Returns an amendment that settles an operation as failed permanently.
fn fail_as() -> Amendment {
    Amendment::Settle { outcome: FinalStatus::Failed, result: json("{}"), retention: RETENTION }
}

const SETTLED: &str = "O5: an ordered operation whose claim has lapsed is settled";

/// An operator's settle writes the outcome and the mark as the holder's settle would have done.
// Tests O5.
pub async fn an_operator_settles_an_ordered_operation_with_its_mark(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    // A claim that still holds the entity, one that others have followed, and one that was handed back.
    for followed in [false, true] {
        for handed_back in [false, true] {
            for amendment in [settle_as(json("1")), fail_as()] {
                let entity = Entity::new();
                let lost = entity.abandoned(subject, 5).await;
                if handed_back {
                    let again = rival(&lost);
                    subject.took_over(&again).await;
                    subject.done(&again, HAND_BACK).await;
                }
                if followed {
                    let newer = entity.claim(6_u64);
                    subject.granted(&newer).await;
                    subject.done(&newer, RELEASE).await;
                }
                subject.waits(&entity.claim(4_u64), None, "while an operation is in doubt").await;
                let read = subject.record(lost.key, "a lapsed claim").await;
                let settle = request(lost.key, &read, amendment.clone());
                let elsewhere = Record { sequence: Some(6_u64.into()), ..read.clone() };
                subject.stays(&request(lost.key, &elsewhere, amendment.clone()), "O1: another sequence was read").await;
                for _ in 0..2 {
                    match subject.amend(&settle).await {
                        Ok(Amended::Changed) => {}
                        answer => broken(SETTLED, "Ok(Changed), also when it is sent again", answer),
                    }
                }
                let record = subject.record(lost.key, "an outcome").await;
                expect("O5: the claim has no owner any more", record.owner, None);
                expect("O5: the record keeps its sequence", record.sequence, Some(5_u64.into()));
                match &amendment {
                    Amendment::Settle { outcome: FinalStatus::Completed, .. } => {
                        subject.superseded_by(&entity.claim(4_u64), 5_u64).await;
                        subject.replays(&rival(&lost), json("1")).await;
                        subject.granted(&entity.claim(6_u64)).await;
                    }
                    _ => {
                        subject.granted(&entity.claim(4_u64)).await;
                        expect("C4: a failure is replayed", subject.failed(&rival(&lost)).await, json("{}"));
                    }
                }
            }
        }
    }
    // A completion replaces an expired mark.
    let entity = Entity::new();
    let lost = entity.claim(5_u64);
    let order = lost.order.map(|order| Order { retention: Duration::ZERO, ..order });
    let lost = ClaimRequest { order, ..lost };
    subject.granted(&lost).await;
    subject.advance(2 * LAPSE).await;
    subject.amended(lost.key, settle_as(json("1")), SETTLED).await;
    subject.advance(RETENTION - Duration::from_secs(2)).await;
    subject.superseded_by(&entity.claim(4_u64), 5_u64).await;
}

/// An operator's settle ends the doubt of its operation, and a completion also ends the doubt of older ones. It lowers
/// nothing.
// Tests G2, O5.
pub async fn an_operators_settle_ends_only_its_own_doubt(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let (older, middle) = (entity.abandoned(subject, 3).await, entity.abandoned(subject, 5).await);
    let newer = entity.abandoned(subject, 7).await;
    subject.amended(middle.key, fail_as(), SETTLED).await;
    subject
        .waits(&entity.claim(6_u64), None, "while a newer operation than the one that was settled is in doubt")
        .await;
    subject.amended(newer.key, fail_as(), SETTLED).await;
    let between = entity.claim(4_u64);
    subject.granted(&between).await;
    subject.done(&between, RELEASE).await;
    subject.waits(&entity.claim(2_u64), None, "while the oldest operation is in doubt").await;
    entity.completed(subject, 6).await;
    subject.amended(older.key, settle_as(json("1")), SETTLED).await;
    subject.superseded_by(&entity.claim(5_u64), 6_u64).await;

    let entity = Entity::new();
    entity.abandoned(subject, 3).await;
    let newest = entity.abandoned(subject, 5).await;
    entity.abandoned(subject, 7).await;
    subject.amended(newest.key, settle_as(json("1")), SETTLED).await;
    subject.superseded_by(&entity.claim(4_u64), 5_u64).await;
    subject
        .waits(&entity.claim(6_u64), None, "while a newer operation than the one that was settled is in doubt")
        .await;
}

/// An operator's settle does not free an entity that another claim holds.
// Tests G3, O5.
pub async fn an_operators_settle_frees_no_entity_of_another_claim(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for amendment in [settle_as(json("1")), fail_as()] {
        let entity = Entity::new();
        let lost = entity.abandoned(subject, 5).await;
        let holder = entity.claim(7_u64);
        let grant = subject.granted(&holder).await;
        subject.amended(lost.key, amendment, SETTLED).await;
        subject.waits(&entity.claim(8_u64), Some(grant.lease_until), "after an operator's settle (G3)").await;
        let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
        subject.renewed(&holder, renew).await;
        subject.done(&holder, complete("1")).await;
        subject.superseded_by(&entity.claim(6_u64), 7_u64).await;
    }
}

/// Neither forgetting an operation nor releasing it ends its doubt. Settling it as failed and then forgetting it frees
/// both the entity and the key.
// Tests O4, O5.
pub async fn a_forgotten_operation_stays_in_doubt_until_it_is_settled(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for amendment in [FORGET, Amendment::Release] {
        let entity = Entity::new();
        let lost = entity.abandoned(subject, 5).await;
        subject.amended(lost.key, amendment, "O4, O7: a claim that has lapsed is forgotten or released").await;
        subject.waits(&entity.claim(4_u64), None, "after an operation in doubt was forgotten or released").await;
        let again = rival(&lost);
        subject.granted(&again).await;
        subject.advance(LAPSE).await;
        subject.waits(&entity.claim(4_u64), None, "after it was lost again").await;
        subject.amended(lost.key, fail_as(), SETTLED).await;
        subject.amended(lost.key, FORGET, "O4: a failed record is forgotten").await;
        let older = entity.claim(4_u64);
        subject.granted(&older).await;
        subject.done(&older, complete("1")).await;
        expect("O4: a forgotten key is free", subject.granted(&rival(&lost)).await.prior_status, None);
    }
}

/// If an operator's settle and the claim of a newer operation are simultaneous, neither write of the mark is lost.
pub async fn an_operators_settle_and_a_newer_claim_both_count(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    const RULE: &str = "G3: a settle and a claim at the same time both reach the mark";
    for _ in 0..rounds() {
        let entity = Entity::new();
        let lost = entity.abandoned(subject, 5).await;
        let read = subject.record(lost.key, "a lapsed claim").await;
        let (settle, newer) = (request(lost.key, &read, settle_as(json("1"))), entity.claim(6_u64));
        let settled = async {
            loop {
                match subject.amend(&settle).await {
                    // A store may give way to others without writing anything.
                    Err(error) if error.is_retryable() => {}
                    answer => break answer,
                }
            }
        };
        let (settled, claimed) = join(settled, subject.claim(&newer)).await;
        if !matches!(settled, Ok(Amended::Changed)) {
            broken(RULE, "Ok(Changed)", settled);
        }
        subject.superseded_by(&entity.claim(5_u64), 5_u64).await;
        match claimed {
            Claimed::Granted(grant) => {
                subject.waits(&entity.claim(7_u64), Some(grant.lease_until), "after both").await;
                subject.done(&newer, complete("1")).await;
            }
            Claimed::Refused(Refusal::InProgress { .. }) => drop(entity.completed(subject, 6).await),
            refused => broken(RULE, "Granted(…), or in progress", refused),
        }
        subject.superseded_by(&entity.claim(6_u64), 6_u64).await;
    }
}
