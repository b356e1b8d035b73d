//! Runs a handler's future within its bounds: a panic is caught, and at the stop point the future is dropped.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::clock::{Clock, Timestamp};

/// How a handler's future ended.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    Returned(T),
    /// With the panic's message, if it has one.
    Panicked(Option<String>),
    CutOff,
}

pin_project! {
    /// Awaits `work` until the stop point.
    ///
    /// The clock is asked before every poll, besides the timer: while a sandbox is frozen its timers stand still, and a
    /// handler that thaws after its lease must not go on.
    pub(crate) struct Guarded<F> {
        #[pin]
        work: F,
        #[pin]
        timer: Sleep,
        clock: Arc<dyn Clock>,
        stop: Timestamp,
    }
}

impl<F> Guarded<F> {
    pub(crate) fn new(work: F, clock: Arc<dyn Clock>, stop: Timestamp) -> Self {
        let timer = tokio::time::sleep(stop.since(clock.now()));
        Self { work, timer, clock, stop }
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Ended<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.clock.now() >= *this.stop {
            return Poll::Ready(Ended::CutOff);
        }
        // The future is not polled again after a panic, so it does not matter in which state that left it.
        match catch_unwind(AssertUnwindSafe(|| this.work.poll(context))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Ended::Returned(value)),
            Ok(Poll::Pending) => this.timer.poll(context).map(|()| Ended::CutOff),
            Err(panic) => Poll::Ready(Ended::Panicked(message(&*panic))),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}
