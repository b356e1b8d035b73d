//! Decodes, claims, runs and settles the records of one invocation.
//!
//! It is independent of their origin: a [`Source`](super::source::Source) splits the event into records, and responds
//! with the failed ones. A machine without time or calls ([`machine::Machine::turn`]) decides the order of the steps,
//! and a small loop ([`drive`]) performs them.

mod actions;
mod batch;
mod dead_lettering;
mod decode;
mod drive;
mod entities;
mod lanes;
mod lookups;
mod machine;
mod pace;
mod queues;
mod records;
mod reporting;
mod settling;
mod steps;
mod waits;

pub(super) use drive::Processor;
