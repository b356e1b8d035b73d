//! Keys and canonical forms of values that are serialized.

use std::collections::BTreeMap;

use crate::{
    error::{Error, ErrorKind},
    key::value::{canonical_value, of_value},
};

#[test]
fn a_non_finite_number_is_an_error_and_never_null() {
    #[derive(serde::Serialize)]
    struct Cents(f64);
    #[derive(serde::Serialize)]
    enum Amount {
        Newtype(f64),
        Tuple(f64, f32),
        Struct { amount: Option<f64> },
    }
    let kind = |found: Result<Vec<u8>, Error>| found.map_err(|error| error.kind());
    for none in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        #[expect(clippy::cast_possible_truncation, reason = "it is not finite in either type")]
        let short = none as f32;
        assert_eq!(kind(of_value(&none)), Err(ErrorKind::Payload));
        for found in [
            canonical_value(&none),
            canonical_value(&short),
            canonical_value(&Cents(none)),
            canonical_value(&("order 7", [1.0, none])),
            canonical_value(&vec![Some(1.0), Some(none)]),
            canonical_value(&BTreeMap::from([("amount", (none,))])),
            canonical_value(&serde_json::json!({ "a": null })).and_then(|_| canonical_value(&Amount::Newtype(none))),
            canonical_value(&Amount::Tuple(1.0, short)),
            canonical_value(&Amount::Struct { amount: Some(none) }),
        ] {
            assert_eq!(kind(found), Err(ErrorKind::Payload));
        }
    }
    let null = |found: Result<Vec<u8>, Error>| String::from_utf8(found.unwrap()).unwrap();
    assert_eq!(null(canonical_value(&(None::<f64>, (), 0.5, "null"))), r#"[null,null,0.5,"null"]"#);
    assert_eq!(null(canonical_value(&Amount::Struct { amount: None })), r#"{"Struct":{"amount":null}}"#);
}

#[test]
fn a_value_that_panics_when_it_is_serialized_is_an_error() {
    struct PanicsAgain;
    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("in drop"));
        }
    }
    struct Panics;
    impl serde::Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            std::panic::resume_unwind(Box::new(PanicsAgain))
        }
    }
    for found in [of_value(&Panics), of_value(&("order 7", Panics)), canonical_value(&[Panics])] {
        assert_eq!(found.map_err(|error| error.kind()), Err(ErrorKind::Payload));
    }
}
