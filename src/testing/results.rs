//! Checks that a result survives being stored.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    idempotency::{result::Encoder, settings::EngineSettings},
    record::KeyHash,
    store::Limits,
};

/// Asserts that a result survives being stored, so that a repeated operation would return an equal value.
///
/// Results are stored as JSON, which cannot represent every value. `NaN` and the infinities become `null`, as do
/// `Some(None)` and `Some(())`, which become `None`. A field that `Serialize` skips and `Deserialize` defaults is lost
/// too. Call this with a value of each shape that a handler returns.
///
/// ```
/// lambda_once::testing::assert_round_trip(&Some(7));
/// lambda_once::testing::assert_round_trip(&("receipt", [0.1, 0.2]).1);
/// ```
///
/// ```should_panic
/// lambda_once::testing::assert_round_trip(&Some(None::<u32>));
/// ```
///
/// # Panics
///
/// If the value cannot be serialized as JSON, does not decode, or decodes as a different value.
#[track_caller]
pub fn assert_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let limits = Limits { max_result_bytes: usize::MAX, batch: 1, orders: false };
    let (key, settings) = (KeyHash::from_bytes([0; 32]), EngineSettings::default());
    match settings.decoder(&key).decode::<T>(&Encoder::new(key, &settings, limits).encode(value)) {
        Ok(Some(back)) => assert!(back == *value, "the result comes back as another value: {value:?} as {back:?}"),
        Ok(None) => panic!("the result cannot be written as JSON, so it would not be kept: {value:?}"),
        Err(error) => panic!("the result does not come back: {value:?}: {error}"),
    }
}
