//! Decodes records, finds their keys, and sorts out those that occur twice.

use std::sync::Arc;

use serde_json::error::Category;

use super::{
    Processor,
    schedule::Room,
    stages::{Follows, Ready},
    state::Invocation,
};
use crate::{
    Error, ErrorKind,
    batch::{RecordInfo, source::Source},
    idempotency::{engine::Candidate, guard::contain},
    key::{
        delivery::{Body, Delivery},
        hash::KeyHasher,
    },
};

/// What decoding and hashing gave.
struct Prepared<T> {
    payload: T,
    /// `None` if it runs unprotected.
    candidate: Option<Candidate>,
}

impl<S: Source, H, T> Processor<S, H, T> {
    /// Decodes records until as many of them want a claim as may be claimed now, and takes those out that may.
    pub(super) fn next_chunk(&self, invocation: &mut Invocation<S, T>, room: Room) -> Vec<Ready<T>> {
        let mut buffer = Vec::new();
        while invocation.wants_more(room)
            && let Some((index, info, body)) = invocation.next_incoming()
        {
            let prepared = self.prepare(&info, &body, &invocation.scope, &mut buffer);
            if let Some(kept) = invocation.bodies.get_mut(index) {
                *kept = Some(body);
            }
            self.sort_in(invocation, index, info, prepared);
        }
        invocation.take_prepared(room)
    }

    fn sort_in(
        &self,
        invocation: &mut Invocation<S, T>,
        index: usize,
        info: Arc<RecordInfo>,
        prepared: Result<Prepared<T>, Error>,
    ) {
        let Prepared { payload, candidate } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return invocation.decide(index, Err(error)),
        };
        let may_wait = S::WAITS_FOR_LEASE || invocation.lanes.is_ordered(index);
        let ready = Ready { index, payload, info, candidate, claim: None, may_wait };
        let Some(candidate) = candidate else {
            return invocation.ready.push_back(ready);
        };
        invocation.keys[index] = Some(candidate.key);
        match invocation.leaders.get(&candidate.key) {
            Some(&(leader, theirs)) => {
                ready.give_up();
                invocation.follow(index, Follows { leader, same_payload: theirs == candidate.fingerprint });
            }
            None => {
                invocation.leaders.insert(candidate.key, (index, candidate.fingerprint));
                invocation.prepared.push(ready);
            }
        }
    }

    /// Decodes one body and hashes its key. Code of the user's runs here, and may panic.
    fn prepare(
        &self,
        info: &RecordInfo,
        body: &S::Body,
        scope: &KeyHasher,
        buffer: &mut Vec<u8>,
    ) -> Result<Prepared<T>, Error> {
        let prepared = contain(|| {
            let payload = (self.decode)(body).map_err(|source| undecodable(&*source))?;
            if self.engine.settings.disabled {
                return Ok(Prepared { payload, candidate: None });
            }
            let candidate = match self.candidate(info, body.as_ref(), scope, buffer) {
                Ok(candidate) => Some(candidate),
                Err(error) if error.kind() == ErrorKind::KeyMissing && self.engine.runs_without_key() => {
                    tracing::warn!(target: "lambda_once", message_id = info.id(), "the record has no key and runs unprotected");
                    None
                }
                Err(error) => return Err(error),
            };
            Ok(Prepared { payload, candidate })
        });
        prepared.unwrap_or_else(|| Err(Error::undecodable("decoding the body, or finding its key, panicked")))
    }

    fn candidate(
        &self,
        info: &RecordInfo,
        body: &[u8],
        scope: &KeyHasher,
        buffer: &mut Vec<u8>,
    ) -> Result<Candidate, Error> {
        let body = Body::new(body);
        let delivery = Delivery::new(&body, info);
        let key = self.key.select(&delivery, buffer)?;
        let fingerprint = self.options.payload.fingerprint(&body, &delivery)?;
        Ok(Candidate { key: scope.hash(key), fingerprint })
    }
}

/// The decoder's own text may quote the body, so of `serde_json`'s errors only the place is kept, and the name of a missing
/// field, which is the type's.
fn undecodable(source: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    let Some(error) = source.downcast_ref::<serde_json::Error>() else {
        return Error::undecodable("the body is not what the handler takes");
    };
    let text = error.to_string();
    let what = match error.classify() {
        Category::Syntax | Category::Eof => "the body is not JSON".to_owned(),
        _ if text.starts_with("missing field `") => format!("the body has a {text}"),
        _ => "the body is not what the handler takes".to_owned(),
    };
    let place = format!(" at line {} column {}", error.line(), error.column());
    Error::undecodable(if what.ends_with(&place) { what } else { what + &place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Order {
        #[serde(rename = "order_id")]
        _id: u64,
    }

    #[test]
    fn what_cannot_be_decoded_is_said_without_anything_of_the_body() {
        let said = |body: &str| undecodable(&serde_json::from_str::<Order>(body).unwrap_err()).to_string();
        let place = "at line 1 column";
        assert_eq!(said("{}"), format!("decode (invalid_payload): the body has a missing field `order_id` {place} 2"));
        let expected = format!("decode (invalid_payload): the body is not what the handler takes {place} 20");
        assert_eq!(said(r#"{"order_id":"secret"}"#), expected);
        assert_eq!(said("{secret"), format!("decode (invalid_payload): the body is not JSON {place} 2"));
        assert_eq!(
            undecodable(&std::fmt::Error).to_string(),
            "decode (invalid_payload): the body is not what the handler takes"
        );
    }
}
