//! Declares targets, counts their cases, and keeps one case of each kind as a corpus.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The number of random cases of a target in `cargo test`.
pub const CASES: usize = 48;

/// The maximum size of a case in bytes.
pub const MAX_BYTES: usize = 1_024;

/// The maximum number of files in a corpus.
const MAX_FILES: usize = 12;

/// Declares a target: a function from the bytes of a case to a word for the state that the case has reached.
#[macro_export]
macro_rules! target {
    ($(#[$attribute:meta])* $name:ident, $check:expr) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            let name = concat!(module_path!(), "::", stringify!($name));
            let tally = $crate::tally::Tally::new(name, env!("CARGO_MANIFEST_DIR"), file!());
            bolero::check!()
                .with_iterations($crate::tally::CASES)
                .with_max_len($crate::tally::MAX_BYTES)
                .for_each(|bytes: &[u8]| tally.add(bytes, $check(bytes)));
            tally.report();
        }
    };
}

/// The cases of a target.
#[derive(Debug)]
pub struct Tally {
    name: &'static str,
    corpus: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    cases: u64,
    kinds: BTreeMap<String, u64>,
    hashes: HashSet<u64>,
}

impl Tally {
    /// Creates an empty tally of a target in a source file, which is named as from the workspace.
    pub fn new(path: &'static str, package: &str, file: &str) -> Self {
        let name = path.split_once("::").map_or(path, |(_, name)| name);
        let source = Path::new(package).ancestors().map(|folder| folder.join(file)).find(|path| path.exists());
        // Where bolero reads it.
        let corpus =
            source.unwrap_or_default().with_file_name("__fuzz__").join(name.replace("::", "__")).join("corpus");
        Self { name, corpus, known: Mutex::default() }
    }

    /// Counts a case. With `FUZZ_CORPUS` it is written if it is the first of its kind.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn add(&self, bytes: &[u8], kind: String) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        known.cases += 1;
        *known.kinds.entry(kind).or_default() += 1;
        let is_new = known.hashes.insert(hasher.finish());
        if is_new && known.hashes.len() <= MAX_FILES && std::env::var_os("FUZZ_CORPUS").is_some() {
            let file = self.corpus.join(format!("{:016x}", hasher.finish()));
            let written = std::fs::create_dir_all(&self.corpus).and_then(|()| std::fs::write(&file, bytes));
            written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }

    /// Prints the number of cases and of kinds, which `tools/tests/fuzz.py` reads. With `FUZZ_KINDS` also the kinds.
    pub fn report(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        println!("fuzz: {} cases={} kinds={}", self.name, known.cases, known.kinds.len());
        if std::env::var_os("FUZZ_KINDS").is_some() {
            known.kinds.iter().for_each(|(kind, cases)| println!("  {cases:8} {kind}"));
        }
    }
}
