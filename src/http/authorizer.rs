//! Identifies callers that API Gateway, a function URL or VPC Lattice has authenticated.
//!
//! The members of `requestContext` that each authorizer sets:
//!
//! | | REST API, and HTTP API with payload version 1 | HTTP API, function URL (version 2) |
//! |---|---|---|
//! | JWT, Cognito user pool | `authorizer.claims`, an object | `authorizer.jwt.claims` |
//! | Lambda authorizer | `authorizer.principalId`, and its context beside it | `authorizer.lambda`, its context |
//! | IAM, Cognito identity pool | `identity` | `authorizer.iam` |
//! | API key | `identity.apiKeyId` | |

use std::sync::Once;

use http::request::Parts;
use lambda_http::{
    aws_lambda_events::apigw::{
        ApiGatewayProxyRequestContext, ApiGatewayRequestAuthorizer, ApiGatewayRequestIdentity,
        ApiGatewayV2httpRequestContext, ApiGatewayV2httpRequestContextAuthenticationClientCert,
    },
    request::RequestContext,
};
use serde_json::{Map, Number, Value};

use super::caller::{Caller, Identified};

/// The findings of an authorizer.
enum Found<'a> {
    /// The claims of a token, by name.
    Claims(&'a dyn Fn(&str) -> Option<Claim<'a>>),
    /// The context that a Lambda authorizer has returned.
    Context(&'a dyn Fn(&str) -> Option<String>),
    /// The identity behind a signature.
    Iam(Iam<'a>),
}

/// The value of a claim. The JWT authorizer of a REST API keeps its JSON type. The others convert it to text.
/// <https://docs.aws.amazon.com/apigateway/latest/developerguide/rest-api-jwt-authorizer-claims.html>
enum Claim<'a> {
    Text(&'a str),
    /// A number or a boolean, as JSON. It is not the same as the text.
    Json(String),
}

impl<'a> Claim<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text)),
            Value::Number(number) if !is_exact(number) => None,
            Value::Number(_) | Value::Bool(_) => Some(Self::Json(value.to_string())),
            _ => None,
        }
    }
}

/// The identity that signed a request.
#[derive(Clone, Copy)]
struct Iam<'a> {
    /// The id within a Cognito identity pool, whose users share the ARN of its role.
    cognito: Option<&'a str>,
    arn: Option<&'a str>,
}

/// The session of a role: `arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
#[derive(Clone, Copy)]
struct RoleSession<'a> {
    /// The ARN without the session.
    role_arn: &'a str,
    role: &'a str,
    session: &'a str,
}

impl Caller {
    /// Identifies the caller by the authorizer's principal:
    /// * JWT or Cognito user pool: issuer and subject.
    /// * Lambda authorizer of a REST API: `principalId`, which must differ between callers (many samples return a
    ///   constant).
    /// * Cognito identity pool: the identity's id. Function URLs and VPC Lattice do not pass it on, so such a caller is
    ///   refused there.
    /// * IAM: the caller's ARN. For an assumed role it contains the session name, so a different session is a different
    ///   caller. That is right for people, who share roles. **For machines it is not**, because each task, instance or pod
    ///   has a separate session, and a retry from a different one runs again. Use [`iam_role`](Self::iam_role) for them. A
    ///   warning is logged at the first assumed role.
    ///
    /// A request without a principal is refused with 403. Use [`jwt_claim`](Self::jwt_claim) for a JWT without a subject, and
    /// [`lambda_authorizer`](Self::lambda_authorizer) for a Lambda authorizer of an HTTP API.
    pub fn authorizer() -> Self {
        let warned = Once::new();
        by("authorizer", move |found| match found {
            Found::Claims(claim) => token(claim, "sub"),
            Found::Context(field) => field("principalId").map(|id| joined("lambda", &[&id])),
            Found::Iam(caller) => {
                let session = caller.role_session().filter(|session| !session.is_of_a_person());
                if session.is_some() && caller.given_cognito().is_none() {
                    warned.call_once(|| {
                        tracing::warn!(
                            target: "lambda_once",
                            "a caller is the session of an assumed role, so a retry from another session runs again: if the \
                             callers are machines, identify them by `Caller::iam_role()`"
                        );
                    });
                }
                caller.name()
            }
        })
    }

