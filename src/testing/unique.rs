//! Process-unique ids.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that nothing else of the process has, higher than those before it.
pub(super) fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// An id of the form in which AWS has many.
pub(super) fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}
