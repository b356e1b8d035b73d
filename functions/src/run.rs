//! Debug logs of each run of a handler and of each operation's times. The demo draws its timeline from them.

use std::thread;

use lambda_once::{Claim, telemetry::OperationEvent};
use lambda_runtime::tracing::debug;
use uuid::Uuid;

/// A run of a handler. Its start is logged when it is created, and its end when it is dropped, even by a panic.
#[derive(Debug)]
pub struct Run {
    id: Uuid,
}

impl Run {
    /// Logs the start of a run for the effect of `operation` on `key`. `delivery` is the message's id and receive
    /// count, if the event comes from a queue. Without protection there is no claim.
    pub fn start(operation: &'static str, key: &str, delivery: Option<(&str, u32)>, claim: Option<&Claim>) -> Self {
        let id = Uuid::new_v4();
        debug!(
            run = %id,
            of = operation,
            effect = key,
            message_id = delivery.map(|(message_id, _)| message_id),
            receive_count = delivery.map(|(_, receive_count)| receive_count),
            claim = claim.map(|claim| claim.key().to_string()),
            attempt = claim.map(Claim::attempt),
            "run started"
        );
        Self { id }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        debug!(run = %self.id, panicked = thread::panicking(), "run ended");
    }
}

/// Logs the duration of the calls to the store that claimed and settled an operation, in microseconds.
pub(crate) fn log_times(event: &OperationEvent<'_>) {
    let Some(key) = event.key.filter(|_| event.claim_time.is_some()) else {
        return;
    };
    let micros = |time: Option<std::time::Duration>| time.and_then(|time| u64::try_from(time.as_micros()).ok());
    debug!(
        claim = %key,
        attempt = event.attempt,
        took_over = event.took_over,
        claim_micros = micros(event.claim_time),
        settle_micros = micros(event.settle_time),
        "times"
    );
}
