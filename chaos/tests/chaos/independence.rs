//! The judge shares no code with the library.

use std::{fs, path::Path};

#[test]
fn the_judge_and_the_history_name_nothing_of_the_library() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let judge = fs::read_dir(source.join("judge")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = judge.chain([source.join("history.rs")]).collect();
    assert!(files.len() > 6);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("use ")) {
            let is_allowed = ["use super::", "use crate::history::", "use std::"];
            assert!(is_allowed.iter().any(|allowed| line.starts_with(allowed)), "{}: {line}", file.display());
        }
        for foreign in ["lambda_once", "crate::world", "crate::worker", "tokio", "serde"] {
            assert!(!text.contains(foreign), "{} contains {foreign}", file.display());
        }
    }
}
