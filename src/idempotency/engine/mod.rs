//! The engine, which claims, runs and settles operations. It is used by everything that protects a handler: operations,
//! requests, invocations and batches.

use std::{borrow::Cow, sync::Arc, time::Duration};

#[cfg(feature = "powertools")]
use super::names::OnlyOperation;
use super::{claim::Claim, operation_settings::OperationSettings, settings::EngineSettings, warnings::Warnings};
#[cfg(feature = "powertools")]
use crate::store::RecordFormat;
use crate::{
    clock::Clock,
    key::{
        canonical::Form,
        hash::{KeyHasher, KeyScope, fingerprint},
    },
    order::Sequence,
    record::{Fingerprint, KeyHash, stored_text},
    store::{Refusal, Store},
};

mod calls;
mod checking;
mod claiming;
mod claimless;
mod committing;
mod ending;
mod heartbeat;
mod observing;
mod probing;
mod running;
mod settling;
mod single;
mod waiting;

pub(crate) use checking::{Needs, ProbeNeed};
#[cfg(any(feature = "batch", feature = "http"))]
pub(crate) use claiming::Withdrawal;
#[cfg(feature = "batch")]
pub(crate) use claiming::{ClaimResult, Unclaimed};
pub(crate) use committing::{Classifier, Commit, OpenTransaction};
#[cfg(feature = "http")]
pub(crate) use ending::Conclusion;
pub(crate) use ending::{End, Success};
pub(crate) use observing::Subject;
pub(crate) use probing::earlier_result;
#[cfg(feature = "batch")]
pub(crate) use settling::{SettleResult, Unsettled};
#[cfg(any(feature = "batch", feature = "http"))]
pub(crate) use waiting::Polled;
#[cfg(feature = "batch")]
pub(crate) use waiting::{LeaseWait, WaitStep};

/// A store and the settings for its use.
///
/// An operation passes through these steps. A single operation takes all of them in one call (`single.rs`), and a batch
/// takes each for several records together.
///
/// | step | file | methods |
/// |---|---|---|
/// | **check** the requirements, before anything is claimed | `checking.rs` | `check`, `check_keys` |
/// | identify: hash the key, in its scope, and the payload | here | `hasher`, `fingerprint` |
/// | **claim** | `claiming.rs` | `claim`; `withdraw` releases claims that nobody acts on |
/// | wait for a claim that is held elsewhere | `waiting.rs` | `claim_or_wait`, `wait_until_free`, `poll` |
/// | call the probe after a takeover | `probing.rs` | `earlier_result` |
/// | **run** the handler within its bounds | `running.rs` | `run`, `run_all` |
/// | renew the lease meanwhile | `heartbeat.rs` | `run_with_heartbeat` |
/// | represent the end of a run, and its settlement | `ending.rs` | `End`, `Conclusion` |
/// | **settle** | `settling.rs` | `settle`; `settle_once` and `settle_again` in batches; `release` |
/// | settle in one transaction with the caller's writes | `committing.rs` | `commit` |
/// | the same without a claim before the run | `claimless.rs` | `claim_within`, `commit_claimless` |
/// | log the outcome, and notify observers | `observing.rs` | `observed`, `timed`, `tell`, `tell_error` |
/// | all of it for one operation | `single.rs` | `run_protected`, `run_claimless`, `run_and_settle`, `run_unprotected` |
///
/// Each call to the store goes through `within` (`calls.rs`), which limits its time.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Arc<EngineSettings>,
    #[cfg(feature = "powertools")]
    only_operation: Arc<OnlyOperation>,
    pub(super) warnings: Arc<Warnings>,
    /// The operation's name in records. Empty until set by [`for_operation`](Self::for_operation).
    operation: Arc<str>,
}

