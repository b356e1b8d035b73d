//! Random plans.

use std::ops::Range;

use proptest::{collection::vec, prelude::*, sample::select};

use crate::plan::{
    Behaviour, Body, CallKind, DeadLetterBehaviour, Delivery, Faults, Kill, PayloadChoice, Plan, Policy,
    ProbeBehaviour, Record, RedeliveryBehaviour, Settings, SourceKind, StoreFault, StoredRecord, StoredState, Waiting,
};

/// The largest batch, and the largest of 99 % of the batches.
const LARGEST: f64 = 10_000.0;
const LARGE: f64 = 1_000.0;

/// Generates sizes whose logarithms are almost equally frequent.
fn log_uniform(least: f64, most: f64) -> impl Strategy<Value = usize> {
    let span = (least + 1.0).ln()..=(most + 1.0).ln();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a small number")]
    span.prop_map(|logarithm| (logarithm.exp() - 1.0).round() as usize)
}

pub(crate) fn size() -> impl Strategy<Value = usize> {
    prop_oneof![99 => log_uniform(0.0, LARGE).boxed(), 1 => log_uniform(LARGE, LARGEST).boxed()]
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    size().prop_flat_map(plan_of)
}

/// Generates plans of small batches.
pub(crate) fn small_plan() -> impl Strategy<Value = Plan> {
    (0..40_usize).prop_flat_map(plan_of)
}

/// Generates a part that a shrunken case may omit.
fn part<S: Strategy>(strategy: S) -> impl Strategy<Value = (bool, S::Value)> {
    (proptest::bool::weighted(1.0), strategy)
}

/// Generates plans for a batch of this size. Records are in parts, so that shrinking can omit many at a time.
pub(crate) fn plan_of(size: usize) -> impl Strategy<Value = Plan> {
    let parts = size.isqrt();
    let whole = vec(part(vec(part(dice()), parts)), parts);
    let rest = vec(part(dice()), size - parts * parts);
    let frame = (any::<u64>(), source(), settings(), deliveries(size), faults(), traits());
    // Drawn last, so that plans are otherwise the same as before it existed.
    (whole, rest, vec(stored(), 0..8), frame, additions()).prop_map(
        move |(whole, rest, mut stored, frame, additions)| {
            let dice = keep(whole).flat_map(keep).chain(keep(rest));
            let (seed, source, settings, mut deliveries, mut faults, traits) = frame;
            let Additions { ignores, all_or_error, consecutive, envelopes } = additions;
            let settings = Settings { ignores, all_or_error, consecutive, envelopes, ..settings };
            let mut records: Vec<Record> =
                dice.enumerate().map(|(at, dice)| dice.record(at, size, &traits, ignores)).collect();
            if traits.has_nameless
                && let Some(record) = records.last_mut()
            {
                record.id = None;
            }
            if traits.freezes {
                // Another invocation arrives while the outcome of one that has lost its lease is on its way.
                faults.latency_ms = 900;
                for delivery in &mut deliveries {
                    delivery.left_ms = delivery.left_ms.min(3_000);
                    delivery.starts_ms.push(seed % 1_000);
                }
            }
            stored.sort_by_key(|(key, _)| *key);
            stored.dedup_by_key(|(key, _)| *key);
            Plan { seed, source, settings, stored, records, deliveries, faults }
        },
    )
}

fn keep<T>(parts: Vec<(bool, T)>) -> impl Iterator<Item = T> {
    parts.into_iter().filter(|(is_kept, _)| *is_kept).map(|(_, part)| part)
}

/// The properties that were added to plans later.
#[derive(Clone, Copy, Debug)]
struct Additions {
    ignores: bool,
    all_or_error: bool,
    consecutive: bool,
    envelopes: bool,
}

fn additions() -> impl Strategy<Value = Additions> {
    let sometimes = || proptest::bool::weighted(0.12);
    (sometimes(), sometimes(), any::<bool>(), sometimes()).prop_map(
        |(ignores, all_or_error, consecutive, envelopes)| Additions { ignores, all_or_error, consecutive, envelopes },
    )
}

