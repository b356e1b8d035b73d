//! `stripe-node` against a service that implements Stripe's API. It retries lost connections, timeouts, 409 and 5xx.

use axum::{
    body::Bytes,
    http::{HeaderValue, Response, StatusCode, header},
};
use lambda_once::{
    Idempotency,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::{Value, json};

use super::{Reply, node, service::Service};
use crate::support::network::Proxy;

/// Turns a problem into an error of Stripe's. The client treats a response without a member `error` as the result, whatever
/// its status.
fn stripe_error(response: &mut Response<Bytes>) {
    let problem: Value = serde_json::from_slice(response.body()).unwrap();
    let kind = match response.status() {
        StatusCode::BAD_REQUEST | StatusCode::CONFLICT => "idempotency_error",
        _ => "api_error",
    };
    let error = json!({ "type": kind, "code": problem["code"], "message": problem["detail"] });
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = json!({ "error": error }).to_string().into();
}

fn layer(once: Idempotency) -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(once, Caller::header(header::AUTHORIZATION))
        .mismatch_status(StatusCode::BAD_REQUEST)
        .on_rejection(|_, response| stripe_error(response))
}

async fn start() -> Service {
    let payment = |number| json!({ "id": format!("pi_{number}"), "object": "payment_intent", "status": "succeeded" });
    Service::start("/v1/payment_intents", layer, payment).await
}

/// The client got the first payment, and there is no other.
fn assert_paid_once(service: &Service, reply: &Reply) {
    assert_eq!((reply.status, &reply.body["id"], service.effects()), (200, &"pi_1".into(), 1), "{reply:?}");
}

#[derive(Clone, Copy)]
struct Call<'a> {
    key: Option<&'a str>,
    amount: u64,
    timeout_ms: u64,
    retries: u32,
}

/// A call as the client makes it, with a key that the client generates.
const CALL: Call<'_> = Call { key: None, amount: 1999, timeout_ms: 30_000, retries: 10 };

async fn send(proxy: &Proxy, call: Call<'_>) -> Reply {
    let Call { key, amount, timeout_ms, retries } = call;
    let body = json!({ "amount": amount, "currency": "eur" }).to_string();
    let url = &proxy.url;
    let call = json!({ "url": url, "key": key, "token": "sk_test_alice", "body": body, "timeout": timeout_ms, "retries": retries });
    node::run("stripe-node", &call).await
}

#[tokio::test]
async fn a_lost_response_is_replayed() {
    let service = start().await;
    let proxy = Proxy::start(&service.address, |number, _| number > 0).await;
    let reply = send(&proxy, CALL).await;
    let seen = proxy.exchanges("idempotency-key");
    assert_eq!(
        seen.iter().map(|seen| (seen.status, seen.is_replay())).collect::<Vec<_>>(),
        [(200, false), (200, true)]
    );
    assert_paid_once(&service, &reply);
}

#[tokio::test]
async fn a_timed_out_attempt_is_the_one_that_counts() {
    let service = start().await;
    let resume = service.hold();
    let proxy = Proxy::start(&service.address, move |_, response| response.status != 409 || resume()).await;
    let reply = send(&proxy, Call { timeout_ms: 1_000, ..CALL }).await;
    let seen = proxy.exchanges("idempotency-key");
    let (last, refused) = seen.split_last().unwrap();
    assert!(!refused.is_empty() && refused.iter().all(|seen| seen.status == 409), "{seen:?}");
    assert_eq!((last.status, last.is_replay()), (200, true));
    assert!(proxy.attempts() > seen.len(), "{seen:?}");
    assert_paid_once(&service, &reply);
}

#[tokio::test]
async fn an_attempt_without_a_store_makes_no_payment() {
    let service = start().await;
    let repair = service.cut_store();
    let proxy = Proxy::start(&service.address, move |_, response| response.status != 503 || repair()).await;
    let reply = send(&proxy, CALL).await;
    let [refused, made] = &proxy.exchanges("idempotency-key")[..] else { panic!("{reply:?}") };
    assert_eq!((refused.status, made.status, made.is_replay()), (503, 200, false));
    assert!(refused.body.contains("was not processed"), "{refused:?}");
    assert_paid_once(&service, &reply);
}

#[tokio::test]
async fn its_caller_learns_whether_money_may_have_moved() {
    let service = start().await;
    let resume = service.hold();
    let proxy = Proxy::start(&service.address, |_, _| true).await;
    let call = Call { key: Some("k-1"), retries: 0, ..CALL };
    let timed_out = send(&proxy, Call { timeout_ms: 1_000, ..call }).await;
    assert_eq!((timed_out.status, &timed_out.body["type"]), (0, &"StripeConnectionError".into()), "{timed_out:?}");
    let message = |reply: &Reply| reply.body["message"].as_str().unwrap().to_owned();

    let running = send(&proxy, call).await;
    assert_eq!((running.status, &running.body["code"]), (409, &"in_progress".into()), "{running:?}");
    assert!(message(&running).contains("is being processed, or ended without an outcome"), "{running:?}");

    resume();
    let paid = send(&proxy, Call { retries: 10, ..call }).await;
    let other = send(&proxy, Call { amount: 1, ..call }).await;
    assert_eq!((other.status, &other.body["type"]), (400, &"StripeIdempotencyError".into()), "{other:?}");
    assert!(message(&other).contains("another request, whose outcome stands"), "{other:?}");
    assert_paid_once(&service, &paid);
}