    /// Identifies a caller by its IAM role. For machines, so that a retry from another task, instance, pod or function of
    /// the same role counts as a retry.
    /// * Assumed role: the role's ARN, without the session name. All sessions of the role are one caller, so people must
    ///   not assume it. Roles of IAM Identity Center (`AWSReservedSSO_…`) are refused.
    /// * Cognito identity pool: the identity's id.
    /// * Other IAM callers, such as users: their ARN.
    ///
    /// A request without an IAM caller is refused with 403.
    ///
    /// ```no_run
    /// use lambda_once::{Idempotency, MemoryStore, http::{IdempotencyKeyLayer, Caller}};
    ///
    /// let layer = IdempotencyKeyLayer::new(Idempotency::new(MemoryStore::new()), Caller::iam_role());
    /// ```
    pub fn iam_role() -> Self {
        by("iam_role", |found| match found {
            Found::Iam(caller) => caller.name_by_role(),
            _ => None,
        })
    }

    /// Identifies the caller by the issuer and this claim of the JWT that API Gateway has verified, for example `client_id`
    /// of a machine-to-machine token without a subject. Its value is a string, an integer of at most 64 bits or a boolean.
    /// The number 42 and the string "42" are different callers, because the JWT authorizer of a REST API distinguishes
    /// them. A request without the claim is refused with 403.
    pub fn jwt_claim(name: &'static str) -> Self {
        let principal = move |found: Found<'_>| match found {
            Found::Claims(claim) => token(claim, name),
            _ => None,
        };
        by("jwt_claim", principal).of_argument(name)
    }

    /// Identifies the caller by this field of the context that a Lambda authorizer returns, of a REST or an HTTP API. Its value
    /// is a string, an integer of at most 64 bits or a boolean. A request without the field is refused with 403.
    pub fn lambda_authorizer(field: &'static str) -> Self {
        let principal = move |found: Found<'_>| match found {
            Found::Context(context) => context(field).map(|value| joined("lambda context", &[field, &value])),
            _ => None,
        };
        by("lambda_authorizer", principal).of_argument(field)
    }

    /// Identifies the caller by issuer and subject of the client certificate that an HTTP API has verified (mutual TLS). A
    /// request without a certificate, or without a subject in it, is refused with 403. REST APIs are not supported:
    /// `lambda_http` drops the certificate.
    pub fn client_certificate() -> Self {
        Self::new("client_certificate", |parts| match context(parts) {
            Some(RequestContext::ApiGatewayV2(context)) => match certificate(context) {
                None => unnamed(parts),
                Some(certificate) => match certificate.subject_dn.as_deref() {
                    // Its names, if it has any, are in an extension.
                    None | Some("") => Identified::Unknown,
                    Some(subject) => {
                        let issuer = certificate.issuer_dn.as_deref().unwrap_or_default();
                        Identified::Known(joined("certificate", &[issuer, subject]))
                    }
                },
            },
            _ => unnamed(parts),
        })
    }

    /// Identifies the caller by the id of the API key that a REST API has checked. A request without one is refused with 403,
    /// even if an authorizer has authenticated it.
    pub fn api_key() -> Self {
        Self::new("api_key", |parts| match context(parts) {
            Some(RequestContext::ApiGatewayV1(context)) => {
                match context.identity.api_key_id.as_deref().filter(|id| !id.is_empty()) {
                    Some(id) => Identified::Known(joined("api key", &[id])),
                    None => caller_of_rest(context, &|_| None),
                }
            }
            _ => unnamed(parts),
        })
    }
}

