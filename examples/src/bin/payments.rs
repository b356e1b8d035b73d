//! `payments [ADDRESS]` — a payment service on axum and hyper, without Lambda.
//!
//! `POST /accounts/{id}/charges` makes a charge, once for each `Idempotency-Key`; `GET` on the same path lists the account's
//! charges. The address is the argument, else `LISTEN`, else 127.0.0.1:3000. The first line on standard output has the actual
//! address.

use std::{
    env,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{
    Extension, Json, Router,
    extract::{Path, Request, State},
    http::{HeaderName, Method, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use lambda_once::{
    Claim, Idempotency,
    http::{Caller, IdempotencyKeyLayer, ReleaseRejection},
};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};
use tower_http::cors::{Any, CorsLayer};
use tracing::info;
use uuid::Uuid;

/// The merchant of each bearer token. A table is enough for an example; a real service verifies tokens.
const TOKENS: [(&str, Merchant); 2] = [("token-of-alice", Merchant("alice")), ("token-of-bob", Merchant("bob"))];

/// The authenticated caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Merchant(&'static str);

/// The request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewCharge {
    amount_cents: u64,
    currency: String,
}

/// A charge that was made.
#[derive(Clone, Serialize)]
struct Charge {
    charge_id: String,
    account: String,
    amount_cents: u64,
    currency: String,
    /// The idempotency key for a payment provider. If the process dies between the provider's response and its record, the
    /// next run sends the same key.
    reference: String,
    #[serde(skip)]
    merchant: Merchant,
}

/// The charges, in memory. Every run of the handler adds a row, which makes a second effect visible.
#[derive(Clone, Default)]
struct Ledger {
    charges: Arc<Mutex<Vec<Charge>>>,
    /// How long a charge takes.
    delay: Duration,
}

impl Ledger {
    fn charges(&self) -> MutexGuard<'_, Vec<Charge>> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Authenticates requests by their token, and puts the caller into the extensions.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some((_, merchant)) = TOKENS.iter().find(|(known, _)| token == Some(known)) else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    request.extensions_mut().insert(*merchant);
    next.run(request).await
}

async fn charge(
    State(ledger): State<Ledger>,
    Path(account): Path<String>,
    Extension(merchant): Extension<Merchant>,
    Extension(claim): Extension<Claim>,
    // A rejected body may be corrected under the same key, as nothing has happened yet.
    ReleaseRejection(Json(new)): ReleaseRejection<Json<NewCharge>>,
) -> (StatusCode, Json<Charge>) {
    info!(merchant = merchant.0, account, "a charge begins");
    sleep(ledger.delay).await;
    let charge = Charge {
        charge_id: format!("ch_{}", Uuid::new_v4().simple()),
        account,
        amount_cents: new.amount_cents,
        currency: new.currency,
        reference: claim.key().to_string(),
        merchant,
    };
    ledger.charges().push(charge.clone());
    info!(merchant = merchant.0, charge.account, charge.charge_id, "a charge is made");
    (StatusCode::CREATED, Json(charge))
}

async fn list(
    State(ledger): State<Ledger>,
    Path(account): Path<String>,
    Extension(merchant): Extension<Merchant>,
) -> Json<Vec<Charge>> {
    let charges = ledger.charges();
    Json(charges.iter().filter(|charge| (charge.merchant, &charge.account) == (merchant, &account)).cloned().collect())
}

/// Lets pages of other origins make charges and read the responses. Any origin is allowed, since a page needs a token; a
/// service that uses cookies must list its origins.
fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, HeaderName::from_static("idempotency-key")])
        .expose_headers([
            HeaderName::from_static("idempotency-replayed"),
            HeaderName::from_static("original-request"),
            header::RETRY_AFTER,
        ])
}

fn app(ledger: Ledger, idempotency: IdempotencyKeyLayer) -> Router {
    Router::new()
        .route("/accounts/{id}/charges", get(list).post(charge))
        // On the routes only, so that an unknown path remains a 404.
        .route_layer(idempotency)
        // Layers that are added later are further outside: authentication runs before the key is read, and CORS adds its
        // headers to refusals and replays as well.
        .route_layer(from_fn(authenticate))
        .layer(cors())
        .with_state(ledger)
}

/// The scope separates this service from others on the same table.
async fn engine() -> Result<Idempotency> {
    if env::var_os("IDEMPOTENCY_TABLE").is_some() {
        #[cfg(not(feature = "dynamodb"))]
        anyhow::bail!("IDEMPOTENCY_TABLE is set, and this was built without the feature dynamodb");
        #[cfg(feature = "dynamodb")]
        {
            let once = Idempotency::builder(lambda_once::DynamoDbStore::from_env().await?).scope("payments").build()?;
            once.warm_up().await?;
            return Ok(once);
        }
    }
    // A store in memory protects a single process, until it exits.
    Ok(Idempotency::builder(lambda_once::MemoryStore::new()).scope("payments").build()?)
}

async fn shutdown(mut interrupt: Signal, mut terminate: Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    info!("shutting down");
}

/// Reads `DELAY_MS`, which slows every charge down so that a client can disconnect while its charge is being processed.
fn delay() -> Result<Duration> {
    let Ok(text) = env::var("DELAY_MS") else { return Ok(Duration::ZERO) };
    Ok(Duration::from_millis(text.parse().with_context(|| format!("DELAY_MS is {text:?}"))?))
}

async fn serve() -> Result<()> {
    let address = env::args().nth(1).or_else(|| env::var("LISTEN").ok()).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let ledger = Ledger { delay: delay()?, ..Ledger::default() };

    // The merchant is part of the key: two merchants with the same key do not get each other's responses.
    let scope = Caller::from_fn(|request| request.extensions.get::<Merchant>().map(|merchant| merchant.0.to_owned()));
    let idempotency = IdempotencyKeyLayer::new(engine().await?, scope).validate()?;
    let in_flight = idempotency.in_flight();

    let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let listener = TcpListener::bind(&address).await.with_context(|| format!("cannot listen on {address}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(ledger, idempotency)).with_graceful_shutdown(shutdown(interrupt, terminate)).await?;
    // All connections are closed, but charges of disconnected clients may still be running.
    info!(charges = in_flight.count(), "waiting for charges without a client");
    in_flight.drain().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payments: {error:#}");
            ExitCode::FAILURE
        }
    }
}
