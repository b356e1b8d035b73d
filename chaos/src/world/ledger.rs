//! The ledger: handlers report their begin, their effect and their end, which is recorded before they get the response.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::{Result, World};
use crate::history::{End, Fact, InvocationId, KeyId, RunId, WorkerId};

/// A report of a handler.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Begin {
        worker: WorkerId,
        key: KeyId,
        /// The receipt, at a consumer, which handles several at a time.
        receipt: Option<InvocationId>,
        took_over: bool,
    },
    Effect {
        run: RunId,
    },
    End {
        run: RunId,
        end: Ending,
    },
    /// A probe looks for an effect.
    Probe {
        key: KeyId,
    },
    /// An HTTP service listens on this port.
    Listening {
        worker: WorkerId,
        port: u16,
    },
}

/// The end of a run, in a report.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Ending {
    Returned,
    Transient,
    Permanent,
    Unknown,
}

/// Serves the ledger, and returns its address.
pub(super) async fn serve(world: &Arc<World>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().route("/", post(enter)).with_state(Arc::clone(world));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn enter(State(world): State<Arc<World>>, Json(report): Json<Report>) -> Result<Json<Option<RunId>>, StatusCode> {
    // Before the state is locked, because a slot that is locked may record a fact.
    if let Report::Listening { worker, port } = report
        && let Some(slot) = world.slots.iter().find(|slot| slot.worker() == worker)
    {
        slot.listens_on(port);
    }
    let mut state = world.lock();
    let found = match report {
        Report::Begin { worker, key, receipt, took_over } => {
            let run = RunId::try_from(state.runs.len()).unwrap_or(RunId::MAX);
            state.runs.push((key, worker));
            let invocation = receipt.or_else(|| state.invocations.get(&worker).copied());
            world.record_in(&mut state, Fact::Began { run, key, worker, invocation, took_over });
            Some(run)
        }
        Report::Effect { run } => {
            let (key, _) = *state.runs.get(run as usize).ok_or(StatusCode::NOT_FOUND)?;
            state.last_effects.insert(key, run);
            world.record_in(&mut state, Fact::Effect { run });
            None
        }
        Report::End { run, end } => {
            let end = match end {
                Ending::Returned => End::Returned,
                Ending::Transient => End::Transient,
                Ending::Permanent => End::Permanent,
                Ending::Unknown => End::Unknown,
            };
            world.record_in(&mut state, Fact::Ended { run, end });
            None
        }
        Report::Probe { key } => {
            world.record_in(&mut state, Fact::Probed { key });
            state.last_effects.get(&key).copied()
        }
        Report::Listening { .. } => None,
    };
    Ok(Json(found))
}
