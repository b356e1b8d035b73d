//! Checks of operations in order.

use futures_util::future::join_all;

use super::*;
use crate::order::{Order, Sequence};

const ROUNDS: usize = 20;
const RIVALS: u64 = 16;

/// The operations of one entity.
struct Entity(KeyHash);

impl Entity {
    fn new() -> Self {
        Self(KeyHash::from_bytes(random()))
    }

    /// A claim on an operation of its own.
    fn claim(&self, sequence: impl Into<Sequence>) -> ClaimRequest {
        let claim = new_claim();
        let order = Order { sequence: sequence.into(), retention: RETENTION };
        ClaimRequest { key: KeyHash::ordered(&self.0, &claim.key), order: Some(order), ..claim }
    }

    /// A completed operation.
    async fn completed(&self, subject: &Subject, sequence: u64) -> ClaimRequest {
        let claim = self.claim(sequence);
        subject.granted(&claim).await;
        assert_eq!(subject.settle(&claim, complete("1")).await, Settled::Done { found: None });
        claim
    }

    /// An operation whose lease has ended without a settle.
    async fn abandoned(&self, subject: &Subject, sequence: u64) -> ClaimRequest {
        let claim = self.claim(sequence);
        subject.granted(&claim).await;
        subject.advance(LAPSE).await;
        claim
    }
}

impl Subject {
    fn orders(&self) -> bool {
        self.store.limits().orders
    }

    async fn superseded(&self, claim: &ClaimRequest) -> Sequence {
        match self.refused(claim).await {
            Refusal::Superseded { newest } => newest,
            refusal => panic!("expected a superseded operation, got {refusal:?}"),
        }
    }

    /// The end of the lease that an operation waits for, if one is known.
    async fn busy(&self, claim: &ClaimRequest) -> Option<Timestamp> {
        match self.refused(claim).await {
            Refusal::InProgress { lease_until, .. } => lease_until,
            refusal => panic!("expected an entity that is in progress, got {refusal:?}"),
        }
    }

    async fn done(&self, claim: &ClaimRequest, settlement: Settlement) {
        assert_eq!(self.settle(claim, settlement).await, Settled::Done { found: None });
    }
}

/// A store that keeps no order answers requests with an order by a permanent error, and changes nothing. One that does grants
/// the first.
pub async fn a_store_orders_or_refuses_to(subject: &Subject) {
    let claim = Entity::new().claim(1_u64);
    if subject.orders() {
        subject.granted(&claim).await;
        return;
    }
    let error = subject.store.claim(std::slice::from_ref(&claim)).await.remove(0).expect_err("it keeps no order");
    assert!(!error.redelivery_helps(), "{error:?}");
    assert_eq!(subject.read(claim.key).await, None);
}

/// An operation at or below the newest one that was completed is superseded. What is done itself is replayed.
pub async fn an_older_operation_is_superseded(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let first = entity.completed(subject, 5).await;
    entity.completed(subject, 10).await;
    for sequence in [0_u64, 5, 9, 10] {
        let late = entity.claim(sequence);
        assert_eq!(subject.superseded(&late).await, 10_u64.into());
        assert_eq!(subject.read(late.key).await, None, "a superseded operation leaves no record");
    }
    assert_eq!(subject.completed(&rival(&first)).await, json("1"));
    subject.granted(&entity.claim(11_u64)).await;
    subject.granted(&Entity::new().claim(1_u64)).await;
}

/// Sequences are compared as numbers, in all of their 64 digits.
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
        assert_eq!(subject.superseded(&entity.claim(parse(pair[0]))).await, parse(pair[1]));
    }
}

/// One claim at a time works on an entity, whatever its sequence. Each settle frees it.
pub async fn an_entity_has_one_holder(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [complete("1"), fail("1"), RELEASE] {
        let entity = Entity::new();
        let holder = entity.claim(5_u64);
        let grant = subject.granted(&holder).await;
        for sequence in [4_u64, 5, 6] {
            assert_eq!(subject.busy(&entity.claim(sequence)).await, Some(grant.lease_until));
        }
        assert_eq!(subject.granted(&holder).await, grant, "its own claim is sent again");
        subject.done(&holder, settlement.clone()).await;
        subject.granted(&entity.claim(6_u64)).await;
    }
}

