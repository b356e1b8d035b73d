//! Decodes records and finds their keys.

use lambda_runtime::Context;

use super::{
    drive::Processor,
    records::{Decoded, NoWork, Operation, Work},
};
use crate::{
    batch::{
        envelope::{EnvelopeError, NothingInside},
        ignore::Ignore,
        record::RecordInfo,
        redaction::redacted,
        report::Panicked,
        source::Source,
    },
    decoding::{DecodeError, describe},
    error::{BoxError, Error, ErrorKind},
    idempotency::{engine::Extras, guard::catch_panic, settings::EngineSettings, verdict::Verdict},
    key::{
        delivery::{Body, Delivery},
        hash::KeyHasher,
    },
    record::KeyHash,
};

impl<S: Source, H, T> Processor<S, H, T> {
    /// Returns the hasher for the keys of an invocation.
    pub(super) fn hasher(&self, lambda: &Context) -> KeyHasher {
        let tenant = lambda.tenant_id.as_deref().map(str::as_bytes);
        self.engine.hasher(S::OPERATION, tenant)
    }

    /// Decodes one body and hashes its key. This runs user code, which may panic. In that case the body is unknown.
    pub(super) fn decode(
        &self,
        info: &RecordInfo,
        body: &S::Body,
        hasher: &KeyHasher,
        buffer: &mut Vec<u8>,
    ) -> Decoded<T> {
        if let Some(ignore) = &self.options.ignore
            && let Some(no_work) = ignored(ignore, info, body.as_ref())
        {
            return Err(no_work);
        }
        let work = catch_panic(|| {
            let settings = &self.engine.settings;
            let payload = (self.decode)(info, body).map_err(|source| no_work(&source, settings, S::received(body)))?;
            if settings.disabled {
                return Ok((Work { payload, operation: None }, None));
            }
            let (operation, extras) = match self.operation(info, body.as_ref(), hasher, buffer) {
                Ok((operation, extras)) => (Some(operation), extras),
                // Ordered records never run unprotected.
                Err(error)
                    if error.kind() == ErrorKind::KeyMissing
                        && self.engine.runs_without_key()
                        && self.options.order.is_none() =>
                {
                    tracing::warn!(target: "lambda_once", message_id = info.id(), "the record has no key and runs unprotected");
                    (None, None)
                }
                Err(error) => return Err(NoWork::Failed(self.key_error(error))),
            };
            Ok((Work { payload, operation }, extras))
        });
        work.unwrap_or_else(|| Err(panicked("decoding the body, or finding its key, panicked")))
    }

    #[cold]
    fn key_error(&self, error: Error) -> Error {
        let settings = &self.engine.settings;
        settings.classifiers.key_error(error, settings.on_panic)
    }

    fn operation(
        &self,
        info: &RecordInfo,
        body: &[u8],
        hasher: &KeyHasher,
        buffer: &mut Vec<u8>,
    ) -> Result<(Operation, Option<Box<Extras>>), Error> {
        let body = Body::new(body);
        let delivery = Delivery::new(&body, info);
        let key = hasher.hash(self.key.select(&delivery, buffer)?);
        let fingerprint = self.options.payload.fingerprint(&body, &delivery, hasher)?;
        if self.options.order.is_none() && self.options.label.is_none() {
            return Ok((Operation { key, fingerprint }, None));
        }
        let label = self.options.label.as_ref().and_then(|label| label.label(&delivery));
        let Some(order) = &self.options.order else {
            return Ok((Operation { key, fingerprint }, Extras { sequence: None, label }.boxed()));
        };
        let (entity, sequence) = order.select(&delivery, hasher, buffer)?;
        let key = KeyHash::ordered(&entity, &key);
        Ok((Operation { key, fingerprint }, Extras { sequence: Some(sequence), label }.boxed()))
    }
}

/// Returns whether a user's predicate ignores a record. Few services have one, so it is kept out of the common path.
#[cold]
#[inline(never)]
fn ignored(ignore: &Ignore, info: &RecordInfo, body: &[u8]) -> Option<NoWork> {
    match catch_panic(|| ignore.applies(&Delivery::new(&Body::new(body), info))) {
        Some(true) => Some(NoWork::Ignored),
        Some(false) => None,
        None => Some(panicked("the predicate of `ignore` panicked")),
    }
}

#[cold]
fn panicked(what: &'static str) -> NoWork {
    NoWork::Failed(Error::not_decoded(what).with_source(Panicked))
}

/// Returns the reason for not processing a record, by its decoder's error. `body` is the body as the decoder got it.
#[cold]
fn no_work(source: &BoxError, settings: &EngineSettings, body: &[u8]) -> NoWork {
    if source.is::<NothingInside>() {
        NoWork::Ignored
    } else if source.is::<Panicked>() {
        panicked("opening the envelope panicked")
    } else {
        NoWork::Failed(undecodable(source, settings, body))
    }
}

/// Returns the error of a failed decoder. It is permanent unless a mark or a classifier makes it transient or unknown.
/// Nothing ran, so an unknown error is transient too.
fn undecodable(source: &BoxError, settings: &EngineSettings, body: &[u8]) -> Error {
    match settings.classifiers.verdict(&**source, settings.on_panic) {
        Some(Verdict::Transient | Verdict::Unknown) => {
            let said = redacted(source, body);
            Error::not_decoded(format!("the decoder failed, and a retry may succeed: {said}"))
        }
        Some(Verdict::Permanent | Verdict::Superseded) | None => Error::undecodable(decode_error_text(&**source, body)),
    }
}

/// Describes the error. The decoder's own text may quote the body, so values of the body are redacted.
fn decode_error_text(source: &(dyn std::error::Error + Send + Sync + 'static), body: &[u8]) -> String {
    if let Some(error) = source.downcast_ref::<EnvelopeError>() {
        return error.to_string();
    }
    let said = match (source.downcast_ref::<DecodeError>(), source.downcast_ref::<serde_json::Error>()) {
        (Some(error), _) => error.describe("body", body),
        (None, Some(error)) => describe(error, &[], "body", body),
        (None, None) => return format!("the body does not match the handler's type: {}", redacted(source, body)),
    };
    if body == b"null" {
        return "the body is `null`, as in a Kafka tombstone, and the handler does not take an `Option`".to_owned();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Order {
        #[serde(rename = "order_id")]
        _id: u64,
    }

    #[test]
    fn a_decode_error_never_quotes_the_body() {
        let undecodable = |error: BoxError| undecodable(&error, &EngineSettings::default(), b"secret").to_string();
        let said = |body: &str| undecodable(serde_json::from_str::<Order>(body).unwrap_err().into());
        let place = "at line 1 column";
        assert_eq!(said("{}"), format!("decode (invalid_payload): the body has a missing field `order_id` {place} 2"));
        let wrong = "decode (invalid_payload): the body does not match the handler's type";
        let expected = format!("{wrong}: expected u64 {place} 20");
        assert_eq!(said(r#"{"order_id":"secret"}"#), expected);
        assert_eq!(said("{secret"), format!("decode (invalid_payload): the body is not JSON {place} 2"));
        assert_eq!(
            undecodable("no secret is known".into()),
            "decode (invalid_payload): the body does not match the handler's type: no … is known"
        );
    }
}
