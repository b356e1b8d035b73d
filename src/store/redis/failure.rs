//! Commands that failed, and whether they were sent.

use redis::RedisError;

use super::error;
use crate::error::Error;

/// Why a command failed.
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
    /// The retry failed; the first command had no answer.
    Again,
}

impl Failure {
    pub(super) fn unsent(error: RedisError) -> Self {
        Self { error, sent: Sent::No }
    }

    pub(super) fn sent(error: RedisError) -> Self {
        Self { error, sent: Sent::Once }
    }

    /// The failure as that of a retry.
    pub(super) fn of_retry(self) -> Self {
        Self { sent: Sent::Again, ..self }
    }

    pub(super) fn into_error(self, operation: &'static str) -> Error {
        match self.sent {
            Sent::No => error::of_connection(self.error, operation),
            Sent::Once => error::of_call(self.error, operation),
            Sent::Again => error::of_retry(self.error, operation),
        }
    }
}
