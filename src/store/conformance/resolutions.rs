//! Checks of marks that operators read, and of doubt that they end.

use futures_util::future::join;

use super::{doubt::lost, orders::Entity, *};
use crate::{
    error::Error,
    order::{self, Doubt, Holder, Mark, Order, Sequence},
    store::amend::{Amended, Resolution, ResolveRequest},
};

const ENDS: &str = "O8: a statement on operations in doubt ends their doubt";
const AS_READ: &str = "O8: a mark that is not as it was read stays as it is";

fn no_effect(sequences: &[u64]) -> Resolution {
    Resolution::NoEffect { sequences: sequences.iter().map(|sequence| (*sequence).into()).collect() }
}

fn took_effect(sequence: u64) -> Resolution {
    Resolution::TookEffect { sequence: sequence.into() }
}

impl Entity {
    fn id(&self) -> order::Entity {
        order::Entity::of(&self.claim(0_u64).key)
    }
}

impl Subject {
    fn operator(&self) -> &dyn Amend {
        self.amend.as_deref().unwrap_or_else(|| broken("the subject amends", "Subject::with_amendments", ()))
    }

    async fn mark(&self, entity: &Entity) -> Option<Mark> {
        only(self.operator().marks(&[entity.id()]).await)
    }

    async fn existing_mark(&self, entity: &Entity) -> Mark {
        self.mark(entity).await.unwrap_or_else(|| broken("G2: an entity with a claim has a mark", "Some(…)", ()))
    }

    async fn resolve(&self, entity: &Entity, read: Mark, resolution: Resolution) -> Result<Amended<Mark>, Error> {
        let request =
            ResolveRequest { entity: entity.id(), read, skew_margin: MARGIN, retention: RETENTION, resolution };
        self.operator().resolve(&request).await
    }

    /// Resolves doubt of the current mark, twice, because the first response may be lost.
    async fn resolved(&self, entity: &Entity, resolution: Resolution) {
        let read = self.existing_mark(entity).await;
        for _ in 0..2 {
            match self.resolve(entity, read.clone(), resolution.clone()).await {
                Ok(Amended::Changed) => {}
                answer => broken(ENDS, "Ok(Changed), also when it is sent again", answer),
            }
        }
    }

    async fn stays_in_doubt(&self, entity: &Entity, read: Mark, resolution: Resolution, rule: &str) {
        let before = self.existing_mark(entity).await;
        match self.resolve(entity, read, resolution).await {
            Ok(Amended::Unchanged { current }) => expect(rule, *current, before.clone()),
            answer => broken(rule, "Ok(Unchanged { … })", answer),
        }
        expect(rule, self.mark(entity).await, Some(before));
    }
}

/// Operators see the contents of a mark.
pub async fn marks_are_read_in_order(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let (first, second, none) = (Entity::new(), Entity::new(), Entity::new());
    first.completed(subject, 3).await;
    let lost = first.abandoned(subject, 5).await;
    let holder = first.claim(7_u64);
    let lease_until = subject.granted(&holder).await.lease_until;
    second.completed(subject, 4).await;
    let marks = subject.operator().marks(&[first.id(), none.id(), second.id()]).await;
    let marks: Vec<_> = marks.into_iter().map(|mark| only(vec![mark])).collect();
    let found: Vec<_> =
        marks.iter().map(|mark| mark.as_ref().map(|mark| (mark.newest, mark.holder, mark.doubt.clone()))).collect();
    let held = Holder { owner: holder.owner, key: holder.key, sequence: 7_u64.into(), lease_until };
    let doubt = vec![Doubt { key: Some(lost.key), sequence: 5_u64.into() }];
    let newest = |sequence: u64| Some(Sequence::from(sequence));
    let expected = [Some((newest(3), Some(held), doubt)), None, Some((newest(4), None, Vec::new()))];
    expect("O8: marks are read in order, with their contents", found, expected.into());
}

/// A lapsed operation with the sequence of one that completed is superseded, and leaves nothing to look up.
// Tests G2.
pub async fn a_superseded_operation_is_not_in_doubt(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let late = entity.abandoned(subject, 5).await;
    entity.abandoned(subject, 5).await;
    subject.done(&late, complete("1")).await;
    subject.granted(&entity.claim(6_u64)).await;
    let mark = subject.existing_mark(&entity).await;
    expect("G2: operations that a completion supersedes are not in doubt", mark.doubt, Vec::new());
}

