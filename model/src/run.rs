//! Explores the worlds, without and with the planted bugs, on all processors.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    bugs::{BUGS, Planted},
    explorer::{Explored, explore},
    page,
    system::{Step, System},
    words,
    world::{Event, World},
    worlds::worlds,
};

/// The states of a world that a bug may need to be detected. The worlds themselves have fewer.
const MOST_STATES: usize = 2_000_000;

/// The exploration of a world.
#[derive(Debug)]
pub(crate) struct WorldReport {
    pub(crate) world: World,
    pub(crate) states: usize,
    /// A broken promise with its trace, or an event that is never reached.
    pub(crate) fault: Option<String>,
}

/// The detection of a bug.
#[derive(Clone, Debug)]
pub(crate) struct BugReport {
    pub(crate) planted: Planted,
    pub(crate) detected: Option<Detected>,
}

/// A promise that a bug breaks.
#[derive(Clone, Debug)]
pub(crate) struct Detected {
    pub(crate) world: &'static str,
    pub(crate) states: usize,
    /// `None` if the world is explored to its end, because an event is never reached.
    pub(crate) steps: Option<usize>,
    pub(crate) promise: String,
    pub(crate) trace: String,
}

/// Runs tasks on all processors, and returns their results in the order of the tasks.
pub(crate) fn side_by_side<T: Sync, R: Send>(tasks: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(tasks.len()));
    let threads = thread::available_parallelism().map_or(1, Into::into);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((place, task)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    tasks.get(place).map(|task| (place, task))
                } {
                    let result = work(task);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Returns the events that a world has not reached, in words.
pub(crate) fn missing(world: &World, explored: &Explored<Step>) -> Option<String> {
    let unreached = |event: &&Event| explored.events & event.bit() == 0;
    let missing: Vec<_> = world.reaches.iter().filter(unreached).map(|event| event.as_str()).collect();
    (explored.is_complete && !missing.is_empty()).then(|| format!("never: {}", missing.join("; ")))
}

/// Explores a world without a bug.
pub(crate) fn of_world(world: &World, goes_on: impl Fn(usize) -> bool) -> (Explored<Step>, Option<String>) {
    let system = System { world: world.clone(), bug: None };
    let explored = explore(&system, goes_on);
    let fault = explored.breach.as_ref().map(|breach| words::trace(&system, breach));
    let fault = fault.or_else(|| missing(world, &explored));
    (explored, fault)
}

/// Looks for a bug in its worlds.
pub(crate) fn of_bug(planted: &Planted) -> BugReport {
    let detected = planted.worlds.iter().find_map(|name| {
        let world = worlds().into_iter().find(|world| world.name == *name)?;
        let system = System { world, bug: Some(planted.bug) };
        let explored = explore(&system, |states| states < MOST_STATES);
        let states = explored.states;
        if let Some(breach) = &explored.breach {
            let (promise, trace) = (breach.promise.to_owned(), words::trace(&system, breach));
            return Some(Detected { world: name, states, steps: Some(breach.steps.len()), promise, trace });
        }
        let promise = missing(&system.world, &explored)?;
        Some(Detected { world: name, states, steps: None, trace: promise.clone(), promise })
    });
    BugReport { planted: *planted, detected }
}

/// Explores all worlds, and plants all bugs. Returns whether all promises hold and all bugs are detected as listed.
pub(crate) fn all(names: &[String], writes: bool) -> bool {
    let is_selected = |world: &World| names.is_empty() || names.iter().any(|name| name == world.name);
    let selected: Vec<World> = worlds().into_iter().filter(is_selected).collect();
    let of_worlds = side_by_side(&selected, |world| {
        let (explored, fault) = of_world(world, |_| true);
        WorldReport { world: world.clone(), states: explored.states, fault }
    });
    let mut passes = true;
    for WorldReport { world, states, fault } in &of_worlds {
        println!("{:22}{states:9} states  {}", world.name, world.about);
        if let Some(fault) = fault {
            passes = false;
            println!("{fault}");
        }
    }
    if !names.is_empty() {
        return passes && !of_worlds.is_empty();
    }
    let of_bugs = side_by_side(BUGS, of_bug);
    println!();
    for BugReport { planted, detected } in &of_bugs {
        let (rule, what) = (planted.rule, planted.what);
        match (detected, planted.harmless) {
            (Some(found), None) => {
                println!("{rule:16}{what}: {}, {} states, {}", found.world, found.states, page::steps(found));
            }
            (None, Some(why)) => println!("{rule:16}{what}: no world, because {why}"),
            (None, None) => {
                passes = false;
                println!("{rule:16}{what}: NOT DETECTED in {}", planted.worlds.join(", "));
            }
            (Some(found), Some(_)) => {
                passes = false;
                println!("{rule:16}{what}: DETECTED, although it was said to be harmless\n{}", found.trace);
            }
        }
    }
    println!("\n{} bugs: {}", of_bugs.len(), page::kinds(&of_bugs));
    passes && page::compare(&of_worlds, &of_bugs, writes)
}

/// Prints the shortest trace to a broken promise for the bugs against these rules.
pub(crate) fn trace(rules: &[String]) -> bool {
    let is_selected = |planted: &&Planted| rules.is_empty() || rules.iter().any(|rule| rule == planted.rule);
    let selected: Vec<Planted> = BUGS.iter().filter(is_selected).copied().collect();
    for BugReport { planted, detected } in side_by_side(&selected, of_bug) {
        println!("{}: {}", planted.rule, planted.what);
        match detected {
            Some(found) => println!("   in the world {}\n{}", found.world, found.trace),
            None => println!("   no world detects it\n"),
        }
    }
    !selected.is_empty()
}
