//! Payments over HTTP, by the header `Idempotency-Key`.

use axum::{Json, Router, routing::post};
use lambda_once::{
    AfterUnknown, DynamoDbStore, Idempotency,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::{Value, json};

async fn pay(Json(payment): Json<Value>) -> Json<Value> {
    Json(json!({ "paid": payment["cents"] }))
}

fn app(once: Idempotency) -> Result<Router, lambda_once::Error> {
    // The caller to whom a key belongs, identified here by the token. A new token is another caller, so a service uses the account.
    let caller = Caller::from_fn(|parts| Some(parts.headers.get("authorization")?.to_str().ok()?.to_owned()));
    Ok(Router::new().route("/payments", post(pay).route_layer(IdempotencyKeyLayer::new(once, caller).validate()?)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // After a crash, it is unknown whether the payment was made.
    let builder = Idempotency::builder(DynamoDbStore::from_env().await?).after_unknown(AfterUnknown::Refuse);
    let once = builder.scope("payments").build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    Ok(axum::serve(listener, app(once)?).await?)
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use lambda_once::testing;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_retry_gets_the_first_response_and_another_payment_is_refused() -> Result<(), Box<dyn std::error::Error>>
    {
        let app = app(testing::engine())?;
        let mut statuses = Vec::new();
        for cents in [995, 995, 100] {
            let request = Request::post("/payments").header("content-type", "application/json");
            let request = request.header("authorization", "alice").header("idempotency-key", "\"order 7\"");
            let request = request.body(Body::from(json!({ "cents": cents }).to_string()))?;
            let response = app.clone().oneshot(request).await?;
            let is_replay = response.headers().contains_key("idempotency-replayed");
            statuses.push((response.status().as_u16(), is_replay));
        }
        assert_eq!(statuses, [(200, false), (200, true), (422, false)]);
        Ok(())
    }
}
