//! Guarantees of each layer, from the first delivery to a crash, on each store.

mod cached;
mod clocks;
mod codec;
mod doubt;
mod faults;
mod http;
mod invocation;
mod order;
mod sqs;
mod stream;

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{Failure, Idempotency, OutcomeKind, Store, Verdict};
use tokio::sync::Notify;

use crate::support::{
    clock::TokioClock,
    stores::{Backend, Records},
};

/// The default lease and margin, plus a millisecond.
const LAPSE: Duration = Duration::from_millis(31_001);

/// The end of a run of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Success,
    Failure,
    /// It never ends, because the process dies.
    Crash,
}

/// The behavior of all handlers. Clones share their state.
#[derive(Clone)]
struct Handler(Arc<Runs>);

struct Runs {
    count: AtomicU32,
    next: Mutex<End>,
    crashing: Notify,
}

impl Handler {
    fn new() -> Self {
        Self(Arc::new(Runs { count: AtomicU32::new(0), next: Mutex::new(End::Success), crashing: Notify::new() }))
    }

    /// Returns the number of this run, or ends as the test has set.
    async fn run(&self) -> Result<u32, Failure> {
        let run = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        let end = std::mem::replace(&mut *self.0.next.lock().unwrap(), End::Success);
        match end {
            End::Success => Ok(run),
            End::Failure => Err(Failure::transient("closed")),
            End::Crash => {
                self.0.crashing.notify_one();
                pending().await
            }
        }
    }

    /// Sets the end of the next run.
    fn next(&self, end: End) {
        *self.0.next.lock().unwrap() = end;
    }

    fn runs(&self) -> u32 {
        self.0.count.load(Ordering::SeqCst)
    }
}

/// A separate store, and the handler.
struct World {
    clock: TokioClock,
    store: Arc<dyn Store>,
    handler: Handler,
}

impl World {
    async fn new(backend: Backend) -> Self {
        let clock = TokioClock::new();
        let store = Records::new(backend, clock.clone()).await.store().await;
        Self { clock, store, handler: Handler::new() }
    }

    fn engine(&self) -> Idempotency {
        self.engine_on(Arc::clone(&self.store))
    }

    fn engine_on(&self, store: impl Store) -> Idempotency {
        Idempotency::builder(store).clock(self.clock.clone()).scope("tests").disabled(false).build().unwrap()
    }

    /// Delivers operations through the layer, and asserts each outcome.
    async fn assert_promises<L: Layer>(&self, layer: &L) {
        use OutcomeKind::{Executed, Failed, InProgress, Mismatch, Replayed, TookOver};
        assert_eq!(layer.deliver("a", 1).await, Executed);
        assert_eq!(layer.deliver("a", 1).await, Replayed);
        assert_eq!(layer.deliver("a", 2).await, Mismatch);
        self.handler.next(End::Failure);
        assert_eq!(layer.deliver("b", 1).await, Failed(Verdict::Transient));
        assert_eq!(layer.deliver("b", 1).await, Executed, "a failure releases its key");
        self.handler.next(End::Crash);
        tokio::select! {
            outcome = layer.deliver("c", 1) => panic!("a crash is not answered, but this was: {outcome:?}"),
            () = self.handler.0.crashing.notified() => {}
        }
        assert_eq!(layer.deliver("c", 1).await, InProgress);
        self.clock.jump(LAPSE);
        assert_eq!(layer.deliver("c", 2).await, L::LAPSED, "nor is a crash taken over by another payload");
        assert_eq!(layer.deliver("c", 1).await, TookOver);
        assert_eq!(layer.deliver("c", 1).await, Replayed);
        assert_eq!(self.handler.runs(), 5);
    }
}

/// Delivers operations through a layer.
trait Layer {
    /// The outcome of an operation whose key a lapsed claim of another payload holds.
    const LAPSED: OutcomeKind = OutcomeKind::Mismatch;

    /// Delivers one operation once.
    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind;
}
