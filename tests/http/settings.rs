//! Settings that contradict each other are refused in init.

use std::time::Duration;

use http::StatusCode;
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
    let name = http::HeaderName::from_static("x-request-key");
    assert!(!is_refused(layer().header(name).check_key(|_| Ok(()))));
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
