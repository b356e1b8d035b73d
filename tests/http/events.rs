//! Raw events of every front door, as `lambda_http` parses them: queries, paths and responses.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderName, HeaderValue, Request, Response};
use lambda_http::{Adapter, Body, LambdaEvent, request::LambdaRequest};
use lambda_once::http::{Caller, IdempotencyKeyLayer};
use serde_json::Value;
use tower::{Layer, Service, ServiceExt, util::BoxCloneService};

const FORMATS: [&str; 6] = ["rest-v1", "api-v2", "function-url", "alb", "alb-multi", "vpc-lattice"];

fn event(format: &str) -> String {
    std::fs::read_to_string(format!("events/http-{format}.json")).unwrap()
}

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Caller::authorizer().or_anonymous())
}

/// The function's response.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    status: u64,
    /// In lower case, with repeated headers in order.
    headers: BTreeMap<String, Vec<String>>,
    body: Vec<u8>,
}

impl Given {
    fn of(answer: &Value) -> Self {
        let mut headers = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in answer["headers"].as_object().into_iter().flatten() {
            headers.insert(name.to_lowercase(), vec![value.as_str().unwrap().to_owned()]);
        }
        for (name, values) in answer["multiValueHeaders"].as_object().into_iter().flatten() {
            let values = values.as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned());
            headers.insert(name.to_lowercase(), values.collect());
        }
        let text = answer["body"].as_str().unwrap_or_default();
        let is_base64 = answer["isBase64Encoded"] == true;
        let body = if is_base64 { BASE64.decode(text).unwrap() } else { text.as_bytes().to_vec() };
        Self { status: answer["statusCode"].as_u64().unwrap(), headers, body }
    }

    fn is_replay(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|values| values == &["true"])
    }

    fn unmarked(mut self) -> Self {
        self.headers.remove("idempotency-replayed");
        self.headers.remove("original-request");
        self
    }
}

/// A function, as Lambda sees it.
struct Function {
    service: BoxCloneService<LambdaEvent<LambdaRequest>, Value, lambda_http::Error>,
    runs: Arc<AtomicU32>,
}

impl Function {
    fn new(handler: impl Fn(u32) -> Response<Body> + Clone + Send + 'static) -> Self {
        let runs = Arc::<AtomicU32>::default();
        let counter = Arc::clone(&runs);
        let handler = tower::service_fn(move |_: Request<Body>| {
            let answer = handler(counter.fetch_add(1, Ordering::SeqCst) + 1);
            async move { Ok::<_, lambda_http::Error>(answer) }
        });
        // The adapter's future is not `Sync` and its type has no name. A lock makes the service cloneable.
        let adapter = Arc::new(Mutex::new(Adapter::from(layer().layer(handler))));
        let service = tower::service_fn(move |event| {
            let answering = adapter.lock().unwrap().call(event);
            async move { Ok::<_, lambda_http::Error>(serde_json::to_value(answering.await?).unwrap()) }
        });
        Self { service: BoxCloneService::new(service), runs }
    }

    async fn deliver(&self, event: &str) -> Given {
        let request: LambdaRequest = serde_json::from_str(event).unwrap();
        let event = LambdaEvent::new(request, lambda_runtime::Context::default());
        Given::of(&self.service.clone().oneshot(event).await.unwrap())
    }
}

fn charge(run: u32) -> Response<Body> {
    Response::builder().status(201).header("content-type", "text/plain").body(format!("charge {run}").into()).unwrap()
}

#[tokio::test]
async fn an_event_with_a_query_runs_once_and_is_replayed_at_each_redelivery() {
    for format in FORMATS {
        let (function, event) = (Function::new(charge), event(format));
        let first = function.deliver(&event).await;
        assert_eq!((first.status, &first.body[..], first.is_replay()), (201, &b"charge 1"[..], false), "{format}");
        for _ in 1..200 {
            let again = function.deliver(&event).await;
            assert!(again.is_replay(), "{format}: {again:?}");
            assert_eq!(again.unmarked(), first, "{format}");
        }
        assert_eq!(function.runs.load(Ordering::SeqCst), 1, "{format}");
    }
}

/// Replaces a text in every spelling that the event format has for it, or returns `None` if the event does not contain it.
fn with(event: &str, spellings: &[(&str, &str)]) -> Option<String> {
    let changed = spellings.iter().fold(event.to_owned(), |event, (old, new)| event.replace(old, new));
    (changed != event).then_some(changed)
}

#[tokio::test]
async fn another_query_is_another_request() {
    for format in FORMATS {
        let (function, event) = (Function::new(charge), event(format));
        function.deliver(&event).await;
        let other_values: [&[_]; 4] = [
            &[("eu%20west", "eu%20east"), ("eu west", "eu east")],
            &[("a%26b", "a%26c"), ("a&b", "a&c")],
            &[("caf%C3%A9", "caf%C3%A8"), ("café", "cafè")],
            &[("page=2", "page=3"), ("\"2\"", "\"3\"")],
        ];
        let other_names: [&[_]; 2] =
            [&[("&page=", "&pages="), ("\"page\"", "\"pages\"")], &[("&empty=", ""), ("\"empty\"", "\"empty2\"")]];
        let mut changed = 0;
        for spellings in other_values.into_iter().chain(other_names) {
            let Some(other) = with(&event, spellings) else { continue };
            changed += 1;
            assert_eq!(function.deliver(&other).await.status, 422, "{format}: {spellings:?}");
        }
        // Without multi-value headers, a load balancer passes on the last value of a repeated name only.
        assert_eq!(changed, if format == "alb" { 5 } else { 6 }, "{format}");
        assert!(function.deliver(&event).await.is_replay(), "{format}");
    }
}

