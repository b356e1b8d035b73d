//! The hook that encodes results before they are stored and decodes them before they are replayed.

use std::{fmt, sync::Arc};

use crate::{
    error::BoxError,
    record::{EncodedData, KeyHash},
};

/// Encodes results before they are stored and decodes them before they are replayed, for example to encrypt them.
///
/// [`Builder::result_codec`](crate::Builder::result_codec) sets an engine's codec. `docs/security.md` lists the data
/// that a record still reveals, and `examples/cookbook` has a codec that encrypts with AES-256-GCM and rotates its
/// keys.
///
/// The codec receives the results of operations and invocations, the responses of the HTTP layer and the texts of
/// permanent failures. They are serialized, and compressed if they are larger than
/// [`compress_above`](crate::Builder::compress_above), because encrypted data does not compress. A result is stored as
/// the codec returns it, and must then fit into the store.
///
/// Both methods are called on the thread that runs the handler, `encode` after the handler and within the reserve. They
/// must not block, so fetch keys when the function starts.
///
/// ```
/// use lambda_once::{BoxError, Idempotency, MemoryStore, ResultCodec, record::{EncodedData, KeyHash}};
///
/// /// Not a cipher.
/// #[derive(Debug)]
/// struct Inverted;
///
/// impl ResultCodec for Inverted {
///     fn encode(&self, _: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError> {
///         Ok(EncodedData::new("inverted", plain.iter().map(|byte| !byte).collect())?)
///     }
///
///     fn decode(&self, _: &KeyHash, encoded: &EncodedData) -> Result<Vec<u8>, BoxError> {
///         match encoded.codec() {
///             "inverted" => Ok(encoded.bytes().iter().map(|byte| !byte).collect()),
///             other => Err(format!("no result codec of the id {other}").into()),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// use lambda_once::{Failure, Outcome};
///
/// let once = Idempotency::builder(MemoryStore::new()).result_codec(Inverted).build()?;
/// let charge = || once.operation("charge", "order 7").run(|| async { Ok::<_, Failure>("receipt 1".to_owned()) });
/// assert!(matches!(charge().await?, Outcome::Executed(_)));
/// assert!(matches!(charge().await?, Outcome::Replayed(receipt) if receipt == "receipt 1"));
/// # Ok(()) }
/// ```
pub trait ResultCodec: fmt::Debug + Send + Sync + 'static {
    /// Encodes a result. `key` is the hash that identifies its record. A codec can bind the two, for example as the
    /// associated data of an authenticated cipher, so that a result copied into another record does not decode.
    ///
    /// # Errors
    ///
    /// Any error, or a panic, drops the result, because the operation has taken effect. The record is completed without
    /// it, and an error is logged with the text of this one, which must not quote the result.
    fn encode(&self, key: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError>;

    /// Decodes the output of [`encode`](Self::encode), perhaps from a different version of the function (see
    /// [`EncodedData::codec`]). The result must be equal to `plain`. Results that were stored by an engine without a
    /// codec are replayed unchanged and do not reach this method.
    ///
    /// # Errors
    ///
    /// Any error, for example for an unknown id, or a panic is reported as
    /// [`ErrorKind::StoredResult`](crate::ErrorKind::StoredResult), which is permanent. The operation does not run
    /// again.
    fn decode(&self, key: &KeyHash, encoded: &EncodedData) -> Result<Vec<u8>, BoxError>;
}

impl<C: ResultCodec + ?Sized> ResultCodec for Arc<C> {
    fn encode(&self, key: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError> {
        (**self).encode(key, plain)
    }

    fn decode(&self, key: &KeyHash, encoded: &EncodedData) -> Result<Vec<u8>, BoxError> {
        (**self).decode(key, encoded)
    }
}