impl Engine {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, mut settings: EngineSettings) -> Self {
        if !store.format().keeps_every_outcome() {
            settings.compress_above = usize::MAX;
        }
        Self {
            store,
            clock,
            settings: Arc::new(settings),
            #[cfg(feature = "powertools")]
            only_operation: Arc::default(),
            warnings: Arc::default(),
            operation: Arc::default(),
        }
    }

    /// Returns the same engine with other settings.
    fn with_engine_settings(&self, settings: EngineSettings) -> Self {
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// Returns the same engine under a name.
    pub(super) fn named(&self, name: Cow<'static, str>) -> Self {
        self.with_engine_settings(EngineSettings { name: Some(name), ..(*self.settings).clone() })
    }

    /// Returns the same engine with these settings. [`check`](Self::check) finds contradictions between them.
    pub(crate) fn with(&self, settings: OperationSettings) -> Self {
        self.with_engine_settings(settings.over(&self.settings))
    }

    /// Returns the same engine for a use that has its own default retention.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer's records live for a day"))]
    pub(crate) fn with_default_retention(&self, retention: Duration) -> Self {
        // A lease of days would outlive it.
        let shortest = self.settings.lease.saturating_add(self.settings.skew_margin);
        let chosen = self.settings.retention.unwrap_or(retention.max(shortest));
        self.with_engine_settings(EngineSettings { retention: Some(chosen), ..(*self.settings).clone() })
    }

    /// Returns the same engine, which stores no result that is longer than this as JSON.
    #[cfg(feature = "invocation")]
    pub(crate) fn with_max_result_bytes(&self, max_result_bytes: usize) -> Self {
        self.with_engine_settings(EngineSettings { max_result_bytes, ..(*self.settings).clone() })
    }

    /// Returns the same engine, whose records contain this name, as in logs.
    pub(crate) fn for_operation(&self, log_name: &str) -> Self {
        Self { operation: stored_text(log_name), ..self.clone() }
    }

    /// Returns the name of an operation in logs, which is its own name preceded by the engine's.
    pub(crate) fn log_name<'a>(&self, operation: &'a str) -> Cow<'a, str> {
        match &self.settings.name {
            Some(name) => format!("{name}.{operation}").into(),
            None => operation.into(),
        }
    }

    /// Returns the hasher for the keys of an operation, which separates them from the keys of other operations. For a
    /// service the operation is its kind.
    pub(crate) fn hasher(&self, operation: &str, tenant: Option<&[u8]>) -> KeyHasher {
        #[cfg(feature = "powertools")]
        if let RecordFormat::Powertools(keys) = self.store.format() {
            return KeyHasher::Powertools(keys);
        }
        let (function, engine) = (self.settings.scope(), self.settings.name.as_deref());
        KeyScope { function, engine, operation, tenant }.hasher()
    }

    /// Returns the fingerprint of a candidate's claim, with the version of the payload.
    fn compared(&self, candidate: &Candidate) -> Option<Fingerprint> {
        Some(candidate.fingerprint?.with_payload_version(self.settings.payload_version))
    }

    /// Computes the fingerprint of a payload.
    pub(crate) fn fingerprint(&self, form: Form, payload: &[u8]) -> Fingerprint {
        #[cfg(feature = "powertools")]
        if let RecordFormat::Powertools(keys) = self.store.format() {
            return keys.fingerprint(form, payload);
        }
        fingerprint(form, payload)
    }
}

/// An operation to be claimed.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: KeyHash,
    /// Without a version, which is a setting of the engine.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) extras: Option<Box<Extras>>,
}

impl Candidate {
    /// Returns the operation's position in the order of its entity, if any.
    pub(crate) fn sequence(&self) -> Option<&Sequence> {
        self.extras.as_ref()?.sequence.as_ref()
    }
}

/// Rarely used fields, boxed because batches move candidates often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The operation's position in the order of its entity.
    pub(crate) sequence: Option<Sequence>,
    /// The label that the application has set.
    pub(crate) label: Option<Arc<str>>,
}

impl Extras {
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        (self.sequence.is_some() || self.label.is_some()).then(|| Box::new(self))
    }
}

/// The result of a claim.
#[derive(Debug)]
pub(crate) enum ClaimAnswer {
    Granted(Claim),
    Refused(Refusal),
    /// The handler deadline has passed. If the claim was granted after that, it was released again.
    OutOfTime,
}
