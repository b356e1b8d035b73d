//! Requests with any `Idempotency-Key` header, against an independent parser of RFC 8941.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    http::{Caller, IdempotencyKeyLayer},
    testing,
};
use lambda_once_fuzz::{
    input::Input,
    oracle::header::{key, quoted},
    target,
};
use tower::{Layer, ServiceExt};

use crate::run;

type Body = Full<bytes::Bytes>;

target!(
    /// One header or several, valid or not. A second request spells the key differently.
    keys,
    |bytes| {
        let mut input = Input::new(bytes);
        let values: Vec<Vec<u8>> = (0..1 + usize::from(input.one_in(12))).map(|_| value(&mut input)).collect();
        let Some(values) = values.iter().map(|value| HeaderValue::from_bytes(value).ok()).collect::<Option<Vec<_>>>()
        else {
            return "no header".to_owned();
        };
        let expected = match &values[..] {
            [value] => key(value.as_bytes()),
            _ => None,
        };
        run(async {
            let runs = Arc::<AtomicU32>::default();
            let first = send(&runs, &values).await;
            match expected {
                Some(key) => {
                    assert_eq!((first.0, runs.load(Ordering::SeqCst)), (201, 1), "{values:?}: {}", first.2);
                    let again = HeaderValue::from_bytes(&quoted(&key)).unwrap();
                    let again = app_send(&runs, &values, &again).await;
                    assert_eq!((again.0, again.1), (201, true), "{values:?}: {}", again.2);
                    assert_eq!(runs.load(Ordering::SeqCst), 2, "one run of each application");
                    format!("key of {}", key.len().ilog2())
                }
                None => {
                    assert_eq!((first.0, runs.load(Ordering::SeqCst)), (400, 0), "{values:?}");
                    let problem: serde_json::Value = serde_json::from_str(&first.2).unwrap();
                    assert_eq!((&problem["code"], &problem["status"]), (&"key_malformed".into(), &400.into()));
                    problem["detail"].to_string()
                }
            }
        })
    }
);

/// Draws the value of a header.
fn value(input: &mut Input<'_>) -> Vec<u8> {
    let mut value = match input.below(6) {
        0 => input.bytes(40),
        1 => quoted(input.text(30).as_bytes()),
        2 => (0..250 + input.below(12)).map(|_| b'!' + input.byte() % 90).collect(),
        3 => quoted(&(0..250 + input.below(12)).map(|_| b' ' + input.byte() % 95).collect::<Vec<u8>>()),
        4 => (0..input.below(30)).map(|_| b'#' + input.byte() % 90).collect(),
        _ => input.text(40).into_bytes(),
    };
    if input.one_in(4) {
        value.splice(0..0, (0..input.below(3)).map(|_| b' '));
        value.extend((0..input.below(3)).map(|_| b"\t ;a"[input.below(4)]));
    }
    value
}

/// Sends a request to a new application. Returns the status, whether it is a replay, and the body.
async fn send(runs: &Arc<AtomicU32>, values: &[HeaderValue]) -> (u16, bool, String) {
    let [answer] = answers(runs, [values]).await;
    answer
}

/// Sends two requests to a new application, and returns the response to the second.
async fn app_send(runs: &Arc<AtomicU32>, first: &[HeaderValue], second: &HeaderValue) -> (u16, bool, String) {
    let [_, answer] = answers(runs, [first, std::slice::from_ref(second)]).await;
    answer
}

async fn answers<const N: usize>(runs: &Arc<AtomicU32>, requests: [&[HeaderValue]; N]) -> [(u16, bool, String); N] {
    let counter = Arc::clone(runs);
    let handler = tower::service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(Response::builder().status(201).body(Body::from("charged")).unwrap()) }
    });
    let app = IdempotencyKeyLayer::new(testing::engine(), Caller::shared()).layer(handler);
    let mut answers = Vec::with_capacity(N);
    for values in requests {
        let mut request = Request::post("/charges").body(Body::from("{}")).unwrap();
        for value in values {
            request.headers_mut().append(HeaderName::from_static("idempotency-key"), value.clone());
        }
        let response = app.clone().oneshot(request).await.unwrap();
        let is_replay = response.headers().get("idempotency-replayed").is_some_and(|value| value == "true");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        answers.push((status, is_replay, String::from_utf8(body.to_vec()).unwrap()));
    }
    answers.try_into().unwrap()
}
