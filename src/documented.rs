//! Compares the documentation with the code, in tests.

use std::path::Path;

/// Asserts that a file, by its path from the root of the crate, contains each of these texts.
#[track_caller]
pub(crate) fn assert_states<const N: usize>(file: &str, texts: [String; N]) {
    let content = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    for text in texts {
        assert!(content.contains(&text), "{file} does not state `{text}`");
    }
}
