//! Commands that failed, and whether they were sent.

use std::sync::Arc;

use redis::RedisError;

use super::error;
use crate::error::Error;

/// The failure of a command.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: RedisError,
    pub(super) sent: Sent,
}

/// The possibility that a command reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// There was no connection to send it on, to the servers with these addresses.
    No(Arc<str>),
    Once,
    /// The retry failed after the first command got no response.
    Again,
}

impl Failure {
    pub(super) fn unsent(error: RedisError, addresses: &Arc<str>) -> Self {
        Self { error, sent: Sent::No(Arc::clone(addresses)) }
    }

    pub(super) fn sent(error: RedisError) -> Self {
        Self { error, sent: Sent::Once }
    }

    /// Returns the failure as the failure of a retry.
    pub(super) fn of_retry(self) -> Self {
        Self { sent: Sent::Again, ..self }
    }

    pub(super) fn into_error(self, operation: &'static str) -> Error {
        match self.sent {
            Sent::No(addresses) => error::of_connection(self.error, &addresses, operation),
            Sent::Once => error::of_call(self.error, operation),
            Sent::Again => error::of_retry(self.error, operation),
        }
    }
}