/// The properties that the records of a plan share.
#[derive(Clone, Debug)]
struct Traits {
    /// The number of keys per record, in quarters.
    keys: usize,
    groups: usize,
    /// The percentage of handlers that do not simply succeed.
    trouble: u8,
    /// The number of entries of [`TIMES`] that occur.
    times: usize,
    freezes: bool,
    /// The number of entries of [`BLOCKS`] that occur.
    blocks: usize,
    has_nameless: bool,
}

fn traits() -> impl Strategy<Value = Traits> {
    let rarely = |weight| proptest::bool::weighted(weight);
    let blocks = prop_oneof![5 => Just(0), 1 => 1..=BLOCKS.len()];
    let (keys, trouble) = (select(vec![16, 4, 1]), select(vec![0, 10, 60]));
    (keys, 1..8_usize, trouble, 0..=TIMES.len(), rarely(0.08), blocks, rarely(0.01)).prop_map(
        |(keys, groups, trouble, times, freezes, blocks, has_nameless)| Traits {
            keys,
            groups,
            trouble,
            times,
            freezes,
            blocks: if freezes { 0 } else { blocks },
            has_nameless,
        },
    )
}

/// The durations of handlers, in milliseconds.
const TIMES: [u64; 8] = [0, 0, 1, 10, 100, 400, 1_500, 6_000];

/// The times for which handlers block their threads, in milliseconds.
const BLOCKS: [u64; 6] = [20, 1, 5, 100, 400, 1_600];

/// A time longer than a frozen invocation has left.
const FREEZE_MS: u64 = 6_000;

const BEHAVIOURS: [Behaviour; 8] = [
    Behaviour::Transient,
    Behaviour::TransientOnce,
    Behaviour::TransientOnce,
    Behaviour::Permanent,
    Behaviour::Unknown,
    Behaviour::Panic,
    Behaviour::PanicAtOnce,
    Behaviour::Hang,
];

/// The random numbers of a record.
#[derive(Clone, Copy, Debug)]
struct Dice {
    key: u16,
    body: u8,
    behaviour: u8,
    nth: u8,
    group: u8,
    time: u8,
    twin: u8,
    block: u8,
}

fn dice() -> impl Strategy<Value = Dice> {
    let hundred: Range<u8> = 0..100;
    let byte = any::<u8>;
    (any::<u16>(), hundred.clone(), hundred.clone(), byte(), byte(), byte(), hundred, byte()).prop_map(
        |(key, body, behaviour, nth, group, time, twin, block)| Dice {
            key,
            body,
            behaviour,
            nth,
            group,
            time,
            twin,
            block,
        },
    )
}

impl Dice {
    fn record(self, at: usize, size: usize, traits: &Traits, ignores: bool) -> Record {
        let key = usize::from(self.key) % (size * traits.keys / 4).max(4);
        let nth = usize::from(self.nth);
        let behaviour = match BEHAVIOURS[nth % BEHAVIOURS.len()] {
            _ if traits.freezes && nth % 8 == 0 => Behaviour::Freeze,
            _ if self.behaviour < 100 - traits.trouble => Behaviour::Succeed,
            // A hanging handler cancels all that could follow.
            Behaviour::Hang if nth % 4 > 0 => Behaviour::Transient,
            behaviour => behaviour,
        };
        let times = &TIMES[..traits.times.max(1)];
        let blocks = &BLOCKS[..traits.blocks];
        let blocks_ms = match blocks.len() {
            0 => 0,
            _ if self.block.is_multiple_of(4) => 0,
            count => blocks[usize::from(self.block) % count],
        };
        Record {
            id: Some(if self.twin >= 98 { at.saturating_sub(1) } else { at }),
            body: match self.body {
                _ if ignores && self.block % 32 == 7 => Body::Ping,
                _ if ignores && self.block == 8 => Body::PingPanics,
                ..=91 => Body::Order { key, note: 0 },
                92..=94 => Body::Order { key, note: 1 },
                95..=96 => Body::NoKey,
                97 => Body::PoisonForNow,
                98 => Body::PoisonPanics,
                _ => Body::Poison,
            },
            group: usize::from(self.group) % traits.groups,
            behaviour,
            ms: if behaviour == Behaviour::Freeze { FREEZE_MS } else { times[usize::from(self.time) % times.len()] },
            probe: match self.group {
                ..=220 => ProbeBehaviour::Truth,
                221..=235 => ProbeBehaviour::Fails,
                236..=250 => ProbeBehaviour::Panics,
                _ => ProbeBehaviour::Hangs,
            },
            receive_count: u32::from(self.twin % 3) + 1,
            blocks_ms,
            trace: u8::from(self.time.is_multiple_of(16)),
        }
    }
}

