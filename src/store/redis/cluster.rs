//! The connection to a cluster, whose client finds the node of each key, follows redirections and reconnects.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt, future::join_all, stream};
use redis::{
    Cmd, RedisError, RedisResult, Value,
    aio::ConnectionLike,
    auth::{BasicAuth, StreamingCredentialsProvider},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};

use super::{
    error::no_password,
    failure::Failure,
    listing::{Scanned, first_slots},
    shared::{Shared, noticing_drop, within},
};
use crate::store::remote::password::Password;

pub(super) struct Cluster {
    client: ClusterClient,
    /// Hosts and ports of the configured nodes, for errors.
    addresses: Arc<str>,
    open_timeout: Duration,
    connection: Shared<ClusterConnection>,
}

impl Cluster {
    /// Creates the link. `open_timeout` limits the time in which the client opens its connections, possibly one after
    /// another.
    pub(super) fn new(client: ClusterClient, addresses: String, open_timeout: Duration) -> Self {
        Self { client, addresses: addresses.into(), open_timeout, connection: Shared::new() }
    }

    /// Sends the commands concurrently, each to the node of its key. A pipeline may address only one node.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        let lease = match self.connection.get(self.open()).await {
            Ok(lease) => lease,
            Err(error) => return vec![Err(Failure::unsent(error, &self.addresses)); commands.len()],
        };
        let answers = commands.into_iter().map(|command| {
            let mut connection = lease.connection.clone();
            async move { connection.req_packed_command(&command).await.and_then(Value::extract_error) }
        });
        // The client keeps unresponsive connections, and finds no other nodes once all known ones are gone. The caller
        // may give up before the response timeout.
        let discard = || self.connection.discard(lease.number);
        let answers = noticing_drop(join_all(answers), discard).await;
        let has_failed =
            |error: &RedisError| error.is_timeout() || error.kind() == redis::ErrorKind::ClusterConnectionNotFound;
        if answers.iter().any(|answer| matches!(answer, Err(error) if has_failed(error))) {
            discard();
        }
        answers.into_iter().map(|answer| answer.map_err(Failure::sent)).collect()
    }

    /// Scans like [`Link::scan`](super::link::Link::scan).
    pub(super) async fn scan(&self, slot: u16, commands: Vec<Cmd>) -> Result<Scanned, Failure> {
        let lease = self.connection.get(self.open()).await.map_err(|error| Failure::unsent(error, &self.addresses))?;
        let mut connection = lease.connection;
        let mut cluster_slots = redis::cmd("CLUSTER");
        cluster_slots.arg("SLOTS");
        let random = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let slots = connection.route_command(cluster_slots, random).await.and_then(Value::extract_error);
        let Some(slots) = first_slots(slots.map_err(Failure::sent)?) else {
            let unexpected = (redis::ErrorKind::UnexpectedReturnType, "CLUSTER SLOTS has an unexpected form");
            return Err(Failure::sent(unexpected.into()));
        };
        // A primary without slots has no records either.
        let mut left = slots.into_iter().filter(|first| *first >= slot);
        let this = left.next().unwrap_or(slot);
        let mut answers = Vec::with_capacity(commands.len());
        for command in commands {
            let primary = SingleNodeRoutingInfo::SpecificNode(Route::new(this, SlotAddr::Master));
            let answer = connection.route_command(command, RoutingInfo::SingleNode(primary)).await;
            answers.push(answer.and_then(Value::extract_error).map_err(Failure::sent)?);
        }
        Ok(Scanned { answers, slot: this, next_node: left.next() })
    }

    async fn open(&self) -> RedisResult<ClusterConnection> {
        within(self.open_timeout, self.client.get_async_connection()).await
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Fetches a password for each connection to a node.
pub(super) struct PasswordPerConnection {
    pub(super) user: String,
    pub(super) password: Password,
}

impl StreamingCredentialsProvider for PasswordPerConnection {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send>> {
        let (user, password) = (self.user.clone(), self.password.clone());
        let first = stream::once(async move {
            let password = password.fetch().await.map_err(no_password)?;
            Ok(BasicAuth::new(user, password))
        });
        // The client would treat the end of the stream as an error.
        first.chain(stream::pending()).boxed()
    }
}
