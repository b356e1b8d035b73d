#![allow(clippy::unwrap_used, reason = "a test panics")]

use proptest::prelude::*;

use super::{
    delivery::{Body, Delivery},
    selector::Key,
};
use crate::error::ErrorKind;

mod canonical;
mod hashes;
mod random;
mod selectors;
mod values;

/// Returns the key of a delivery with this body and the message ID `m-1`.
fn select(key: &Key, body: &str) -> Result<String, ErrorKind> {
    let body = Body::new(body.as_bytes());
    let delivery = Delivery::new(&body, &Some("m-1"));
    key.select(&delivery, &mut Vec::new())
        .map(|key| String::from_utf8(key.to_vec()).unwrap())
        .map_err(|error| error.kind())
}

/// Generates any JSON value.
pub(super) fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(|f| json!(f)),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(".*", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
