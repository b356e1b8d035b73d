//! A future that can be killed in the middle of its work.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
};

use crate::{plan::Kill, timeline::millis};

/// An invocation that may be killed: its future is dropped in any state, and it completes with `None`.
pub(crate) struct Mortal<F> {
    work: Option<Pin<Box<F>>>,
    kill: Option<Kill>,
    polls: u64,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<F> Mortal<F> {
    pub(crate) fn new(work: F, kill: Option<Kill>) -> Self {
        let timer = match kill {
            Some(Kill::AtMs(ms)) => Some(Box::pin(tokio::time::sleep(millis(ms)))),
            Some(Kill::AtPoll(_)) | None => None,
        };
        Self { work: Some(Box::pin(work)), kill, polls: 0, timer }
    }
}

impl<F: Future> Future for Mortal<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let is_late = this.timer.as_mut().is_some_and(|timer| pin!(timer).poll(context).is_ready());
        if !is_late && let Some(work) = &mut this.work {
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            this.polls += 1;
            if !matches!(this.kill, Some(Kill::AtPoll(polls)) if this.polls >= polls) {
                return Poll::Pending;
            }
        }
        this.work = None;
        Poll::Ready(None)
    }
}