/// A statement ends the doubt of the operations that it names and of no others. An effect supersedes older operations, no
/// effect lets them run.
// Tests G2, O8.
pub async fn an_operator_ends_the_doubt_that_a_statement_names(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    entity.completed(subject, 1).await;
    for sequence in [3, 5, 7] {
        entity.abandoned(subject, sequence).await;
    }
    subject.resolved(&entity, no_effect(&[5])).await;
    subject.waits(&entity.claim(6_u64), None, "while the lapsed holder is in doubt").await;
    subject.resolved(&entity, no_effect(&[7])).await;
    let between = entity.claim(4_u64);
    subject.granted(&between).await;
    subject.done(&between, RELEASE).await;
    subject.waits(&entity.claim(2_u64), None, "while an operation is in doubt on which there is no statement").await;
    subject.resolved(&entity, took_effect(3)).await;
    subject.superseded_by(&entity.claim(3_u64), 3_u64).await;
    subject.granted(&entity.claim(4_u64)).await;

    for (resolution, newest) in [(took_effect(5), Some(5_u64)), (no_effect(&[3, 5]), None)] {
        let entity = Entity::new();
        entity.abandoned(subject, 3).await;
        entity.abandoned(subject, 5).await;
        subject.resolved(&entity, resolution).await;
        match newest {
            Some(newest) => subject.superseded_by(&entity.claim(4_u64), newest).await,
            None => drop(subject.granted(&entity.claim(2_u64)).await),
        }
    }

    // A holder stays when nothing else is in doubt.
    let entity = Entity::new();
    entity.completed(subject, 1).await;
    for sequence in [3, 5] {
        entity.abandoned(subject, sequence).await;
    }
    subject.resolved(&entity, no_effect(&[3])).await;
    subject.waits(&entity.claim(4_u64), None, "while the lapsed holder is in doubt").await;
}

/// A statement leaves records unchanged: the operation can run again, and its lost run can still complete.
// Tests O8.
pub async fn a_resolution_leaves_records_as_they_are(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    let before = subject.read(lost.key).await;
    subject.resolved(&entity, no_effect(&[5])).await;
    subject.unchanged(lost.key, before.as_ref(), "O8: a resolution changes no record").await;
    subject.took_over(&rival(&lost)).await;
    subject.advance(LAPSE).await;
    subject.waits(&entity.claim(4_u64), None, "after the operation was lost again").await;

    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    subject.resolved(&entity, no_effect(&[5])).await;
    subject.done(&lost, complete("1")).await;
    subject.superseded_by(&entity.claim(4_u64), 5_u64).await;

    let entity = Entity::new();
    let lost = entity.abandoned(subject, 5).await;
    subject.resolved(&entity, took_effect(5)).await;
    subject.superseded_by(&rival(&lost), 5_u64).await;
}

/// A statement counts only for the mark on which it was made, and an expired mark counts as absent.
// Tests O8.
pub async fn a_resolution_changes_only_the_mark_that_was_read(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    entity.completed(subject, 1).await;
    entity.abandoned(subject, 3).await;
    entity.abandoned(subject, 5).await;
    let read = subject.existing_mark(&entity).await;
    let holder = read.holder.unwrap_or_else(|| broken("G2: a lapsed claim holds the entity", "Some(…)", ()));
    for other in [
        Mark { newest: None, ..read.clone() },
        Mark { newest: Some(2_u64.into()), ..read.clone() },
        Mark { holder: None, ..read.clone() },
        Mark { holder: Some(Holder { owner: owner(), ..holder }), ..read.clone() },
        Mark {
            holder: Some(Holder { lease_until: holder.lease_until.before(A_MILLISECOND), ..holder }),
            ..read.clone()
        },
        Mark { doubt: vec![Doubt { key: None, ..read.doubt[0] }], ..read.clone() },
        Mark { expiration: read.expiration + 1, ..read.clone() },
    ] {
        subject.stays_in_doubt(&entity, other, no_effect(&[3]), AS_READ).await;
    }
    let newer = entity.claim(6_u64);
    subject.granted(&newer).await;
    subject.done(&newer, RELEASE).await;
    subject.stays_in_doubt(&entity, read.clone(), no_effect(&[3]), AS_READ).await;
    subject.stays_in_doubt(&entity, read, took_effect(5), AS_READ).await;

    let entity = Entity::new();
    entity.abandoned(subject, 3).await;
    let read = subject.existing_mark(&entity).await;
    match subject.resolve(&Entity::new(), read.clone(), no_effect(&[3])).await {
        Ok(Amended::Gone) => {}
        answer => broken("O8: there is no mark", "Ok(Gone)", answer),
    }
    match subject.resolve(&entity, read.clone(), no_effect(&[4])).await {
        Err(error) if !error.is_retryable() => {}
        answer => broken("O8: no operation is in doubt at this sequence", "a permanent error", answer),
    }
    subject.advance(RETENTION + LAPSE).await;
    match subject.resolve(&entity, read, no_effect(&[3])).await {
        Ok(Amended::Gone) => {}
        answer => broken("G4, O8: an expired mark counts as absent", "Ok(Gone)", answer),
    }
}

