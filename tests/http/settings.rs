//! Settings that contradict each other are refused in init.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use lambda_once::{
    ErrorKind, Idempotency, Key, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
};

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared())
}

fn is_refused(layer: IdempotencyKeyLayer) -> bool {
    match layer.validate() {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            true
        }
    }
}

#[test]
fn a_check_of_header_keys_is_refused_if_keys_come_from_elsewhere() {
    for key in [Key::header("x-github-delivery"), Key::pointer("/id")] {
        assert!(is_refused(layer().key(key.clone()).check_key(|_| Ok(()))));
        assert!(is_refused(layer().check_key(|_| Ok(())).key(key.clone())), "in the other order");
        assert!(!is_refused(layer().key(key)));
    }
    assert!(!is_refused(layer().check_key(|_| Ok(()))));
    let name = HeaderName::from_static("x-request-key");
    assert!(!is_refused(layer().header(name).check_key(|_| Ok(()))));
}

#[test]
fn a_key_that_only_messages_of_a_queue_have_is_refused() {
    let id = || Key::pointer("/id");
    for key in [
        Key::message_id(),
        Key::deduplication_id(),
        Key::attribute("id"),
        Key::attribute("event").parse_json("/id"),
        Key::composite([id(), Key::message_id()]),
    ] {
        for refused in [
            layer().key(key.clone()),
            layer().key(key.clone()).key_optional(),
            layer().label(key.clone()),
            layer().ordered_by(key.clone(), id()),
            layer().ordered_by(id(), key.clone()),
        ] {
            let error = refused.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{key:?}");
            assert!(error.to_string().contains("not a message of a queue"), "{key:?}: {error}");
        }
    }
    for key in [Key::header("x-id"), Key::composite([id(), Key::header("x-id")]), id().parse_json("/id")] {
        assert!(!is_refused(layer().key(key.clone()).label(key.clone()).ordered_by(key.clone(), key)));
    }
}

/// Whether two layers with these callers count as one layer, which one line of the program makes again.
fn are_one(one: Caller, other: Caller) -> bool {
    let once = crate::setup::engine();
    let layers = [one, other].map(|caller| IdempotencyKeyLayer::new(once.clone(), caller));
    let refused = layers.clone().map(is_refused);
    assert!(!refused[0], "the other one has not been checked yet");
    !refused[1]
}

#[test]
fn layers_made_by_one_line_for_different_callers_are_two() {
    let header = |name| Caller::header(HeaderName::from_static(name));
    let tenant = |name: &'static str| Caller::from_fn(move |_| Some(name.to_owned()));
    for (one, other) in [
        (Caller::shared(), Caller::authorizer()),
        (Caller::authorizer(), Caller::iam_role()),
        (Caller::authorizer(), Caller::authorizer().or_anonymous()),
        (Caller::authorizer(), Caller::authorizer().per_host()),
        (header("x-user"), header("x-tenant")),
        (Caller::jwt_claim("sub"), Caller::jwt_claim("client_id")),
        (Caller::jwt_claim("tenant"), Caller::lambda_authorizer("tenant")),
        (Caller::from_fn(|_| None), Caller::from_fn(|_| Some("acme".to_owned()))),
        (tenant("acme"), tenant("acme")),
    ] {
        assert!(!are_one(one.clone(), other.clone()), "{one:?} and {other:?}");
    }
}

#[test]
fn a_layer_that_one_line_makes_again_for_the_same_caller_is_one() {
    for caller in [
        Caller::shared,
        Caller::authorizer,
        || Caller::header(HeaderName::from_static("x-user")).or_anonymous().per_host(),
        || Caller::jwt_claim("client_id"),
        || Caller::from_fn(|_| Some("acme".to_owned())),
    ] as [fn() -> Caller; 5]
    {
        assert!(are_one(caller(), caller()), "{:?}", caller());
    }
    let tenant = "acme".to_owned();
    let captures = Caller::from_fn(move |_| Some(tenant.clone()));
    assert!(are_one(captures.clone(), captures), "a clone");
}

#[test]
fn an_empty_name_of_a_service_is_refused() {
    let scope = |name: &'static str| Idempotency::builder(MemoryStore::new()).scope(name).build();
    assert_eq!(scope("").unwrap_err().kind(), ErrorKind::Config);
    assert!(!is_refused(IdempotencyKeyLayer::new(scope("charges").unwrap(), Caller::shared())));
    let nameless = scope("charges").unwrap().named("");
    assert!(is_refused(IdempotencyKeyLayer::new(nameless, Caller::shared())));
}

#[test]
fn a_heartbeat_in_which_nothing_could_run_is_refused() {
    assert!(is_refused(layer().heartbeat(Duration::ZERO)));
    assert!(!is_refused(layer().heartbeat(Duration::from_secs(60))));
    assert!(!is_refused(layer().heartbeat(None)));
}

#[test]
fn the_mismatch_status_must_be_an_error_status() {
    for status in [StatusCode::OK, StatusCode::NO_CONTENT] {
        assert!(is_refused(layer().mismatch_status(status)), "{status}");
    }
    for status in [StatusCode::BAD_REQUEST, StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY] {
        assert!(!is_refused(layer().mismatch_status(status)), "{status}");
    }
}

#[test]
fn a_buffer_smaller_than_one_body_is_refused_with_a_remedy() {
    let error = layer().max_body(1_000).max_buffered(999).validate().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let told = error.to_string();
    assert!(told.contains("raise `max_buffered` or lower `max_body`"), "{told}");
    assert!(is_refused(layer().max_buffered(1 << 20)), "also of the default");
    assert!(is_refused(layer().max_body(256 << 20)), "also by the default");
    assert!(!is_refused(layer().max_buffered(1_000).max_body(1_000)), "in either order");
}
