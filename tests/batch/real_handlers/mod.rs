//! What batches promise of handlers as they are: that block their thread, hang, or take the whole time there is; and of
//! stores that take time. Most of it in tokio's paused time, which a handler can also let pass without yielding.

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
