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
    /// Sends the commands to one server: that itself, or the primary of a cluster with this first slot or the next one after it.
    /// Returns their answers, and the first slot of the primary after it, if there is one.
    #[cfg_attr(not(feature = "redis-cluster"), expect(unused_variables, reason = "a single server has no slots"))]
    pub(super) async fn scan(&self, slot: u16, commands: Vec<Cmd>) -> Result<(Vec<Value>, Option<u16>), Failure> {
        match self {
            Self::Node(node) => {
                let answers = node.send(commands).await.into_iter().collect::<Result<_, _>>()?;
                Ok((answers, None))
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster) => cluster.scan(slot, commands).await,
        }
    }

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
