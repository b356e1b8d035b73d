//! What only Redis and Valkey do: full memory, lost scripts, restarts, failovers, and connections that die.

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

/// A busy machine takes its time to connect and to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(8);

/// A store on a server of the test's own.
fn store(url: &str) -> RedisStore {
    Config::new(url).connect_timeout(PATIENCE).response_timeout(PATIENCE).build().unwrap()
}

/// A connection past the store.
async fn direct(url: &str) -> MultiplexedConnection {
    // Half a second by default, which a busy machine may take.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(std::time::Duration::from_secs(20)));
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Sends a command past the store.
async fn command<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(connection).await.unwrap()
}
