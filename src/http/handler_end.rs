//! The handler's result, and its recorded form.

use http::{HeaderValue, response::Parts};

use super::{
    ResponseBody,
    stored::{HeaderPolicy, StoredForm},
};
use crate::{
    idempotency::result::{Encoder, Recorded},
    record::StoredResult,
};

/// How the inner service ended.
#[allow(clippy::large_enum_variant, reason = "there is one for each request, and it is moved once")]
pub(super) enum HandlerEnd<'s, R, E> {
    /// With a response.
    Answered {
        parts: Parts,
        body: ResponseBody<R>,
        headers: &'s HeaderPolicy,
        replay: Replay,
        /// The id of the request, if it is known.
        request_id: Option<HeaderValue>,
    },
    /// With a response whose body broke off.
    Broken,
    Error(E),
}

/// What a retry gets of a response, if the store accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// All of it.
    Whole,
    /// Its status and its `Location`: the layer or a front door does not take its body.
    TooLarge,
    /// The same: its body has been passed on as it arrived.
    Streamed,
}

impl<R, E> HandlerEnd<'_, R, E> {
    /// Returns whether it is a response that cannot be replayed, whatever the store accepts.
    pub(super) fn is_too_large(&self) -> bool {
        matches!(self, Self::Answered { replay: Replay::TooLarge, .. })
    }
}

impl<R, E> Recorded for HandlerEnd<'_, R, E> {
    /// A response that is too large, or was streamed, is recorded without its body; one whose result is discarded by its status alone.
    fn recorded(&self, encoder: &Encoder<'_>) -> StoredResult {
        let Self::Answered { parts, body, headers, replay, request_id } = self else {
            return StoredResult::DROPPED;
        };
        if encoder.discards_results() {
            return encoder.encode_always(&StoredForm::of_status(parts.status));
        }
        if let Some(bytes) = body.whole().filter(|_| *replay == Replay::Whole) {
            let form = StoredForm::new(parts.status, &parts.headers, bytes, body.trailers(), headers);
            let whole = encoder.encode(&form.of_request(request_id.as_ref(), headers));
            if whole.data.is_some() {
                return whole;
            }
        } else if *replay == Replay::TooLarge {
            tracing::warn!(target: "lambda_once", "the response is too large to be replayed, so its body is not kept; the operation stays done");
        }
        let form = StoredForm::without_body(parts.status, &parts.headers, headers);
        encoder.encode(&form.of_request(request_id.as_ref(), headers))
    }
}
