//! Runs a handler's future within its bounds: a panic is caught, and at the stop point the future is dropped.

#[cfg(feature = "batch")]
use std::time::Duration;
use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

#[cfg(feature = "batch")]
use futures_util::FutureExt;
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
    /// The stop point had passed before it was polled for the first time: nothing of it ran.
    NotStarted,
}

#[cfg(feature = "batch")]
impl<T> Ended<T> {
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Ended<U> {
        match self {
            Self::Returned(value) => Ended::Returned(map(value)),
            Self::Panicked(message) => Ended::Panicked(message),
            Self::CutOff => Ended::CutOff,
            Self::NotStarted => Ended::NotStarted,
        }
    }
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
        started: bool,
    }
}

impl<F> Guarded<F> {
    pub(crate) fn new(work: F, clock: Arc<dyn Clock>, stop: Timestamp) -> Self {
        let timer = tokio::time::sleep(stop.since(clock.now()));
        Self { work, timer, clock, stop, started: false }
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Ended<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.clock.now() >= *this.stop {
            return Poll::Ready(if *this.started { Ended::CutOff } else { Ended::NotStarted });
        }
        *this.started = true;
        // The future is not polled again after a panic, so it does not matter in which state that left it.
        match catch_unwind(AssertUnwindSafe(|| this.work.poll(context))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Ended::Returned(value)),
            Ok(Poll::Pending) => this.timer.poll(context).map(|()| Ended::CutOff),
            Err(panic) => {
                let message = message(&*panic);
                discard(panic);
                Poll::Ready(Ended::Panicked(message))
            }
        }
    }
}

/// Why a hook of the user's came to no end.
#[cfg(feature = "batch")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    Panicked,
    OutOfTime,
}

/// Awaits a hook of the user's for at most this long. Without any time it is not begun: what it does would stay unseen.
#[cfg(feature = "batch")]
pub(crate) async fn bounded<F: Future>(hook: F, time: Duration) -> Result<F::Output, Unfinished> {
    if time.is_zero() {
        return Err(Unfinished::OutOfTime);
    }
    // The future is dropped inside, as that may panic too.
    let bounded = AssertUnwindSafe(async { tokio::time::timeout(time, hook).await }).catch_unwind();
    match bounded.await {
        Ok(in_time) => in_time.map_err(|_| Unfinished::OutOfTime),
        Err(panic) => {
            discard(panic);
            Err(Unfinished::Panicked)
        }
    }
}

/// Runs code that may panic where it must not end the caller: in a drop, or in printing an error of the user's.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).ok()
}

/// Drops what a panic has thrown, which may panic once more.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

fn message(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}
