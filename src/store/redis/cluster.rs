//! A cluster: the client finds the node of each key, follows redirections and reconnects by itself.

use std::{fmt, pin::Pin};

use futures_util::{Stream, StreamExt, future::join_all, stream};
use redis::{
    Cmd, RedisError, RedisResult, Value,
    aio::ConnectionLike,
    auth::{BasicAuth, StreamingCredentialsProvider},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
};
use tokio::sync::Mutex;

use super::{config::Password, link::Failure, node::password_error};

pub(super) struct Cluster {
    client: ClusterClient,
    connection: Mutex<Option<ClusterConnection>>,
}

impl Cluster {
    pub(super) fn new(client: ClusterClient) -> Self {
        Self { client, connection: Mutex::default() }
    }

    /// Sends the commands side by side, each to the node of its key: a pipeline would have to stay on one node.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return vec![Err(Failure::unsent(error)); commands.len()],
        };
        let answers = commands.into_iter().map(|command| {
            let mut connection = connection.clone();
            async move { connection.req_packed_command(&command).await.and_then(Value::extract_error) }
        });
        let answers = join_all(answers).await;
        // All the nodes it knew are gone: those that were configured may lead to others.
        let has_lost_all = |error: &RedisError| error.kind() == redis::ErrorKind::ClusterConnectionNotFound;
        if answers.iter().any(|answer| matches!(answer, Err(error) if has_lost_all(error))) {
            *self.connection.lock().await = None;
        }
        answers.into_iter().map(|answer| answer.map_err(Failure::sent)).collect()
    }

    async fn connection(&self) -> RedisResult<ClusterConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        Ok(connection.insert(self.client.get_async_connection().await?).clone())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// Fetches a password for each connection to a node.
pub(super) struct PasswordPerConnection {
    pub(super) user: String,
    pub(super) password: Password,
}

impl StreamingCredentialsProvider for PasswordPerConnection {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send>> {
        let (user, password) = (self.user.clone(), Password::clone(&self.password));
        let first = stream::once(async move {
            let password = password().await.map_err(password_error)?;
            Ok(BasicAuth::new(user, password))
        });
        // The end of the stream would count as an error.
        first.chain(stream::pending()).boxed()
    }
}
