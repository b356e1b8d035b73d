//! Runs clients for Node.js.

use serde_json::Value;
use tokio::process::Command;

use super::Reply;

/// Runs the client of this name in node/clients.mjs.
pub async fn run(client: &str, call: &Value) -> Reply {
    let variable =
        |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests by `make clients`"));
    let output = Command::new(variable("CLIENTS_NODE"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/retries/node/clients.mjs"))
        .args([client, &call.to_string()])
        .env("CLIENTS_MODULES", variable("CLIENTS_MODULES"))
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", crate::support::printed(&output)))
}
