//! A call to another service, made once. The key's hash is its idempotency key, so the service recognizes the call of an
//! earlier run.

use axum::{body::Body, http::Request};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use lambda_once::{DynamoDbStore, Error, Failure, Idempotency, Outcome};

async fn charge(once: &Idempotency, url: &str, order: &str) -> Result<Outcome<u16>, Error> {
    let call = |claim: Option<lambda_once::Claim>| async move {
        let key = claim.map(|claim| claim.key().to_hex()).unwrap_or_default();
        let request = Request::post(url).header("idempotency-key", format!("\"{key}\"")).body(Body::empty())?;
        // Once the request was sent, it may have taken effect.
        let response = Client::builder(TokioExecutor::new()).build_http().request(request).await;
        Ok::<_, Failure>(response.map_err(Failure::unknown)?.status().as_u16())
    };
    once.operation("charge", order).run_with(call).await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    println!("{:?}", charge(&once, "http://127.0.0.1:8080/payments", "order 7").await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{Router, http::HeaderMap, routing::post};
    use lambda_once::testing;

    use super::*;

    #[tokio::test]
    async fn the_service_is_called_once_and_gets_the_operations_key() -> Result<(), Box<dyn std::error::Error>> {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&keys);
        let service = move |headers: HeaderMap| async move {
            seen.lock().expect("no panic").push(headers["idempotency-key"].clone());
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(service))).await });
        let once = testing::engine();
        assert!(matches!(charge(&once, &url, "order 7").await?, Outcome::Executed(200)));
        assert!(matches!(charge(&once, &url, "order 7").await?, Outcome::Replayed(200)));
        let key = once.key_hash("charge", "order 7")?.to_hex();
        assert_eq!(*keys.lock().expect("no panic"), [format!("\"{key}\"")]);
        Ok(())
    }
}
