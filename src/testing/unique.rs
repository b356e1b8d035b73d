//! Process-unique ids.

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a number that is unique in the process, and higher than those before it.
pub(super) fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Returns an id in the UUID format of AWS.
pub(super) fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}
