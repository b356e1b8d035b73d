//! Reads the Lambda context and the event of a request. `None` outside Lambda, and without the feature `http-lambda`.

use std::time::Duration;

use http::request::Parts;

use crate::clock::Deadline;

#[cfg(feature = "http-lambda")]
pub(super) use in_lambda::*;
#[cfg(not(feature = "http-lambda"))]
pub(super) use outside::*;

#[cfg(feature = "http-lambda")]
mod in_lambda {
    use lambda_http::{RequestExt, request::RequestContext};
    use lambda_runtime::Context;

    use super::{Deadline, Duration, Parts};

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

    /// The longest that API Gateway waits for a response; `None` if it is not in front of the function.
    pub(in crate::http) fn answer_within(parts: &Parts) -> Option<Duration> {
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

    /// Whether middleware has rewritten the path: it is neither the event's nor the stage followed by the event's.
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
    use super::{Deadline, Duration, Parts};

    pub(in crate::http) fn deadline(_: &Parts) -> Option<Deadline> {
        None
    }

    pub(in crate::http) fn is_invocation(_: &Parts) -> bool {
        false
    }

    pub(in crate::http) fn tenant(_: &Parts) -> Option<&str> {
        None
    }

    pub(in crate::http) fn answer_within(_: &Parts) -> Option<Duration> {
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
