//! Ordered records, of which one per entity is claimed at a time, when it is about to start. A second claim would find
//! the entity in progress.

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
    /// The entity and sequence of each ordered record that is not decided.
    of: BTreeMap<usize, (Entity, Sequence)>,
    /// The record whose turn it is, by entity.
    turns: BTreeMap<Entity, usize>,
    /// The waits for entities, with their original starts. A record that finds its entity taken again continues the
    /// wait, as does the next record, so that the batch waits for an entity only once.
    waits: BTreeMap<Entity, LeaseWait>,
    /// The labels of records, ordered or not.
    labels: BTreeMap<usize, Arc<str>>,
}

impl Entities {
    /// Sets the sequence and label of a record. With a sequence, it belongs to this entity.
    pub(super) fn insert(&mut self, index: usize, entity: Entity, Extras { sequence, label }: Extras) {
        self.of.extend(sequence.map(|sequence| (index, (entity, sequence))));
        self.labels.extend(label.map(|label| (index, label)));
    }

    /// Returns the candidate to claim for the record.
    pub(super) fn candidate(&self, index: usize, operation: Operation) -> Candidate {
        let Operation { key, fingerprint } = operation;
        if !self.are_any() && self.labels.is_empty() {
            return Candidate { key, fingerprint, extras: None };
        }
        let sequence = self.of.get(&index).map(|(_, sequence)| *sequence);
        let label = self.labels.get(&index).cloned();
        Candidate { key, fingerprint, extras: Extras { sequence, label }.boxed() }
    }

    /// Returns whether there are ordered records.
    pub(super) fn are_any(&self) -> bool {
        !self.of.is_empty()
    }

    /// Returns whether the record belongs to an entity.
    pub(super) fn has(&self, index: usize) -> bool {
        self.are_any() && self.of.contains_key(&index)
    }

    /// Takes the turn of the record's entity if no other record has it. Returns `true` for a record without an entity.
    pub(super) fn take_turn(&mut self, index: usize) -> bool {
        match self.of.get(&index) {
            Some((entity, _)) => *self.turns.entry(*entity).or_insert(index) == index,
            None => true,
        }
    }

    /// Returns the wait of a record whose claim was refused with `refusal` at `now`, which is its entity's wait if
    /// there is one.
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

    /// Returns the number of these records that could take a turn.
    pub(super) fn turns_of(&self, records: impl Iterator<Item = usize>) -> usize {
        let mut seen = BTreeSet::new();
        let has_turn = |index: &usize| match self.of.get(index) {
            Some((entity, _)) => !self.turns.contains_key(entity) && seen.insert(*entity),
            None => true,
        };
        records.filter(has_turn).count()
    }

    /// Ends the turn of a record that is decided.
    pub(super) fn end_turn(&mut self, index: usize) {
        if let Some((entity, _)) = self.of.remove(&index)
            && self.turns.get(&entity) == Some(&index)
        {
            self.turns.remove(&entity);
        }
    }
}
