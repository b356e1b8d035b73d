//! Results that are encrypted before they are stored, by AES-256-GCM under keys that rotate.

use std::fmt;

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use lambda_once::record::{EncodedData, KeyHash};
use lambda_once::{BoxError, Builder, DynamoDbStore, Idempotency, Key, ResultCodec};

/// The keys by their ids, newest first. The newest key encrypts, and each of them decrypts. Remove an old key once no
/// record under it is left, which is after the retention.
struct Encryption(Vec<(String, Aes256Gcm)>);

/// 96 bits at random, which is safe for 2^32 results under one key.
const NONCE_BYTES: usize = 12;

impl Encryption {
    /// Reads keys as `2026-07=000102…1f,2026-01=…`: ids, and 64 hexadecimal digits each.
    fn from_text(keys: &str) -> Result<Self, BoxError> {
        let key = |text: &str| {
            let (id, digits) = text.split_once('=').ok_or("a key has an id and a value")?;
            let pairs = digits.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
            let bytes = pairs.collect::<Result<Vec<u8>, BoxError>>()?;
            Ok((id.to_owned(), Aes256Gcm::new_from_slice(&bytes)?))
        };
        keys.split(',').map(key).collect::<Result<_, BoxError>>().map(Self)
    }
}

impl ResultCodec for Encryption {
    fn encode(&self, key: &KeyHash, plain: &[u8]) -> Result<EncodedData, BoxError> {
        let (id, cipher) = self.0.first().ok_or("no key")?;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        // The associated data binds the ciphertext to its record, so it does not decrypt in a different one.
        let encrypted = cipher.encrypt(&nonce.into(), Payload { msg: plain, aad: key.as_bytes() })?;
        Ok(EncodedData::new(id, [&nonce[..], &encrypted].concat())?)
    }

    fn decode(&self, key: &KeyHash, encoded: &EncodedData) -> Result<Vec<u8>, BoxError> {
        let key_of = |(id, _): &&(String, _)| id == encoded.codec();
        let (_, cipher) = self.0.iter().find(key_of).ok_or_else(|| format!("no key {}", encoded.codec()))?;
        let (nonce, encrypted) = encoded.bytes().split_at_checked(NONCE_BYTES).ok_or("no nonce")?;
        Ok(cipher.decrypt(nonce.try_into()?, Payload { msg: encrypted, aad: key.as_bytes() })?)
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

fn settings(builder: Builder, keys: &str) -> Result<Builder, BoxError> {
    Ok(builder.result_codec(Encryption::from_text(keys)?))
}

async fn open(order: serde_json::Value) -> Result<String, BoxError> {
    Ok(format!("account of {}", order["name"]))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    // In production, load the keys from AWS Secrets Manager or KMS rather than from a variable, and do so here, before the
    // first event, because a codec must not block.
    let keys = std::env::var("RESULT_KEYS")?;
    let once = settings(Idempotency::builder(DynamoDbStore::from_env().await?), &keys)?.build()?;
    lambda_runtime::run(once.sqs(Key::pointer("/id"), open).validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::record::{StoredData, StoredResult};
    use lambda_once::store::ResultData;
    use lambda_once::{Error, ErrorKind, Failure, MemoryStore, Outcome, Store, testing};

    use super::*;

    const IBAN: &str = "DE02120300000000202051";

    fn key(id: &str, digit: &str) -> String {
        format!("{id}={}", digit.repeat(64))
    }

    fn engine(store: &MemoryStore, keys: &[String]) -> Idempotency {
        settings(testing::builder(store.clone()), &keys.join(",")).unwrap().build().unwrap()
    }

    async fn iban(once: &Idempotency, account: &str) -> Result<Outcome<String>, Error> {
        once.operation("open", account).run(|| async { Ok::<_, Failure>(IBAN.to_owned()) }).await
    }

    async fn encrypted(store: &MemoryStore, key: KeyHash) -> EncodedData {
        let record = store.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap();
        match record.result.data {
            Some(StoredData::Encoded(data)) => data,
            other => panic!("it is not encrypted: {other:?}"),
        }
    }

    #[tokio::test]
    async fn results_under_an_old_key_are_replayed_after_a_rotation() {
        let (store, old, new) = (testing::store(), key("2026-01", "1"), key("2026-07", "2"));
        let before = engine(&store, std::slice::from_ref(&old));
        assert!(matches!(iban(&before, "a").await, Ok(Outcome::Executed(_))));
        let after = engine(&store, &[new.clone(), old]);
        assert!(matches!(iban(&after, "a").await, Ok(Outcome::Replayed(iban)) if iban == IBAN));
        assert!(matches!(iban(&after, "b").await, Ok(Outcome::Executed(_))));
        for (account, id) in [("a", "2026-01"), ("b", "2026-07")] {
            let data = encrypted(&store, after.key_hash("open", account).unwrap()).await;
            assert_eq!(data.codec(), id);
            assert!(!data.bytes().windows(IBAN.len()).any(|window| window == IBAN.as_bytes()));
        }
        // Too early, because the record under the old key still exists.
        let error = iban(&engine(&store, &[new]), "a").await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::StoredResult, false));
    }

    #[tokio::test]
    async fn a_result_does_not_decrypt_in_another_record() {
        let store = testing::store();
        let once = engine(&store, &[key("2026-07", "2")]);
        for account in ["a", "b"] {
            assert!(matches!(iban(&once, account).await, Ok(Outcome::Executed(_))));
        }
        let [a, b] = ["a", "b"].map(|account| once.key_hash("open", account).unwrap());
        let mut record = store.read(&[a], ResultData::Include).await.remove(0).unwrap().unwrap();
        record.result = StoredResult::of(StoredData::Encoded(encrypted(&store, b).await));
        store.insert(a, record);
        assert_eq!(iban(&once, "a").await.unwrap_err().kind(), ErrorKind::StoredResult);
    }
}
