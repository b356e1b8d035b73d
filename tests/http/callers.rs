//! The caller that each kind of authorizer establishes, in the events that API Gateway and function URLs send.

use http::{HeaderName, Request, Response};
use lambda_http::{Body, request::from_str};
use lambda_once::{
    Idempotency,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tracing::Level;

use crate::support::collector::Collector;

/// The ARN of all users of an identity pool.
const POOL_ROLE: &str = "arn:aws:sts::123456789012:assumed-role/pool/CognitoIdentityCredentials";

/// Declares the shapes, and the list of all shapes.
macro_rules! shapes {
    ($($(#[$doc:meta])* $shape:ident,)*) => {
        /// The identity that a front door and its authorizer put into an event. `who` is part of every name in it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Shape { $($(#[$doc])* $shape,)* }

        use Shape::{$($shape,)*};

        pub(crate) const SHAPES: &[Shape] = &[$($shape,)*];
    };
}

shapes! {
    RestNone,
    /// A Lambda authorizer, whose policy has a `principalId`.
    RestLambda,
    /// A Lambda authorizer with a `principalId` and a context field that is called `claims` and is text.
    RestLambdaWithClaims,
    RestCognito,
    RestIam,
    RestIdentityPool,
    RestApiKey,
    /// HTTP API, payload version 1.
    Payload1None,
    Payload1Jwt,
    Payload1JwtWithoutSubject,
    Payload1Lambda,
    /// A Lambda authorizer whose context has a field that is called `claims` and is text, and one without a value.
    Payload1LambdaWithClaims,
    Payload1Iam,
    /// HTTP API, payload version 2.
    HttpNone,
    HttpJwt,
    HttpJwtWithoutSubject,
    HttpLambda,
    HttpLambdaWithoutContext,
    HttpIam,
    HttpIdentityPool,
    UrlNone,
    UrlIam,
}

/// The caller of a request, as AWS documents its event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// No authorizer ran.
    Nobody,
    Known(String),
    /// An authorizer ran, but named no principal, or an API key was checked.
    Unnamed,
}

impl Shape {
    fn is_version_2(self) -> bool {
        matches!(
            self,
            HttpNone
                | HttpJwt
                | HttpJwtWithoutSubject
                | HttpLambda
                | HttpLambdaWithoutContext
                | HttpIam
                | HttpIdentityPool
                | UrlNone
                | UrlIam
        )
    }

    /// An event of this shape from a caller of this name.
    pub(crate) fn event(self, who: &str, key: &str, body: &str) -> Value {
        let file = match self {
            UrlNone | UrlIam => "http-function-url.json",
            _ if self.is_version_2() => "http-api-v2.json",
            _ => "http-rest-v1.json",
        };
        let mut event: Value =
            serde_json::from_str(&std::fs::read_to_string(format!("events/{file}")).unwrap()).unwrap();
        event["body"] = body.into();
        if self.is_version_2() {
            event["headers"]["idempotency-key"] = key.into();
        } else {
            event["headers"]["Idempotency-Key"] = key.into();
            event["multiValueHeaders"]["Idempotency-Key"] = json!([key]);
        }
        let claims = json!({ "iss": "https://id.example.com/", "sub": who, "client_id": who, "aud": "charges" });
        let machine = json!({ "iss": "https://id.example.com/", "client_id": who, "aud": "charges" });
        let cognito = json!({ "amr": ["authenticated"], "identityId": who, "identityPoolId": "us-east-1:pool" });
        let iam = |arn: &str, cognito: Value| {
            json!({ "iam": { "accessKey": "ASIAEXAMPLE", "accountId": "123456789012", "callerId": "AROAEXAMPLE",
                "cognitoIdentity": cognito, "principalOrgId": "o-example", "userArn": arn, "userId": "AROAEXAMPLE" } })
        };
        let context = event["requestContext"].as_object_mut().unwrap();
        context.remove("authorizer");
        let authorizer = match self {
            RestNone | HttpNone | UrlNone | RestApiKey | RestIam | RestIdentityPool | Payload1Iam => None,
            RestLambda => Some(json!({ "principalId": who, "integrationLatency": 12, "tenant": who })),
            RestLambdaWithClaims => Some(json!({ "principalId": who, "claims": "read,write", "tenant": who })),
            RestCognito => Some(json!({ "claims": claims })),
            Payload1None => Some(json!({ "claims": null, "scopes": null })),
            Payload1Jwt => Some(json!({ "claims": claims, "scopes": ["charge"] })),
            Payload1JwtWithoutSubject => Some(json!({ "claims": machine, "scopes": ["charge"] })),
            Payload1Lambda => Some(json!({ "tenant": who })),
            Payload1LambdaWithClaims => Some(json!({ "claims": who, "tenant": null })),
            HttpLambda => Some(json!({ "lambda": { "tenant": who } })),
            HttpLambdaWithoutContext => Some(json!({ "lambda": null })),
            HttpJwt => Some(json!({ "jwt": { "claims": claims, "scopes": null } })),
            HttpJwtWithoutSubject => Some(json!({ "jwt": { "claims": machine, "scopes": ["charge"] } })),
            HttpIam | UrlIam => Some(iam(who, Value::Null)),
            HttpIdentityPool => Some(iam(POOL_ROLE, cognito)),
        };
        if let Some(authorizer) = authorizer {
            context.insert("authorizer".to_owned(), authorizer);
        }
        let mut identity = |fields: &[(&str, &str)]| {
            for (name, value) in fields {
                context["identity"][*name] = (*value).into();
            }
        };
        match self {
            RestIam | Payload1Iam => {
                identity(&[("userArn", who), ("caller", "AROAEXAMPLE"), ("accessKey", "ASIAEXAMPLE")])
            }
            RestIdentityPool => identity(&[
                ("userArn", POOL_ROLE),
                ("cognitoIdentityId", who),
                ("cognitoIdentityPoolId", "us-east-1:pool"),
                ("cognitoAuthenticationType", "authenticated"),
            ]),
            RestApiKey => identity(&[("apiKey", "secret"), ("apiKeyId", who)]),
            _ => {}
        }
        event
    }

    /// The principal that API Gateway has authenticated.
    pub(crate) fn principal(self, who: &str) -> Who {
        let known = |kind: &str| Who::Known(format!("{kind} {who}"));
        match self {
            RestNone | Payload1None | HttpNone | UrlNone => Who::Nobody,
            // An API key authenticates no caller, but distinguishes callers.
            RestApiKey => Who::Unnamed,
            RestLambda | RestLambdaWithClaims => known("lambda"),
            RestCognito | Payload1Jwt | HttpJwt => known("token"),
            RestIam | Payload1Iam | HttpIam | UrlIam => known("iam"),
            RestIdentityPool | HttpIdentityPool => known("identity pool"),
            Payload1JwtWithoutSubject
            | Payload1Lambda
            | Payload1LambdaWithClaims
            | HttpJwtWithoutSubject
            | HttpLambda
            | HttpLambdaWithoutContext => Who::Unnamed,
        }
    }
}

/// Sends an event to a handler that responds with `text`. Returns the status, the body, and whether it is a replay.
pub(crate) async fn answered(once: &Idempotency, scope: Caller, event: &Value, text: String) -> (u16, String, bool) {
    let handler = tower::service_fn(move |_: Request<Body>| {
        let text = text.clone();
        async move { Ok::<_, lambda_http::Error>(Response::new(Body::Text(text))) }
    });
    let service = IdempotencyKeyLayer::new(once.clone(), scope).layer(handler);
    let answer = service.oneshot(from_str(&event.to_string()).unwrap()).await.unwrap();
    let is_replay = answer.headers().contains_key("idempotency-replayed");
    let status = answer.status().as_u16();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap(), is_replay)
}

#[tokio::test]
async fn only_requests_no_authorizer_saw_are_anonymous_and_unnamed_are_refused() {
    for &shape in SHAPES {
        let once = crate::setup::engine();
        let scope = || Caller::authorizer().or_anonymous();
        let mut answers = Vec::new();
        for who in ["alice", "bob", "alice"] {
            let (status, body, is_replay) =
                answered(&once, scope(), &shape.event(who, "k", "{}"), who.to_owned()).await;
            answers.push((status, if status == 200 { body } else { String::new() }, is_replay));
        }
        let answer = |who: &str, is_replay| (200, who.to_owned(), is_replay);
        let expected = match shape.principal("alice") {
            Who::Nobody => vec![answer("alice", false), answer("alice", true), answer("alice", true)],
            Who::Known(_) => vec![answer("alice", false), answer("bob", false), answer("alice", true)],
            Who::Unnamed => vec![(403, String::new(), false); 3],
        };
        assert_eq!(answers, expected, "{shape:?}");
    }
}

#[tokio::test]
async fn without_or_anonymous_requests_that_no_authorizer_has_seen_are_refused() {
    for shape in SHAPES.iter().filter(|shape| shape.principal("alice") == Who::Nobody) {
        let event = shape.event("alice", "k", "{}");
        let (status, ..) = answered(&crate::setup::engine(), Caller::authorizer(), &event, String::new()).await;
        assert_eq!(status, 403, "{shape:?}");
    }
}

/// Asserts that a scope identifies callers in these shapes only, and keeps them apart.
async fn knows(scope: fn() -> Caller, shapes: &[Shape]) {
    for &shape in SHAPES {
        let once = crate::setup::engine();
        let (alice, bob) = (shape.event("alice", "k", "{}"), shape.event("bob", "k", "{}"));
        let first = answered(&once, scope(), &alice, "alice".to_owned()).await;
        if shapes.contains(&shape) {
            assert_eq!(first, (200, "alice".to_owned(), false), "{shape:?}");
            assert_eq!(
                answered(&once, scope(), &bob, "bob".to_owned()).await,
                (200, "bob".to_owned(), false),
                "{shape:?}"
            );
            assert!(answered(&once, scope(), &alice, String::new()).await.2, "{shape:?}");
        } else {
            assert_eq!(first.0, 403, "{shape:?}");
        }
    }
}

#[tokio::test]
async fn a_claim_of_a_token_can_be_the_caller() {
    const WITH_TOKEN: [Shape; 5] =
        [RestCognito, Payload1Jwt, Payload1JwtWithoutSubject, HttpJwt, HttpJwtWithoutSubject];
    knows(|| Caller::jwt_claim("client_id"), &WITH_TOKEN).await;
    knows(|| Caller::jwt_claim("sub"), &[RestCognito, Payload1Jwt, HttpJwt]).await;
    knows(|| Caller::jwt_claim("nothing"), &[]).await;

    // The same client id of a different issuer is a different client.
    let once = crate::setup::engine();
    let one = HttpJwtWithoutSubject.event("alice", "k", "{}");
    let mut other = one.clone();
    other["requestContext"]["authorizer"]["jwt"]["claims"]["iss"] = "https://id.example.org/".into();
    for event in [one, other] {
        let scope = Caller::jwt_claim("client_id");
        assert!(!answered(&once, scope, &event, String::new()).await.2);
    }
}

/// The name is a part of each key, so no record would be found under a different one.
#[tokio::test]
async fn the_name_of_a_tokens_caller_stays_the_same() {
    const SUBJECT: &str = r#"["jwt",["https://id.example.com/","alice"]]"#;
    const CLIENT: &str = r#"["jwt claim",["https://id.example.com/","client_id","alice"]]"#;
    for (scope, name) in
        [(Caller::authorizer(), SUBJECT), (Caller::jwt_claim("sub"), SUBJECT), (Caller::jwt_claim("client_id"), CLIENT)]
    {
        let (once, event) = (crate::setup::engine(), HttpJwt.event("alice", "k", "{}"));
        let named = Caller::from_fn(move |_| Some(name.to_owned()));
        assert!(!answered(&once, scope, &event, String::new()).await.2);
        assert!(answered(&once, named, &event, String::new()).await.2, "{name}");
    }
}

#[tokio::test]
async fn a_field_of_a_lambda_authorizers_context_can_be_the_caller() {
    const WITH_TENANT: [Shape; 4] = [RestLambda, RestLambdaWithClaims, Payload1Lambda, HttpLambda];
    knows(|| Caller::lambda_authorizer("tenant"), &WITH_TENANT).await;

    let once = crate::setup::engine();
    let of = |tenant: Value| {
        let mut event = HttpLambda.event("", "k", "{}");
        event["requestContext"]["authorizer"]["lambda"]["tenant"] = tenant;
        event
    };
    for (tenant, status) in
        [(json!(17), 200), (json!(18), 200), (json!(""), 403), (json!(null), 403), (json!({ "id": 17 }), 403)]
    {
        let got = answered(&once, Caller::lambda_authorizer("tenant"), &of(tenant.clone()), String::new()).await;
        assert_eq!((got.0, got.2), (status, false), "{tenant}");
    }
}

#[tokio::test]
async fn the_id_of_an_api_key_can_be_the_caller() {
    knows(Caller::api_key, &[RestApiKey]).await;

    // An authorizer may run as well. A request that it authenticated is not anonymous just because it has no API key.
    let once = crate::setup::engine();
    let mut both = RestLambda.event("alice", "k", "{}");
    both["requestContext"]["identity"]["apiKeyId"] = "key-1".into();
    let scope = || Caller::api_key().or_anonymous();
    assert_eq!(answered(&once, scope(), &both, "key-1".to_owned()).await.0, 200);
    assert_eq!(answered(&once, scope(), &RestLambda.event("alice", "k", "{}"), String::new()).await.0, 403);
    assert!(!answered(&once, scope(), &RestNone.event("alice", "k", "{}"), String::new()).await.2);
}

/// The ARN of a session of a role, as STS writes it.
fn session(role: &str, session: &str) -> String {
    format!("arn:aws:sts::123456789012:assumed-role/{role}/{session}")
}

/// The shapes of callers that sign their requests.
const WITH_ARN: [Shape; 4] = [RestIam, Payload1Iam, HttpIam, UrlIam];

/// Sends one request from each caller with the same key. Returns status and whether it was a replay.
async fn from_each(shape: Shape, scope: fn() -> Caller, callers: &[String]) -> Vec<(u16, bool)> {
    let once = crate::setup::engine();
    let mut got = Vec::new();
    for caller in callers {
        let (status, body, is_replay) =
            answered(&once, scope(), &shape.event(caller, "k", "{}"), caller.to_owned()).await;
        assert!(is_replay || status != 200 || body == *caller, "{shape:?}: {body}");
        got.push((status, is_replay));
    }
    got
}

const NEW: (u16, bool) = (200, false);
const REPLAY: (u16, bool) = (200, true);
const REFUSED: (u16, bool) = (403, false);

#[tokio::test]
async fn a_retry_from_another_task_of_a_role_is_a_retry_of_its_role() {
    let callers = [
        session("orders-worker", "ecs-task-1f3c"),
        session("orders-worker", "ecs-task-9a77"),
        session("refunds-worker", "ecs-task-1f3c"),
        session("orders-worker", "ecs-task-1f3c").replace("123456789012", "210987654321"),
        session("orders-worker", "ecs-task-1f3c").replace("aws", "aws-cn"),
        session("orders-worker", "ecs-task-9a77").replace("aws", "aws-cn"),
    ];
    for shape in WITH_ARN {
        assert_eq!(
            from_each(shape, Caller::iam_role, &callers).await,
            [NEW, REPLAY, NEW, NEW, NEW, REPLAY],
            "{shape:?}"
        );
        assert_eq!(from_each(shape, Caller::authorizer, &callers).await, [NEW; 6], "{shape:?}");
    }
}

#[tokio::test]
async fn nothing_but_the_session_of_an_assumed_role_is_left_out() {
    let callers = [
        "arn:aws:iam::123456789012:user/team/alice",
        "arn:aws:iam::123456789012:user/team/bob",
        "arn:aws:iam::123456789012:role/team/alice",
        "arn:aws:sts::123456789012:federated-user/alice",
        "arn:aws:sts::123456789012:federated-user/bob",
        "arn:aws:sts::123456789012:assumed-role/alice",
        "arn:aws:sts::123456789012:assumed-role/a/b/alice",
        "arn:aws:sts::123456789012:assumed-role/a/b/bob",
        "arn:aws:iam::123456789012:assumed-role/a/alice",
        "arn:aws:iam::123456789012:assumed-role/a/bob",
        "assumed-role/a/alice",
        "assumed-role/a/bob",
        "alice",
    ];
    let callers = callers.map(str::to_owned);
    for shape in WITH_ARN {
        assert_eq!(from_each(shape, Caller::iam_role, &callers).await, [NEW; 13], "{shape:?}");
    }
}

#[tokio::test]
async fn a_role_of_people_is_refused_where_roles_are_callers() {
    let callers = ["alice", "bob"].map(|user| session("AWSReservedSSO_Admin_0123456789abcdef", user));
    for shape in WITH_ARN {
        assert_eq!(from_each(shape, Caller::iam_role, &callers).await, [REFUSED; 2], "{shape:?}");
        assert_eq!(from_each(shape, || Caller::iam_role().or_anonymous(), &callers).await, [REFUSED; 2], "{shape:?}");
        assert_eq!(from_each(shape, Caller::authorizer, &callers).await, [NEW; 2], "{shape:?}");
    }
}

#[tokio::test]
async fn a_role_is_the_caller_in_signed_requests_only() {
    const SIGNED: [Shape; 6] = [RestIam, RestIdentityPool, Payload1Iam, HttpIam, HttpIdentityPool, UrlIam];
    // Cognito identities are separate callers, although they share a role.
    knows(Caller::iam_role, &SIGNED).await;
}

#[tokio::test]
async fn users_of_an_identity_pool_whose_ids_are_not_known_are_refused() {
    let callers = [POOL_ROLE.to_owned(), POOL_ROLE.to_owned()];
    for shape in WITH_ARN {
        for scope in [Caller::authorizer as fn() -> Caller, Caller::iam_role] {
            assert_eq!(from_each(shape, scope, &callers).await, [REFUSED; 2], "{shape:?}");
        }
    }
}

#[tokio::test]
async fn callers_with_api_keys_never_share_responses() {
    let callers = ["key-of-alice", "key-of-bob"].map(str::to_owned);
    for scope in [
        || Caller::authorizer().or_anonymous(),
        || Caller::jwt_claim("sub").or_anonymous(),
        || Caller::lambda_authorizer("user").or_anonymous(),
        || Caller::iam_role().or_anonymous(),
        || Caller::client_certificate().or_anonymous(),
    ] as [fn() -> Caller; 5]
    {
        assert_eq!(from_each(RestApiKey, scope, &callers).await, [REFUSED; 2]);
    }
    assert_eq!(from_each(RestApiKey, || Caller::api_key().or_anonymous(), &callers).await, [NEW; 2]);
    // Without its id it still counts as a key.
    let mut event = RestNone.event("", "k", "{}");
    event["requestContext"]["identity"]["apiKey"] = "secret".into();
    for scope in [Caller::authorizer(), Caller::api_key()] {
        let got = answered(&crate::setup::engine(), scope.or_anonymous(), &event, String::new()).await;
        assert_eq!((got.0, got.2), REFUSED);
    }
}

/// A proxy may omit the header, and a function may find nobody, although an authorizer has identified the caller.
#[tokio::test]
async fn without_header_or_name_only_unauthenticated_requests_are_anonymous() {
    let callers = ["alice", "bob"].map(str::to_owned);
    for scope in [
        || Caller::header(HeaderName::from_static("x-tenant")).or_anonymous(),
        || Caller::from_fn(|_| None).or_anonymous(),
    ] as [fn() -> Caller; 2]
    {
        for &shape in SHAPES {
            let is_authenticated = shape.principal("alice") != Who::Nobody;
            let expected = if is_authenticated { [REFUSED; 2] } else { [NEW, REPLAY] };
            assert_eq!(from_each(shape, scope, &callers).await, expected, "{shape:?}");
        }
    }
}

#[tokio::test]
async fn the_first_session_of_a_role_is_warned_of_once() {
    let once = crate::setup::engine();
    let handler =
        tower::service_fn(|_: Request<Body>| async { Ok::<_, lambda_http::Error>(Response::new(Body::Empty)) });
    let warned = async |scope: Caller, callers: &[(Shape, String)]| {
        let service = IdempotencyKeyLayer::new(once.clone(), scope).layer(handler);
        let (collector, guard) = Collector::install();
        for (shape, caller) in callers {
            service.clone().oneshot(from_str(&shape.event(caller, "k", "{}").to_string()).unwrap()).await.unwrap();
        }
        drop(guard);
        let lines: Vec<_> = collector.lines().into_iter().filter(|line| line.level == Level::WARN).collect();
        assert!(lines.iter().all(|line| line.get("message").contains("Caller::iam_role()")), "{lines:?}");
        assert!(!format!("{lines:?}").contains("worker"), "{lines:?}");
        lines.len()
    };
    let of = |shape, role: &str, name: &str| (shape, session(role, name));
    let tasks = [of(HttpIam, "worker", "1"), of(HttpIam, "worker", "2"), of(RestIam, "other-worker", "1")];
    assert_eq!(warned(Caller::authorizer(), &tasks).await, 1);
    assert_eq!(warned(Caller::iam_role(), &tasks).await, 0);
    let others = [
        (HttpIam, "arn:aws:iam::123456789012:user/worker".to_owned()),
        of(HttpIam, "AWSReservedSSO_Admin_0123456789abcdef", "worker"),
        (HttpIdentityPool, "worker".to_owned()),
        (HttpJwt, "worker".to_owned()),
    ];
    assert_eq!(warned(Caller::authorizer(), &others).await, 0);
}

/// An event of VPC Lattice with this identity.
fn of_lattice(identity: &Value) -> Value {
    let event = std::fs::read_to_string("events/http-vpc-lattice.json").unwrap();
    let mut event: Value = serde_json::from_str(&event).unwrap();
    event["requestContext"]["identity"] = identity.clone();
    event
}

#[tokio::test]
async fn behind_vpc_lattice_only_requests_that_nobody_signed_are_anonymous() {
    const VPC: &str = "arn:aws:ec2:us-east-1:123456789012:vpc/vpc-0b8276c84697e7339";
    let signed = |principal: Option<String>| {
        of_lattice(&json!({ "sourceVpcArn": VPC, "type": "AWS_IAM", "principal": principal }))
    };
    let [alice, bob] = ["alice", "bob"].map(|user| signed(Some(format!("arn:aws:iam::123456789012:user/{user}"))));
    let [unnamed, empty] = [None, Some(String::new())].map(signed);
    let unsigned = of_lattice(&json!({ "sourceVpcArn": VPC }));
    let once = crate::setup::engine();
    for (event, expected) in [
        (&alice, NEW),
        (&bob, NEW),
        (&unsigned, NEW),
        (&alice, REPLAY),
        (&bob, REPLAY),
        (&unsigned, REPLAY),
        (&unnamed, REFUSED),
        (&empty, REFUSED),
    ] {
        let (status, _, is_replay) = answered(&once, Caller::authorizer().or_anonymous(), event, String::new()).await;
        assert_eq!((status, is_replay), expected, "{}", event["requestContext"]["identity"]);
    }
}
