//! The loop that performs the machine's steps and returns their results to it.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{self, Poll},
};

use futures_util::{StreamExt, future::Either, stream::FuturesUnordered};
use lambda_runtime::Context;

use super::{
    machine::Machine,
    steps::{Event, Step, Terms},
};
use crate::{
    batch::{
        handler::{Handler, Several},
        options::Options,
        report::RecordReport,
        source::{Decode, Source},
    },
    clock::{Clock, Timestamp},
    future::BoxFuture,
    idempotency::{engine::Engine, window::Window},
    key::selector::Key,
};

/// The state that all records of a service share.
pub(in crate::batch) struct Processor<S: Source, H, T> {
    pub(in crate::batch) source: S,
    pub(in crate::batch) engine: Engine,
    pub(in crate::batch) key: Key,
    pub(in crate::batch) handler: H,
    pub(in crate::batch) decode: Decode<S, T>,
    pub(in crate::batch) options: Options,
    /// Whether traces are exported.
    pub(in crate::batch) traced: bool,
}

impl<S, H, T> Processor<S, H, T>
where
    S: Source,
    T: Send + 'static,
{
    /// Processes the records and returns one report for each, in the order of the event.
    pub(in crate::batch) async fn process<Args>(
        &self,
        records: Vec<S::Record>,
        lambda: Context,
        window: Window,
    ) -> Vec<RecordReport>
    where
        H: Handler<T, Args>,
    {
        let clock = &*self.engine.clock;
        let hasher = self.hasher(&lambda);
        let lambda = Arc::new(lambda);
        let operation = self.engine.log_name(S::OPERATION);
        let mut machine = self.machine::<Args>(records, window, &operation);
        let mut under_way = FuturesUnordered::new();
        let mut buffer = Vec::new();
        let mut is_quiet = true;
        loop {
            let now = self.now();
            let mut is_first_poll = false;
            match machine.turn(now, is_quiet) {
                Step::Decode(index, info, body) => {
                    let work = self.decode(&info, &body, &hasher, &mut buffer);
                    machine.decoded(index, body, work);
                    continue;
                }
                Step::Call(action) => {
                    let call = send(clock, self.call(action, window), &mut machine).await;
                    under_way.extend(call.map(Either::Right));
                    is_quiet = false;
                    continue;
                }
                Step::Begin(run, bounds) => {
                    under_way.push(Either::Left(self.run(run, &lambda, now, bounds, window)));
                    is_first_poll = true;
                }
                Step::BeginTogether(..) if !H::FORM.takes_several => unreachable!("only one record is taken at once"),
                Step::BeginTogether(runs, bounds) => {
                    under_way.push(Either::Right(self.run_together(runs, &lambda, now, bounds)));
                    is_first_poll = true;
                }
                Step::Poll => {}
                Step::Yield => {
                    // The first yield lets I/O wake its tasks, the second lets them run.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    machine.had_turn(self.now());
                }
                Step::Wait(until) => {
                    wait(clock, &mut machine, &mut under_way, until).await;
                    is_quiet = false;
                    continue;
                }
                Step::Done => return machine.into_reports(),
            }
            let polled =
                poll_fn(|context| Poll::Ready(poll(clock, &mut machine, &mut under_way, context, is_first_poll)));
            is_quiet = polled.await.is_pending();
        }
    }

    fn machine<'a, Args>(&'a self, records: Vec<S::Record>, window: Window, operation: &'a str) -> Machine<'a, S, T>
    where
        H: Handler<T, Args>,
    {
        let several = if H::FORM.takes_several { self.handler.several() } else { Several::ONE };
        let terms = Terms {
            options: &self.options,
            engine: &self.engine,
            operation,
            probes: H::FORM.probes,
            bulk_size: several.most,
            takes_consecutive: several.are_consecutive,
        };
        Machine::new(self.source.clone(), records, window, self.now(), terms)
    }

    fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }
}

/// Sends a call before any handler is polled again, because a handler may block its thread. Returns the call if it is
/// pending.
async fn send<'a, S: Source, T: Send>(
    clock: &dyn Clock,
    mut call: BoxFuture<'a, Event>,
    machine: &mut Machine<'_, S, T>,
) -> Option<BoxFuture<'a, Event>> {
    match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
        Poll::Ready(event) => {
            machine.ended(event, clock.now());
            None
        }
        Poll::Pending => Some(call),
    }
}

/// Polls the pending calls until one ends, and passes its event to the machine. When a handler begins, no other call is
/// ready, so only its first poll runs. That poll may block its thread.
fn poll<S: Source, T>(
    clock: &dyn Clock,
    machine: &mut Machine<'_, S, T>,
    under_way: &mut FuturesUnordered<impl Future<Output = Event>>,
    context: &mut task::Context<'_>,
    is_first_poll: bool,
) -> Poll<()> {
    let begun = clock.now();
    let polled = under_way.poll_next_unpin(context);
    let now = clock.now();
    // If another call ended first, the handler was not polled.
    let is_first_poll = is_first_poll
        && !matches!(&polled, Poll::Ready(Some(event)) if !matches!(event, Event::Ran(..) | Event::RanTogether(..)));
    machine.polled(now.since(begun), is_first_poll);
    match polled {
        Poll::Ready(Some(event)) => {
            machine.ended(event, now);
            Poll::Ready(())
        }
        Poll::Ready(None) | Poll::Pending => Poll::Pending,
    }
}

/// Waits until a call ends or the time is reached.
async fn wait<S: Source, T: Send>(
    clock: &dyn Clock,
    machine: &mut Machine<'_, S, T>,
    under_way: &mut FuturesUnordered<impl Future<Output = Event> + Send>,
    until: Option<Timestamp>,
) {
    let time = until.map(|until| until.since(clock.now()));
    let ended = poll_fn(|context| poll(clock, machine, under_way, context, false));
    match time {
        // A call that ends at the same time counts, because `timeout` polls it first.
        Some(time) => tokio::time::timeout(time, ended).await.unwrap_or_default(),
        None => ended.await,
    }
    machine.had_turn(clock.now());
}
