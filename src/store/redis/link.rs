//! Sends commands to a server or a cluster.

use redis::{Cmd, RedisError, Value};

#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::{error, node::Node};
use crate::error::Error;

/// The connection to a deployment.
#[derive(Debug)]
pub(super) enum Link {
    Node(Node),
    #[cfg(feature = "redis-cluster")]
    Cluster(Cluster),
}

/// Why a command has no answer.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: RedisError,
    /// Whether there was no connection to send it on.
    pub(super) is_unsent: bool,
}

impl Failure {
    pub(super) fn unsent(error: RedisError) -> Self {
        Self { error, is_unsent: true }
    }

    pub(super) fn sent(error: RedisError) -> Self {
        Self { error, is_unsent: false }
    }

    pub(super) fn into_error(self, operation: &'static str) -> Error {
        if self.is_unsent { error::of_connection(self.error, operation) } else { error::of_call(self.error, operation) }
    }
}

impl Link {
    /// One answer for each command, in order: in one round trip on a node, concurrently on a cluster. The commands may be
    /// sent twice.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        match self {
            Self::Node(node) => node.send(commands).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster) => cluster.send(commands).await,
        }
    }
}