fn source() -> impl Strategy<Value = SourceKind> {
    select(vec![SourceKind::Queue, SourceKind::Fifo, SourceKind::Shard, SourceKind::Partitions])
}

fn settings() -> impl Strategy<Value = Settings> {
    let dead_letters = prop_oneof![
        8 => Just(None),
        3 => Just(Some(DeadLetterBehaviour::Takes)),
        1 => (1..300_u64).prop_map(|ms| Some(DeadLetterBehaviour::TakesAfter(ms))),
        1 => Just(Some(DeadLetterBehaviour::Fails)),
        1 => Just(Some(DeadLetterBehaviour::Panics)),
        1 => Just(Some(DeadLetterBehaviour::Hangs)),
    ];
    // Handlers that are expected to take less than 5 ms are fast from the beginning.
    let expected_ms = prop_oneof![3 => 0..3_000_u64, 1 => 0..5_u64];
    let yes = |weight| proptest::bool::weighted(weight);
    let policy = prop_oneof![2 => Just(Policy::Rerun), 1 => Just(Policy::Refuse), 1 => Just(Policy::Probe)];
    (
        (1..=16_usize, prop_oneof![3 => Just(1), 1 => 2..30_usize], prop_oneof![1..=40_usize, Just(25)], policy),
        (yes(0.2), yes(0.2), yes(0.4), yes(0.3), yes(0.1)),
        (proptest::option::weighted(0.2, expected_ms), dead_letters, proptest::option::weighted(0.4, 1..5_u32)),
        (payload(), waiting(), proptest::option::weighted(0.2, 0..10_000_u64)),
        (proptest::option::weighted(0.2, 1..3_000_u64), yes(0.3), redelivery()),
    )
        .prop_map(|(sizes, flags, (expected_ms, dead_letters, max_receive_count), waits, last)| {
            let (concurrency, together, chunk, after_unknown) = sizes;
            let (releases_panics, stops_batch, acknowledges_failures, runs_without_key, total_failure_is_error) = flags;
            let (payload, waiting, wait_up_to_ms) = waits;
            let (last_attempt_timeout_ms, dead_letter_abandoned, redelivery) = last;
            Settings {
                concurrency,
                together,
                chunk,
                after_unknown,
                releases_panics,
                stops_batch,
                acknowledges_failures,
                runs_without_key,
                total_failure_is_error,
                expected_ms,
                dead_letters,
                max_receive_count,
                payload,
                waiting,
                wait_up_to_ms,
                last_attempt_timeout_ms,
                dead_letter_abandoned,
                redelivery,
                ignores: false,
                all_or_error: false,
                consecutive: false,
                envelopes: false,
            }
        })
}

fn payload() -> impl Strategy<Value = PayloadChoice> {
    prop_oneof![4 => Just(PayloadChoice::Body), 2 => Just(PayloadChoice::Part), 1 => Just(PayloadChoice::Ignored)]
}