/// Returns the caller of a request that has no name in a scope.
pub(super) fn unnamed(parts: &Parts) -> Identified {
    caller(parts, &|_| None)
}

/// Identifies the caller by the part of an authorizer's findings that `principal` selects.
fn by(name: &'static str, principal: impl Fn(Found<'_>) -> Option<String> + Send + Sync + 'static) -> Caller {
    Caller::new(name, move |parts| caller(parts, &principal))
}

type Principal<'a> = &'a dyn Fn(Found<'_>) -> Option<String>;

fn context(parts: &Parts) -> Option<&RequestContext> {
    parts.extensions.get::<RequestContext>()
}

fn caller(parts: &Parts, principal: Principal<'_>) -> Identified {
    match context(parts) {
        None => Identified::Anonymous,
        Some(RequestContext::ApiGatewayV1(context)) => caller_of_rest(context, principal),
        Some(RequestContext::ApiGatewayV2(context)) => match &context.authorizer {
            None if certificate(context).is_some() => Identified::Unknown,
            None => Identified::Anonymous,
            Some(authorizer) => known(of_version_2(authorizer, principal)),
        },
        #[allow(unreachable_patterns, reason = "other features of lambda_http add variants")]
        Some(other) => caller_of_others(parts, other, principal),
    }
}

/// The client's certificate.
fn certificate(
    context: &ApiGatewayV2httpRequestContext,
) -> Option<&ApiGatewayV2httpRequestContextAuthenticationClientCert> {
    context.authentication.as_ref()?.client_cert.as_ref()
}

fn known(caller: Option<String>) -> Identified {
    caller.map_or(Identified::Unknown, Identified::Known)
}

fn caller_of_rest(context: &ApiGatewayProxyRequestContext, principal: Principal<'_>) -> Identified {
    let fields = &context.authorizer.fields;
    if let Some(claims) = fields.get("claims").and_then(Value::as_object) {
        return known(principal(Found::Claims(&|name| claims.get(name).and_then(Claim::of))));
    }
    // An HTTP API with payload version 1 has both for routes without an authorizer.
    let is_empty = |(name, value): (&String, &Value)| value.is_null() && ["claims", "scopes"].contains(&name.as_str());
    if !fields.iter().all(is_empty) {
        return known(principal(Found::Context(&|name| fields.get(name).and_then(scalar))));
    }
    let identity = &context.identity;
    if has_iam(identity) {
        let (cognito, arn) = (identity.cognito_identity_id.as_deref(), identity.user_arn.as_deref());
        return known(principal(Found::Iam(Iam { cognito, arn })));
    }
    // Callers with different keys are different callers, which this scope does not distinguish.
    if [&identity.api_key_id, &identity.api_key].into_iter().any(is_given) {
        return Identified::Unknown;
    }
    Identified::Anonymous
}

/// Whether the request was signed. An unsigned request has none of these.
fn has_iam(identity: &ApiGatewayRequestIdentity) -> bool {
    let fields = [&identity.user_arn, &identity.caller, &identity.access_key, &identity.cognito_identity_id];
    fields.into_iter().any(is_given)
}

fn is_given(field: &Option<String>) -> bool {
    field.as_deref().is_some_and(|text| !text.is_empty())
}

fn of_version_2(authorizer: &ApiGatewayRequestAuthorizer, principal: Principal<'_>) -> Option<String> {
    if let Some(jwt) = &authorizer.jwt {
        return principal(Found::Claims(&|name| jwt.claims.get(name).map(|text| Claim::Text(text))));
    }
    if let Some(caller) = &authorizer.iam {
        let cognito = caller.cognito_identity.as_ref().and_then(|identity| identity.identity_id.as_deref());
        return principal(Found::Iam(Iam { cognito, arn: caller.user_arn.as_deref() }));
    }
    principal(Found::Context(&|name| authorizer.fields.get(name).and_then(scalar)))
}

/// The caller behind a load balancer, VPC Lattice or a WebSocket API. The features of `lambda_http` decide which of these
/// variants exist, so they are read as JSON.
fn caller_of_others(parts: &Parts, context: &RequestContext, principal: Principal<'_>) -> Identified {
    let context = serde_json::to_value(context).unwrap_or_default();
    if let Some(identity) = context["identity"].as_object().filter(|identity| identity.contains_key("sourceVpcArn")) {
        return match text(identity, "principal") {
            Some(arn) => known(principal(Found::Iam(Iam { cognito: None, arn: Some(arn) }))),
            None if text(identity, "type").is_some_and(|kind| kind == "AWS_IAM") => Identified::Unknown,
            None => Identified::Anonymous,
        };
    }
    // A load balancer sets these if it has authenticated the request.
    let of_balancer =
        |name: &http::HeaderName| name == "x-amzn-oidc-identity" || name.as_str().starts_with("x-amzn-mtls-clientcert");
    let is_authenticated = is_authenticated(&context) || parts.headers.keys().any(of_balancer);
    if is_authenticated { Identified::Unknown } else { Identified::Anonymous }
}

/// Whether a WebSocket API has an authorizer, or a signature or an API key of the client.
fn is_authenticated(context: &Value) -> bool {
    const IDENTITY: [&str; 6] = ["userArn", "caller", "accessKey", "cognitoIdentityId", "apiKey", "apiKeyId"];
    let identity = context["identity"].as_object();
    !context["authorizer"].is_null()
        || identity.is_some_and(|identity| IDENTITY.iter().any(|name| text(identity, name).is_some()))
}

fn token<'a>(claim: &dyn Fn(&str) -> Option<Claim<'a>>, name: &str) -> Option<String> {
    let issuer = match claim("iss") {
        Some(Claim::Text(issuer)) => issuer,
        Some(Claim::Json(_)) | None => "",
    };
    match claim(name)? {
        Claim::Text("") => None,
        // The subject is used alone, so that existing keys remain valid.
        Claim::Text(value) if name == "sub" => Some(joined("jwt", &[issuer, value])),
        Claim::Text(value) => Some(joined("jwt claim", &[issuer, name, value])),
        Claim::Json(value) => Some(joined("jwt claim as JSON", &[issuer, name, &value])),
    }
}

