//! Claims, as their holders see them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::window::Window;
use crate::{
    clock::Timestamp,
    order::Order,
    record::{Fingerprint, KeyHash, Owner, Status},
    store::{ClaimRequest, Grant, Settlement},
};

/// The right to run an operation. Handlers can take it as an argument.
#[derive(Clone)]
#[doc(alias("lock"))]
pub struct Claim {
    /// All claims that were granted by one call. Batches move claims often, so their contents stay in one place.
    granted: Arc<Vec<Granted>>,
    index: u32,
}

/// The contents of a claim.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    key: KeyHash,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) owner: Owner,
    prior_status: Option<Status>,
    lease_until: Timestamp,
    attempt: u64,
    pub(super) window: Window,
    /// Fields that few claims need.
    more: Option<Arc<More>>,
}

#[derive(Debug, Default)]
struct More {
    order: Option<Order>,
    /// The times of the claim as moved by its heartbeat, in milliseconds since the Unix epoch. Zero until the first
    /// move.
    lease_until: AtomicU64,
    stop: AtomicU64,
}

impl Granted {
    /// Creates the claim of a granted request.
    pub(super) fn of(request: &ClaimRequest, grant: Grant, window: Window) -> Self {
        let claim = Self::new(request.key, request.fingerprint, request.owner, grant, window);
        match request.order().copied() {
            None => claim,
            Some(order) => Self { more: Some(Arc::new(More { order: Some(order), ..More::default() })), ..claim },
        }
    }

    fn new(key: KeyHash, fingerprint: Option<Fingerprint>, owner: Owner, grant: Grant, window: Window) -> Self {
        let moves = window.max_duration().is_some() || window.bounds_runs();
        let more = moves.then(Arc::default);
        let Grant { lease_until, attempt, prior_status, .. } = grant;
        Self { key, fingerprint, owner, prior_status, lease_until, attempt, window, more }
    }
}

impl Claim {
    /// Creates the claim of a granted request.
    pub(crate) fn of(request: &ClaimRequest, grant: Grant, window: Window) -> Self {
        Granted::of(request, grant, window).into()
    }

    /// Creates the claims that were granted by one call.
    pub(super) fn all(granted: Vec<Granted>) -> impl Iterator<Item = Self> {
        let granted = Arc::new(granted);
        let indices = 0..u32::try_from(granted.len()).unwrap_or(u32::MAX);
        indices.map(move |index| Self { granted: Arc::clone(&granted), index })
    }

    #[cfg(any(feature = "testing", test))]
    pub(crate) fn new(
        key: KeyHash,
        fingerprint: Option<Fingerprint>,
        owner: Owner,
        grant: Grant,
        window: Window,
    ) -> Self {
        Granted::new(key, fingerprint, owner, grant, window).into()
    }

    pub(super) fn granted(&self) -> &Granted {
        &self.granted[self.index as usize]
    }

    /// Returns the same claim, changed.
    fn changed(&self, change: impl FnOnce(&mut Granted)) -> Self {
        let mut granted = self.granted().clone();
        change(&mut granted);
        granted.into()
    }

    /// Returns the hash of the operation's key. It is the same in every run of the operation, so it can serve as the
    /// idempotency key of the handler's calls to other services.
    pub fn key(&self) -> KeyHash {
        self.granted().key
    }

    /// Returns the operation's position in the order of its entity, if any.
    pub(super) fn order(&self) -> Option<Order> {
        Order::possible(&self.granted().more.as_ref()?.order).copied()
    }

    /// Returns the number of grants of the key since its record was created, including this one. This is not a fencing
    /// token, because it restarts after a release.
    pub fn attempt(&self) -> u64 {
        self.granted().attempt
    }

    /// Returns whether an earlier run ended without an outcome, so that the operation may already have taken effect.
    pub fn took_over(&self) -> bool {
        self.granted().prior_status == Some(Status::InProgress)
    }

    /// Returns the end of the lease. A [heartbeat](crate::Operation::heartbeat) moves it later, and this is the end
    /// after the last renewal.
    pub fn lease_until(&self) -> Timestamp {
        self.moved(|more| &more.lease_until).unwrap_or(self.granted().lease_until)
    }

    /// Returns the time at which the handler is cancelled if it is still running. A
    /// [heartbeat](crate::Operation::heartbeat) moves it later, up to the maximum duration, and this is its current
    /// value.
    pub fn handler_deadline(&self) -> Timestamp {
        self.moved(|more| &more.stop).unwrap_or(self.granted().window.stop)
    }

    /// Returns the settlement that releases the claim, which is a hand-back if the claim took over (S9).
    pub(crate) fn release(&self) -> Settlement {
        if self.took_over() { Settlement::HandBack } else { Settlement::Release }
    }

    fn moved(&self, time: impl FnOnce(&More) -> &AtomicU64) -> Option<Timestamp> {
        let millis = time(self.granted().more.as_deref()?).load(Ordering::Relaxed);
        (millis > 0).then(|| Timestamp::from_millis(millis))
    }

    /// Shows the holder the current cancellation time.
    pub(super) fn show_handler_deadline(&self, stop: Timestamp) {
        if let Some(more) = &self.granted().more {
            more.stop.store(stop.as_millis(), Ordering::Relaxed);
        }
    }

    /// Records that the lease was renewed until `lease_until`.
    pub(super) fn renew(&mut self, window: Window, lease_until: Timestamp) {
        *self = self.changed(|granted| {
            granted.window = window;
            granted.lease_until = lease_until;
        });
        if let Some(more) = &self.granted().more {
            more.lease_until.store(lease_until.as_millis(), Ordering::Relaxed);
        }
    }
}

#[cfg(any(feature = "batch", feature = "http"))]
impl Claim {
    /// Returns the same claim, with `stop` as the time at which its handler is cancelled.
    pub(crate) fn cancelled_at(self, stop: Timestamp) -> Self {
        if self.granted().window.stop == stop {
            return self;
        }
        self.changed(|granted| granted.window.stop = stop)
    }
}

impl From<Granted> for Claim {
    fn from(granted: Granted) -> Self {
        Self { granted: Arc::new(vec![granted]), index: 0 }
    }
}

/// Shows the contents of this claim only.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(self.granted()).finish()
    }
}

/// For tests of code that uses a claim. Nothing here reaches a store.
#[cfg(feature = "testing")]
impl Claim {
    /// Returns the same claim, as if an earlier one on the key had ended without an outcome.
    #[must_use]
    pub fn with_takeover(self) -> Self {
        self.changed(|granted| {
            granted.attempt += 1;
            granted.prior_status = Some(Status::InProgress);
        })
    }

    /// Returns the same claim with a different cancellation time for its handler.
    #[must_use]
    pub fn with_handler_deadline(self, stop: Timestamp) -> Self {
        self.changed(|granted| {
            granted.window.stop = stop;
            granted.more = None;
        })
    }
}
