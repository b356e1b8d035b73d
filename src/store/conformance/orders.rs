//! Checks of ordered operations.

use futures_util::future::join_all;

use super::*;
use crate::order::{Order, Sequence};

const RIVALS: u64 = 16;

/// The operations of one entity.
pub(super) struct Entity(KeyHash);

impl Entity {
    pub(super) fn new() -> Self {
        Self(KeyHash::from_bytes(random()))
    }

    /// Returns a claim on a new operation.
    pub(super) fn claim(&self, sequence: impl Into<Sequence>) -> ClaimRequest {
        let claim = new_claim();
        let order = Order { sequence: sequence.into(), retention: RETENTION };
        ClaimRequest { key: KeyHash::ordered(&self.0, &claim.key), order: Some(order), ..claim }
    }

    /// Completes a new operation.
    pub(super) async fn completed(&self, subject: &Subject, sequence: u64) -> ClaimRequest {
        let claim = self.claim(sequence);
        subject.granted(&claim).await;
        subject.done(&claim, complete("1")).await;
        claim
    }

    /// Claims a new operation and lets its lease end without a settle.
    pub(super) async fn abandoned(&self, subject: &Subject, sequence: u64) -> ClaimRequest {
        let claim = self.claim(sequence);
        subject.granted(&claim).await;
        subject.advance(LAPSE).await;
        claim
    }
}

impl Subject {
    pub(super) fn orders(&self) -> bool {
        self.store.limits().orders
    }

    pub(super) async fn superseded_by(&self, claim: &ClaimRequest, newest: impl Into<Sequence>) {
        let superseded = Refusal::Superseded { newest: newest.into() };
        expect("G1: an operation at or below the newest one is superseded", self.refused(claim).await, superseded);
    }

    /// Expects a claim to wait for its entity, until the end of a lease if one is known.
    pub(super) async fn waits(&self, claim: &ClaimRequest, lease_until: Option<Timestamp>, when: &str) {
        let (found, _) = self.in_progress(claim, when).await;
        expect(&format!("G2: {when}, a claim gets the lease of the entity's holder"), found, lease_until);
    }
}

/// A store without support for orders returns a permanent error for requests with an order, and changes nothing. A
/// store with support grants the first one.
pub async fn a_store_orders_or_refuses_to(subject: &Subject) {
    let claim = Entity::new().claim(1_u64);
    if subject.orders() {
        subject.granted(&claim).await;
        return;
    }
    const RULE: &str = "a store without orders in its limits refuses one permanently";
    match subject.store.claim(std::slice::from_ref(&claim)).await.remove(0) {
        Err(error) if !error.is_retryable() => {}
        answer => broken(RULE, "Err(…), permanent", answer),
    }
    subject.unchanged(claim.key, None, RULE).await;
}

/// The record of an ordered operation contains its sequence, and the record of another operation does not.
pub async fn an_ordered_record_contains_its_sequence(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    const RULE: &str = "the record of an ordered operation contains its sequence";
    let claim = Entity::new().claim(7_u64);
    subject.granted(&claim).await;
    expect(RULE, subject.record(claim.key, "a claim").await.sequence, Some(7_u64.into()));
    subject.done(&claim, complete("1")).await;
    expect(RULE, subject.record(claim.key, "an outcome").await.sequence, Some(7_u64.into()));
    let claim = new_claim();
    subject.granted(&claim).await;
    expect(RULE, subject.record(claim.key, "a claim").await.sequence, None);
}

/// An operation at or below the newest completed one is superseded. A completed operation is replayed.
// Tests G1, P21, P22.
pub async fn an_older_operation_is_superseded(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let first = entity.completed(subject, 5).await;
    entity.completed(subject, 10).await;
    for sequence in [0_u64, 5, 9, 10] {
        let late = entity.claim(sequence);
        subject.superseded_by(&late, 10_u64).await;
        subject.unchanged(late.key, None, "G1: a superseded operation leaves no record").await;
    }
    subject.replays(&rival(&first), json("1")).await;
    subject.granted(&entity.claim(11_u64)).await;
    subject.granted(&Entity::new().claim(1_u64)).await;
}

