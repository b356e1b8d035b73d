//! A function behind the JWT authorizer of an HTTP API, in which each caller has its own keys. In the template:
//!
//! ```yaml
//! Api:
//!   Type: AWS::Serverless::HttpApi
//!   Properties:
//!     Auth:
//!       DefaultAuthorizer: Users
//!       Authorizers:
//!         Users:
//!           IdentitySource: $request.header.Authorization
//!           JwtConfiguration: { issuer: "https://id.example.com/", audience: [charges] }
//! ```

use lambda_http::{Body, Error, Request, RequestPayloadExt, Response, service_fn, tower::ServiceBuilder};
use lambda_once::{
    Claim, DynamoDbStore, Idempotency,
    http::{Caller, IdempotencyKeyLayer},
};

#[derive(serde::Deserialize)]
struct Charge {
    cents: u64,
}

async fn charge(request: Request) -> Result<Response<Body>, Error> {
    let Some(Charge { cents }) = request.payload()? else {
        return Ok(Response::builder().status(400).body("".into())?);
    };
    // The same value in each retry, and for no other caller, so that it serves as an idempotency key for a payment
    // provider.
    let reference = request.extensions().get::<Claim>().map(|claim| claim.key().to_hex());
    let body = serde_json::json!({ "cents": cents, "reference": reference });
    Ok(Response::builder().status(201).header("content-type", "application/json").body(body.to_string().into())?)
}

/// Identifies the caller by the token's issuer and subject. For machine tokens without a subject, use
/// `Caller::jwt_claim("client_id")`.
fn layer(once: Idempotency) -> Result<IdempotencyKeyLayer, lambda_once::Error> {
    IdempotencyKeyLayer::new(once, Caller::authorizer()).validate()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    lambda_http::run(ServiceBuilder::new().layer(layer(once)?).service(service_fn(charge))).await
}

#[cfg(test)]
mod tests {
    use lambda_http::tower::Layer as _;
    use lambda_once::testing;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;

    /// An event of API Gateway with these claims of a token, or without an authorizer.
    fn request(claims: Option<Value>) -> Result<Request, Error> {
        let mut event: Value = serde_json::from_str(include_str!("../../../../events/charge-http-v2.json"))?;
        event["body"] = r#"{"cents":995}"#.into();
        event["requestContext"]["authorizer"] =
            claims.map_or(Value::Null, |claims| json!({ "jwt": { "claims": claims } }));
        Ok(lambda_http::request::from_str(&event.to_string())?)
    }

    #[tokio::test]
    async fn each_user_has_its_own_keys_and_an_unidentified_caller_is_refused() -> Result<(), Error> {
        let service = layer(testing::engine())?.layer(service_fn(charge));
        let user = |subject| Some(json!({ "iss": "https://id.example.com/", "sub": subject }));
        let mut seen = Vec::new();
        for claims in [user("alice"), user("alice"), user("bob"), Some(json!({ "client_id": "a machine" })), None] {
            let response = service.clone().oneshot(request(claims)?).await?;
            let is_replay = response.headers().contains_key("idempotency-replayed");
            seen.push((response.status().as_u16(), is_replay));
        }
        assert_eq!(seen, [(201, false), (201, true), (201, false), (403, false), (403, false)]);
        Ok(())
    }
}
