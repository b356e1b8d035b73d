//! A queue as consumers see it: one message at a time, without a deadline.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};

use super::{api::Api, queue::Source};
use crate::history::{InvocationId, KeyId, Policy};

/// A message that a consumer has received.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) id: InvocationId,
    pub(crate) key: KeyId,
    #[serde(with = "PolicyName")]
    pub(crate) policy: Policy,
    pub(crate) is_poison: bool,
}

/// The serialized form of a policy, because the history knows no library.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Policy")]
enum PolicyName {
    Rerun,
    Refuse,
    Probe,
}

/// The end of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Disposition {
    Acknowledge,
    /// The message becomes visible again.
    Leave,
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/message", get(receive)).route("/message/{id}", post(conclude))
}

async fn receive(State(api): State<Api>) -> Json<Receipt> {
    loop {
        if let Some(receipt) = api.world.receive_one(api.slot().worker(), Source::Consumer) {
            return Json(receipt);
        }
        api.pause().await;
    }
}

async fn conclude(State(api): State<Api>, Path(id): Path<u32>, Json(disposition): Json<Disposition>) -> StatusCode {
    let reported = match disposition {
        Disposition::Acknowledge => Some(&[][..]),
        Disposition::Leave => None,
    };
    api.world.conclude(api.slot().worker(), id, reported);
    StatusCode::ACCEPTED
}
