//! Batches with realistic handlers, which block their thread, hang or use all their time, and with slow stores. Most
//! tests use tokio's paused time, which a handler can also advance without yielding.

mod blocking;
mod claims_ahead;
mod deadline;
mod decoding;
mod last_receive;
mod neighbours;
mod polls;
mod silence;
mod starvation;
mod waiting;
