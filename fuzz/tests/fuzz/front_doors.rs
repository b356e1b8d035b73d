//! Raw events of API Gateway, load balancers and function URLs, with changes in any place, through `lambda_http` and the
//! layer.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use lambda_http::{Adapter, Body, LambdaEvent, request::LambdaRequest};
use lambda_once::{
    http::{Caller, IdempotencyKeyLayer},
    testing::{self, TIME_LEFT},
};
use lambda_once_fuzz::{input::Input, mutate, target};
use serde_json::Value;
use tower::{Layer, Service};

use crate::{events::none, run};

/// Returns the text of a file in `events/`.
macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../events/", $name, ".json"))
    };
}

/// Returns whether the event's URL has a query before its parameters, to which lambda_http appends them in any order
/// (docs/internals/known-limits.md).
fn has_query_in_url(event: &Value) -> bool {
    let headers =
        ["headers", "multiValueHeaders"].into_iter().filter_map(|headers| event[headers].as_object()).flatten();
    let is_host = |name: &str| ["host", "x-forwarded-host"].iter().any(|host| name.eq_ignore_ascii_case(host));
    let hosts = headers.filter(|(name, _)| is_host(name)).map(|(_, value)| value);
    let parts = [&event["path"], &event["requestContext"]["stage"]];
    parts.into_iter().chain(hosts).any(|part| part.to_string().contains('?'))
}

/// Delivers an event twice. Both results are responses of Lambda. A refusal is a problem document without a run, and a
/// request that is covered runs once.
fn delivered(bytes: &[u8], files: &[&str]) -> String {
    let mut input = Input::new(bytes);
    let file = *input.pick(files);
    let text = mutate::event(file, &mut input);
    if has_query_in_url(&serde_json::from_slice(&text).unwrap_or_default()) {
        return "a path with a query".to_owned();
    }
    run(async {
        let methods = Arc::<Mutex<Vec<Method>>>::default();
        let journal = Arc::clone(&methods);
        let handler = tower::service_fn(move |request: Request<Body>| {
            journal.lock().unwrap().push(request.method().clone());
            async { Ok::<_, lambda_http::Error>(Response::builder().status(201).body(Body::from("charged")).unwrap()) }
        });
        let layer = IdempotencyKeyLayer::new(testing::engine(), Caller::authorizer().or_anonymous());
        let mut adapter = Adapter::from(layer.layer(handler));
        let mut answers = Vec::new();
        // lambda_http 1.3 panics for a host that makes no URL, before the layer is called.
        let is_url = || Some(Request::<Body>::from(serde_json::from_slice::<LambdaRequest>(&text).ok()?));
        if std::panic::catch_unwind(is_url).is_err() {
            return "lambda_http panics".to_owned();
        }
        for _ in 0..2 {
            let Ok(request) = serde_json::from_slice::<LambdaRequest>(&text) else { return none() };
            let answer = adapter.call(LambdaEvent::new(request, testing::context(TIME_LEFT))).await.unwrap();
            answers.push(serde_json::to_value(answer).unwrap());
        }
        let [first, second] = <[Value; 2]>::try_from(answers).unwrap();
        let status = first["statusCode"].as_u64().expect("a status");
        let methods = methods.lock().unwrap();
        match status {
            201 if methods.iter().any(|method| *method == Method::POST || *method == Method::PATCH) => {
                assert_eq!(methods.len(), 1, "a duplicate has run: {first} {second}");
                let answers = [&first, &second].map(|answer| (&answer["statusCode"], &answer["body"]));
                assert_eq!(answers[1], answers[0], "{}", String::from_utf8_lossy(&text));
            }
            201 => assert_eq!(methods.len(), 2, "a method that is not covered"),
            _ => {
                assert!((400..500).contains(&status) && methods.is_empty(), "{first}");
                let problem: Value = serde_json::from_str(first["body"].as_str().unwrap()).unwrap();
                assert_eq!(problem["status"], status);
                return format!("{status} {}", problem["code"]);
            }
        }
        format!("{status} {}", methods.len())
    })
}

target!(
    /// REST APIs, format 1.0.
    rest_apis,
    |bytes| delivered(bytes, &[sample!("http-rest-v1"), sample!("charge-rest-v1"), sample!("charge-rest-v1-no-key")])
);

target!(
    /// HTTP APIs and function URLs, format 2.0.
    http_apis,
    |bytes| delivered(bytes, &[sample!("http-api-v2"), sample!("http-function-url"), sample!("charge-http-v2")])
);

target!(
    /// Application Load Balancers, with headers of one value and of several.
    load_balancers,
    |bytes| delivered(bytes, &[sample!("http-alb"), sample!("http-alb-multi")])
);
