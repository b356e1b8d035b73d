//! HTTP clients, which retry a request until its response is final.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::World;
use crate::{
    client::HttpClient,
    history::{Answer, Fact, KeyId, Policy},
};

/// The longest time for which a client waits for a response.
const PATIENCE: Duration = Duration::from_millis(2_000);
/// The longest time for which a client retries once all faults have stopped.
const LONGEST: Duration = Duration::from_secs(45);

/// Makes a request, with retries. Most clients then ask again, although they have the response.
pub(super) async fn call(world: &Arc<World>, client: &HttpClient, key: KeyId) {
    let mut calm: Option<Instant> = None;
    let again = world.lock().random.u32(0..3);
    let mut finals = 0;
    // Without a final response a client that gives up leaves its key stuck.
    while calm.is_none_or(|since| since.elapsed() < LONGEST) && finals <= again {
        if !world.has_faults() {
            calm.get_or_insert_with(Instant::now);
        }
        let answer = ask(world, client, key).await;
        let is_final = match answer {
            Answer::Result { .. } => true,
            Answer::Abandoned => world.key(key).policy == Policy::Refuse,
            Answer::Retry => false,
        };
        finals += u32::from(is_final);
        let pause = world.pause(20, 400);
        sleep(pause).await;
    }
}

async fn ask(world: &Arc<World>, client: &HttpClient, key: KeyId) -> Answer {
    let slots: Vec<_> = world.slots.iter().filter_map(|slot| Some((slot.worker(), slot.port()?))).collect();
    if slots.is_empty() {
        return Answer::Retry;
    }
    let (worker, port) = slots[world.lock().random.usize(0..slots.len())];
    let call = {
        let mut state = world.lock();
        let call = state.calls;
        state.calls += 1;
        world.record_in(&mut state, Fact::Asked { call, key, worker });
        call
    };
    let answer = timeout(PATIENCE, exchange(client, port, key, world.key(key).policy)).await;
    let answer = answer.ok().flatten().unwrap_or(Answer::Retry);
    world.record(Fact::Told { call, answer });
    answer
}

async fn exchange(client: &HttpClient, port: u16, key: KeyId, policy: Policy) -> Option<Answer> {
    let policy = match policy {
        Policy::Rerun => "rerun",
        Policy::Refuse => "refuse",
        Policy::Probe => "probe",
    };
    let request = axum::http::Request::post(format!("http://127.0.0.1:{port}/{policy}/{key}"))
        .header("idempotency-key", format!("operation-{key}"))
        .body(Full::default())
        .ok()?;
    let response = client.request(request).await.ok()?;
    let is_replay = response.headers().contains_key("idempotency-replayed");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    match status {
        201 => Some(Answer::Result { run: str::from_utf8(&body).ok()?.parse().ok()?, is_replay }),
        409 => {
            let problem: Value = serde_json::from_slice(&body).ok()?;
            Some(if problem["code"] == "outcome_unknown" { Answer::Abandoned } else { Answer::Retry })
        }
        _ => Some(Answer::Retry),
    }
}
