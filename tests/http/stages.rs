//! API Gateway APIs and stages, and paths with a segment of the same name.

use lambda_once::{Idempotency, http::Caller};
use serde_json::Value;

use crate::callers::{Shape, answered};

/// A request to a REST API at its default address, whose paths begin with the stage. The event contains the path without
/// the stage and, in its context, with the stage.
fn at_default_address(stage: &str, path: &str) -> Value {
    let mut event = Shape::RestNone.event("", "k", "{}");
    event["path"] = path.into();
    event["requestContext"]["stage"] = stage.into();
    event["requestContext"]["path"] = format!("/{stage}{path}").into();
    event
}

/// The same request at a custom domain that maps to the stage. Neither path contains the stage.
fn at_own_domain(stage: &str, path: &str) -> Value {
    let mut event = at_default_address(stage, path);
    event["requestContext"]["path"] = path.into();
    event["requestContext"]["domainName"] = "api.example.com".into();
    event
}

/// The same request to an HTTP API at its default address, whose events have one path, with the stage.
fn to_http_api(stage: &str, path: &str) -> Value {
    let mut event = Shape::HttpNone.event("", "k", "{}");
    let path = format!("/{stage}{path}");
    event["rawPath"] = path.as_str().into();
    event["requestContext"]["http"]["path"] = path.into();
    event["requestContext"]["stage"] = stage.into();
    event
}

fn to_http_api_at_own_domain(stage: &str, path: &str) -> Value {
    let mut event = to_http_api(stage, path);
    event["rawPath"] = path.into();
    event["requestContext"]["http"]["path"] = path.into();
    event["requestContext"]["domainName"] = "api.example.com".into();
    event
}

async fn send(once: &Idempotency, event: &Value, text: &str) -> (u16, String, bool) {
    answered(once, Caller::authorizer().or_anonymous(), event, text.to_owned()).await
}

/// Asserts that the second request is refused, in either order, and that the first request's retry is a replay.
async fn are_two_requests(one: &Value, other: &Value) {
    for (first, second) in [(one, other), (other, one)] {
        let once = crate::setup::engine();
        assert_eq!(send(&once, first, "first").await, (200, "first".to_owned(), false));
        let (status, body, is_replay) = send(&once, second, "second").await;
        assert_eq!(
            (status, is_replay),
            (422, false),
            "{body} for {} and {}",
            first["requestContext"],
            second["requestContext"]
        );
        assert_eq!(send(&once, first, "again").await, (200, "first".to_owned(), true));
    }
}

#[tokio::test]
async fn a_rest_api_path_that_begins_like_its_stage_is_not_the_shorter_path() {
    are_two_requests(&at_default_address("live", "/live/charges"), &at_default_address("live", "/charges")).await;
    are_two_requests(&at_own_domain("live", "/live/charges"), &at_own_domain("live", "/charges")).await;
    are_two_requests(&at_own_domain("live", "/live/charges"), &at_default_address("live", "/charges")).await;
}

#[tokio::test]
async fn an_http_api_path_that_begins_like_its_stage_is_not_the_shorter_path() {
    are_two_requests(&to_http_api("live", "/live/charges"), &to_http_api("live", "/charges")).await;
    are_two_requests(&to_http_api_at_own_domain("live", "/live/charges"), &to_http_api("live", "/charges")).await;
}

#[tokio::test]
async fn the_same_path_of_a_rest_api_is_another_request_on_another_stage() {
    are_two_requests(&at_default_address("test", "/charges"), &at_default_address("prod", "/charges")).await;
    are_two_requests(&at_own_domain("test", "/charges"), &at_own_domain("prod", "/charges")).await;
    are_two_requests(&at_own_domain("test", "/charges"), &at_default_address("prod", "/charges")).await;
}

#[tokio::test]
async fn the_same_path_of_an_http_api_is_another_request_on_another_stage() {
    are_two_requests(&to_http_api("test", "/charges"), &to_http_api("prod", "/charges")).await;
    are_two_requests(&to_http_api_at_own_domain("test", "/charges"), &to_http_api_at_own_domain("prod", "/charges"))
        .await;
    are_two_requests(&to_http_api_at_own_domain("test", "/charges"), &to_http_api("prod", "/charges")).await;
}

#[tokio::test]
async fn the_same_path_and_stage_of_another_api_is_another_request() {
    for event in [
        at_default_address("live", "/charges"),
        at_own_domain("live", "/charges"),
        to_http_api("live", "/charges"),
        to_http_api_at_own_domain("live", "/charges"),
    ] {
        let mut other = event.clone();
        other["requestContext"]["apiId"] = "z9y8x7w6v5".into();
        are_two_requests(&event, &other).await;
    }
}
