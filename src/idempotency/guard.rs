//! Bounds user code: panics are caught, and futures are dropped when their time is up.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

#[cfg(any(feature = "batch", feature = "http"))]
use futures_util::FutureExt;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use super::{invoked::Enclosing, window::Window};
use crate::clock::{Clock, Timestamp};
pub(crate) use crate::panics::{catch_panic, drop_contained, drop_panic};

/// The reason why a user's future returned nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// It panicked, with this message if there is one.
    Panicked(Option<String>),
    /// It was still running when its time was up.
    Cancelled,
    /// Its time was up before its first poll, so nothing of it ran.
    NotStarted,
}

pin_project! {
    /// Awaits `work` within its bounds, and catches its panics (L7; in a batch also B1 and B5).
    ///
    /// Besides the timer, the clock is read before every poll, because timers stop while an execution environment is
    /// frozen, and a handler that thaws after its lease must not continue.
    pub(crate) struct Guarded<F> {
        #[pin]
        work: F,
        #[pin]
        timer: Sleep,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
        started: bool,
    }
}

/// The times at which a user's future may begin at the latest, and at which it is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) begin_by: Timestamp,
    pub(crate) stop: Timestamp,
    /// The end of its invocation, if known.
    pub(crate) deadline: Option<Timestamp>,
}

impl Bounds {
    /// Returns bounds that allow the future to begin at any time until `stop`, in this window.
    pub(crate) fn until(stop: Timestamp, window: &Window) -> Self {
        Self { begin_by: stop, stop, deadline: window.deadline() }
    }
}

impl<F> Guarded<F> {
    pub(crate) fn new(work: F, clock: Arc<dyn Clock>, bounds: Bounds) -> Self {
        let timer = tokio::time::sleep(bounds.stop.since(clock.now()));
        Self { work, timer, clock, bounds, started: false }
    }

    /// Moves the handler deadline to `stop`, with a timer that ends in `time` at the latest.
    pub(crate) fn stop_at(self: Pin<&mut Self>, stop: Timestamp, time: Duration) {
        let mut this = self.project();
        this.bounds.stop = stop;
        this.timer.set(tokio::time::sleep(time));
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Unfinished>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let now = this.clock.now();
        // Handlers before it may have blocked the thread since the time was checked (B5).
        if !*this.started && now > this.bounds.begin_by {
            return Poll::Ready(Err(Unfinished::NotStarted));
        }
        if now >= this.bounds.stop {
            return Poll::Ready(Err(if *this.started { Unfinished::Cancelled } else { Unfinished::NotStarted }));
        }
        *this.started = true;
        // The future is not polled again after a panic, so its state does not matter.
        let entered = Enclosing { deadline: this.bounds.deadline, stop: this.bounds.stop }.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| this.work.poll(context)));
        drop(entered);
        match polled {
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Ok(Poll::Pending) => this.timer.poll(context).map(|()| Err(Unfinished::Cancelled)),
            Err(panic) => {
                let message = message(&*panic);
                drop_panic(panic);
                Poll::Ready(Err(Unfinished::Panicked(message)))
            }
        }
    }
}

/// Awaits a user's hook for at most this long. Without any time it is not started, because its effect would go
/// unnoticed.
#[cfg(any(feature = "batch", feature = "http"))]
pub(crate) async fn bounded<F: Future>(hook: F, time: Duration) -> Result<F::Output, Unfinished> {
    if time.is_zero() {
        return Err(Unfinished::NotStarted);
    }
    // The future is dropped inside, because its drop may panic too.
    let bounded = AssertUnwindSafe(async { tokio::time::timeout(time, hook).await }).catch_unwind();
    match bounded.await {
        Ok(in_time) => in_time.map_err(|_| Unfinished::Cancelled),
        Err(panic) => {
            let message = message(&*panic);
            drop_panic(panic);
            Err(Unfinished::Panicked(message))
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}
