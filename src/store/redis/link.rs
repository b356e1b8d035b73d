//! Sends commands to a server or a cluster.

use redis::{Cmd, Value};

#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::{failure::Failure, listing::Scanned, node::Node};

/// The connection to a node or to a cluster.
#[derive(Debug)]
pub(super) enum Link {
    Node(Node),
    #[cfg(feature = "redis-cluster")]
    Cluster(Cluster),
}

impl Link {
    /// Sends the commands to one server: the single node, or the primary of a cluster with this first slot or the next
    /// one after it. Returns their replies, and the positions of the primaries.
    pub(super) async fn scan(&self, slot: u16, commands: Vec<Cmd>) -> Result<Scanned, Failure> {
        match self {
            Self::Node(node) => {
                let answers = node.send(commands).await.into_iter().collect::<Result<_, _>>()?;
                Ok(Scanned { answers, slot, next_node: None })
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster) => cluster.scan(slot, commands).await,
        }
    }

    /// Returns one reply per command, in order. A node gets them in one round trip, a cluster concurrently. Commands
    /// may be sent twice.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        match self {
            Self::Node(node) => node.send(commands).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster) => cluster.send(commands).await,
        }
    }
}
