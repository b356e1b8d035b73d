//! A call to another service, made once. The key's hash is its idempotency key, so the service recognizes the call of an
//! earlier run.

use axum::{body::Body, http::Request};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use lambda_once::{Claim, DynamoDbStore, Error, Failure, Idempotency, Outcome};

async fn charge(once: &Idempotency, url: &str, order: &str) -> Result<Outcome<u16>, Error> {
    let call = |claim: Option<Claim>| async move {
        let mut request = Request::post(url);
        // Without protection there is no claim. All calls would share an empty key.
        if let Some(claim) = claim {
            request = request.header("idempotency-key", format!("\"{}\"", claim.key().to_hex()));
        }
        let request = request.body(Body::empty())?;
        // Once the request was sent, it may have taken effect.
        let response = Client::builder(TokioExecutor::new()).build_http().request(request).await;
        recorded(response.map_err(Failure::unknown)?.status().as_u16())
    };
    once.operation("charge", order).run_with(call).await
}

/// Decides by the status whether the call is recorded. The meaning of a status depends on the service.
fn recorded(status: u16) -> Result<u16, Failure> {
    let error = format!("the service responded with {status}");
    match status {
        200..=299 => Ok(status),
        // The service refuses this request in every attempt.
        400 | 422 => Err(Failure::permanent(error)),
        // It has not handled the request.
        429 => Err(Failure::transient(error)),
        // It may have charged, or be charging under this key.
        _ => Err(Failure::unknown(error)),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    println!("{:?}", charge(&once, "http://127.0.0.1:8080/payments", "order 7").await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use axum::{
        Router,
        extract::Path,
        http::{HeaderMap, StatusCode},
        routing::post,
    };
    use lambda_once::{
        OutcomeKind::{self, *},
        Verdict::*,
        testing,
    };

    use super::*;

    /// The keys of calls, `None` for a call without one.
    type Keys = Arc<Mutex<Vec<Option<String>>>>;

    /// Starts a service that responds with the status in the path. Returns its URL, and the keys that it gets.
    async fn service() -> io::Result<(String, Keys)> {
        let keys = Keys::default();
        let seen = Arc::clone(&keys);
        let respond = move |Path(status): Path<u16>, headers: HeaderMap| async move {
            let key = headers.get("idempotency-key").map(|key| key.to_str().expect("text").to_owned());
            seen.lock().expect("no panic").push(key);
            StatusCode::from_u16(status).expect("a status")
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/{status}", post(respond))).await });
        Ok((url, keys))
    }

    #[tokio::test]
    async fn the_service_is_called_once_and_gets_the_operations_key() -> Result<(), Box<dyn std::error::Error>> {
        let (url, keys) = service().await?;
        let (once, url) = (testing::engine(), format!("{url}/201"));
        assert!(matches!(charge(&once, &url, "order 7").await?, Outcome::Executed(201)));
        assert!(matches!(charge(&once, &url, "order 7").await?, Outcome::Replayed(201)));
        let key = once.key_hash("charge", "order 7")?.to_hex();
        assert_eq!(*keys.lock().expect("no panic"), [Some(format!("\"{key}\""))]);
        Ok(())
    }

    #[tokio::test]
    async fn only_a_success_and_a_refusal_are_recorded() -> Result<(), Box<dyn std::error::Error>> {
        let (url, _) = service().await?;
        let cases: [(u16, [OutcomeKind; 2]); 6] = [
            (400, [Failed(Permanent), ReplayedFailure]),
            (422, [Failed(Permanent), ReplayedFailure]),
            (429, [Failed(Transient), Failed(Transient)]),
            (409, [Failed(Unknown), InProgress]),
            (500, [Failed(Unknown), InProgress]),
            (503, [Failed(Unknown), InProgress]),
        ];
        for (status, expected) in cases {
            let (once, url) = (testing::engine(), format!("{url}/{status}"));
            for kind in expected {
                assert_eq!(charge(&once, &url, "order 7").await?.kind(), kind, "{status}");
            }
        }
        Ok(())
    }

    #[tokio::test]
    async fn an_unprotected_call_has_no_key() -> Result<(), Box<dyn std::error::Error>> {
        let (url, keys) = service().await?;
        let once = Idempotency::disabled();
        assert!(matches!(charge(&once, &format!("{url}/201"), "order 7").await?, Outcome::Executed(201)));
        assert_eq!(*keys.lock().expect("no panic"), [None]);
        Ok(())
    }
}
