//! The settings of the layer, and their validation.

use std::{any::TypeId, borrow::Cow, fmt, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::{
        engine::{Engine, Needs, ProbeNeed},
        guard::catch_panic,
        names::Registration,
        policy::Heartbeat,
        result::MAX_RESPONSE_BYTES,
    },
    key::{payload::Payload, selector::Key},
};

/// The name of its operations.
pub(super) const OPERATION: &str = "invocation";

#[derive(Clone, Debug)]
pub(super) struct LayerSettings {
    pub(super) engine: Engine,
    registration: Registration,
    /// The name of the operations in logs.
    pub(super) operation: Cow<'static, str>,
    pub(super) key: Key,
    pub(super) payload: Payload,
    pub(super) label: Option<Key>,
    pub(super) wait_up_to: Duration,
    pub(super) heartbeat: Heartbeat,
    pub(super) before_replay: Option<ReplayHook>,
}

/// A function that changes a stored result, as JSON, before it is replayed.
#[derive(Clone)]
pub(super) struct ReplayHook(Arc<dyn Fn(&mut Value) + Send + Sync>);

impl ReplayHook {
    pub(super) fn new(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }

    /// Returns the result as changed by the hook.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StoredResult`] if the hook panics, or its result does not decode as the handler's type.
    pub(super) fn apply<R: Serialize + DeserializeOwned>(&self, result: &R) -> Result<R, Error> {
        let changed = catch_panic(|| {
            let mut json = serde_json::to_value(result)?;
            (self.0)(&mut json);
            serde_json::from_value(json)
        });
        let failed =
            |message: &'static str| Error::new(ErrorKind::StoredResult, ErrorStatus::Permanent, "invoke", message);
        match changed {
            Some(Ok(result)) => Ok(result),
            Some(Err(_)) => Err(failed("`before_replay` made a result that does not decode as the handler's type")),
            None => Err(failed("`before_replay` panicked")),
        }
    }
}

impl fmt::Debug for ReplayHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplayHook")
    }
}

impl LayerSettings {
    #[track_caller]
    pub(super) fn new<T>(engine: &Engine, key: Key) -> Self {
        Self {
            registration: Registration::of_layer::<T>(engine, OPERATION),
            operation: engine.log_name(OPERATION),
            engine: engine.with_max_result_bytes(MAX_RESPONSE_BYTES).for_operation(&engine.log_name(OPERATION)),
            key,
            payload: Payload::default(),
            label: None,
            wait_up_to: Duration::ZERO,
            heartbeat: Heartbeat::AsEngine,
            before_replay: None,
        }
    }

    /// Refuses settings that contradict each other, and a second layer. `inner` is the type of the inner service, if it
    /// is known.
    pub(super) fn check(&self, inner: Option<TypeId>) -> Result<(), Error> {
        let settings =
            (&self.engine.settings, (&self.payload, &self.label), self.wait_up_to, self.heartbeat, &self.before_replay);
        self.registration.check_around(inner, || vec![self.key.clone()], settings)?;
        self.engine.check(&Needs {
            probe: ProbeNeed::Unsupported("an invocation layer"),
            scope: false,
            transactions: None,
            order: false,
            heartbeat: self.heartbeat,
        })?;
        self.heartbeat.check_invocations()?;
        self.key.check()?;
        self.payload.check()?;
        if let Some(label) = &self.label {
            label.check()?;
        }
        let part = if let Payload::Part(part) = &self.payload { Some(part) } else { None };
        // They would find no value in any event, and under `MissingKey::RunUnprotected` protect nothing.
        let mut keys = [Some(&self.key), part, self.label.as_ref()].into_iter().flatten();
        match keys.find(|key| key.is_for_messages() || key.is_for_headers()) {
            Some(key) => {
                Err(Error::config(format!("an event is not a message of a queue, so {key:?} selects nothing")))
            }
            None => Ok(()),
        }
    }
}
