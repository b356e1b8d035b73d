//! Finds the operation of a request.

use std::cell::Cell;

use http::{HeaderMap, HeaderValue, request::Parts};

use super::{
    fingerprint,
    header_key::{self, HeaderKey},
    lambda,
    problem::Problem,
    settings::{KeySource, LayerSettings, OPERATION},
};
use crate::{
    clock::Deadline,
    error::ErrorKind,
    idempotency::{
        claim::Claim,
        engine::{Candidate, Extras},
        invoked::note_tenant,
        window::Window,
    },
    key::{
        delivery::{Body, Delivery, MessageMetadata},
        hash::KeyHasher,
        order_selector::OrderSelector,
    },
    order::Sequence,
    record::KeyHash,
};

/// The participation of a request, decided before its body is read.
pub(super) enum Participation {
    /// Handled as if there were no layer.
    PassThrough,
    /// The key is in the header.
    HeaderKey { key: String, caller: Vec<u8> },
    /// The key is selected from the body, or from another header.
    SelectedKey { caller: Vec<u8> },
}

impl LayerSettings {
    pub(super) fn participation(&self, parts: &Parts) -> Result<Participation, Problem> {
        // Also for a request that passes through, because its handler may run operations.
        note_tenant(lambda::tenant(parts));
        let is_covered =
            self.methods.contains(&parts.method) && self.applies_to.as_ref().is_none_or(|applies| applies(parts));
        if self.engine.settings.disabled || !is_covered {
            return Ok(Participation::PassThrough);
        }
        let key = match &self.key {
            KeySource::Request(_) => None,
            KeySource::Header(name) => match header_key::read(&parts.headers, name) {
                HeaderKey::Absent if self.is_optional(parts) => return Ok(Participation::PassThrough),
                header => Some(header),
            },
        };
        let checked = self.check().and_then(|()| self.window(parts).check_heartbeat(self.heartbeat));
        checked.map_err(|error| self.misconfigured(&error))?;
        let key = match key {
            None => None,
            Some(HeaderKey::Absent) => return Err(Problem::KEY_MISSING),
            Some(HeaderKey::Malformed(detail)) => return Err(Problem::malformed(detail)),
            Some(HeaderKey::Key(key)) => Some(key),
        };
        if let (Some(key), Some(check)) = (&key, &self.key_check) {
            check(key).map_err(Problem::malformed)?;
        }
        let caller = self.scope.of(parts).ok_or(Problem::CALLER_UNKNOWN)?;
        Ok(match key {
            Some(key) => Participation::HeaderKey { key, caller },
            None => Participation::SelectedKey { caller },
        })
    }

    /// Returns the operation to claim, or `None` if the request passes through after all.
    pub(super) fn candidate(
        &self,
        participation: Participation,
        parts: &Parts,
        body: &Body<'_>,
    ) -> Result<Option<Candidate>, Problem> {
        let (caller, key) = match participation {
            Participation::PassThrough => return Ok(None),
            Participation::HeaderKey { key, caller } => (caller, key.into_bytes()),
            Participation::SelectedKey { caller } => match self.select(parts, body)? {
                Some(key) => (caller, key),
                None => return Ok(None),
            },
        };
        let hasher = self.hasher(parts, &caller);
        let (plain_key, mut key, mut sequence) = (&key, hasher.hash(&key), None);
        let label = self.label.as_ref().and_then(|label| {
            label.label(&Delivery::new(
                body,
                &RequestHeaders { headers: &parts.headers, is_ambiguous: Cell::new(false) },
            ))
        });
        if let Some(order) = &self.order {
            let (entity, at) = self.select_order(order, parts, body, &hasher)?;
            (key, sequence) = (KeyHash::ordered(&entity, &key), Some(at));
        }
        // An outer layer holds the claim, so every request would be refused with 409.
        if parts.extensions.get::<Claim>().is_some_and(|claim| claim.key() == key) {
            return Err(self.misconfigured(&"the layer is applied twice: the request has been claimed already"));
        }
        let (hook, headers) = (self.fingerprint.as_ref(), &self.compared_headers);
        let fingerprint = fingerprint::of_request(plain_key, parts, body, hook, headers)
            // The hook's error may quote the body.
            .map_err(|_| Problem::BODY_REJECTED.because("`fingerprint` returned an error"))?;
        Ok(Some(Candidate { key, fingerprint: Some(fingerprint), extras: Extras { sequence, label }.boxed() }))
    }