#[tokio::test]
async fn query_names_may_be_reordered_but_the_values_of_a_name_may_not() {
    for format in ["api-v2", "function-url"] {
        let (function, event) = (Function::new(charge), event(format));
        function.deliver(&event).await;
        let query = "region=eu%20west&tag=a%26b&tag=caf%C3%A9&page=2&empty=";
        let same = event.replace(query, "page=2&tag=a%26b&empty=&region=eu+west&tag=caf%c3%a9");
        assert_ne!(same, event);
        assert!(function.deliver(&same).await.is_replay(), "{format}");
        let other = event.replace(query, "region=eu%20west&tag=caf%C3%A9&tag=a%26b&page=2&empty=");
        assert_eq!(function.deliver(&other).await.status, 422, "{format}");
    }
    for (format, place) in [
        ("rest-v1", "/multiValueQueryStringParameters/tag"),
        ("alb-multi", "/multiValueQueryStringParameters/tag"),
        ("vpc-lattice", "/queryStringParameters/tag"),
    ] {
        let (function, event) = (Function::new(charge), event(format));
        function.deliver(&event).await;
        let mut other: Value = serde_json::from_str(&event).unwrap();
        other.pointer_mut(place).unwrap().as_array_mut().unwrap().reverse();
        assert_eq!(function.deliver(&other.to_string()).await.status, 422, "{format}");
    }
}

#[tokio::test]
async fn a_request_is_the_same_by_the_default_address_and_a_custom_domain() {
    let parsed = |format| serde_json::from_str::<Value>(&event(format)).unwrap();

    // At the default address of an HTTP API, the path of the event contains the stage too.
    let mut default = parsed("api-v2");
    default["rawPath"] = "/live/charges".into();
    default["requestContext"]["http"]["path"] = "/live/charges".into();
    default["requestContext"]["stage"] = "live".into();
    let mut own = default.clone();
    own["rawPath"] = "/charges".into();
    own["requestContext"]["http"]["path"] = "/charges".into();
    own["requestContext"]["domainName"] = "api.example.com".into();
    own["headers"]["host"] = "api.example.com".into();
    let mut elsewhere = own.clone();
    elsewhere["rawPath"] = "/refunds".into();
    one_request(&default, &own, &elsewhere).await;

    // For a REST API only the event's context contains it.
    let default = parsed("rest-v1");
    let mut own = default.clone();
    own["requestContext"]["path"] = "/charges".into();
    own["requestContext"]["domainName"] = "api.example.com".into();
    own["headers"]["Host"] = "api.example.com".into();
    own["multiValueHeaders"]["Host"][0] = "api.example.com".into();
    let mut elsewhere = own.clone();
    elsewhere["path"] = "/refunds".into();
    one_request(&default, &own, &elsewhere).await;
}

async fn one_request(one: &Value, same: &Value, other: &Value) {
    let function = Function::new(charge);
    assert_eq!(function.deliver(&one.to_string()).await.status, 201);
    assert!(function.deliver(&same.to_string()).await.is_replay());
    assert_eq!(function.deliver(&other.to_string()).await.status, 422);
}

const LINKS: [&str; 3] = ["</c/3>; rel=next", "</c/1>; rel=prev", "</c/2>; rel=self"];

type Headers = &'static [(&'static str, &'static str)];

/// Responses with their headers and bodies.
fn answers() -> [(&'static str, Headers, Body); 6] {
    const JSON: (&str, &str) = ("content-type", "application/json");
    let compressible = format!("[{}1]", "\"the same again\",".repeat(18_000));
    assert!(compressible.len() > 300_000);
    [
        ("json", &[JSON], Body::Text("{\"b\": 1,  \"a\": \"\u{e9}\\u00e9\"}\n".into())),
        ("binary", &[("content-type", "image/png")], Body::Binary(vec![0x89, b'P', 0, 0xff, 0xfe])),
        ("empty", &[], Body::Empty),
        ("300 KB", &[JSON], Body::Text(compressible)),
        (
            "gzip",
            &[JSON, ("content-encoding", "gzip"), ("vary", "Accept-Encoding")],
            Body::Binary(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("links", &[("link", LINKS[0]), ("link", LINKS[1]), ("link", LINKS[2]), ("etag", "\"1\"")], "{}".into()),
    ]
}

// Tests P25.
#[tokio::test]
async fn any_response_is_replayed_byte_for_byte() {
    for format in FORMATS {
        for (name, headers, body) in answers() {
            let handed = body.clone();
            let function = Function::new(move |run| {
                let mut answer = Response::new(handed.clone());
                *answer.status_mut() = http::StatusCode::CREATED;
                for (name, value) in headers {
                    answer.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
                }
                answer.headers_mut().insert("x-run", run.into());
                answer
            });
            let event = event(format);
            let first = function.deliver(&event).await;
            let again = function.deliver(&event).await;
            assert_eq!((first.status, &first.body[..]), (201, &body[..]), "{format}: {name}");
            assert!(again.is_replay() && !first.is_replay(), "{format}: {name}");
            assert!(again.clone().unmarked() == first, "{format}: {name}: {:?} {:?}", first.headers, again.headers);
            let expected = |name: &str| -> Vec<&str> {
                headers.iter().filter(|(given, _)| *given == name).map(|(_, value)| *value).collect()
            };
            for header in ["content-encoding", "vary", "etag"] {
                assert_eq!(
                    again.headers.get(header).cloned().unwrap_or_default(),
                    expected(header),
                    "{format}: {name}"
                );
            }
            if matches!(format, "rest-v1" | "alb-multi") {
                assert_eq!(
                    again.headers.get("link").cloned().unwrap_or_default(),
                    expected("link"),
                    "{format}: {name}"
                );
            }
        }
    }
}
