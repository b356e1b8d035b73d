//! The plan of a history, drawn from its seed: the workload, the settings, and the rates of the faults.

use crate::{
    history::{Entry, Key, Ms, Policy, Terms},
    random::Random,
};

/// The clock by which the store decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreClock {
    /// The time in the request, by its sender's clock, as on DynamoDB.
    Sender,
    /// The server's, as on Redis and PostgreSQL.
    Server,
}

/// The rates of faults, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) request_lost: u32,
    pub(crate) request_doubled: u32,
    /// Requests that are up to [`Plan::max_late`] late.
    pub(crate) request_late: u32,
    /// Invocations of which every request arrives a second time, all late and in order.
    pub(crate) copied: u32,
    pub(crate) answer_lost: u32,
    pub(crate) answer_late: u32,
    pub(crate) throttled: u32,
    /// Requests of a call that fail alone.
    pub(crate) member_failed: u32,
    /// Invocations that are killed.
    pub(crate) killed: u32,
    /// Invocations that are frozen for a while.
    pub(crate) frozen: u32,
    /// Messages that a queue delivers to two workers.
    pub(crate) delivered_twice: u32,
    pub(crate) transient: u32,
    pub(crate) unknown: u32,
    pub(crate) panicked: u32,
    pub(crate) hung: u32,
    pub(crate) probe_failed: u32,
}

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePlan {
    pub(crate) is_fifo: bool,
    pub(crate) is_ordered: bool,
    pub(crate) visibility: Ms,
    pub(crate) max_receives: u32,
    pub(crate) batch: usize,
    pub(crate) concurrency: usize,
}

/// Everything that is fixed before a history begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) store_clock: StoreClock,
    pub(crate) terms: Terms,
    /// The largest offset of a clock from true time.
    pub(crate) max_offset: Ms,
    pub(crate) workers: u32,
    pub(crate) keys: Vec<Key>,
    pub(crate) queue: QueuePlan,
    /// The policies of the entry points, in the order of [`Entry`].
    pub(crate) policies: [Policy; 3],
    /// Whether HTTP requests come in invocations with a deadline.
    pub(crate) http_in_lambda: bool,
    /// The skew margin.
    pub(crate) margin: Ms,
    pub(crate) lease: Ms,
    pub(crate) reserve: Ms,
    pub(crate) time_left: (Ms, Ms),
    pub(crate) latency: Ms,
    /// The longest time of a handler that neither fails nor hangs.
    pub(crate) work: Ms,
    pub(crate) max_late: Ms,
    /// The time during which calls are made and faults occur.
    pub(crate) active: Ms,
    pub(crate) calls_per_key: u32,
    /// Whether some calls have another payload, in thousandths.
    pub(crate) other_payload: u32,
    pub(crate) faults: Faults,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let is_calm = random.chance(60);
        let is_short = !is_calm && random.chance(120);
        let clocks_hold = is_calm || !random.chance(100);
        let store_clock = if clocks_hold && random.chance(500) { StoreClock::Server } else { StoreClock::Sender };
        let margin = *random.pick(&[1_000, 1_000, 3_000]);
        let lease = random.between(3_000, 12_000);
        let time_left = (random.between(2_500, 6_000), random.between(6_000, 20_000));
        let max_offset = match (store_clock, clocks_hold) {
            (StoreClock::Server, _) => *random.pick(&[0, 400, 60_000]),
            (StoreClock::Sender, true) => *random.pick(&[0, 250, margin / 2 - 1]),
            (StoreClock::Sender, false) => *random.pick(&[3_000, 30_000]),
        };
        // The longest lease, the margin, and the rounding.
        let retention = is_short.then(|| time_left.1.max(lease) + 3 * margin + random.between(1_000, 20_000));
        // The probe gets the key and not the payload, so it would find the effect of an earlier, expired use of the
        // key.
        let open = if is_short { Policy::Rerun } else { Policy::Probe };
        let policies = [(); 3].map(|()| *random.pick(&[Policy::Rerun, Policy::Rerun, Policy::Refuse, open]));
        let work = random.between(20, time_left.0 / 2);
        let queue = QueuePlan {
            is_fifo: random.chance(400),
            is_ordered: policies[0] != Policy::Refuse && random.chance(300),
            visibility: random.between(time_left.1, 3 * time_left.1),
            max_receives: u32::try_from(random.between(2, 6)).unwrap_or(6),
            batch: random.index(6) + 1,
            concurrency: random.index(4) + 1,
        };
        let faults = if is_calm { Faults::default() } else { Faults::draw(random) };
        let skew = if store_clock == StoreClock::Sender { 2 * max_offset } else { 0 };
        let terms = Terms { clocks_hold, retention, slack: 2 * margin + skew + 1_000, is_calm };
        Self {
            store_clock,
            terms,
            max_offset,
            workers: u32::try_from(random.between(2, 5)).unwrap_or(2),
            keys: keys(random, policies, queue.is_ordered),
            queue,
            policies,
            http_in_lambda: random.chance(500),
            margin,
            lease,
            reserve: random.between(200, 1_000),
            time_left,
            latency: random.between(2, 60),
            work,
            max_late: random.between(5_000, 120_000),
            active: random.between(20_000, 120_000),
            calls_per_key: u32::try_from(random.between(1, 5)).unwrap_or(1),
            other_payload: if random.chance(400) { 150 } else { 0 },
            faults,
        }
    }

    pub(crate) fn policy(&self, entry: Entry) -> Policy {
        self.policies[entry as usize]
    }
}

fn keys(random: &mut Random, policies: [Policy; 3], is_ordered_queue: bool) -> Vec<Key> {
    let mut keys = Vec::new();
    let ordered_calls = policies[Entry::Call as usize] != Policy::Refuse;
    for (entry, policy) in [Entry::Queue, Entry::Http, Entry::Call].into_iter().zip(policies) {
        for _ in 0..random.index(4) {
            let is_ordered = match entry {
                Entry::Queue => is_ordered_queue,
                Entry::Http => false,
                Entry::Call => ordered_calls && random.chance(500),
            };
            // Entities are not shared between entry points.
            let entity = u32::try_from(random.index(2)).unwrap_or(0) + 10 * entry as u32;
            let order = is_ordered.then(|| (entity, keys.len() as u64 + 1));
            keys.push(Key { entry, policy, order, is_poison: random.chance(70) });
        }
    }
    if keys.is_empty() {
        keys.push(Key { entry: Entry::Call, policy: policies[2], order: None, is_poison: false });
    }
    keys
}

impl Faults {
    /// Draws each rate apart, and leaves many at zero, so that histories differ in the faults that coincide.
    fn draw(random: &mut Random) -> Self {
        let mut rate =
            |most: u64| if random.chance(500) { u32::try_from(random.between(1, most)).unwrap_or(0) } else { 0 };
        Self {
            request_lost: rate(200),
            request_doubled: rate(300),
            request_late: rate(250),
            copied: rate(250),
            answer_lost: rate(250),
            answer_late: rate(150),
            throttled: rate(150),
            member_failed: rate(150),
            killed: rate(300),
            frozen: rate(200),
            delivered_twice: rate(200),
            transient: rate(250),
            unknown: rate(150),
            panicked: rate(100),
            hung: rate(150),
            probe_failed: rate(300),
        }
    }
}
