//! Runs targets, counts their cases, and keeps one case of each kind as a corpus.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::Mutex,
};

/// The number of random cases of a target in `cargo test`.
pub(crate) const CASES: usize = 48;

/// The maximum size of a case.
pub(crate) const MAX_BYTES: usize = 1_024;

/// Declares a target: a function from the bytes of a case to a word for what the case has reached.
macro_rules! target {
    ($(#[$attribute:meta])* $name:ident, $check:expr) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            let tally = crate::support::Tally::new(concat!(module_path!(), "::", stringify!($name)));
            bolero::check!()
                .with_iterations(crate::support::CASES)
                .with_max_len(crate::support::MAX_BYTES)
                .for_each(|bytes: &[u8]| tally.add(bytes, $check(bytes)));
            tally.report();
        }
    };
}
pub(crate) use target;

/// The cases of a target.
pub(crate) struct Tally {
    name: &'static str,
    known: Mutex<(u64, BTreeMap<String, u64>, HashSet<u64>)>,
}

impl Tally {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name: name.split_once("::").unwrap().1, known: Mutex::default() }
    }

    /// Counts a case. With `FUZZ_CORPUS` it is written if it is the first of its kind.
    pub(crate) fn add(&self, bytes: &[u8], kind: String) {
        let mut known = self.known.lock().unwrap();
        known.0 += 1;
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        *known.1.entry(kind).or_default() += 1;
        if known.2.insert(hasher.finish()) && std::env::var_os("FUZZ_CORPUS").is_some() {
            let folder = self.corpus();
            let file = folder.join(format!("{:016x}", hasher.finish()));
            if !file.exists() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(file, bytes).unwrap();
            }
        }
    }

    fn corpus(&self) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/__fuzz__");
        folder.join(self.name.replace("::", "__")).join("corpus")
    }

    /// Prints the number of cases and of kinds, which `tools/tests/fuzz.py` reads.
    pub(crate) fn report(&self) {
        let known = self.known.lock().unwrap();
        println!("fuzz: {} cases={} kinds={}", self.name, known.0, known.1.len());
        if std::env::var_os("FUZZ_KINDS").is_some() {
            known.1.iter().for_each(|(kind, cases)| println!("  {cases:8} {kind}"));
        }
    }
}

/// Runs a future to its end on this thread, with time paused.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}
