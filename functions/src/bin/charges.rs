//! Charges customers through API Gateway, once for each `Idempotency-Key`.
//!
//! `POST /charges` makes a charge, `GET /charges/{id}` reads one.

use functions::{Entry, Ledger, Run, Setup, Simulation, init, simulation_if_allowed};
use lambda_http::{
    Body, Error, Request, Response,
    http::{Method, StatusCode, header},
    service_fn,
};
use lambda_once::{
    Claim,
    http::{Caller, IdempotencyKeyLayer, ResponseAction},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceBuilder;

const OPERATION: &str = "charge";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Charge {
    customer_id: String,
    amount_cents: u64,
    currency: String,
    #[serde(default, deserialize_with = "simulation_if_allowed")]
    simulate: Option<Simulation>,
}

async fn route(ledger: Ledger, request: Request) -> Result<Response<Body>, Error> {
    // The path may begin with the API's stage.
    let path = request.uri().path().to_owned();
    match (request.method(), path.rsplit_once("/charges")) {
        (&Method::POST, Some((_, ""))) => charge(&ledger, request).await,
        (&Method::GET, Some((_, id))) => read(&ledger, id.trim_start_matches('/')).await,
        _ => problem(StatusCode::NOT_FOUND, "there is nothing at this path"),
    }
}

async fn charge(ledger: &Ledger, request: Request) -> Result<Response<Body>, Error> {
    // The hash of the claim's key is the same for all retries of a request, and different for any other. Without
    // protection there is no claim.
    let key = request.extensions().get::<Claim>().map_or("unprotected".to_owned(), |claim| claim.key().to_string());
    let charge: Charge = match serde_json::from_slice(request.body()) {
        Ok(charge) => charge,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("the body is not a charge: {error}")),
    };
    let _run = Run::start(OPERATION, &charge.customer_id, None, request.extensions().get::<Claim>());
    if let Some(simulation) = charge.simulate {
        simulation.run(1).await.map_err(lambda_once::Failure::into_source)?;
    }
    let Charge { customer_id, amount_cents, currency, .. } = charge;
    let entry = Entry { operation: OPERATION, key, party_id: customer_id, amount_cents, currency };
    let id = ledger.enter(&entry).await?;
    json_response(StatusCode::CREATED, &body(&id, &entry))
}

async fn read(ledger: &Ledger, id: &str) -> Result<Response<Body>, Error> {
    match ledger.find(OPERATION, id).await? {
        Some(entry) => json_response(StatusCode::OK, &body(id, &entry)),
        None => problem(StatusCode::NOT_FOUND, "there is no such charge"),
    }
}

fn body(id: &str, entry: &Entry) -> Value {
    json!({
        "charge_id": id,
        "customer_id": entry.party_id,
        "amount_cents": entry.amount_cents,
        "currency": entry.currency,
    })
}

fn json_response(status: StatusCode, body: &Value) -> Result<Response<Body>, Error> {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(body.to_string().into())?)
}

fn problem(status: StatusCode, detail: &str) -> Result<Response<Body>, Error> {
    let body = json!({ "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail });
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/problem+json");
    Ok(response.body(body.to_string().into())?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda_http::tracing::init_default_subscriber();
    let Setup { once, ledger, .. } = init().await?;
    // With an authorizer in front of the API, omit `or_anonymous`, so that each caller has separate keys. If the
    // callers are machines that sign their requests, use `Caller::iam_role()`.
    let layer = IdempotencyKeyLayer::new(once, Caller::authorizer().or_anonymous())
        // A rejected body may be corrected under the same key, so only a successful charge decides it.
        .classify_response(|status| match ResponseAction::by_status(status) {
            ResponseAction::Store if !status.is_success() => ResponseAction::Release,
            decision => decision,
        });
    let app = ServiceBuilder::new().layer(layer).service(service_fn(move |request| route(ledger.clone(), request)));
    lambda_http::run(app).await
}
