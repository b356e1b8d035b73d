//! Workers: execution environments that handle one invocation after the other, with the real engine.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use lambda_once::{
    AfterUnknown, BoxFuture, Idempotency, Key, OutcomeKind, ProbeResult, RecordContext,
    batch::{BatchService, Handler, Processed, RecordReport, sqs::Sqs},
    clock::Clock,
    store::StoreId,
};
use lambda_runtime::{Context, LambdaEvent};
use tokio::time::timeout;

use super::{
    WorkerClock, World, calls,
    fate::{Fate, Invocation},
    handler::{self, Environment, Order, result_of},
    network::Connection,
    queue::Delivery,
};
use crate::{
    bugs::Bug,
    history::{Answer, Entry, Ms, Policy},
};

type Batches = Box<dyn Fn(LambdaEvent<SqsEvent>) -> BoxFuture<'static, Processed<SqsBatchResponse>> + Send + Sync>;

/// Handles invocations until the history is over.
pub(super) async fn live(world: Arc<World>) {
    let clock = WorkerClock::new(&world);
    let (fate, copies, calls, returned, has_deadline, holds_until) = Default::default();
    let env = Arc::new(Environment { world, clock, fate, copies, has_deadline, holds_until, calls, returned });
    let world = &env.world;
    let (batches, exchange) = (batches(&env), calls::exchange(&env));
    let calls = engine(&env, Entry::Call);
    while !world.lock().is_over {
        if let Some(job) = world.take() {
            begin(&env);
            calls::serve(&env, job, &exchange, &calls).await;
            continue;
        }
        let deliveries = world.receive();
        if deliveries.is_empty() {
            idle(world).await;
        } else {
            begin(&env);
            deliver(&env, &batches, deliveries).await;
        }
    }
}

/// Waits for a call, or until a message is visible.
async fn idle(world: &World) {
    let arrival = world.arrivals.notified();
    match world.next_visible() {
        Some(wait) => drop(timeout(wait, arrival).await),
        None => arrival.await,
    }
}

/// Begins an invocation.
fn begin(env: &Environment) {
    set_clock(env);
    env.copies.draw(&env.world);
}

/// Sets the offset of the worker's clock, which stays the same within an invocation.
fn set_clock(env: &Environment) {
    let world = &env.world;
    let most = i64::try_from(world.plan.max_offset).unwrap_or(0);
    let mut state = world.lock();
    // The differences between clocks are often as large as they may be.
    let offset = if state.random.chance(600) {
        *state.random.pick(&[-most, most])
    } else {
        i64::try_from(state.random.between(0, 2 * world.plan.max_offset)).unwrap_or(0) - most
    };
    drop(state);
    env.clock.set(offset);
    env.clock.stand_still(world.bug == Some(Bug::ClockStandsStill));
}

/// Builds the engine of an entry point.
pub(super) fn engine(env: &Arc<Environment>, entry: Entry) -> Idempotency {
    let world = &env.world;
    let plan = &world.plan;
    let link = Connection {
        world: Arc::clone(world),
        clock: env.clock.clone(),
        copies: env.copies.clone(),
        id: StoreId::unique(),
    };
    let mut builder = Idempotency::builder(link)
        .clock(env.clock.clone())
        .scope("sim")
        .disabled(false)
        .lease(Duration::from_millis(plan.lease))
        .reserve(Duration::from_millis(plan.reserve))
        .skew_margin(Duration::from_millis(plan.margin))
        .heartbeat(Duration::from_secs(40))
        .after_unknown(match plan.policy(entry) {
            Policy::Rerun => AfterUnknown::Rerun,
            Policy::Refuse => AfterUnknown::Refuse,
            Policy::Probe => AfterUnknown::Probe,
        });
    if let Some(retention) = plan.terms.retention {
        builder = builder.retention(Duration::from_millis(retention));
    }
    builder.build().expect("the plan's settings do not contradict each other")
}

fn batches(env: &Arc<Environment>) -> Batches {
    let of_handler = Arc::clone(env);
    let handle = move |order: Order, context: RecordContext| {
        let env = Arc::clone(&of_handler);
        async move {
            let claim = context.claim().cloned().expect("every record is claimed");
            handler::run(env, order, claim).await.map(result_of)
        }
    };
    let service = engine(env, Entry::Queue).sqs(Key::pointer("/key"), handle);
    if env.world.plan.policy(Entry::Queue) != Policy::Probe {
        return boxed(env, service);
    }
    let of_probe = Arc::clone(env);
    let probe = move |order: Order, _: RecordContext| {
        let env = Arc::clone(&of_probe);
        async move {
            let found = handler::probe(env, order.key).await;
            found.map(done).map_err(lambda_once::Failure::from)
        }
    };
    boxed(env, service.probe(probe))
}

