//! What the feature `testing` promises, used as a test of a function would use it.

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
