//! Failures on demand, for the demo and the tests. Only allowed with `ALLOW_SIMULATION=1`. Otherwise a body that
//! requests one is rejected.

use std::{future, time::Duration};

use lambda_once::Failure;
use serde::{Deserialize, Deserializer, de::Error};

/// The value of the member `simulate` in a body.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    outcome: Option<Outcome>,
    /// The outcome applies to this many receives of the message, or to all if absent.
    until_receive: Option<u32>,
    /// The delay before the handler, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Transient,
    Permanent,
    Panic,
    Hang,
}

impl Simulation {
    /// Delays, and then fails if requested.
    ///
    /// # Errors
    ///
    /// The requested failure.
    pub async fn run(&self, receive_count: u32) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(self.delay_ms)).await;
        if self.until_receive.is_some_and(|last| receive_count > last) {
            return Ok(());
        }
        match self.outcome {
            None => Ok(()),
            Some(Outcome::Transient) => Err(Failure::transient("simulated: transient")),
            Some(Outcome::Permanent) => Err(Failure::permanent("simulated: permanent")),
            Some(Outcome::Panic) => panic!("simulated: panic"),
            Some(Outcome::Hang) => future::pending().await,
        }
    }
}

/// Decodes the member `simulate` if simulation is allowed.
///
/// # Errors
///
/// If it is not allowed: that the field is unknown.
pub fn simulation_if_allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Simulation>, D::Error> {
    if std::env::var("ALLOW_SIMULATION").is_ok_and(|value| value == "1") {
        Option::deserialize(deserializer)
    } else {
        Err(D::Error::custom("unknown field `simulate`"))
    }
}
