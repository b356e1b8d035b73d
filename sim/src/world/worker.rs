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
    fate::{Fate, Fated},
    handler::{self, Order, Site, result_of},
    network::Link,
    queue::Delivery,
};
use crate::{
    bugs::Bug,
    history::{Answer, Entry, Ms, Policy},
};

type Batches = Box<dyn Fn(LambdaEvent<SqsEvent>) -> BoxFuture<'static, Processed<SqsBatchResponse>> + Send + Sync>;

/// Handles invocations until the history is over.
pub(super) async fn live(world: Arc<World>, number: u32) {
    let clock = WorkerClock::new(&world);
    let (present, copies, returned, has_deadline) = Default::default();
    let site = Arc::new(Site { world, number, clock, present, copies, has_deadline, returned });
    let world = &site.world;
    let (batches, exchange) = (batches(&site), calls::exchange(&site));
    let calls = engine(&site, Entry::Call);
    while !world.lock().is_over {
        if let Some(job) = world.take() {
            begin(&site);
            calls::serve(&site, job, &exchange, &calls).await;
            continue;
        }
        let deliveries = world.receive();
        if deliveries.is_empty() {
            idle(world).await;
        } else {
            begin(&site);
            deliver(&site, &batches, deliveries).await;
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
fn begin(site: &Site) {
    set_clock(site);
    site.copies.draw(&site.world);
    site.returned.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
}

/// Sets the offset of the worker's clock, which stays the same within an invocation.
fn set_clock(site: &Site) {
    let world = &site.world;
    let most = i64::try_from(world.plan.max_offset).unwrap_or(0);
    let mut state = world.lock();
    // The differences between clocks are often as large as they may be.
    let offset = if state.random.chance(600) {
        *state.random.pick(&[-most, most])
    } else {
        i64::try_from(state.random.between(0, 2 * world.plan.max_offset)).unwrap_or(0) - most
    };
    drop(state);
    site.clock.set(offset);
    site.clock.stand_still(world.bug == Some(Bug::ClockStandsStill));
}

/// Builds the engine of an entry point.
pub(super) fn engine(site: &Arc<Site>, entry: Entry) -> Idempotency {
    let world = &site.world;
    let plan = &world.plan;
    let link = Link {
        world: Arc::clone(world),
        clock: site.clock.clone(),
        copies: site.copies.clone(),
        id: StoreId::unique(),
    };
    let mut builder = Idempotency::builder(link)
        .clock(site.clock.clone())
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

fn batches(site: &Arc<Site>) -> Batches {
    let of_handler = Arc::clone(site);
    let handle = move |order: Order, context: RecordContext| {
        let site = Arc::clone(&of_handler);
        async move {
            let claim = context.claim().cloned().expect("every record is claimed");
            handler::run(site, order, claim).await.map(result_of)
        }
    };
    let service = engine(site, Entry::Queue).sqs(Key::pointer("/key"), handle);
    if site.world.plan.policy(Entry::Queue) != Policy::Probe {
        return boxed(site, service);
    }
    let of_probe = Arc::clone(site);
    let probe = move |order: Order, _: RecordContext| {
        let site = Arc::clone(&of_probe);
        async move {
            let found = handler::probe(site, order.key).await;
            found.map(done).map_err(lambda_once::Failure::from)
        }
    };
    boxed(site, service.probe(probe))
}

/// Returns what a probe has found, as the result of an operation.
pub(super) fn done(found: ProbeResult<u32>) -> ProbeResult<String> {
    match found {
        ProbeResult::Done(run) => ProbeResult::Done(result_of(run)),
        _ => ProbeResult::NotDone,
    }
}

fn boxed<H, Args>(site: &Site, service: BatchService<Sqs, H, Order, Args>) -> Batches
where
    H: Handler<Order, Args>,
    Args: 'static,
{
    let plan = &site.world.plan.queue;
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
async fn deliver(site: &Arc<Site>, batches: &Batches, deliveries: Vec<Delivery>) {
    let world = &site.world;
    let asked: Vec<_> = deliveries
        .iter()
        .map(|delivery| world.ask(delivery.order.key, delivery.order.payload, delivery.is_audit))
        .collect();
    let (context, deadline) = context(site);
    site.has_deadline.store(true, Ordering::Relaxed);
    let fate = Fate::draw(world, Some(deadline));
    site.present.set(fate);
    let event = LambdaEvent::new(event(world, &deliveries), context);
    let processed = Fated::new(Arc::clone(world), fate, batches(event)).await;
    let Some(Processed { response, records, .. }) = processed else {
        asked.iter().for_each(|call| world.tell(*call, Answer::Lost));
        return;
    };
    for (nth, call) in asked.iter().enumerate() {
        let report = records.iter().find(|report| report.index == nth);
        let ran = site.returned(deliveries[nth].order.key);
        world.tell(*call, report.map_or(Answer::Error, |report| calls::answer_of(report.outcome, ran)));
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
pub(super) fn context(site: &Site) -> (Context, Ms) {
    let world = &site.world;
    let (least, most) = world.plan.time_left;
    let left = world.lock().random.between(least, most);
    let mut context = Context::default();
    context.deadline = site.clock.now().after(Duration::from_millis(left)).as_millis();
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
