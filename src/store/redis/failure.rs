//! Commands without an answer.

use redis::RedisError;

use super::error;
use crate::error::Error;

/// Why a command has no answer.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: RedisError,
    pub(super) sent: Sent,
}

/// Whether a command may have reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// There was no connection to send it on.
    No,
    Once,
    /// This is how its repetition failed; the first one has no answer.
    Before,
}

impl Failure {
    pub(super) fn unsent(error: RedisError) -> Self {
        Self { error, sent: Sent::No }
    }

    pub(super) fn sent(error: RedisError) -> Self {
        Self { error, sent: Sent::Once }
    }

    /// The same failure of a command that was sent once before.
    pub(super) fn after_another(self) -> Self {
        Self { sent: Sent::Before, ..self }
    }

    pub(super) fn into_error(self, operation: &'static str) -> Error {
        match self.sent {
            Sent::No => error::of_connection(self.error, operation),
            Sent::Once => error::of_call(self.error, operation),
            Sent::Before => error::of_repetition(self.error, operation),
        }
    }
}