impl<'a> Iam<'a> {
    fn given_cognito(&self) -> Option<&'a str> {
        self.cognito.filter(|id| !id.is_empty())
    }

    /// The session of an assumed role, if it is one.
    fn role_session(&self) -> Option<RoleSession<'a>> {
        RoleSession::of(self.arn?)
    }

    /// The name of one identity.
    fn name(&self) -> Option<String> {
        if let Some(id) = self.given_cognito() {
            return Some(joined("cognito", &[id]));
        }
        // All users of an identity pool have this session. An event without their ids does not distinguish them.
        if self.role_session().is_some_and(|session| session.session == "CognitoIdentityCredentials") {
            return None;
        }
        self.arn.filter(|arn| !arn.is_empty()).map(|arn| joined("iam", &[arn]))
    }

    /// The name that all sessions of a role share.
    fn name_by_role(&self) -> Option<String> {
        let name = self.name()?;
        match self.role_session().filter(|_| self.given_cognito().is_none()) {
            None => Some(name),
            Some(session) if session.is_of_a_person() => None,
            Some(session) => Some(joined("iam role", &[session.role_arn])),
        }
    }
}

impl<'a> RoleSession<'a> {
    fn of(arn: &'a str) -> Option<Self> {
        // Neither a role's name nor a session's holds a slash, and the ARN of a session leaves the role's path out.
        let (role_arn, session) = arn.rsplit_once('/')?;
        let (head, role) = role_arn.rsplit_once('/')?;
        let mut head = head.split(':');
        let is_session = head.next() == Some("arn")
            && head.next().is_some()
            && head.next() == Some("sts")
            && head.nth(2) == Some("assumed-role")
            && head.next().is_none();
        (is_session && !role.is_empty() && !session.is_empty()).then_some(Self { role_arn, role, session })
    }

