//! Ordered records: of those of one entity, one at a time is claimed, when it is about to start. A second claim would find the
//! first one's entity in progress.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use super::records::Operation;
use crate::{
    clock::Timestamp,
    idempotency::engine::{Candidate, Extras, LeaseWait},
    order::{Entity, Sequence},
    store::Refusal,
};

#[derive(Debug, Default)]
pub(super) struct Entities {
    /// Where each ordered record stands that is not decided.
    of: BTreeMap<usize, (Entity, Sequence)>,
    /// The record that has the turn of its entity.
    turns: BTreeMap<Entity, usize>,
    /// The waits for entities, as they began. A record that finds its entity taken again waits on, and so does the next one: the
    /// batch waits for an entity once.
    waits: BTreeMap<Entity, LeaseWait>,
    /// The labels of records, ordered or not.
    labels: BTreeMap<usize, Arc<str>>,
}

impl Entities {
    /// The record has these. If it has a sequence, it belongs to this entity.
    pub(super) fn insert(&mut self, index: usize, entity: Entity, Extras { sequence, label }: Extras) {
        self.of.extend(sequence.map(|sequence| (index, (entity, sequence))));
        self.labels.extend(label.map(|label| (index, label)));
    }

    /// What is claimed for the record.
    pub(super) fn candidate(&self, index: usize, operation: Operation) -> Candidate {
        let Operation { key, fingerprint } = operation;
        if !self.are_any() && self.labels.is_empty() {
            return Candidate { key, fingerprint, extras: None };
        }
        let sequence = self.of.get(&index).map(|(_, sequence)| *sequence);
        let label = self.labels.get(&index).cloned();
        Candidate { key, fingerprint, extras: Extras { sequence, label }.boxed() }
    }

    /// Whether there are ordered records.
    pub(super) fn are_any(&self) -> bool {
        !self.of.is_empty()
    }

    /// Whether the record belongs to an entity.
    pub(super) fn has(&self, index: usize) -> bool {
        self.are_any() && self.of.contains_key(&index)
    }

    /// Takes the turn of the record's entity, if no other record has it. One without an entity always has its turn.
    pub(super) fn take_turn(&mut self, index: usize) -> bool {
        match self.of.get(&index) {
            Some((entity, _)) => *self.turns.entry(*entity).or_insert(index) == index,
            None => true,
        }
    }

    /// The wait of a record whose claim was refused with `refusal` at `now`: that of its entity, if there was one.
    pub(super) fn wait(
        &mut self,
        index: usize,
        refusal: Refusal,
        now: Timestamp,
        new: impl FnOnce(Refusal) -> LeaseWait,
    ) -> LeaseWait {
        let Some((entity, _)) = self.of.get(&index) else { return new(refusal) };
        match self.waits.entry(*entity) {
            Entry::Occupied(mut wait) => {
                wait.get_mut().refused_again(refusal, now);
                wait.get().clone()
            }
            Entry::Vacant(none) => none.insert(new(refusal)).clone(),
        }
    }

    /// How many of these records could take a turn.
    pub(super) fn turns_of(&self, records: impl Iterator<Item = usize>) -> usize {
        let mut seen = BTreeSet::new();
        let has_turn = |index: &usize| match self.of.get(index) {
            Some((entity, _)) => !self.turns.contains_key(entity) && seen.insert(*entity),
            None => true,
        };
        records.filter(has_turn).count()
    }

    /// The record is decided, and its turn over.
    pub(super) fn end_turn(&mut self, index: usize) {
        if let Some((entity, _)) = self.of.remove(&index)
            && self.turns.get(&entity) == Some(&index)
        {
            self.turns.remove(&entity);
        }
    }
}
