//! What the functions share: where their effects go, and how failures are simulated.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lambda_once::{Idempotency, store::dynamodb::Config};

mod ledger;
mod simulate;
mod store;

pub use ledger::{Entry, Ledger};
pub use simulate::{Simulation, simulation_if_allowed};

/// The engine and the ledger. With DynamoDB they share a client, and so its connections.
///
/// Environment: `LEDGER_TABLE`, and the SDK's own variables for Region and endpoint. `STORE` names the store of the
/// library's records: `dynamodb` (default; table in `IDEMPOTENCY_TABLE`), `redis` (`REDIS_URL`) or `postgres`
/// (`POSTGRES_URL`), each if the feature of that name is enabled. Where the invocation's deadline is not known, as under
/// `cargo lambda watch`, `LEASE_SECONDS` sets the lease.
///
/// # Errors
///
/// If a variable is missing, or a server does not answer.
pub async fn init() -> Result<(Idempotency, Ledger), lambda_runtime::Error> {
    let client = Client::new(&Config::sdk_config().await);
    let ledger = Ledger::new(client.clone(), variable("LEDGER_TABLE")?);
    let mut engine = Idempotency::builder(store::from_env(client)?);
    if let Ok(seconds) = variable("LEASE_SECONDS") {
        engine = engine.lease(Duration::from_secs(seconds.parse()?));
    }
    let once = engine.build()?;
    // Opens the connection in init, where it costs no request any time.
    once.warm().await?;
    Ok((once, ledger))
}

fn variable(name: &str) -> Result<String, lambda_runtime::Error> {
    std::env::var(name).map_err(|error| format!("environment variable {name}: {error}").into())
}
