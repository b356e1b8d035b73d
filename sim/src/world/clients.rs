//! The clients: producers of messages, HTTP clients with retries, and callers of operations.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{World, calls::Job, handler::Order};
use crate::history::{Answer, Entry, KeyId};

/// The longest time for which a client waits for a response.
const PATIENCE: Duration = Duration::from_secs(45);

/// Makes all calls of the plan, and returns when each has its last response.
pub(super) async fn call_all(world: &Arc<World>) {
    let mut calls = Vec::new();
    for (key, of) in (0..).zip(&world.plan.keys) {
        for _ in 0..world.plan.calls_per_key {
            let mut state = world.lock();
            let start = state.random.pause(0, world.plan.active);
            // Calls often come close together.
            let start = if state.random.chance(400) { start / 10 } else { start };
            let payload = u8::from(state.random.chance(world.plan.other_payload));
            drop(state);
            calls.push(call(world, of.entry, key, payload, start));
        }
    }
    let _ = timeout(Duration::from_millis(4 * world.plan.active), join_all(calls)).await;
}

async fn call(world: &Arc<World>, entry: Entry, key: KeyId, payload: u8, start: Duration) {
    sleep(start).await;
    if entry == Entry::Queue {
        return world.send(Order::new(world, key, payload), false);
    }
    // Some clients retry often enough to meet the very end of a lease.
    let is_impatient = world.lock().random.chance(250);
    let retries = if is_impatient { 40 } else { world.lock().random.between(0, 5) };
    for _ in 0..=retries {
        let answer = ask(world, key, payload, false).await;
        let is_over = matches!(answer, Answer::Executed(_) | Answer::Replayed(_) | Answer::Mismatch);
        if is_over && (is_impatient || world.lock().random.chance(700)) {
            break;
        }
        let longest = if is_impatient { 500 } else { 6_000 };
        let pause = world.lock().random.pause(10, longest);
        sleep(pause).await;
    }
}

/// Makes a call, and waits for its response.
async fn ask(world: &Arc<World>, key: KeyId, payload: u8, is_audit: bool) -> Answer {
    let call = world.ask(key, payload, is_audit);
    let (sender, receiver) = oneshot::channel();
    let order = Order::new(world, key, payload);
    world.put(Job { order, call, sender });
    let answer = match timeout(PATIENCE, receiver).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Answer::Lost,
    };
    world.tell(call, answer);
    answer
}

/// Calls each key until it gives a final response, in a world without faults.
pub(super) async fn audit(world: &Arc<World>) {
    while !world.queue.is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
    // Newer operations come first: a FIFO queue would hold them back behind older ones, which wait for them.
    let audits = (0..world.plan.keys.len() as KeyId)
        .zip(&world.plan.keys)
        .rev()
        .map(|(key, of)| audit_key(world, of.entry, key));
    join_all(audits).await;
    while !world.queue.is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
}

async fn audit_key(world: &Arc<World>, entry: Entry, key: KeyId) {
    let payloads: &[u8] = if world.plan.other_payload > 0 { &[0, 1] } else { &[0] };
    if entry == Entry::Queue {
        for payload in payloads {
            world.send(Order::new(world, key, *payload), true);
        }
        return;
    }
    // A lost run keeps its key for its payload.
    for _ in 0..40 {
        for payload in payloads {
            if is_decided(ask(world, key, *payload, true).await) {
                return;
            }
        }
        sleep(Duration::from_secs(2)).await;
    }
}

fn is_decided(answer: Answer) -> bool {
    matches!(answer, Answer::Replayed(_) | Answer::ReplayedFailure | Answer::Superseded | Answer::Abandoned)
}
