//! Redis and Valkey: full memory, lost scripts, restarts, failovers and broken connections.

mod cluster;
mod connections;
mod failover;
mod listing;
mod memory;
mod orders;
mod permissions;
mod records;
mod restarts;
mod scripts;
mod tls;
mod warnings;

use lambda_once::{RedisStore, store::redis::Config};
use redis::aio::MultiplexedConnection;

/// A timeout that is long enough for connections and responses on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(8);

/// Returns a store on a separate server.
fn store(url: &str) -> RedisStore {
    Config::new(url).connect_timeout(PATIENCE).response_timeout(PATIENCE).build().unwrap()
}

/// Opens a direct connection.
async fn direct(url: &str) -> MultiplexedConnection {
    // The default of half a second is too short for a busy machine.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(std::time::Duration::from_secs(20)));
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Sends a command on a direct connection.
async fn command<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(connection).await.unwrap()
}
