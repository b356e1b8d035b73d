//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a [`Source`](super::source::Source) has taken them apart, and is told which of
//! them failed. What happens when is decided by a machine without time and calls of its own ([`machine::Machine::turn`]); a
//! small loop ([`drive`]) does it.

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
