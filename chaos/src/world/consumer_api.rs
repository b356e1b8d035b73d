//! The queue as consumers see it: one message at a time, without a deadline.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, time::timeout};

use super::{
    Result, World,
    queue::{PAUSE, Source},
    slots::Slot,
};

/// The end of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Disposition {
    Acknowledge,
    /// The message becomes visible again.
    Leave,
}

#[derive(Clone)]
struct Api {
    world: Arc<World>,
    slot: usize,
}

/// Serves the queue for the consumer of a slot.
pub(super) async fn serve(world: &Arc<World>, slot: &Slot) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    slot.set_api(&format!("http://{}", listener.local_addr()?));
    let place = world.slots.iter().position(|other| std::ptr::eq(other, slot)).unwrap_or_default();
    let router = Router::new()
        .route("/message", get(receive))
        .route("/message/{id}", post(conclude))
        .with_state(Api { world: Arc::clone(world), slot: place });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

async fn receive(State(api): State<Api>) -> Response {
    loop {
        let worker = api.world.slots[api.slot].worker();
        if let Some(message) = api.world.receive_one(worker, Source::Consumer) {
            return Json(message).into_response();
        }
        let _ = timeout(PAUSE, api.world.sent.notified()).await;
    }
}

async fn conclude(State(api): State<Api>, Path(id): Path<u32>, Json(disposition): Json<Disposition>) -> StatusCode {
    let reported = match disposition {
        Disposition::Acknowledge => Some(&[][..]),
        Disposition::Leave => None,
    };
    api.world.conclude(api.world.slots[api.slot].worker(), id, reported);
    StatusCode::ACCEPTED
}
