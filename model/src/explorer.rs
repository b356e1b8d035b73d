//! Explores every state of a model, breadth first, so that the first trace to a breach is a shortest one.
//!
//! The interface is the same as in the crate `stateright`. Its explorer is not used because it depends on a web server,
//! and because several threads would make the first trace depend on chance.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// A system with a finite number of states.
pub(crate) trait Model {
    /// A state of the system.
    type State: Clone + Hash;
    /// A step from one state to the next.
    type Action: Clone;

    /// Returns the states in which it may begin.
    fn init_states(&self) -> Vec<Self::State>;
    /// Adds the steps that are possible in a state.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);
    /// Takes a step, and adds the noteworthy events of it to a set of bits.
    fn next_state(&self, state: &Self::State, action: &Self::Action, events: &mut u64) -> Self::State;
    /// Returns the promise that does not hold in a state, if any.
    fn breach(&self, state: &Self::State) -> Option<&'static str>;
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Explored<A> {
    /// The number of different states.
    pub(crate) states: usize,
    /// The events of all steps.
    pub(crate) events: u64,
    /// Whether every state was visited. Otherwise it was stopped, or a breach was found.
    pub(crate) is_complete: bool,
    /// The first breach, and the steps to it from the initial state with this position.
    pub(crate) breach: Option<Breach<A>>,
}

/// A promise that does not hold.
#[derive(Debug)]
pub(crate) struct Breach<A> {
    pub(crate) promise: &'static str,
    pub(crate) begins: usize,
    pub(crate) steps: Vec<A>,
}

/// The fingerprints of the visited states are hashes, so they are not hashed again.
#[derive(Default)]
struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

/// The visited states, each with its predecessor's fingerprint, which is its own for an initial state.
type Visited = HashMap<u64, u64, BuildHasherDefault<Unhashed>>;

/// Hashes a state. Each number is mixed in by a product of 128 bits, whose halves are folded.
struct Folded(u64);

impl Folded {
    fn add(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0xa076_1d64_78bd_642f;
        let [low, high] = [product as u64, (product >> 64) as u64];
        self.0 = (low ^ high).wrapping_add(0xe703_7ed1_a0b4_28db);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }
}

/// Returns the hash of a state.
pub(crate) fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = Folded(0x1234_5678_9abc_def1);
    state.hash(&mut hasher);
    hasher.finish()
}

/// The number of states after which the limits are checked again.
const PORTION: usize = 1 << 16;

/// Visits every state, until a promise does not hold, or `goes_on` returns `false` for the number of states.
pub(crate) fn explore<M: Model>(model: &M, goes_on: impl Fn(usize) -> bool) -> Explored<M::Action> {
    let mut visited = Visited::default();
    let mut level = Vec::new();
    let mut events = 0;
    for state in model.init_states() {
        let print = fingerprint(&state);
        if visited.insert(print, print).is_none() {
            level.push((print, state));
        }
    }
    let (mut actions, mut asked_at) = (Vec::new(), PORTION);
    while !level.is_empty() {
        let mut next = Vec::new();
        for (print, state) in level {
            actions.clear();
            model.actions(&state, &mut actions);
            for action in &actions {
                let successor = model.next_state(&state, action, &mut events);
                let reached = fingerprint(&successor);
                let Entry::Vacant(vacant) = visited.entry(reached) else { continue };
                vacant.insert(print);
                if let Some(promise) = model.breach(&successor) {
                    let (begins, steps) = trace(model, &visited, reached);
                    let breach = Some(Breach { promise, begins, steps });
                    return Explored { states: visited.len(), events, is_complete: false, breach };
                }
                next.push((reached, successor));
            }
            if visited.len() >= asked_at {
                asked_at += PORTION;
                if !goes_on(visited.len()) {
                    return Explored { states: visited.len(), events, is_complete: false, breach: None };
                }
            }
        }
        level = next;
    }
    Explored { states: visited.len(), events, is_complete: true, breach: None }
}

/// Finds the steps to a visited state again, from the fingerprints of the states on the way.
fn trace<M: Model>(model: &M, visited: &Visited, mut print: u64) -> (usize, Vec<M::Action>) {
    let mut prints = vec![print];
    while let Some(before) = visited.get(&print).filter(|before| **before != print) {
        print = *before;
        prints.push(print);
    }
    let begin = model.init_states().into_iter().enumerate().find(|(_, state)| fingerprint(state) == print);
    let Some((begins, mut state)) = begin else { return (0, Vec::new()) };
    let (mut steps, mut actions) = (Vec::new(), Vec::new());
    for print in prints.into_iter().rev().skip(1) {
        actions.clear();
        model.actions(&state, &mut actions);
        let found = actions.iter().find_map(|action| {
            let successor = model.next_state(&state, action, &mut 0);
            (fingerprint(&successor) == print).then(|| (action.clone(), successor))
        });
        let Some((action, successor)) = found else { break };
        steps.push(action);
        state = successor;
    }
    (begins, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters of which each may be raised to a limit, and doubled once.
    struct Counters {
        limit: u8,
    }

    impl Model for Counters {
        type State = ([u8; 2], bool);
        type Action = (usize, bool);

        fn init_states(&self) -> Vec<Self::State> {
            vec![([0; 2], false), ([1; 2], true)]
        }

        fn actions(&self, (counters, is_doubled): &Self::State, actions: &mut Vec<Self::Action>) {
            for (counter, value) in counters.iter().enumerate() {
                if *value < self.limit {
                    actions.push((counter, false));
                }
                if !is_doubled && value * 2 <= self.limit {
                    actions.push((counter, true));
                }
            }
        }

        fn next_state(&self, state: &Self::State, (counter, doubles): &Self::Action, events: &mut u64) -> Self::State {
            let (mut counters, mut is_doubled) = *state;
            if *doubles {
                (counters[*counter], is_doubled) = (counters[*counter] * 2, true);
                *events |= 1;
            } else {
                counters[*counter] += 1;
            }
            (counters, is_doubled)
        }

        fn breach(&self, (counters, _): &Self::State) -> Option<&'static str> {
            (counters[0] == 9).then_some("the first counter is not nine")
        }
    }

    #[test]
    fn states_that_differ_little_have_different_hashes() {
        let states = (0..1_u32 << 16).map(|bits| [0, 4, 8, 12].map(|shift| (bits >> shift) as u8 & 15));
        let mut prints: Vec<u64> = states.map(|state| fingerprint(&state)).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), 1 << 16);
    }

    #[test]
    fn every_state_is_visited_once() {
        let explored = explore(&Counters { limit: 4 }, |_| true);
        assert_eq!((explored.states, explored.events, explored.is_complete), (25 + 25, 1, true));
        assert!(explored.breach.is_none());
    }

    #[test]
    fn the_first_trace_is_the_shortest() {
        let explored = explore(&Counters { limit: 9 }, |_| true);
        let breach = explored.breach.expect("a breach");
        // From zero: four steps, the doubling, one step. The other beginning needs eight.
        assert_eq!((breach.begins, breach.steps.len()), (0, 6));
        assert_eq!(breach.steps.iter().filter(|(_, doubles)| *doubles).count(), 1);
    }

    #[test]
    fn an_exploration_can_be_stopped() {
        let explored = explore(&Counters { limit: 255 }, |_| false);
        assert!(explored.breach.is_some() || !explored.is_complete);
    }
}
