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

/// The result of the inner service.
#[allow(clippy::large_enum_variant, reason = "there is one for each request, and it is moved once")]
pub(super) enum HandlerEnd<'s, R, E> {
    /// A response.
    Answered {
        parts: Parts,
        body: ResponseBody<R>,
        headers: &'s HeaderPolicy,
        replay: Replay,
        /// The id of the request, if it is known.
        request_id: Option<HeaderValue>,
    },
    /// A response whose body broke off.
    Broken,
    Error(E),
}

/// The part of a response that a retry gets, if the store accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// The whole response.
    Whole,
    /// The status and the `Location`, because the layer or a front door does not accept the body.
    TooLarge,
    /// The status and the `Location`, because the body was passed on as it arrived.
    Streamed,
}

impl<R, E> HandlerEnd<'_, R, E> {
    /// Returns whether the response cannot be replayed, even if the store accepts it.
    pub(super) fn is_too_large(&self) -> bool {
        matches!(self, Self::Answered { replay: Replay::TooLarge, .. })
    }
}

impl<R, E> Recorded for HandlerEnd<'_, R, E> {
    /// Records a response that is too large, or was streamed, without its body. If results are discarded, only the status
    /// is recorded.
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
            tracing::warn!(target: "lambda_once", "the response is too large to be replayed, so its body is dropped; the operation remains completed");
        }
        let form = StoredForm::without_body(parts.status, &parts.headers, headers);
        encoder.encode(&form.of_request(request_id.as_ref(), headers))
    }
}
