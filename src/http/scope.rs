//! Whose key it is.

use std::{fmt, sync::Arc};

use http::{HeaderName, request::Parts};
use lambda_http::{aws_lambda_events::apigw::ApiGatewayRequestAuthorizer, request::RequestContext};
use serde_json::Value;

type Identify = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Whose keys those of a request are. One caller is never shown what another caller's request was answered.
///
/// Keys are chosen by clients, and may be easy to guess. So the caller, as the service knows it, is a part of every key.
#[derive(Clone)]
pub struct Scope {
    identify: Arc<Identify>,
    anonymous: bool,
}

impl Scope {
    /// The principal that API Gateway's authorizer has established: of a JWT or Cognito user pool its issuer and subject,
    /// of a Lambda authorizer (REST) its `principalId`, of a Cognito identity pool the identity's id, of IAM otherwise
    /// the caller's ARN. The ARN of an assumed role holds the session's name: another session is another caller.
    ///
    /// A request without one is refused with 403: without an authorizer in front of it, this scope lets nobody through.
    pub fn authorizer() -> Self {
        Self::from_fn(|parts| match parts.extensions.get::<RequestContext>()? {
            RequestContext::ApiGatewayV1(context) => {
                let identity = &context.identity;
                principal(&context.authorizer)
                    .or_else(|| iam(identity.cognito_identity_id.as_deref(), identity.user_arn.as_deref()))
            }
            RequestContext::ApiGatewayV2(context) => principal(context.authorizer.as_ref()?),
            #[allow(unreachable_patterns, reason = "other features of lambda_http add variants")]
            _ => None,
        })
    }

    /// The value of a header, such as one that a trusted proxy sets. Clients must not be able to set it: the proxy must
    /// replace it. A request that has it more than once is refused with 403; a REST API, a load balancer and an HTTP API
    /// hand over a single value of several, so there it is not noticed.
    pub fn header(name: HeaderName) -> Self {
        Self::from_fn(move |parts| {
            let mut values = parts.headers.get_all(&name).iter();
            let value = values.next().filter(|_| values.next().is_none())?;
            Some(value.to_str().ok()?.to_owned())
        })
    }

    /// What a function makes of the request: the id of a session, a tenant. A request for which it finds nothing, or an
    /// empty string, is refused with 403.
    pub fn from_fn(identify: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { identify: Arc::new(identify), anonymous: false }
    }

    /// Lets requests through whose caller is not known, too. They share one scope of their own: whoever sends the same
    /// key and the same request as another of them gets that one's answer. Only for services where that does no harm, or
    /// whose clients are known to draw keys at random.
    #[must_use]
    pub fn or_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// The bytes that stand for the caller; `None` if the request is to be refused.
    pub(super) fn of(&self, parts: &Parts) -> Option<Vec<u8>> {
        match (self.identify)(parts).filter(|caller| !caller.is_empty()) {
            Some(caller) => Some([b"caller ", caller.as_bytes()].concat()),
            None => self.anonymous.then(|| b"anonymous".to_vec()),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("anonymous", &self.anonymous).finish_non_exhaustive()
    }
}

fn principal(authorizer: &ApiGatewayRequestAuthorizer) -> Option<String> {
    if let Some(jwt) = &authorizer.jwt {
        return Some(joined("jwt", &[jwt.claims.get("iss").map_or("", String::as_str), jwt.claims.get("sub")?]));
    }
    if let Some(caller) = &authorizer.iam {
        let cognito = caller.cognito_identity.as_ref().and_then(|identity| identity.identity_id.as_deref());
        return iam(cognito, caller.user_arn.as_deref());
    }
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(claims) = authorizer.fields.get("claims") {
        let issuer = claims.get("iss").and_then(text).unwrap_or_default();
        return Some(joined("jwt", &[&issuer, &claims.get("sub").and_then(text)?]));
    }
    Some(joined("lambda", &[&authorizer.fields.get("principalId").and_then(text)?]))
}

/// All users of a Cognito identity pool share the ARN of the pool's role, so their own id comes first.
fn iam(cognito_identity: Option<&str>, arn: Option<&str>) -> Option<String> {
    let given = |text: &&str| !text.is_empty();
    let cognito = cognito_identity.filter(given).map(|id| joined("cognito", &[id]));
    cognito.or_else(|| arn.filter(given).map(|arn| joined("iam", &[arn])))
}

/// The parts as a JSON array, so that no two sets of parts give the same text.
fn joined(kind: &str, parts: &[&str]) -> String {
    serde_json::json!([kind, parts]).to_string()
}
