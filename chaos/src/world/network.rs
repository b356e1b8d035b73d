//! The network between the workers and the server: requests and responses that are lost, late, repeated or replaced.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc::UnboundedReceiver, time::sleep};

use super::{
    World,
    slots::Slot,
    wire::{Proxy, Request},
};
use crate::{
    history::{Fact, Ms},
    report::Fault,
    settings::StoreKind,
};

/// The faults of a request, and how often each strikes, in thousandths.
const FAULTS: [(Fault, u32); 9] = [
    (Fault::RequestLost, 4),
    (Fault::RequestSilent, 1),
    (Fault::ResponseLost, 6),
    (Fault::ResponseSilent, 1),
    (Fault::RequestLate, 6),
    (Fault::RequestRepeated, 10),
    (Fault::RequestSlow, 10),
    (Fault::Throttled, 10),
    (Fault::FailedAfter, 4),
];

/// A response of DynamoDB Local that takes longer is recorded.
const SLOW: Duration = Duration::from_millis(250);

/// The longest delay of a request whose client has given up.
const MAX_LATE: Ms = 5_000;

/// The fault of the current request. The proxy applies all rules to each request, in order.
type Draw = Arc<Mutex<Option<Fault>>>;

/// Makes the slot's network unreliable.
pub(super) fn trouble(world: &Arc<World>, slot: &Slot) {
    for proxy in &slot.proxies {
        trouble_at(world, slot, proxy);
        // Only the emulator is slow without a reason. Statements on PostgreSQL wait for locks.
        if world.options.store == StoreKind::DynamoDb {
            tokio::spawn(watch(Arc::clone(world), place(world, slot), proxy.slow_responses(SLOW)));
        }
    }
}

/// Records slow responses to workers that still live, whatever their cause.
async fn watch(world: Arc<World>, place: usize, mut slow: UnboundedReceiver<Instant>) {
    while let Some(asked) = slow.recv().await {
        let time = Ms::try_from(asked.elapsed().as_millis()).unwrap_or(Ms::MAX);
        let since = world.now().saturating_sub(time);
        if let Some(worker) = world.slots[place].worker_since(since) {
            world.record(Fact::Slow { worker, since });
            world.lock().faults.add(Fault::ServerSlow);
        }
    }
}

fn place(world: &World, slot: &Slot) -> usize {
    world.slots.iter().position(|other| std::ptr::eq(other, slot)).unwrap_or_default()
}

fn trouble_at(world: &Arc<World>, slot: &Slot, proxy: &Proxy) {
    let draw = Draw::default();
    let mut is_first = true;
    // The requests of a transaction belong to its connection, which the network cannot change.
    let is_bound = slot.kind.is_bound(world.options.store);
    let place = place(world, slot);
    for (fault, _) in FAULTS {
        let rule = Rule { world: Arc::clone(world), place, draw: Arc::clone(&draw), is_first, is_bound, fault };
        is_first = false;
        let rule = proxy.on(move |request| rule.strikes(request)).times(usize::MAX);
        match fault {
            Fault::RequestLost => rule.drop_request(),
            // A dropped handle loses the connection that it would keep.
            Fault::RequestSilent => drop(rule.hang()),
            Fault::ResponseLost => rule.drop_response(),
            Fault::ResponseSilent => drop(rule.withhold_response()),
            Fault::RequestLate => {
                let mut late = rule.deliver_late();
                let world = Arc::clone(world);
                tokio::spawn(async move {
                    while let Some(request) = late.kept().await {
                        let pause = world.pause(1, MAX_LATE);
                        tokio::spawn(async move {
                            sleep(pause).await;
                            let _ = request.send().await; // fails while the server is down
                        });
                    }
                });
            }
            Fault::RequestRepeated => rule.repeat(),
            Fault::RequestSlow => {
                let world = Arc::clone(world);
                rule.delay(move || world.pause(5, 400));
            }
            Fault::Throttled => rule.throttle(),
            _ => rule.internal_error_after(),
        }
    }
}

struct Rule {
    world: Arc<World>,
    place: usize,
    draw: Draw,
    /// Whether it is the first rule that is asked, which draws.
    is_first: bool,
    is_bound: bool,
    fault: Fault,
}

impl Rule {
    fn strikes(&self, _: &Request) -> bool {
        let mut draw = self.draw.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_first {
            *draw = self.draw();
        }
        *draw == Some(self.fault)
    }

    fn draw(&self) -> Option<Fault> {
        let world = &self.world;
        if !world.has_faults() {
            return None;
        }
        let worker = world.slots[self.place].worker();
        let mut state = world.lock();
        let mut drawn = state.random.u32(0..1_000);
        for (fault, often) in FAULTS {
            if drawn < often {
                let is_possible = match fault {
                    Fault::Throttled | Fault::FailedAfter => world.options.store == StoreKind::DynamoDb,
                    Fault::RequestLate | Fault::RequestRepeated => !self.is_bound,
                    _ => true,
                };
                if !is_possible {
                    return None;
                }
                state.faults.add(fault);
                if fault == Fault::RequestRepeated {
                    return Some(fault);
                }
                let is_silent = matches!(fault, Fault::RequestSilent | Fault::ResponseSilent);
                world.record_in(&mut state, Fact::Struck { worker, is_silent });
                return Some(fault);
            }
            drawn -= often;
        }
        None
    }
}
