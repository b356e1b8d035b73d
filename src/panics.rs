//! Panics of user code that must not end the caller.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs user code whose panic must not end the caller, in a drop, or when an error is printed. Returns `None` if it
/// panicked.
pub(crate) fn catch_panic<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(drop_panic).ok()
}

/// Drops a user's value, which may panic.
pub(crate) fn drop_contained<T>(value: T) {
    let _ = catch_panic(|| drop(value));
}

/// Drops the payload of a panic, which may panic once more.
pub(crate) fn drop_panic(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
