//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a [`Source`] has taken them apart, and is told which of them failed. What
//! happens when is decided in [`Machine::turn`]; here is the loop that does it.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{self, Poll},
};

use futures_util::{StreamExt, future::Either, stream::FuturesUnordered};
use lambda_runtime::Context;

use super::{Decode, Handler, Options, RecordReport, source::Source};
use crate::{
    clock::Timestamp,
    idempotency::{Idempotency, window::Window},
    key::Key,
};

mod actions;
mod decode;
mod lanes;
mod machine;
mod outcomes;
mod pace;
mod queues;
mod records;
mod settling;
mod waits;

use actions::{Event, Step};
use machine::{Machine, Terms};

/// What all records of a service share.
pub(super) struct Processor<S: Source, H, T> {
    pub(super) source: S,
    pub(super) engine: Idempotency,
    pub(super) key: Key,
    pub(super) handler: H,
    pub(super) decode: Decode<S, T>,
    pub(super) options: Options,
}

impl<S, H, T> Processor<S, H, T>
where
    S: Source,
    T: Send + 'static,
{
    /// One report for each record, in the order of the event.
    pub(super) async fn process<Args>(
        &self,
        records: Vec<S::Record>,
        lambda: Context,
        window: Window,
    ) -> Vec<RecordReport>
    where
        H: Handler<T, Args>,
    {
        let scope = self.scope(&lambda);
        let lambda = Arc::new(lambda);
        let operation = self.engine.log_name(S::OPERATION);
        let terms = Terms {
            options: &self.options,
            engine: &self.engine,
            operation: &operation,
            probes: H::PROBES,
            bulk_size: self.handler.max_records(),
        };
        let mut machine = Machine::new(self.source.clone(), records, window, self.now(), terms);
        let mut under_way = FuturesUnordered::new();
        let mut buffer = Vec::new();
        let mut is_quiet = true;
        loop {
            let now = self.now();
            let mut is_first_poll = false;
            match machine.turn(now, is_quiet) {
                Step::Decode(index, info, body) => {
                    let work = self.decode(&info, &body, &scope, &mut buffer);
                    machine.decoded(index, body, work);
                    continue;
                }
                Step::Call(action) => {
                    // It is sent before any handler is polled again: that may block its thread.
                    let mut call = self.call(action, window);
                    match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
                        Poll::Ready(event) => machine.ended(event, self.now()),
                        Poll::Pending => under_way.push(Either::Right(call)),
                    }
                    is_quiet = false;
                    continue;
                }
                Step::Begin(run, bounds) => {
                    under_way.push(Either::Left(self.run(run, &lambda, now, bounds)));
                    is_first_poll = true;
                }
                Step::BeginTogether(runs, bounds) => {
                    under_way.push(Either::Right(self.run_together(runs, &lambda, now, bounds)));
                    is_first_poll = true;
                }
                Step::Poll => {}
                Step::Yield => {
                    // In the first turn I/O wakes its tasks, in the second they run.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    machine.had_turn(self.now());
                }
                Step::Wait(until) => {
                    self.wait(&mut machine, &mut under_way, until).await;
                    is_quiet = false;
                    continue;
                }
                Step::Done => return machine.into_reports(),
            }
            let polled =
                poll_fn(|context| Poll::Ready(self.poll(&mut machine, &mut under_way, context, is_first_poll)));
            is_quiet = polled.await.is_pending();
        }
    }

    fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// Polls what is under way until something ends, and tells the machine of that. As nothing has anything to tell when a
    /// handler begins, its first poll is the only one then: it may block its thread.
    fn poll<F: Future<Output = Event>>(
        &self,
        machine: &mut Machine<'_, S, T>,
        under_way: &mut FuturesUnordered<F>,
        context: &mut task::Context<'_>,
        is_first_poll: bool,
    ) -> Poll<()> {
        let begun = self.now();
        let polled = under_way.poll_next_unpin(context);
        let now = self.now();
        machine.polled(now.since(begun), is_first_poll);
        match polled {
            Poll::Ready(Some(event)) => Poll::Ready(machine.ended(event, now)),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until something ends, or the time has come.
    async fn wait<F: Future<Output = Event>>(
        &self,
        machine: &mut Machine<'_, S, T>,
        under_way: &mut FuturesUnordered<F>,
        until: Option<Timestamp>,
    ) {
        let time = until.map(|until| until.since(self.now()));
        let ended = poll_fn(|context| self.poll(machine, under_way, context, false));
        match time {
            // What ends at the same time counts: a time-out polls it first.
            Some(time) => tokio::time::timeout(time, ended).await.unwrap_or_default(),
            None => ended.await,
        }
        machine.had_turn(self.now());
    }
}
