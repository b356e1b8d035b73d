//! Searches on all processors for a plan that breaks a promise, then shrinks and saves it.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    checker::{Checked, Promise, Violation, check},
    plan::Plan,
    planted_bugs::PlantedBug,
    runner::perform,
};

/// A plan that breaks a promise.
pub(crate) struct Failing {
    pub(crate) plan: Plan,
    pub(crate) violation: Violation,
}

/// Performs a plan and checks its history.
pub(crate) fn try_out(plan: &Plan, bug: Option<PlantedBug>) -> Checked {
    let plan = Arc::new(plan.clone());
    let tried = catch_unwind(AssertUnwindSafe(|| check(&perform(&plan, bug))));
    tried.unwrap_or_else(|_| {
        Err(Violation {
            promise: Promise::FailureReporting,
            text: "the service panicked, or never answered".to_owned(),
        })
    })
}

/// Runs this many cases, and stops at the first failure, which is shrunk for up to `shrinking`.
pub(crate) fn search<S>(
    cases: usize,
    bug: Option<PlantedBug>,
    plans: impl Fn() -> S + Sync,
    shrinking: Duration,
) -> Option<Failing>
where
    S: Strategy<Value = Plan>,
{
    let is_found = AtomicBool::new(false);
    let seed = number("PROPERTY_SEED", 0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let run = |nth: usize| {
        let plans = plans();
        for case in (nth..cases).step_by(threads) {
            if is_found.load(Ordering::Relaxed) {
                return None;
            }
            let mut tree = plans.new_tree(&mut runner(seed, case)).unwrap();
            if let Err(violation) = try_out(&tree.current(), bug) {
                is_found.store(true, Ordering::Relaxed);
                let whole = Failing { plan: tree.current(), violation };
                return Some(shrink(&mut tree, whole, bug, shrinking));
            }
        }
        None
    };
    thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|nth| scope.spawn(move || run(nth))).collect();
        running.into_iter().filter_map(|running| running.join().unwrap()).next()
    })
}

/// Returns a generator that draws the same plan for a case on every thread.
pub(crate) fn runner(seed: usize, case: usize) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&case.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Returns the smallest failing plan found.
fn shrink(
    tree: &mut impl ValueTree<Value = Plan>,
    whole: Failing,
    bug: Option<PlantedBug>,
    shrinking: Duration,
) -> Failing {
    let began = Instant::now();
    let mut failing = whole;
    let mut may_go_on = tree.simplify();
    while may_go_on && began.elapsed() < shrinking {
        let plan = tree.current();
        may_go_on = match try_out(&plan, bug) {
            Err(violation) => {
                failing = Failing { plan, violation };
                tree.simplify()
            }
            Ok(()) => tree.complicate(),
        };
    }
    failing
}

/// Reads a number from the environment.
pub(crate) fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

impl Failing {
    /// Saves the plan in a file named after its contents.
    pub(crate) fn save(&self) -> PathBuf {
        let folder = std::env::var_os("PROPERTY_FAILED")
            .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("property"), PathBuf::from);
        fs::create_dir_all(&folder).unwrap();
        let text = serde_json::to_string_pretty(&self.plan).unwrap();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let path = folder.join(format!("{:016x}.json", hasher.finish()));
        fs::write(&path, text).unwrap();
        path
    }
}

/// Reads a saved plan.
pub(crate) fn read(path: &Path) -> Plan {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}
