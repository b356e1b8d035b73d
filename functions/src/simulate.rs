//! Failures on demand, for the demo and the tests. Only where `ALLOW_SIMULATION=1` is set; elsewhere a body that asks
//! for one is refused.

use std::{future, time::Duration};

use lambda_once::Failure;
use serde::{Deserialize, Deserializer, de::Error};

/// What a body asks for in its member `simulate`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    outcome: Option<Outcome>,
    /// The outcome applies to this many receives of the message; to all, if absent.
    until_receive: Option<u32>,
    /// How long the handler takes first.
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
    /// Delays, and then fails if it is to.
    ///
    /// # Errors
    ///
    /// The failure that was asked for.
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

/// Decodes the member `simulate` where simulation is allowed.
///
/// # Errors
///
/// Where it is not allowed: that the field is unknown.
pub fn simulation_if_allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Simulation>, D::Error> {
    if std::env::var("ALLOW_SIMULATION").is_ok_and(|value| value == "1") {
        Option::deserialize(deserializer)
    } else {
        Err(D::Error::custom("unknown field `simulate`"))
    }
}
