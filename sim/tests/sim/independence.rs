//! The judge shares no code with the library.

use std::{fs, path::Path};

#[test]
fn the_judge_and_the_history_name_nothing_of_the_library() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let judge = fs::read_dir(source.join("judge")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = judge.chain([source.join("history.rs")]).collect();
    assert!(files.len() > 5);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let imports: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("use ")).collect();
        for import in imports {
            let is_allowed = ["use super::", "use crate::history::", "use std::", "pub use index::"];
            let import = import.trim_start();
            let is_own = is_allowed.iter().any(|allowed| import.starts_with(allowed) || import == "use crate::{");
            assert!(is_own, "{}: {import}", file.display());
        }
        for foreign in ["lambda_once", "crate::world", "crate::plan", "crate::bugs", "tokio"] {
            assert!(!text.contains(foreign), "{} contains {foreign}", file.display());
        }
    }
}