fn waiting() -> impl Strategy<Value = Waiting> {
    prop_oneof![4 => Just(Waiting::OrderedOnly), 1 => Just(Waiting::All), 1 => Just(Waiting::AllOrNothing)]
}

fn redelivery() -> impl Strategy<Value = Option<RedeliveryBehaviour>> {
    prop_oneof![
        6 => Just(None),
        2 => Just(Some(RedeliveryBehaviour::Returns)),
        1 => (1..300_u64).prop_map(|ms| Some(RedeliveryBehaviour::ReturnsAfter(ms))),
        1 => select(vec![Some(RedeliveryBehaviour::Panics), Some(RedeliveryBehaviour::Hangs)]),
    ]
}

fn stored() -> impl Strategy<Value = (usize, StoredRecord)> {
    let state = prop_oneof![
        Just(StoredState::Completed),
        Just(StoredState::Failed),
        (0..20_000_u64).prop_map(StoredState::InProgress),
        any::<bool>().prop_map(StoredState::Lapsed),
        Just(StoredState::Expired),
    ];
    (0..16_usize, state, proptest::bool::weighted(0.2))
        .prop_map(|(key, state, other_payload)| (key, StoredRecord { state, other_payload }))
}

/// Generates deliveries. Large batches have fewer, small ones sometimes go to several invocations at the same time.
fn deliveries(size: usize) -> impl Strategy<Value = Vec<Delivery>> {
    let left = prop_oneof![1 => Just(0), 2 => 400..3_000_u64, 6 => 3_000..60_000_u64, 2 => 60_000..900_000_u64];
    let at_once = if size > 100 { 2..=2_usize } else { 2..=8 };
    let starts = prop_oneof![
        6 => Just(vec![0]),
        1 => vec(prop_oneof![Just(0), 0..5_000_u64], at_once),
    ];
    let after = prop_oneof![1 => Just(0), 1 => 0..5_000_u64, 2 => 5_000..100_000_u64];
    let kills = prop_oneof![4 => Just(Vec::new()), 1 => vec(proptest::option::weighted(0.7, kill()), 1..4)];
    let delivery = (proptest::bool::weighted(0.3), after, left, starts, kills)
        .prop_map(|(all, after_ms, left_ms, starts_ms, kills)| Delivery { all, after_ms, left_ms, starts_ms, kills });
    let most = if size > 300 { 1 } else { 3 };
    vec(delivery, 1..=most)
}

fn kill() -> impl Strategy<Value = Kill> {
    let ms = prop_oneof![0..50_u64, 0..1_000_u64, 0..20_000_u64];
    prop_oneof![(1..12_u64).prop_map(Kill::AtPoll), ms.prop_map(Kill::AtMs)]
}

fn faults() -> impl Strategy<Value = Faults> {
    let fault = || {
        select(vec![
            StoreFault::Throttled,
            StoreFault::ErrorBefore,
            StoreFault::ErrorAfter,
            StoreFault::AccessDenied,
            StoreFault::Delay(300),
            StoreFault::Silence,
        ])
    };
    let rate = (fault(), 1..120_u32).prop_map(|(fault, rate)| match fault {
        StoreFault::Silence => (fault, rate / 10),
        _ => (fault, rate),
    });
    let kind = select(vec![CallKind::Claim, CallKind::Settle, CallKind::Read]);
    prop_oneof![
        4 => Just(Faults::default()),
        2 => (1..100_u64).prop_map(|latency_ms| Faults { latency_ms, ..Faults::default() }),
        3 => vec(rate, 1..5).prop_map(|rates| Faults { rates, ..Faults::default() }),
        1 => vec((kind, fault()), 1..3).prop_map(|always| Faults { always, ..Faults::default() }),
        2 => (1..200_u32, 1..40_000_u64, 0..200_u64)
            .prop_map(|(late, late_ms, latency_ms)| Faults { late, late_ms, latency_ms, ..Faults::default() }),
    ]
}
