//! Checks of operations in order that may have taken effect without an outcome.

use super::{orders::Entity, *};
use crate::order::Order;

/// What is older than an operation that may have taken effect waits: while nobody has claimed the entity since, and after
/// that.
pub async fn what_is_older_than_an_operation_in_doubt_waits(subject: &Subject) {
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

/// Doubt ends when its own operation completes or fails, or a newer one completes. A hand-back keeps it, and so does a
/// completion that is older.
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
            Settlement::Complete { .. } => subject.superseded_by(&entity.claim(4_u64), 5_u64).await,
            Settlement::Fail { .. } => drop(subject.granted(&entity.claim(4_u64)).await),
            _ => subject.waits(&entity.claim(4_u64), None, "after a hand-back of what is in doubt").await,
        }
    }
    let entity = Entity::new();
    let older = entity.abandoned(subject, 3).await;
    entity.abandoned(subject, 6).await;
    // The late completion of the older one: what is between the two still waits.
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

    // An operation that is claimed with another sequence is in doubt up to the greater one.
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

/// No release ends doubt: neither a late one of the lost claim, nor that of a later claim, which finds no record of the lost
/// one.
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
    // A permanent failure says that nothing of the operation stands.
    let anew = rival(&lost);
    subject.granted(&anew).await;
    subject.done(&anew, fail("1")).await;
    subject.granted(&entity.claim(5_u64)).await;
}

/// A mark holds 64 operations in doubt. A claim that would add another waits. What is in doubt runs again, the newest first.
pub async fn doubt_is_bounded(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    // Time would pass the retention of the first.
    let long = |sequence: u64| {
        let claim = entity.claim(sequence);
        let order = claim.order.map(|order| Order { retention: 100 * RETENTION, ..order });
        ClaimRequest { order, retention: 100 * RETENTION, ..claim }
    };
    let mut lost = Vec::new();
    for sequence in 1..=65_u64 {
        let claim = long(sequence);
        subject.granted(&claim).await;
        subject.advance(LAPSE).await;
        lost.push(claim);
    }
    subject.waits(&long(66), None, "when 65 operations are in doubt").await;
    for older in [1, 64] {
        subject.waits(&rival(&lost[older - 1]), None, "when newer ones are in doubt").await;
    }
    let again = rival(&lost[64]);
    subject.took_over(&again).await;
    subject.done(&again, HAND_BACK).await;
    subject.waits(&long(66), None, "after a hand-back").await;
    let again = rival(&again);
    subject.granted(&again).await;
    subject.done(&again, fail("1")).await;
    let newer = long(66);
    subject.granted(&newer).await;
    subject.done(&newer, complete("1")).await;
    // Nothing is in doubt any more, so that there is room for another.
    subject.granted(&long(67)).await;
    subject.advance(LAPSE).await;
    subject.granted(&long(68)).await;
}