    /// Whether IAM Identity Center has created the role. Its sessions are named after their users.
    fn is_of_a_person(&self) -> bool {
        self.role.starts_with("AWSReservedSSO_")
    }
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// Whether no other number has been read as this one. Numbers beyond 64 bits may have been, and fractions.
fn is_exact(number: &Number) -> bool {
    number.is_i64() || number.is_u64()
}

/// A context field as text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) if !is_exact(number) => None,
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Encodes the parts as a JSON array, so that different parts never have the same encoding.
fn joined(kind: &str, parts: &[&str]) -> String {
    serde_json::json!([kind, parts]).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The caller of a REST API whose JWT authorizer has verified these claims.
    fn caller_with(claims: &Value, name: &'static str) -> Identified {
        let context = json!({ "authorizer": { "claims": claims }, "httpMethod": "POST", "identity": {} });
        let context: ApiGatewayProxyRequestContext = serde_json::from_value(context).unwrap();
        caller_of_rest(&context, &|found| match found {
            Found::Claims(claim) => token(claim, name),
            _ => None,
        })
    }

    fn known_as(claims: &Value, name: &'static str) -> String {
        match caller_with(claims, name) {
            Identified::Known(caller) => caller,
            _ => panic!("{claims} name no caller"),
        }
    }

    #[test]
    fn a_numeric_claim_and_its_text_are_different_callers() {
        for name in ["sub", "client_id"] {
            let number = known_as(&json!({ "iss": "https://id", name: 42 }), name);
            let text = known_as(&json!({ "iss": "https://id", name: "42" }), name);
            assert_ne!(number, text);
            assert_eq!(number, known_as(&json!({ "iss": "https://id", name: 42, "aud": "charges" }), name));
            assert_ne!(number, known_as(&json!({ "iss": "https://other", name: 42 }), name));
            assert_ne!(number, known_as(&json!({ "iss": "https://id", name: 43 }), name));
        }
    }

    /// Source: <https://docs.aws.amazon.com/apigateway/latest/developerguide/websocket-api-develop-routes.html>
    #[test]
    fn a_signed_request_to_a_websocket_api_is_authenticated() {
        let context =
            |identity: Value| json!({ "routeKey": "charge", "connectionId": "L0SM9cOFvHcCIhw=", "identity": identity });
        assert!(!is_authenticated(&context(
            json!({ "sourceIp": "192.0.2.1", "userAgent": null, "userArn": "", "caller": null })
        )));
        for name in ["userArn", "caller", "accessKey", "cognitoIdentityId", "apiKey", "apiKeyId"] {
            assert!(is_authenticated(&context(json!({ "sourceIp": "192.0.2.1", name: "a" }))), "{name}");
        }
        assert!(is_authenticated(&json!({ "authorizer": { "principalId": "a" } })));
    }

    #[test]
    fn a_field_that_may_be_several_numbers_identifies_no_caller() {
        let read = |text: &str| scalar(&serde_json::from_str(text).unwrap());
        for text in ["18446744073709551616", "18446744073709551617", "-9223372036854775809", "1.5", "1e3"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("18446744073709551615").as_deref(), Some("18446744073709551615"));
    }

    #[test]
    fn an_unusable_claim_identifies_no_caller() {
        for value in [json!(null), json!(""), json!(["a"]), json!({"a": 1}), json!(18_446_744_073_709_551_616_f64)] {
            let caller = caller_with(&json!({ "iss": "https://id", "sub": value }), "sub");
            assert!(matches!(caller, Identified::Unknown), "{value}");
        }
    }
}
