//! What a layer over whole events is set to.

use std::{borrow::Cow, time::Duration};

use crate::{
    error::Error,
    idempotency::{handle::Idempotency, names::Registration, window::Heartbeat},
    key::{payload::Payload, selector::Key},
};

/// What its operations are called.
pub(super) const OPERATION: &str = "invocation";

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) engine: Idempotency,
    registration: Registration,
    /// What the operations are called in logs.
    pub(super) operation: Cow<'static, str>,
    pub(super) key: Key,
    pub(super) payload: Payload,
    pub(super) patience: Duration,
    pub(super) heartbeat: Heartbeat,
}

impl Settings {
    pub(super) fn new(engine: Idempotency, key: Key) -> Self {
        Self {
            registration: engine.register(OPERATION),
            operation: engine.log_name(OPERATION),
            engine,
            key,
            payload: Payload::default(),
            patience: Duration::ZERO,
            heartbeat: Heartbeat::AsEngine,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.registration.check()?;
        self.engine.check_settings()?;
        self.engine.check_probe(false)?;
        self.key.check()?;
        self.payload.check()?;
        self.heartbeat.check()?;
        let part = if let Payload::Part(part) = &self.payload { Some(part) } else { None };
        // They would find nothing in any event, and under `MissingKey::RunUnprotected` protect nothing.
        match [Some(&self.key), part].into_iter().flatten().find(|key| key.is_for_messages()) {
            Some(key) => {
                Err(Error::config(format!("an event is not a message of a queue, so {key:?} selects nothing")))
            }
            None => Ok(()),
        }
    }
}