/// No mark changes while a live claim holds the entity, and its holder may settle.
// Tests O8.
pub async fn no_doubt_is_resolved_while_a_claim_is_live(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    const RULE: &str = "O8: a mark stays as it is while a live claim holds the entity";
    let entity = Entity::new();
    entity.abandoned(subject, 5).await;
    let holder = entity.claim(7_u64);
    subject.granted(&holder).await;
    let read = subject.existing_mark(&entity).await;
    for resolution in [no_effect(&[5]), took_effect(5), no_effect(&[7]), took_effect(7)] {
        subject.stays_in_doubt(&entity, read.clone(), resolution, RULE).await;
    }
    // The lease has ended, but not the margin.
    subject.advance(LEASE + A_MILLISECOND).await;
    subject.stays_in_doubt(&entity, read.clone(), no_effect(&[5]), RULE).await;
    subject.done(&holder, fail("1")).await;
    subject.resolved(&entity, no_effect(&[5])).await;
    subject.granted(&entity.claim(4_u64)).await;
}

/// The mark is kept for the retention of the statement, even if the retention of its claims was shorter.
// Tests G4, O8.
pub async fn a_resolved_mark_has_the_retention_of_its_resolution(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = entity.claim(5_u64);
    let order = lost.order.map(|order| Order { retention: LAPSE + 2 * LEASE, ..order });
    subject.granted(&ClaimRequest { order, ..lost }).await;
    subject.advance(LAPSE).await;
    subject.resolved(&entity, took_effect(5)).await;
    subject.advance(RETENTION - Duration::from_secs(2)).await;
    subject.superseded_by(&entity.claim(4_u64), 5_u64).await;
}

/// Doubt that has merged ends with a statement, too.
// Tests G2, O8.
pub async fn merged_doubt_ends_with_an_operators_statement(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    let entity = Entity::new();
    let lost = lost(subject, &entity, 66).await;
    let all: Vec<u64> = (1..=66).map(|number| 10 * number).collect();
    let mark = subject.existing_mark(&entity).await;
    let merged = mark.doubt.iter().find(|doubt| doubt.key.is_none()).map(|doubt| doubt.sequence);
    expect("G2: the lowest operations in doubt have merged", merged, Some(20_u64.into()));
    subject.resolved(&entity, no_effect(&all[2..])).await;
    subject.waits(&rival(&lost[0]), None, "while operations that have merged are in doubt").await;
    subject.resolved(&entity, no_effect(&[20])).await;
    subject.granted(&entity.claim(1_u64)).await;
}

/// If a statement and the claim of a newer operation are simultaneous, neither write of the mark is lost.
pub async fn a_resolution_and_a_newer_claim_exclude_each_other(subject: &Subject) {
    if !subject.orders() {
        return;
    }
    const RULE: &str = "O8: a resolution and a claim at the same time both see the other's mark";
    for _ in 0..rounds() {
        let entity = Entity::new();
        entity.abandoned(subject, 5).await;
        let (read, newer) = (subject.existing_mark(&entity).await, entity.claim(6_u64));
        let resolved = async {
            loop {
                match subject.resolve(&entity, read.clone(), no_effect(&[5])).await {
                    // A store may give way to others without writing anything.
                    Err(error) if error.is_retryable() => {}
                    answer => break answer,
                }
            }
        };
        let (resolved, claimed) = join(resolved, subject.claim(&newer)).await;
        let mark = subject.existing_mark(&entity).await;
        let is_granted = match claimed {
            Claimed::Granted(_) => true,
            Claimed::Refused(Refusal::InProgress { .. }) => false,
            refused => broken(RULE, "Granted(…), or in progress", refused),
        };
        let doubt = match resolved {
            Ok(Amended::Changed) => 0,
            Ok(Amended::Unchanged { .. }) if is_granted => 1,
            answer => broken(RULE, "Ok(Changed), or Ok(Unchanged { … }) after the claim", answer),
        };
        expect(RULE, mark.holder.map(|holder| holder.owner), is_granted.then_some(newer.owner));
        expect(RULE, mark.doubt.len(), doubt);
    }
}
