//! The SQS service, with tokio's time paused.

mod bulk;
mod cached;
mod concurrency;
pub(crate) mod dead_letters;
mod deadline;
mod duplicates;
mod elsewhere;
mod events;
mod fifo;
mod fifo_polls;
mod fifo_waits;
mod handlers;
mod invocations;
mod keys;
mod last_receive;
mod letters_property;
mod logs;
mod lookups;
mod mismatches;
mod operations;
mod orders;
mod permanent;
mod probes;
mod redelivery;
mod reports;
mod trouble;
mod verdicts;
