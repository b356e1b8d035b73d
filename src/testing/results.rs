//! Whether a result comes back as it was.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    idempotency::{result::Encoder, settings::EngineSettings},
    record::KeyHash,
    store::Limits,
};

/// Asserts that a result comes back from the store as it was: that a repeated operation would answer with an equal value.
///
/// Results are stored as JSON, which does not hold every value. `NaN` and the infinities become `null`; so do `Some(None)` and
/// `Some(())`, which come back as `None`. Neither does a field come back that `Serialize` skips and `Deserialize` fills in. Call
/// this with a value of each shape that a handler returns.
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
/// If the value cannot be written as JSON, no longer decodes, or comes back as another.
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
