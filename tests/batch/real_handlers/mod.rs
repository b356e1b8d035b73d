//! What batches promise of handlers as they are: that block their thread, hang, or take the whole time there is; and of
//! stores that take time. Most of it in tokio's paused time, which a handler can also let pass without yielding.

#![cfg(all(
    feature = "sqs",
    feature = "kinesis",
    feature = "dynamodb-streams",
    feature = "kafka",
    feature = "mq",
    feature = "sns",
    feature = "eventbridge",
    feature = "conformance"
))]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test with paused time has one thread")]

use crate::support::{clock, collector};

mod blocking;
mod claims_ahead;
mod deadline;
mod decoding;
mod last_receive;
mod neighbours;
mod polls;
mod recorder;
mod silence;
mod starvation;
mod waiting;
mod world;
