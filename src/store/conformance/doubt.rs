//! Checks of ordered operations that may have taken effect without an outcome.

use super::{orders::Entity, *};
use crate::{order::Order, store::FinalStatus};

/// Operations older than one that may have taken effect wait, both before and after the next claim of the entity.
// Tests G2.
pub async fn operations_older_than_one_in_doubt_wait(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    entity.abandoned(subject, 5).await;
    subject.waits(&entity.claim(4_u64), None, "after the holder's lease").await;
    let equal = entity.claim(5_u64);
    subject.granted(&equal).await;
    subject.done(&equal, RELEASE).await;
    subject.waits(&entity.claim(4_u64), None, "after others have held the entity since").await;
    let newer = entity.claim(6_u64);
    subject.granted(&newer).await;
    subject.done(&newer, fail("1")).await;
    subject.waits(&entity.claim(4_u64), None, "after a newer operation failed").await;
}

/// Doubt ends when its own operation completes or fails, or a newer one completes. A hand-back or the completion of an
/// older operation keeps it.
// Tests G2.
pub async fn doubt_ends_with_its_operation_or_a_newer_one(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [complete("1"), fail("1"), HAND_BACK] {
        let entity = Entity::new();
        let lost = entity.abandoned(subject, 5).await;
        let again = rival(&lost);
        subject.took_over(&again).await;
        subject.done(&again, settlement.clone()).await;
        match settlement {
            Settlement::Record { outcome: FinalStatus::Completed, .. } => {
                subject.superseded_by(&entity.claim(4_u64), 5_u64).await
            }
            Settlement::Record { outcome: FinalStatus::Failed, .. } => {
                subject.granted(&entity.claim(4_u64)).await;
            }
            _ => subject.waits(&entity.claim(4_u64), None, "after a hand-back of an operation in doubt").await,
        }
    }
    let entity = Entity::new();
    let older = entity.abandoned(subject, 3).await;
    entity.abandoned(subject, 6).await;
    // The late completion of the older one: operations between the two still wait.
    subject.done(&older, complete("1")).await;
    subject.waits(&entity.claim(5_u64), None, "after an older operation than the one in doubt completed").await;
    subject.superseded_by(&entity.claim(3_u64), 3_u64).await;

    let entity = Entity::new();
    entity.abandoned(subject, 5).await;
    entity.completed(subject, 8).await;
    subject.superseded_by(&entity.claim(4_u64), 8_u64).await;
    subject.granted(&entity.claim(9_u64)).await;

    // As above, but others have held the entity since both were lost.
    let entity = Entity::new();
    let older = entity.abandoned(subject, 3).await;
    entity.abandoned(subject, 6).await;
    let newer = entity.claim(7_u64);
    subject.granted(&newer).await;
    subject.done(&newer, RELEASE).await;
    subject.done(&older, complete("1")).await;
    subject.waits(&entity.claim(5_u64), None, "after an older operation than the one in doubt completed").await;

    // An operation that is claimed with a different sequence is in doubt up to the greater one.
    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    let order = lost.order.map(|order| Order { sequence: 7_u64.into(), ..order });
    subject.took_over(&ClaimRequest { order, ..rival(&lost) }).await;
    subject.advance(LAPSE).await;
    let between = entity.claim(6_u64);
    subject.waits(&between, None, "while a newer claim of an operation in doubt is lost").await;
    let newer = entity.claim(8_u64);
    subject.granted(&newer).await;
    subject.done(&newer, RELEASE).await;
    subject.waits(&between, None, "after a newer claim of an operation in doubt was lost").await;
}

/// No release ends doubt: neither a late release of the lost claim, nor a release of a later claim, which finds no
/// record of the lost one.
// Tests G2.
pub async fn no_release_ends_doubt(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let (entity, when) = (Entity::new(), "after each release of an operation in doubt");
    let lost = entity.abandoned(subject, 6).await;
    let newer = entity.claim(7_u64);
    subject.granted(&newer).await;
    subject.done(&newer, RELEASE).await;
    // It deletes the record.
    subject.done(&lost, RELEASE).await;
    subject.waits(&entity.claim(5_u64), None, when).await;
    for _ in 0..2 {
        let anew = rival(&lost);
        expect("C8: a claim of a key without a record replaces none", subject.granted(&anew).await.prior_status, None);
        subject.done(&anew, RELEASE).await;
        subject.waits(&entity.claim(5_u64), None, when).await;
    }
    // A permanent failure means that the operation had no effect.
    let anew = rival(&lost);
    subject.granted(&anew).await;
    subject.done(&anew, fail("1")).await;
    subject.granted(&entity.claim(5_u64)).await;

    // Nor does a late release prolong the lease of another claim.
    let entity = Entity::new();
    let lost = entity.abandoned(subject, 6).await;
    entity.abandoned(subject, 7).await;
    subject.done(&lost, RELEASE).await;
    subject.granted(&entity.claim(8_u64)).await;
}

