//! The handler's result, and its recorded form.

use http::response::Parts;
use serde::{Serialize, Serializer, ser::Error as _};

use super::{
    ResponseBody,
    stored::{HeaderPolicy, StoredForm},
};

/// How the inner service ended: its response, or its error.
#[allow(clippy::large_enum_variant, reason = "there is one for each request, and it is moved once")]
pub(super) enum HandlerEnd<'s, R, E> {
    Answered { parts: Parts, body: ResponseBody<R>, headers: &'s HeaderPolicy },
    Error(E),
}

impl<R, E> Serialize for HandlerEnd<'_, R, E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Answered { parts, body, headers } => match body.whole() {
                Some(bytes) => StoredForm::new(parts.status, &parts.headers, bytes, headers).serialize(serializer),
                None => Err(S::Error::custom("the answer's body is beyond the cap")),
            },
            Self::Error(_) => Err(S::Error::custom("an error of the service is not an answer")),
        }
    }
}
