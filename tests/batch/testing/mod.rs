//! The feature `testing`, used like in a test of a function.

mod assertions;
mod brokers;
mod handlers;
pub(crate) mod journal;
mod overlap;
mod page;
mod queues;
mod single;
mod streams;
mod time;
