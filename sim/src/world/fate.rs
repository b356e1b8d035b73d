//! The fate of an invocation: it is polled, frozen, thawed or killed.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

use super::World;
use crate::{counters::Fault, history::Ms};

/// The times at which an invocation is frozen or ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// It is not polled from the first time until the second.
    frozen: Option<(Ms, Ms)>,
    /// It ends without a response.
    killed_at: Option<Ms>,
    /// It ends without a response before this poll.
    killed_in_poll: Option<u32>,
}

impl Fate {
    /// Draws the fate of an invocation, which its platform ends a second after the deadline at the latest.
    pub(super) fn draw(world: &World, deadline: Option<Ms>) -> Self {
        let now = world.now();
        let faults = &world.plan.faults;
        let longest = world.plan.time_left.1;
        let frozen = world.draws(faults.frozen).then(|| {
            let mut state = world.lock();
            let from = now + state.random.between(0, longest / 2);
            (from, from + state.random.between(100, 2 * longest))
        });
        let mut fate = Self { frozen, ..Self::default() };
        if world.draws(faults.killed) {
            let mut state = world.lock();
            if state.random.chance(600) {
                // Most invocations end within ten polls.
                let most = if state.random.chance(850) { 10 } else { 40 };
                fate.killed_in_poll = Some(u32::try_from(state.random.between(1, most)).unwrap_or(1));
            } else {
                fate.killed_at = Some(now + state.random.between(0, longest));
            }
        }
        if let Some(deadline) = deadline {
            let ended = deadline + world.lock().random.between(0, 900);
            // A frozen environment is ended some time after it thaws.
            let ended = frozen.map_or(ended, |(_, thawed)| ended.max(thawed + 500));
            fate.killed_at = Some(fate.killed_at.map_or(ended, |at| at.min(ended)));
        }
        fate
    }

    /// Returns the last time at which a future that is dropped at `now` could act.
    fn active_until(self, now: Ms) -> Ms {
        match self.frozen {
            Some((from, until)) if from <= now && now <= until => from,
            _ => now,
        }
    }
}

/// The fate of the invocation that a worker handles now.
#[derive(Debug, Default)]
pub(super) struct CurrentFate(Mutex<Fate>);

impl CurrentFate {
    pub(super) fn set(&self, fate: Fate) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fate;
    }

    pub(super) fn active_until(&self, now: Ms) -> Ms {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).active_until(now)
    }
}

/// An invocation with a fate. Its output is `None` if it was killed.
pub(super) struct Invocation<F> {
    inner: Option<Pin<Box<F>>>,
    world: Arc<World>,
    fate: Fate,
    polls: u32,
    has_frozen: bool,
    timer: Pin<Box<Sleep>>,
}

impl<F: Future> Invocation<F> {
    pub(super) fn new(world: Arc<World>, fate: Fate, inner: F) -> Self {
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { inner: Some(Box::pin(inner)), world, fate, polls: 0, has_frozen: false, timer }
    }

    /// Wakes the task at this time.
    fn wake_at(&mut self, at: Ms, context: &mut Context<'_>) {
        let at = self.world.start + Duration::from_millis(at);
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }
}

impl<F: Future> Future for Invocation<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.polls += 1;
        this.world.step();
        let now = this.world.now();
        let Fate { frozen, killed_at, killed_in_poll } = this.fate;
        if killed_at.is_some_and(|at| at <= now) || killed_in_poll.is_some_and(|poll| poll <= this.polls) {
            this.inner = None;
            this.world.count(Fault::Killed);
            return Poll::Ready(None);
        }
        if let Some((_, until)) = frozen.filter(|(from, until)| *from <= now && now < *until) {
            if !std::mem::replace(&mut this.has_frozen, true) {
                this.world.count(Fault::Frozen);
            }
            this.wake_at(killed_at.map_or(until, |at| at.min(until)), context);
            return Poll::Pending;
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        if let Poll::Ready(output) = inner.as_mut().poll(context) {
            this.inner = None;
            return Poll::Ready(Some(output));
        }
        if let Some(at) = killed_at {
            this.wake_at(at, context);
        }
        Poll::Pending
    }
}
