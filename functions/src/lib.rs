//! The setup of the functions, the ledger for their effects, and simulated failures.

#[cfg(test)]
extern crate self as functions;

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lambda_once::{DynamoDbStore, Idempotency, store::dynamodb::Config, telemetry::Emf};

mod ledger;
mod run;
mod simulate;
mod store;

// The tests of the binaries run here, because each binary would otherwise be linked once more for its tests.
#[cfg(test)]
#[allow(dead_code, reason = "nothing runs its `main`")]
#[path = "bin/orders.rs"]
mod orders;
#[cfg(test)]
#[allow(dead_code, reason = "nothing runs its `main`")]
#[path = "bin/payouts.rs"]
mod payouts;

pub use ledger::{Entry, Ledger};
pub use run::Run;
pub use simulate::{Simulation, simulation_if_allowed};

/// The setup of a function.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engine.
    pub once: Idempotency,
    /// The ledger for effects. With DynamoDB it shares the engine's client, and so its connections.
    pub ledger: Ledger,
    /// The engine's store, if that is DynamoDB. Its transactions can write to the ledger as well.
    pub dynamodb: Option<DynamoDbStore>,
}

/// Creates the setup of a function.
///
/// Environment: `LEDGER_TABLE`, and the SDK's own variables for Region and endpoint. `STORE` names the store of the
/// library's records: `dynamodb` (default; table in `IDEMPOTENCY_TABLE`), `redis` (`REDIS_URL`) or `postgres`
/// (`POSTGRES_URL`), each if the feature of that name is enabled. If the invocation's deadline is unknown, as under
/// `cargo lambda watch`, `LEASE_SECONDS` sets the lease. With `METRICS_NAMESPACE`, metrics are written in this
/// CloudWatch namespace.
///
/// # Errors
///
/// If a variable is missing, or a server does not respond.
pub async fn init() -> Result<Setup, lambda_runtime::Error> {
    let client = Client::new(&Config::sdk_config().await);
    let ledger = Ledger::new(client.clone(), variable("LEDGER_TABLE")?);
    let store = store::from_env(client)?;
    let dynamodb = store.dynamodb();
    let mut engine = Idempotency::builder(store.any()).observer(run::log_times);
    if let Ok(seconds) = variable("LEASE_SECONDS") {
        engine = engine.lease(Duration::from_secs(seconds.parse()?));
    }
    if let Ok(namespace) = variable("METRICS_NAMESPACE") {
        engine = engine.observer(Emf::new(namespace));
    }
    let once = engine.build()?;
    // Opens the connection in init, so that no request waits for it.
    once.warm_up().await?;
    Ok(Setup { once, ledger, dynamodb })
}

fn variable(name: &str) -> Result<String, lambda_runtime::Error> {
    std::env::var(name).map_err(|error| format!("environment variable {name}: {error}").into())
}
