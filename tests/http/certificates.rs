//! Callers that are identified by a client certificate only (mutual TLS).

use http::HeaderName;
use lambda_once::http::Caller;
use serde_json::{Value, json};

use crate::callers::{Shape, answered};

const ISSUER: &str = "CN=Example CA,O=Example";

/// An event of an HTTP API with mutual TLS.
fn with_certificate(shape: Shape, issuer: &str, subject: &str) -> Value {
    let mut event = shape.event("token", "k", "{}");
    event["requestContext"]["authentication"] = json!({ "clientCert": {
        "clientCertPem": format!("-----BEGIN CERTIFICATE-----\n{subject}\n-----END CERTIFICATE-----"),
        "issuerDN": issuer,
        "serialNumber": "a1:a1:a1:a1:a1:a1:a1:a1",
        "subjectDN": subject,
        "validity": { "notAfter": "Aug  5 09:36:04 2027 GMT", "notBefore": "May 28 12:30:02 2026 GMT" },
    } });
    event
}

async fn status(scope: Caller, event: &Value) -> u16 {
    answered(&crate::setup::engine(), scope, event, String::new()).await.0
}

#[tokio::test]
async fn callers_with_certificates_are_refused_if_no_authorizer_names_them() {
    let once = crate::setup::engine();
    for subject in ["CN=alice", "CN=bob", "CN=alice"] {
        let event = with_certificate(Shape::HttpNone, ISSUER, subject);
        let scope = Caller::authorizer().or_anonymous();
        let (status, _, is_replay) = answered(&once, scope, &event, subject.to_owned()).await;
        assert_eq!((status, is_replay), (403, false), "{subject}");
    }
    assert_eq!(status(Caller::authorizer().or_anonymous(), &Shape::HttpNone.event("", "k", "{}")).await, 200);
}

#[tokio::test]
async fn a_caller_with_a_certificate_is_not_anonymous_without_its_header() {
    let scope = || Caller::header(HeaderName::from_static("x-tenant")).or_anonymous();
    assert_eq!(status(scope(), &with_certificate(Shape::HttpNone, ISSUER, "CN=alice")).await, 403);
    assert_eq!(status(scope(), &Shape::HttpNone.event("", "k", "{}")).await, 200);
}

#[tokio::test]
async fn an_authorizer_names_the_caller_whatever_certificate_there_is_too() {
    let once = crate::setup::engine();
    let event = with_certificate(Shape::HttpJwt, ISSUER, "CN=gateway");
    for is_replay in [false, true] {
        let scope = Caller::authorizer().or_anonymous();
        let got = answered(&once, scope, &event, "charged".to_owned()).await;
        assert_eq!(got, (200, "charged".to_owned(), is_replay));
    }
}

#[tokio::test]
async fn behind_a_load_balancer_a_caller_with_a_certificate_is_not_anonymous() {
    for format in ["alb", "alb-multi"] {
        let text = std::fs::read_to_string(format!("events/http-{format}.json")).unwrap();
        let mut event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status(Caller::authorizer().or_anonymous(), &event).await, 200, "{format}: without one");
        match format {
            "alb" => event["headers"]["x-amzn-mtls-clientcert-subject"] = "CN=alice".into(),
            _ => event["multiValueHeaders"]["x-amzn-mtls-clientcert-subject"] = json!(["CN=alice"]),
        }
        assert_eq!(status(Caller::authorizer().or_anonymous(), &event).await, 403, "{format}");
    }
}

#[tokio::test]
async fn a_certificate_can_be_the_caller_by_its_issuer_and_its_subject() {
    let once = crate::setup::engine();
    let callers = [
        (ISSUER, "CN=alice"),
        (ISSUER, "CN=bob"),
        ("CN=Other CA,O=Example", "CN=alice"),
        // Joined without an encoding, these two would be equal.
        ("CN=a", "CN=b,CN=c"),
        ("CN=a,CN=b", "CN=c"),
    ];
    for is_replay in [false, true] {
        for (issuer, subject) in callers {
            let event = with_certificate(Shape::HttpNone, issuer, subject);
            let text = format!("{issuer} {subject}");
            let got = answered(&once, Caller::client_certificate(), &event, text.clone()).await;
            assert_eq!(got, (200, text, is_replay));
        }
    }
}

#[tokio::test]
async fn the_same_caller_with_a_renewed_certificate_is_the_same() {
    let once = crate::setup::engine();
    let mut event = with_certificate(Shape::HttpNone, ISSUER, "CN=alice");
    assert!(!answered(&once, Caller::client_certificate(), &event, String::new()).await.2);
    let certificate = &mut event["requestContext"]["authentication"]["clientCert"];
    certificate["serialNumber"] = "b2:b2:b2:b2:b2:b2:b2:b2".into();
    certificate["clientCertPem"] = "-----BEGIN CERTIFICATE-----\nrenewed\n-----END CERTIFICATE-----".into();
    assert!(answered(&once, Caller::client_certificate(), &event, String::new()).await.2);
}

#[tokio::test]
async fn where_certificates_are_the_callers_a_request_without_one_is_refused() {
    for shape in crate::callers::SHAPES {
        assert_eq!(status(Caller::client_certificate(), &shape.event("alice", "k", "{}")).await, 403, "{shape:?}");
    }
}

/// In this case the names are in certificate extensions, which the event does not contain.
#[tokio::test]
async fn a_certificate_without_a_subject_is_neither_a_name_nor_anonymous() {
    for scope in [Caller::client_certificate, Caller::authorizer] {
        let mut event = with_certificate(Shape::HttpNone, ISSUER, "");
        assert_eq!(status(scope().or_anonymous(), &event).await, 403, "empty");
        event["requestContext"]["authentication"]["clientCert"]["subjectDN"] = Value::Null;
        assert_eq!(status(scope().or_anonymous(), &event).await, 403, "absent");
    }
}
