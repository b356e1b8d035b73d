//! Reads the Lambda context and the event of a request, which are `None` outside Lambda and without the feature
//! `http-lambda`.

use std::time::Duration;

use http::request::Parts;

use crate::clock::Deadline;

#[cfg(feature = "http-lambda")]
pub(super) use in_lambda::*;
#[cfg(not(feature = "http-lambda"))]
pub(super) use outside::*;

#[cfg(feature = "http-lambda")]
mod in_lambda {
    use http::{HeaderMap, header};
    use lambda_http::{RequestExt, request::RequestContext};
    use lambda_runtime::Context;

    use super::{Deadline, Duration, Parts};
    use crate::idempotency::result::MAX_RESPONSE_BYTES;

    /// API Gateway times out after 29 seconds (REST) or 30 (HTTP).
    const GATEWAY: Duration = Duration::from_secs(28);

    /// The invocation's deadline; `None` outside Lambda.
    pub(in crate::http) fn deadline(parts: &Parts) -> Option<Deadline> {
        parts.extensions.get::<Context>().map(Deadline::from)
    }

    /// Whether a Lambda function was invoked for the request.
    pub(in crate::http) fn is_invocation(parts: &Parts) -> bool {
        parts.extensions.get::<Context>().is_some()
    }

    pub(in crate::http) fn tenant(parts: &Parts) -> Option<&str> {
        parts.extensions.get::<Context>()?.tenant_id.as_deref()
    }

    /// API Gateway's id of the request, which its client sees, or else the id of the invocation.
    pub(in crate::http) fn request_id(parts: &Parts) -> Option<&str> {
        let of_gateway = match parts.extensions.get::<RequestContext>() {
            Some(RequestContext::ApiGatewayV1(context)) => context.request_id.as_deref(),
            Some(RequestContext::ApiGatewayV2(context)) => context.request_id.as_deref(),
            _ => None,
        };
        let of_invocation = || Some(&*parts.extensions.get::<Context>()?.request_id);
        of_gateway.or_else(of_invocation).filter(|id| !id.is_empty())
    }

    /// The longest that API Gateway waits for a response; `None` if it is not in front of the function.
    pub(in crate::http) fn response_limit(parts: &Parts) -> Option<Duration> {
        match parts.extensions.get::<RequestContext>()? {
            RequestContext::ApiGatewayV1(_) => Some(GATEWAY),
            RequestContext::ApiGatewayV2(context) => {
                // A function URL waits for as long as the function runs.
                let is_function_url = context.domain_name.as_deref().is_some_and(|name| name.contains(".lambda-url."));
                (!is_function_url).then_some(GATEWAY)
            }
            #[allow(unreachable_patterns, reason = "other features of lambda_http add variants")]
            _ => None,
        }
    }

    /// Reserved for the rest of the response, such as the names of its members and headers of outer layers.
    const FRAME_BYTES: usize = 16 * 1024;

    /// Returns whether Lambda accepts this response, as `lambda_http` encodes it.
    pub(in crate::http) fn takes_response(headers: &HeaderMap, body: &[u8]) -> bool {
        // No encoding takes more.
        if body.len() < MAX_RESPONSE_BYTES / 8 {
            return true;
        }
        let encoded = if is_text(headers) { escaped(body) } else { body.len().div_ceil(3) * 4 };
        // Load balancers get the headers twice.
        let headers = headers.iter().map(|(name, value)| 2 * (name.as_str().len() + escaped(value.as_bytes()) + 8));
        encoded + headers.sum::<usize>() + FRAME_BYTES <= MAX_RESPONSE_BYTES
    }

    /// Whether `lambda_http` sends the body as text instead of Base64.
    fn is_text(headers: &HeaderMap) -> bool {
        if headers.contains_key(header::CONTENT_ENCODING) {
            return false;
        }
        let Some(value) = headers.get(header::CONTENT_TYPE) else { return true };
        let value = value.to_str().unwrap_or_default();
        let name = value.split(';').next().unwrap_or_default().trim();
        let kinds = ["text", "application/json", "application/javascript", "application/xml", "application/yaml"];
        kinds.iter().any(|kind| value.starts_with(kind))
            || ["+xml", "+yaml", "+json"].iter().any(|kind| name.ends_with(kind))
            || headers.get("x-lambda-http-content-encoding").is_some_and(|value| value == "text")
    }

    /// The length of a text in JSON.
    fn escaped(text: &[u8]) -> usize {
        // Text in another encoding becomes longer.
        let beyond_ascii = if std::str::from_utf8(text).is_ok() { 1 } else { 3 };
        let length = |&byte: &u8| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            0x80.. => beyond_ascii,
            _ => 1,
        };
        text.iter().map(length).sum()
    }

    /// The path as the client sent it, without the stage. Only events of HTTP APIs have the stage in the path, and only at the
    /// default address.
    pub(in crate::http) fn path(parts: &Parts) -> Option<&str> {
        let path = Some(parts.raw_http_path()).filter(|path| !path.is_empty())?;
        let without_stage = match parts.extensions.get::<RequestContext>()? {
            RequestContext::ApiGatewayV2(context)
                if context.domain_name.as_deref().is_some_and(|name| name.contains(".execute-api.")) =>
            {
                let stage = context.stage.as_deref();
                stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage))
            }
            _ => None,
        };
        Some(without_stage.filter(|rest| rest.starts_with('/')).unwrap_or(path))
    }

    /// Whether middleware has rewritten the path, so that it is neither the event's path nor the stage followed by that
    /// path.
    pub(in crate::http) fn is_rewritten(parts: &Parts) -> bool {
        let (sent, current) = (parts.raw_http_path(), parts.uri.path());
        let after_stage = || {
            let (_, stage) = api(parts)?;
            current.strip_prefix('/')?.strip_prefix(stage)
        };
        !sent.is_empty() && current != sent && after_stage() != Some(sent)
    }

    /// The API and its stage. One function may serve several.
    pub(in crate::http) fn api(parts: &Parts) -> Option<(&str, &str)> {
        let (api, stage) = match parts.extensions.get::<RequestContext>()? {
            RequestContext::ApiGatewayV1(context) => (&context.apiid, &context.stage),
            RequestContext::ApiGatewayV2(context) => (&context.apiid, &context.stage),
            #[allow(unreachable_patterns, reason = "other features of lambda_http add variants")]
            _ => return None,
        };
        Some((api.as_deref().unwrap_or_default(), stage.as_deref().unwrap_or_default()))
    }
}

#[cfg(not(feature = "http-lambda"))]
mod outside {
    use http::HeaderMap;

    use super::{Deadline, Duration, Parts};

    pub(in crate::http) fn takes_response(_: &HeaderMap, _: &[u8]) -> bool {
        true
    }

    pub(in crate::http) fn deadline(_: &Parts) -> Option<Deadline> {
        None
    }

    pub(in crate::http) fn is_invocation(_: &Parts) -> bool {
        false
    }

    pub(in crate::http) fn tenant(_: &Parts) -> Option<&str> {
        None
    }

    pub(in crate::http) fn request_id(_: &Parts) -> Option<&str> {
        None
    }

    pub(in crate::http) fn response_limit(_: &Parts) -> Option<Duration> {
        None
    }

    pub(in crate::http) fn path(_: &Parts) -> Option<&str> {
        None
    }

    pub(in crate::http) fn is_rewritten(_: &Parts) -> bool {
        false
    }

    pub(in crate::http) fn api(_: &Parts) -> Option<(&str, &str)> {
        None
    }
}