/// Of many claims on one entity at once exactly one is granted.
pub async fn of_many_claims_on_an_entity_exactly_one_is_granted(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for _ in 0..ROUNDS {
        let entity = Entity::new();
        let tasks = (0..RIVALS).map(|sequence| {
            let (store, claim) = (Arc::clone(&subject.store), entity.claim(sequence));
            tokio::spawn(async move { store.claim(&[claim]).await.remove(0) })
        });
        let answers = join_all(tasks.collect::<Vec<_>>()).await;
        let answers = answers.into_iter().map(|answer| answer.expect("no panic"));
        // A store may give way to others for a while: then it says so.
        let granted = answers.filter(|answer| matches!(answer, Ok(Claimed::Granted(_)))).count();
        assert!(granted <= 1, "{granted} of {RIVALS} claims");
    }
}

/// A failure or a release raises nothing: what is older may run.
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
pub async fn a_late_completion_lowers_nothing(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let late = entity.abandoned(subject, 5).await;
    entity.completed(subject, 7).await;
    subject.done(&late, complete("1")).await;
    assert_eq!(subject.superseded(&entity.claim(6_u64)).await, 7_u64.into());
    assert_eq!(subject.completed(&rival(&late)).await, json("1"));
}

/// A late settle does not free an entity that another claim holds.
pub async fn a_late_settle_frees_nothing(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [complete("1"), fail("1"), RELEASE] {
        let entity = Entity::new();
        let late = entity.abandoned(subject, 5).await;
        let holder = entity.claim(7_u64);
        let grant = subject.granted(&holder).await;
        subject.done(&late, settlement.clone()).await;
        assert_eq!(subject.busy(&entity.claim(8_u64)).await, Some(grant.lease_until));
    }
}

/// What is older than an operation that may have taken effect waits: while nobody has claimed the entity since, and after
/// that.
pub async fn what_is_older_than_an_operation_in_doubt_waits(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    entity.abandoned(subject, 5).await;
    assert_eq!(subject.busy(&entity.claim(4_u64)).await, None, "its holder's lease has ended");
    let equal = entity.claim(5_u64);
    subject.granted(&equal).await;
    subject.done(&equal, RELEASE).await;
    assert_eq!(subject.busy(&entity.claim(4_u64)).await, None, "others have held the entity since");
    let newer = entity.claim(6_u64);
    subject.granted(&newer).await;
    subject.done(&newer, fail("1")).await;
    assert_eq!(subject.busy(&entity.claim(4_u64)).await, None, "a failure of another says nothing of it");
}

/// Doubt ends when its own operation completes, fails or is released, or a newer one completes. A hand-back keeps it, and so
/// does a completion that is older.
pub async fn doubt_ends_with_its_operation_or_a_newer_one(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    for settlement in [complete("1"), fail("1"), HAND_BACK] {
        let entity = Entity::new();
        let lost = entity.abandoned(subject, 5).await;
        let again = rival(&lost);
        assert!(subject.granted(&again).await.took_over());
        subject.done(&again, settlement.clone()).await;
        match settlement {
            Settlement::Complete { .. } => drop(subject.superseded(&entity.claim(4_u64)).await),
            Settlement::Fail { .. } => drop(subject.granted(&entity.claim(4_u64)).await),
            _ => assert_eq!(subject.busy(&entity.claim(4_u64)).await, None),
        }
    }
    let entity = Entity::new();
    let (older, newer) = (entity.abandoned(subject, 3).await, entity.abandoned(subject, 6).await);
    // The late completion of the older one: what is between the two still waits.
    subject.done(&older, complete("1")).await;
    assert_eq!(subject.busy(&entity.claim(5_u64)).await, None);
    assert_eq!(subject.superseded(&entity.claim(3_u64)).await, 3_u64.into());
    // A release of the lost claim itself, late.
    subject.done(&newer, RELEASE).await;
    subject.granted(&entity.claim(5_u64)).await;

    let entity = Entity::new();
    entity.abandoned(subject, 5).await;
    entity.completed(subject, 8).await;
    assert_eq!(subject.superseded(&entity.claim(4_u64)).await, 8_u64.into());
    subject.granted(&entity.claim(9_u64)).await;
}

