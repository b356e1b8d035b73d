//! `payments [ADDRESS]` — a payment service on axum and hyper, without Lambda.
//!
//! `POST /accounts/{id}/charges` makes a charge, once for each `Idempotency-Key`; `GET` on the same path lists the account's
//! charges. The address is the argument, else `LISTEN`, else 127.0.0.1:3000. The first line on standard output has the actual
//! address.
//!
//! The service requires a key, and refuses charges while its store is unavailable. `KEY_OPTIONAL=1` and `FAIL_OPEN=1` change that,
//! and `LAMBDA_ONCE_DISABLED=1` disables the protection. An unprotected charge still has the reference that a protected one would
//! have, so that the payment provider recognizes a retry.

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
    http::{HeaderMap, HeaderName, Method, StatusCode, header},
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
use tracing::{info, warn};
use uuid::Uuid;

/// The merchant of each bearer token. A table is enough for an example, but a real service verifies tokens.
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

/// The service. Its charges are in memory. Every run of the handler adds a row, which makes a second effect visible.
#[derive(Clone)]
struct Payments {
    charges: Arc<Mutex<Vec<Charge>>>,
    /// The duration of a charge.
    delay: Duration,
    is_key_optional: bool,
    once: Idempotency,
}

impl Payments {
    fn charges(&self) -> MutexGuard<'_, Vec<Charge>> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the idempotency key for the payment provider, or 400 if the request's key is missing or not text, as the
    /// layer does. The key does not depend on the claim, because an unprotected retry of a protected charge must have the
    /// same one.
    fn reference(&self, merchant: Merchant, headers: &HeaderMap) -> Result<String, StatusCode> {
        let key = match headers.get("idempotency-key") {
            // Each attempt is a separate charge.
            None if self.is_key_optional => return Ok(Uuid::new_v4().simple().to_string()),
            key => key.and_then(|key| key.to_str().ok()).ok_or(StatusCode::BAD_REQUEST)?.trim(),
        };
        // The key is the same with and without quotes.
        let quoted = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
        let key = quoted.map_or_else(|| key.to_owned(), unescaped);
        let hash = self.once.key_hash("reference", &(merchant.0, key)).map_err(|_| StatusCode::BAD_REQUEST)?;
        Ok(hash.to_hex())
    }
}

/// Removes the backslash before each quote and backslash of a quoted key.
fn unescaped(quoted: &str) -> String {
    let (mut key, mut characters) = (String::new(), quoted.chars());
    while let Some(character) = characters.next() {
        key.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    key
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
    State(payments): State<Payments>,
    Path(account): Path<String>,
    Extension(merchant): Extension<Merchant>,
    // An unprotected charge has no claim.
    claim: Option<Extension<Claim>>,
    headers: HeaderMap,
    // A rejected body may be corrected under the same key, because nothing has happened yet.
    ReleaseRejection(Json(new)): ReleaseRejection<Json<NewCharge>>,
) -> Result<(StatusCode, Json<Charge>), StatusCode> {
    let reference = payments.reference(merchant, &headers)?;
    info!(merchant = merchant.0, account, "a charge begins");
    if claim.is_none() {
        warn!(
            merchant = merchant.0,
            account, reference, "the charge is not protected; only the provider recognizes a retry"
        );
    }
    sleep(payments.delay).await;
    let charge = Charge {
        charge_id: format!("ch_{}", Uuid::new_v4().simple()),
        account,
        amount_cents: new.amount_cents,
        currency: new.currency,
        reference,
        merchant,
    };
    payments.charges().push(charge.clone());
    info!(merchant = merchant.0, charge.account, charge.charge_id, "a charge is made");
    Ok((StatusCode::CREATED, Json(charge)))
}

async fn list(
    State(payments): State<Payments>,
    Path(account): Path<String>,
    Extension(merchant): Extension<Merchant>,
) -> Json<Vec<Charge>> {
    let charges = payments.charges();
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
            HeaderName::from_static("idempotency-unprotected"),
            header::RETRY_AFTER,
        ])
}

fn app(payments: Payments, idempotency: IdempotencyKeyLayer) -> Router {
    Router::new()
        .route("/accounts/{id}/charges", get(list).post(charge))
        // On the routes only, so that an unknown path remains a 404.
        .route_layer(idempotency)
        // Layers that are added later are further outside. Authentication runs before the key is read, and CORS adds its
        // headers to refusals and replays as well.
        .route_layer(from_fn(authenticate))
        .layer(cors())
        .with_state(payments)
}

/// The scope separates this service from others on the same table.
async fn engine() -> Result<Idempotency> {
    if env::var_os("IDEMPOTENCY_TABLE").is_some() {
        #[cfg(not(feature = "dynamodb"))]
        anyhow::bail!("IDEMPOTENCY_TABLE is set, and this was built without the feature dynamodb");
        #[cfg(feature = "dynamodb")]
        {
            let once = Idempotency::builder(lambda_once::DynamoDbStore::from_env().await?).scope("payments").build()?;
            match once.warm_up().await {
                Err(error) if is_set("FAIL_OPEN") => warn!(%error, "the store is unavailable"),
                warmed => warmed?,
            }
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

/// Reads a number of milliseconds.
fn milliseconds(name: &str) -> Result<Duration> {
    let Ok(text) = env::var(name) else { return Ok(Duration::ZERO) };
    Ok(Duration::from_millis(text.parse().with_context(|| format!("{name} is {text:?}"))?))
}

fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| value == "1")
}

async fn serve() -> Result<()> {
    let address = env::args().nth(1).or_else(|| env::var("LISTEN").ok()).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let once = engine().await?;
    // `DELAY_MS` slows every charge down, so that a client can disconnect while its charge is being processed.
    let delay = milliseconds("DELAY_MS")?;
    let is_key_optional = is_set("KEY_OPTIONAL");
    let payments = Payments { charges: Arc::default(), delay, is_key_optional, once: once.clone() };

    // The merchant is part of the key, so two merchants with the same key do not get each other's responses.
    let scope = Caller::from_fn(|request| request.extensions.get::<Merchant>().map(|merchant| merchant.0.to_owned()));
    let mut idempotency = IdempotencyKeyLayer::new(once, scope).wait_up_to(milliseconds("WAIT_MS")?);
    if is_key_optional {
        idempotency = idempotency.key_optional();
    }
    if is_set("FAIL_OPEN") {
        idempotency = idempotency.fail_open();
    }
    let idempotency = idempotency.validate()?;
    let in_flight = idempotency.in_flight();

    let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let listener = TcpListener::bind(&address).await.with_context(|| format!("cannot listen on {address}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(payments, idempotency)).with_graceful_shutdown(shutdown(interrupt, terminate)).await?;
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