    /// Returns the time window of a request that starts now. If the deadline is unknown, it is the engine's lease, which is
    /// renewed.
    pub(super) fn window(&self, parts: &Parts) -> Window {
        let deadline = lambda::deadline(parts).unwrap_or(Deadline::UNKNOWN);
        let window = Window::new(self.engine.clock.now(), deadline, &self.engine.settings);
        window.with_heartbeat(self.heartbeat, &self.engine.settings)
    }

    fn is_optional(&self, parts: &Parts) -> bool {
        // An ordered request never runs unprotected.
        self.order.is_none() && self.optional.as_ref().is_some_and(|optional| optional(parts))
    }

    fn misconfigured(&self, error: &dyn std::fmt::Display) -> Problem {
        let (outcome, operation) = (ErrorKind::Config.as_str(), &*self.operation);
        tracing::error!(target: "lambda_once", outcome, operation, %error, "operation");
        Problem::MISCONFIGURED
    }

    fn select_order(
        &self,
        order: &OrderSelector,
        parts: &Parts,
        body: &Body<'_>,
        hasher: &KeyHasher,
    ) -> Result<(KeyHash, Sequence), Problem> {
        let headers = RequestHeaders { headers: &parts.headers, is_ambiguous: Cell::new(false) };
        order.select(&Delivery::new(body, &headers), hasher, &mut Vec::new()).map_err(|error| {
            if headers.is_ambiguous.get() {
                return Problem::malformed(
                    "the header with the entity or the sequence is repeated, or not printable ASCII",
                );
            }
            let settings = &self.engine.settings;
            let error = settings.classifiers.key_error(error, settings.on_panic);
            let problem = if error.is_retryable() { Problem::UNAVAILABLE } else { Problem::ORDER_MISSING };
            problem.because(error)
        })
    }

    fn hasher(&self, parts: &Parts, caller: &[u8]) -> KeyHasher {
        // Both as one part. A length precedes each, so that neither can pose as the other.
        let tenant = lambda::tenant(parts);
        let tenant = tenant.unwrap_or_default().as_bytes();
        let whose = [&(tenant.len() as u64).to_be_bytes(), tenant, caller].concat();
        self.engine.hasher(OPERATION, Some(&whose))
    }

    fn select(&self, parts: &Parts, body: &Body<'_>) -> Result<Option<Vec<u8>>, Problem> {
        let KeySource::Request(key) = &self.key else { return Ok(None) };
        let mut buffer = Vec::new();
        let headers = RequestHeaders { headers: &parts.headers, is_ambiguous: Cell::new(false) };
        let settings = &self.engine.settings;
        let selected = key.select(&Delivery::new(body, &headers), &mut buffer).map(<[u8]>::to_vec);
        match selected.map_err(|error| settings.classifiers.key_error(error, settings.on_panic)) {
            Ok(key) => Ok(Some(key)),
            Err(_) if headers.is_ambiguous.get() => {
                Err(Problem::malformed("the header with the key is repeated, or not printable ASCII"))
            }
            Err(error) if error.kind() == ErrorKind::KeyMissing && self.is_optional(parts) => Ok(None),
            Err(error) if error.kind() == ErrorKind::KeyMissing => Err(Problem::KEY_MISSING),
            Err(error) if error.kind() == ErrorKind::Config => Err(self.misconfigured(&error)),
            Err(error) if error.is_retryable() => Err(Problem::UNAVAILABLE.because(error)),
            Err(error) => Err(Problem::BODY_REJECTED.because(error)),
        }
    }
}

/// The request headers, for [`Key::header`](crate::Key::header).
struct RequestHeaders<'a> {
    headers: &'a HeaderMap,
    /// Whether a selected header is repeated, or not text.
    is_ambiguous: Cell<bool>,
}

impl MessageMetadata for RequestHeaders<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok().filter(|_| values.next().is_none());
        if value.is_none() {
            self.is_ambiguous.set(true);
        }
        value
    }

    fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        self.is_ambiguous.set(self.is_ambiguous.get() || value.is_none() && self.headers.contains_key(name));
        value.map(HeaderValue::as_bytes)
    }
}