/// Sequences are compared as numbers, with all of their 64 digits.
// Tests G1.
pub async fn sequences_are_compared_as_numbers(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let parse = |digits: &str| digits.parse::<Sequence>().expect("digits");
    let nines = "9".repeat(63);
    let ascending = ["9", "10", "18446744073709551616", &format!("{nines}8"), &format!("{nines}9")];
    let entity = Entity::new();
    for pair in ascending.windows(2) {
        let greater = entity.claim(parse(pair[1]));
        subject.granted(&greater).await;
        subject.done(&greater, complete("1")).await;
        subject.superseded_by(&entity.claim(parse(pair[0])), parse(pair[1])).await;
    }
}

/// One claim at a time works on an entity, whatever its sequence. Each settle frees it.
// Tests G2, P23.
pub async fn an_entity_has_one_holder(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [complete("1"), fail("1"), RELEASE] {
        let entity = Entity::new();
        let holder = entity.claim(5_u64);
        let grant = subject.granted(&holder).await;
        for sequence in [4_u64, 5, 6] {
            subject.waits(&entity.claim(sequence), Some(grant.lease_until), "while an entity is held").await;
        }
        let again = subject.granted(&holder).await;
        expect("C5: a claim that holds its entity is granted again", again, grant);
        subject.done(&holder, settlement.clone()).await;
        subject.granted(&entity.claim(6_u64)).await;
    }
    let entity = Entity::new();
    let grant = subject.granted(&entity.claim(5_u64)).await;
    subject.advance(LEASE + A_MILLISECOND).await;
    subject.waits(&entity.claim(6_u64), Some(grant.lease_until), "within the margin after its holder's lease").await;
}

/// Of many simultaneous claims on one entity at most one is granted, whether the entity is new or its holder's lease
/// has passed.
// Tests G2, P23.
pub async fn of_many_claims_on_an_entity_exactly_one_is_granted(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for round in 0..rounds() {
        let entity = Entity::new();
        if round % 2 == 1 {
            entity.abandoned(subject, 0).await;
        }
        let tasks = (1..=RIVALS).map(|sequence| {
            let (store, claim) = (Arc::clone(&subject.store), entity.claim(sequence));
            tokio::spawn(async move { store.claim(&[claim]).await.remove(0) })
        });
        let answers = join_all(tasks.collect::<Vec<_>>()).await;
        let answers = answers.into_iter().map(|answer| answer.expect("no panic"));
        // A store may give way to others for a while, and must report that.
        let granted = answers.filter(|answer| matches!(answer, Ok(Claimed::Granted(_)))).count();
        if granted > 1 {
            broken("G2: one claim at a time holds an entity", "one grant at most", granted);
        }
    }
}

/// A failure or a release raises nothing: older operations may run.
// Tests G3.
pub async fn only_a_completion_supersedes(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [fail("1"), RELEASE] {
        let entity = Entity::new();
        let newer = entity.claim(5_u64);
        subject.granted(&newer).await;
        subject.done(&newer, settlement.clone()).await;
        entity.completed(subject, 4).await;
    }
}

/// An older completion lowers nothing.
// Tests G3.
pub async fn a_late_completion_lowers_nothing(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let late = entity.abandoned(subject, 5).await;
    entity.completed(subject, 7).await;
    subject.done(&late, complete("1")).await;
    subject.superseded_by(&entity.claim(6_u64), 7_u64).await;
    subject.replays(&rival(&late), json("1")).await;
}

/// A late settle does not free an entity that another claim holds.
// Tests G3.
pub async fn a_late_settle_frees_nothing(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [complete("1"), fail("1"), RELEASE] {
        // While the late operation is in doubt, and after a newer one has ended the doubt.
        for is_in_doubt in [true, false] {
            let entity = Entity::new();
            let late = entity.abandoned(subject, 5).await;
            if !is_in_doubt {
                entity.completed(subject, 6).await;
            }
            let holder = entity.claim(7_u64);
            let grant = subject.granted(&holder).await;
            subject.done(&late, settlement.clone()).await;
            let next = entity.claim(8_u64);
            subject.waits(&next, Some(grant.lease_until), "after a late settle of another claim (G3)").await;
        }
    }
}

