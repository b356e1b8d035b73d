//! Futures behind a pointer.

use std::{future::Future, pin::Pin};

/// A future that can cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