/// Returns a claim of the entity, with retentions that outlast all leases of a check.
fn long(entity: &Entity, sequence: u64) -> ClaimRequest {
    let claim = entity.claim(sequence);
    let order = claim.order.map(|order| Order { retention: 100 * RETENTION, ..order });
    ClaimRequest { order, retention: 100 * RETENTION, ..claim }
}

/// Loses this many operations of an entity, with the sequences 10, 20, and so on. A mark lists 64, and the 66th claim
/// finds it full, with the lapsed holder in addition.
pub(super) async fn lost(subject: &Subject, entity: &Entity, count: u64) -> Vec<ClaimRequest> {
    let mut lost = Vec::new();
    for number in 1..=count {
        let claim = long(entity, 10 * number);
        let grant = subject.granted(&claim).await;
        let rule = "G2: the first claim for which operations in doubt merge reports it, and no other";
        expect(rule, grant.has_merged_doubt, number == 66);
        if number == 66 {
            let again = subject.granted(&claim).await;
            expect("C5: a claim that merged doubt reports it when it is sent again", again.has_merged_doubt, true);
        }
        subject.advance(LAPSE).await;
        lost.push(claim);
    }
    lost
}

/// A mark lists 64 operations in doubt. If there are more, the lowest merge: newer operations run, and older ones wait
/// until a newer one completes.
// Tests G2.
pub async fn doubt_is_bounded_and_blocks_nothing_newer(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = lost(subject, &entity, 68).await;
    for older in [&lost[0], &lost[1], &lost[2], &lost[3], &lost[66]] {
        subject.waits(&rival(older), None, "when newer operations are in doubt").await;
    }
    // A late completion below all merged ones.
    subject.done(&lost[0], complete("1")).await;
    for sequence in [15, 35, 675] {
        subject.waits(&long(&entity, sequence), None, "while newer operations are in doubt").await;
    }
    let newest = rival(&lost[67]);
    subject.took_over(&newest).await;
    subject.done(&newest, HAND_BACK).await;
    let newer = long(&entity, 690);
    subject.granted(&newer).await;
    subject.done(&newer, complete("1")).await;
    for sequence in [15, 35, 675] {
        subject.superseded_by(&long(&entity, sequence), 690_u64).await;
    }
    // Nothing is in doubt any more.
    for number in 70..=135 {
        let grant = subject.granted(&long(&entity, 10 * number)).await;
        expect("G2: a completion makes room for doubt", grant.has_merged_doubt, number == 135);
        subject.advance(LAPSE).await;
    }
}

/// Merged doubt is not ended by a failure or a release of its operation, only by a completion.
// Tests G2.
pub async fn merged_doubt_ends_with_a_completion(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = lost(subject, &entity, 65).await;
    let newest = long(&entity, 660);
    expect("G2: operations in doubt merge", subject.granted(&newest).await.has_merged_doubt, true);
    subject.done(&newest, fail("1")).await;
    // Those at 10 and 20 have merged. The others fail permanently, the newest first.
    for claim in lost[2..].iter().rev() {
        subject.waits(&long(&entity, 20), None, "while newer operations are in doubt").await;
        let again = rival(claim);
        subject.took_over(&again).await;
        subject.done(&again, fail("1")).await;
    }
    subject.waits(&rival(&lost[0]), None, "while its doubt has merged with a newer one's").await;
    for settlement in [HAND_BACK, fail("1")] {
        let again = rival(&lost[1]);
        subject.took_over(&again).await;
        subject.done(&again, settlement).await;
        subject.waits(&long(&entity, 15), None, "after an operation whose doubt has merged was not completed").await;
    }
    let equal = long(&entity, 20);
    subject.granted(&equal).await;
    subject.done(&equal, complete("1")).await;
    subject.superseded_by(&long(&entity, 15), 20_u64).await;
    subject.granted(&long(&entity, 25)).await;
}
