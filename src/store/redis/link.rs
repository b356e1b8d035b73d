//! Sends commands to a server or a cluster.

use redis::{Cmd, Value};

#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::{failure::Failure, node::Node};

/// The connection to a node or to a cluster.
#[derive(Debug)]
pub(super) enum Link {
    Node(Node),
    #[cfg(feature = "redis-cluster")]
    Cluster(Cluster),
}

impl Link {
    /// Returns one answer for each command, in order. A node gets them in one round trip, a cluster concurrently. Commands may
    /// be sent twice.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        match self {
            Self::Node(node) => node.send(commands).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster) => cluster.send(commands).await,
        }
    }
}