/// Converts the result of a probe.
pub(super) fn done(found: ProbeResult<u32>) -> ProbeResult<String> {
    match found {
        ProbeResult::Done(run) => ProbeResult::Done(result_of(run)),
        _ => ProbeResult::NotDone,
    }
}

fn boxed<H, Args>(env: &Environment, service: BatchService<Sqs, H, Order, Args>) -> Batches
where
    H: Handler<Order, Args>,
    Args: 'static,
{
    let plan = &env.world.plan.queue;
    let mut service = service.concurrency(plan.concurrency);
    if plan.is_ordered {
        service = service.ordered_by(Key::pointer("/entity"), Key::pointer("/sequence"));
    }
    let service = service.validate().expect("the service's settings do not contradict each other");
    Box::new(move |event| {
        let service = service.clone();
        Box::pin(async move { service.process(event).await })
    })
}

/// Invokes the function with a batch of messages.
async fn deliver(env: &Arc<Environment>, batches: &Batches, deliveries: Vec<Delivery>) {
    let world = &env.world;
    let asked: Vec<_> = deliveries
        .iter()
        .map(|delivery| world.ask(delivery.order.key, delivery.order.payload, delivery.is_audit))
        .collect();
    let (context, deadline) = context(env);
    env.has_deadline.store(true, Ordering::Relaxed);
    let fate = Fate::draw(world, Some(deadline));
    env.fate.set(fate);
    env.begin(deliveries.iter().map(|delivery| delivery.order).zip(asked.iter().copied()), Some(deadline));
    let event = LambdaEvent::new(event(world, &deliveries), context);
    let processed = Invocation::new(Arc::clone(world), fate, batches(event)).await;
    let Some(Processed { response, records, .. }) = processed else {
        asked.iter().for_each(|call| world.tell(*call, Answer::Lost));
        return;
    };
    for (nth, call) in asked.iter().enumerate() {
        let report = records.iter().find(|report| report.index == nth);
        let ran = env.returned(deliveries[nth].order.key);
        world.tell(*call, report.map_or(Answer::Error, |report| calls::response_of(report.outcome, ran)));
    }
    let failed = response.map(|response| response.batch_item_failures);
    for delivery in deliveries {
        let id = delivery.message.to_string();
        let is_failed = failed.as_ref().map_or(true, |failed| failed.iter().any(|item| item.item_identifier == id));
        let is_failed =
            is_failed && !world.bug.is_some_and(|bug| bug.acknowledges(outcome_of(&records, delivery.message)));
        world.conclude(delivery, !is_failed);
    }
}

/// Returns the outcome of a message.
fn outcome_of(records: &[RecordReport], message: u32) -> Option<OutcomeKind> {
    let id = message.to_string();
    records.iter().find(|report| report.record.id() == id)?.outcome.ok()
}

/// Draws the deadline of an invocation. Returns it in a context, by the worker's clock, and as true time.
pub(super) fn context(env: &Environment) -> (Context, Ms) {
    let world = &env.world;
    let (least, most) = world.plan.time_left;
    let left = world.lock().random.between(least, most);
    let mut context = Context::default();
    context.deadline = env.clock.now().after(Duration::from_millis(left)).as_millis();
    (context, world.now() + left)
}

fn event(world: &World, deliveries: &[Delivery]) -> SqsEvent {
    let suffix = if world.plan.queue.is_fifo { ".fifo" } else { "" };
    let mut event = SqsEvent::default();
    for delivery in deliveries {
        let mut message = SqsMessage::default();
        message.message_id = Some(delivery.message.to_string());
        message.body = serde_json::to_string(&delivery.order).ok();
        message.event_source_arn = Some(format!("arn:aws:sqs:us-east-1:123456789012:sim{suffix}"));
        message.attributes.insert("ApproximateReceiveCount".to_owned(), delivery.receives.to_string());
        message.attributes.insert("MessageGroupId".to_owned(), delivery.group.to_string());
        event.records.push(message);
    }
    event
}
