//! A claim, from its holder's point of view.

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

/// The right to run an operation. Handlers that want to know about it get it as an argument.
#[derive(Clone)]
pub struct Claim {
    /// All that were granted by one call. Batches move claims a lot, so that what they hold stays in its place.
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
    /// The times of the claim as its heartbeat moves them, in milliseconds since the Unix epoch; zero until then.
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
    /// The claim that a request was granted.
    pub(crate) fn of(request: &ClaimRequest, grant: Grant, window: Window) -> Self {
        Granted::of(request, grant, window).into()
    }

    /// The claims that were granted by one call.
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

    /// The hash of the operation's key. The same in every run of the operation, so it can serve as the idempotency key
    /// of the calls that the handler makes.
    pub fn key(&self) -> KeyHash {
        self.granted().key
    }

    /// Where the operation stands in the order of its entity, if it has one.
    pub(super) fn order(&self) -> Option<Order> {
        Order::possible(&self.granted().more.as_ref()?.order).copied()
    }

    /// How often the key has been granted since its record was created, this grant included. Information, not a fencing
    /// token: it starts again after a release.
    pub fn attempt(&self) -> u64 {
        self.granted().attempt
    }

    /// Whether an earlier run ended without an outcome, so that the operation may already have taken effect.
    pub fn took_over(&self) -> bool {
        self.granted().prior_status == Some(Status::InProgress)
    }

    /// When the claim ends for others. A [heartbeat](crate::Operation::heartbeat) moves it later: this is what the last renewal
    /// has said.
    pub fn lease_until(&self) -> Timestamp {
        self.moved(|more| &more.lease_until).unwrap_or(self.granted().lease_until)
    }

    /// Returns the time at which the handler is cancelled if it is still running. A [heartbeat](crate::Operation::heartbeat) moves it later, up to the
    /// longest duration: this is where it stands now.
    pub fn stop_point(&self) -> Timestamp {
        self.moved(|more| &more.stop).unwrap_or(self.granted().window.stop)
    }

    /// Returns how the claim is released: a claim that took over is handed back (S9).
    pub(crate) fn release(&self) -> Settlement {
        if self.took_over() { Settlement::HandBack } else { Settlement::Release }
    }

    fn moved(&self, time: impl FnOnce(&More) -> &AtomicU64) -> Option<Timestamp> {
        let millis = time(self.granted().more.as_deref()?).load(Ordering::Relaxed);
        (millis > 0).then(|| Timestamp::from_millis(millis))
    }

    /// Shows the holder when it is cancelled now.
    pub(super) fn show_stop_point(&self, stop: Timestamp) {
        if let Some(more) = &self.granted().more {
            more.stop.store(stop.as_millis(), Ordering::Relaxed);
        }
    }

    /// The lease was renewed, and stands until `lease_until`.
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

/// Shows what the claim holds, and nothing of others.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(self.granted()).finish()
    }
}

/// For tests of what is done with a claim. None of it reaches a store.
#[cfg(feature = "testing")]
impl Claim {
    /// The same claim, as if an earlier one on the key had ended without an outcome.
    #[must_use]
    pub fn with_takeover(self) -> Self {
        self.changed(|granted| {
            granted.attempt += 1;
            granted.prior_status = Some(Status::InProgress);
        })
    }

    /// The same claim with another time at which its handler is cancelled.
    #[must_use]
    pub fn with_stop_point(self, stop: Timestamp) -> Self {
        self.changed(|granted| {
            granted.window.stop = stop;
            granted.more = None;
        })
    }
}
