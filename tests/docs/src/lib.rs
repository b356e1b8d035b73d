//! The Rust blocks of README.md and of the pages below docs/, as doc tests.
//!
//! `build.rs` finds the pages. The lines of an HTML comment before a block are hidden on GitHub and in the book, which a
//! line that begins with `# ` is not. `...` separates the lines before the block from those after it:
//!
//! ````text
//! <!-- rust,no_run
//! use lambda_once::{DynamoDbStore, Idempotency};
//! async fn init() -> Result<(), lambda_once::Error> {
//! ...
//! Ok(()) }
//! -->
//! ```rust
//! let once = Idempotency::new(DynamoDbStore::from_env().await?);
//! ```
//! ````

#[cfg(test)]
mod blocks;

#[cfg(doctest)]
include!(concat!(env!("OUT_DIR"), "/pages.rs"));
