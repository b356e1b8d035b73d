//! Ordered records: of those of one entity, one at a time is claimed, when it is about to start. A second claim would find the
//! first one's entity in progress.

use std::collections::HashMap;

use crate::order::Entity;

#[derive(Debug, Default)]
pub(super) struct Entities {
    /// The entity of each ordered record that is not decided.
    of: HashMap<usize, Entity>,
    /// The record that has the turn of its entity.
    turns: HashMap<Entity, usize>,
}

impl Entities {
    /// The record belongs to this entity.
    pub(super) fn insert(&mut self, index: usize, entity: Entity) {
        self.of.insert(index, entity);
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
            Some(entity) => *self.turns.entry(*entity).or_insert(index) == index,
            None => true,
        }
    }

    /// How many of these records could take a turn.
    pub(super) fn turns_of(&self, records: impl Iterator<Item = usize>) -> usize {
        let mut seen = std::collections::HashSet::new();
        let has_turn = |index: &usize| match self.of.get(index) {
            Some(entity) => !self.turns.contains_key(entity) && seen.insert(*entity),
            None => true,
        };
        records.filter(has_turn).count()
    }

    /// The record is decided, and its turn over.
    pub(super) fn end_turn(&mut self, index: usize) {
        if let Some(entity) = self.of.remove(&index)
            && self.turns.get(&entity) == Some(&index)
        {
            self.turns.remove(&entity);
        }
    }
}