/// A takeover is subject to the order: a second run does not overwrite newer data.
// Tests G1.
pub async fn a_superseded_operation_is_not_taken_over(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    entity.completed(subject, 6).await;
    subject.superseded_by(&rival(&lost), 6_u64).await;
    let strict = ClaimRequest { takeover: Takeover::Refused, ..rival(&lost) };
    subject.superseded_by(&strict, 6_u64).await;
    let lapsed = MismatchState::Abandoned { attempt: 1 };
    subject.mismatch(&misuse(&lost), "although a newer operation was completed", lapsed).await;
}

/// A renewal keeps the entity, too. It is refused if another claim has taken the entity.
// Tests L5, G3.
pub async fn a_renewal_keeps_the_entity(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let renew = Settlement::Renew { lease: 4 * LEASE, skew_margin: MARGIN, retention: RETENTION };
    let entity = Entity::new();
    let holder = entity.claim(5_u64);
    subject.granted(&holder).await;
    let renewed = subject.renewed(&holder, renew.clone()).await;
    // A late copy of an older renewal lowers nothing.
    let older = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    expect("L5: a renewal does not lower the lease", subject.renewed(&holder, older).await, renewed);
    subject.advance(LAPSE).await;
    subject.waits(&entity.claim(6_u64), Some(renewed), "while its holder renews its lease").await;

    let entity = Entity::new();
    let holder = entity.claim(5_u64);
    subject.granted(&holder).await;
    // The next claim has no skew margin, so it takes the entity while a renewal could still be in time.
    subject.advance(LEASE + A_MILLISECOND).await;
    subject.granted(&ClaimRequest { skew_margin: Duration::ZERO, ..entity.claim(6_u64) }).await;
    match subject.settle(&holder, renew).await {
        Settled::LeaseLost { current: Some(record) } if record.status == Status::InProgress => {}
        settled => broken("G3: a claim that has lost its entity is not renewed", "LeaseLost { INPROGRESS }", settled),
    }
}

/// A mark is kept as long as its newest outcome is replayed, whatever writes it later. After that it counts as absent.
// Tests G4.
pub async fn a_mark_lives_as_long_as_its_outcomes(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let second = Duration::from_secs(1);
    let entity = Entity::new();
    entity.completed(subject, 5).await;
    subject.advance(RETENTION / 2).await;
    let brief = |claim: ClaimRequest| {
        let order = claim.order.map(|order| Order { retention: Duration::ZERO, ..order });
        ClaimRequest { order, ..claim }
    };
    // It has a shorter retention, and shortens nothing.
    let next = brief(entity.claim(6_u64));
    subject.granted(&next).await;
    let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
    subject.renewed(&next, renew).await;
    subject.done(&next, RELEASE).await;
    subject.advance(RETENTION / 2 - 2 * second).await;
    subject.superseded_by(&entity.claim(4_u64), 5_u64).await;
    subject.advance(4 * second).await;
    entity.completed(subject, 3).await;
    // No part of the old mark is left.
    subject.superseded_by(&entity.claim(2_u64), 3_u64).await;
}

/// A batch may contain ordered operations and others, of one entity and of several: the first of an entity is granted.
// Tests G2.
pub async fn a_batch_holds_operations_of_several_entities(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let (one, other) = (Entity::new(), Entity::new());
    one.completed(subject, 5).await;
    let batch = [new_claim(), one.claim(4_u64), one.claim(6_u64), other.claim(1_u64), one.claim(7_u64), new_claim()];
    let answers = subject.store.claim(&batch).await;
    let granted = answers.iter().map(|answer| matches!(answer, Ok(Claimed::Granted(_)))).collect::<Vec<_>>();
    let rule = "G2: of a batch, the first claim on each entity that is not superseded is granted, and so is each claim without an order";
    expect(rule, granted, vec![true, false, true, true, false, true]);
    let granted = [&batch[0], &batch[2], &batch[3], &batch[5]];
    let settles: Vec<_> = granted.map(|claim| settle_request(claim, complete("1"))).into();
    for answer in subject.store.settle(&settles).await {
        expect("S1: the holder of a claim may complete it", only(vec![answer]), Settled::Done { found: None });
    }
    subject.superseded_by(&one.claim(6_u64), 6_u64).await;
    subject.superseded_by(&other.claim(1_u64), 1_u64).await;
}
