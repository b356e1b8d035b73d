//! An axum service with the Idempotency-Key layer, and a route for each policy.

use axum::{
    Extension, Router,
    extract::{Path, State},
    http::{Response, StatusCode},
    routing::post,
};
use bytes::Bytes;
use lambda_once::{
    AfterUnknown, BoxError, Claim, ProbeResult, Verdict,
    http::{Caller, IdempotencyKeyLayer},
};
use tokio::net::TcpListener;

use super::{
    Context,
    handler::{self, Ledger},
};

/// Serves requests until the process ends.
pub(super) async fn run(context: Context) -> Result<(), BoxError> {
    let router = Router::new()
        .route("/rerun/{key}", post(handle).route_layer(layer(&context, "rerun", AfterUnknown::Rerun).await?))
        .route("/refuse/{key}", post(handle).route_layer(layer(&context, "refuse", AfterUnknown::Refuse).await?))
        .route("/probe/{key}", post(handle).route_layer(layer(&context, "probe", AfterUnknown::Probe).await?))
        .with_state(context.ledger.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    context.ledger.listening(listener.local_addr()?.port()).await?;
    Ok(axum::serve(listener, router).await?)
}

async fn handle(
    State(ledger): State<Ledger>,
    Path(key): Path<u32>,
    claim: Option<Extension<Claim>>,
) -> Result<(StatusCode, String), StatusCode> {
    let took_over = claim.is_some_and(|claim| claim.took_over());
    match handler::run(ledger, key, took_over, false).await {
        Ok(run) => Ok((StatusCode::CREATED, run.to_string())),
        Err(failure) if failure.verdict() == Verdict::Transient => Err(StatusCode::SERVICE_UNAVAILABLE),
        // The layer keeps the claim.
        Err(_) => Err(StatusCode::GATEWAY_TIMEOUT),
    }
}

async fn layer(context: &Context, name: &'static str, policy: AfterUnknown) -> Result<IdempotencyKeyLayer, BoxError> {
    let layer = IdempotencyKeyLayer::new(context.engine(policy).await?.named(name), Caller::shared());
    if policy != AfterUnknown::Probe {
        return Ok(layer.validate()?);
    }
    let ledger = context.ledger.clone();
    let layer = layer.probe(move |request, _| {
        let ledger = ledger.clone();
        Box::pin(async move {
            let key = request.uri.path().rsplit('/').next().unwrap_or_default().parse()?;
            Ok(match ledger.probe(key).await? {
                ProbeResult::Done(run) => {
                    ProbeResult::Done(Response::builder().status(201).body(Bytes::from(run.to_string()))?)
                }
                _ => ProbeResult::NotDone,
            })
        })
    });
    Ok(layer.validate()?)
}