/// A takeover is subject to the order: what is newer is not overwritten by a second run.
pub async fn a_superseded_operation_is_not_taken_over(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    entity.completed(subject, 6).await;
    assert_eq!(subject.superseded(&rival(&lost)).await, 6_u64.into());
    let strict = ClaimRequest { takeover: Takeover::Refused, ..rival(&lost) };
    assert_eq!(subject.superseded(&strict).await, 6_u64.into(), "and not abandoned");
    assert_eq!(subject.refused(&misuse(&lost)).await, Refusal::Mismatch, "what concerns the key comes first");
}

/// A renewal keeps the entity, too. One whose entity was claimed by another is refused.
pub async fn a_renewal_keeps_the_entity(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let renew = Settlement::Renew { lease: 4 * LEASE, skew_margin: MARGIN, retention: RETENTION };
    let entity = Entity::new();
    let holder = entity.claim(5_u64);
    subject.granted(&holder).await;
    let renewed = subject.settle(&holder, renew.clone()).await;
    subject.advance(LAPSE).await;
    let lease_until = subject.busy(&entity.claim(6_u64)).await.expect("it is held");
    assert_eq!(renewed, Settled::Renewed { lease_until });

    let entity = Entity::new();
    let holder = entity.claim(5_u64);
    subject.granted(&holder).await;
    // The next claim allows clocks no difference, so it takes the entity while a renewal could still be in time.
    subject.advance(LEASE + A_MILLISECOND).await;
    subject.granted(&ClaimRequest { skew_margin: Duration::ZERO, ..entity.claim(6_u64) }).await;
    match subject.settle(&holder, renew).await {
        Settled::LeaseLost { current: Some(record) } => assert_eq!(record.status, Status::InProgress),
        settled => panic!("expected a lost lease, got {settled:?}"),
    }
}

/// A mark lives as long as its newest outcome is replayed, whatever writes it later. Then it counts as absent.
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
    // It asks for less, and shortens nothing.
    let next = brief(entity.claim(6_u64));
    subject.granted(&next).await;
    subject.done(&next, RELEASE).await;
    subject.advance(RETENTION / 2 - 2 * second).await;
    assert_eq!(subject.superseded(&entity.claim(4_u64)).await, 5_u64.into());
    subject.advance(4 * second).await;
    entity.completed(subject, 3).await;
    assert_eq!(subject.superseded(&entity.claim(2_u64)).await, 3_u64.into(), "nothing of the old mark is left");
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
    assert_eq!(subject.busy(&long(66)).await, None);
    for older in [1, 64] {
        assert_eq!(subject.busy(&rival(&lost[older - 1])).await, None, "older than what is in doubt");
    }
    let again = rival(&lost[64]);
    assert!(subject.granted(&again).await.took_over());
    subject.done(&again, HAND_BACK).await;
    assert_eq!(subject.busy(&long(66)).await, None, "a hand-back keeps the doubt");
    let again = rival(&again);
    subject.granted(&again).await;
    subject.done(&again, fail("1")).await;
    let newer = long(66);
    subject.granted(&newer).await;
    subject.done(&newer, complete("1")).await;
    subject.granted(&long(67)).await;
}

/// A batch may hold ordered operations and others, of one entity and of several: the first of an entity is granted.
pub async fn a_batch_holds_operations_of_several_entities(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let (one, other) = (Entity::new(), Entity::new());
    one.completed(subject, 5).await;
    let batch = [new_claim(), one.claim(4_u64), one.claim(6_u64), other.claim(1_u64), one.claim(7_u64), new_claim()];
    let answers = subject.store.claim(&batch).await;
    let is_granted = |answer: &Result<Claimed, _>| matches!(answer, Ok(Claimed::Granted(_)));
    assert_eq!(answers.iter().map(is_granted).collect::<Vec<_>>()[..4], [true, false, true, true], "{answers:?}");
    assert!(!is_granted(&answers[4]) && is_granted(&answers[5]), "{answers:?}");
    let granted = [&batch[0], &batch[2], &batch[3], &batch[5]];
    let settles: Vec<_> = granted.map(|claim| settle_request(claim, complete("1"))).into();
    for answer in subject.store.settle(&settles).await {
        assert_eq!(answer.expect("the store answers"), Settled::Done { found: None });
    }
    assert_eq!(subject.superseded(&one.claim(6_u64)).await, 6_u64.into());
    assert_eq!(subject.superseded(&other.claim(1_u64)).await, 1_u64.into());
}
