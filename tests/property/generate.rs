//! Random plans.

use std::ops::Range;

use proptest::{collection::vec, prelude::*, sample::select};

use crate::plan::{
    Act, Body, Delivery, Kept, Kind, Letterbox, Look, Mishap, Origin, Plan, Policy, Record, Settings, State, Trouble,
};

/// The largest batch, and the largest of all but one in a hundred.
const LARGEST: f64 = 10_000.0;
const LARGE: f64 = 1_000.0;

/// Sizes whose logarithms are as good as equally frequent.
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

/// Something that a shrunken case may do without.
fn part<S: Strategy>(strategy: S) -> impl Strategy<Value = (bool, S::Value)> {
    (proptest::bool::weighted(1.0), strategy)
}

/// A plan for a batch of this size. Its records come in parts, so that shrinking can leave out many at once.
pub(crate) fn plan_of(size: usize) -> impl Strategy<Value = Plan> {
    let parts = size.isqrt();
    let whole = vec(part(vec(part(raw()), parts)), parts);
    let rest = vec(part(raw()), size - parts * parts);
    let frame = (any::<u64>(), origin(), settings(), deliveries(size), trouble(), traits());
    (whole, rest, vec(kept(), 0..8), frame).prop_map(move |(whole, rest, kept, frame)| {
        let raws = keep(whole).flat_map(keep).chain(keep(rest));
        let (seed, origin, settings, mut deliveries, mut trouble, traits) = frame;
        let mut records: Vec<Record> = raws.enumerate().map(|(at, raw)| raw.record(at, size, &traits)).collect();
        if traits.has_nameless
            && let Some(record) = records.last_mut()
        {
            record.id = None;
        }
        if traits.blocks {
            // Another invocation comes while the outcome of one that has lost its lease is on its way.
            trouble.latency_ms = 900;
            for delivery in &mut deliveries {
                delivery.left_ms = delivery.left_ms.min(3_000);
                delivery.starts_ms.push(seed % 1_000);
            }
        }
        let mut kept: Vec<(usize, Kept)> = kept;
        kept.sort_by_key(|(key, _)| *key);
        kept.dedup_by_key(|(key, _)| *key);
        Plan { seed, origin, settings, kept, records, deliveries, trouble }
    })
}

fn keep<T>(parts: Vec<(bool, T)>) -> impl Iterator<Item = T> {
    parts.into_iter().filter(|(is_kept, _)| *is_kept).map(|(_, part)| part)
}

/// What the records of a plan have in common.
#[derive(Clone, Debug)]
struct Traits {
    /// How many keys there are for each record, in quarters.
    keys: usize,
    groups: usize,
    /// How many of a hundred handlers do something else than to succeed.
    trouble: u8,
    slow: usize,
    blocks: bool,
    has_nameless: bool,
}

fn traits() -> impl Strategy<Value = Traits> {
    let rarely = |weight| proptest::bool::weighted(weight);
    (select(vec![16, 4, 1]), 1..8_usize, select(vec![0, 10, 60]), 0..=TIMES.len(), rarely(0.1), rarely(0.01)).prop_map(
        |(keys, groups, trouble, slow, blocks, has_nameless)| Traits {
            keys,
            groups,
            trouble,
            slow,
            blocks,
            has_nameless,
        },
    )
}

/// How long handlers take.
const TIMES: [u64; 8] = [0, 0, 1, 10, 100, 400, 1_500, 6_000];

/// More than an invocation in which a handler blocks its thread has left.
const BLOCKING_MS: u64 = 6_000;

const ACTS: [Act; 8] = [
    Act::Transient,
    Act::TransientOnce,
    Act::TransientOnce,
    Act::Permanent,
    Act::Unknown,
    Act::Panic,
    Act::PanicAtOnce,
    Act::Hang,
];

/// A record's dice.
#[derive(Clone, Copy, Debug)]
struct Raw {
    key: u16,
    body: u8,
    act: u8,
    nth: u8,
    group: u8,
    time: u8,
    twin: u8,
}

fn raw() -> impl Strategy<Value = Raw> {
    let hundred: Range<u8> = 0..100;
    (any::<u16>(), hundred.clone(), hundred.clone(), any::<u8>(), any::<u8>(), any::<u8>(), hundred)
        .prop_map(|(key, body, act, nth, group, time, twin)| Raw { key, body, act, nth, group, time, twin })
}

impl Raw {
    fn record(self, at: usize, size: usize, traits: &Traits) -> Record {
        let key = usize::from(self.key) % (size * traits.keys / 4).max(4);
        let nth = usize::from(self.nth);
        let act = match ACTS[nth % ACTS.len()] {
            _ if traits.blocks && nth % 8 == 0 => Act::Block,
            _ if self.act < 100 - traits.trouble => Act::Succeed,
            // One cuts off all that could follow.
            Act::Hang if nth % 4 > 0 => Act::Transient,
            act => act,
        };
        let times = &TIMES[..traits.slow.max(1)];
        Record {
            id: Some(if self.twin >= 98 { at.saturating_sub(1) } else { at }),
            body: match self.body {
                ..=91 => Body::Order { key, note: 0 },
                92..=95 => Body::Order { key, note: 1 },
                96..=97 => Body::NoKey,
                _ => Body::Poison,
            },
            group: usize::from(self.group) % traits.groups,
            act,
            ms: if act == Act::Block { BLOCKING_MS } else { times[usize::from(self.time) % times.len()] },
            probe: match self.group {
                ..=220 => Look::Truth,
                221..=235 => Look::Fails,
                236..=250 => Look::Panics,
                _ => Look::Hangs,
            },
            receive_count: u32::from(self.twin % 3) + 1,
        }
    }
}

fn origin() -> impl Strategy<Value = Origin> {
    select(vec![Origin::Queue, Origin::Fifo, Origin::Shard, Origin::Partitions])
}

fn settings() -> impl Strategy<Value = Settings> {
    let letterbox = prop_oneof![
        8 => Just(None),
        2 => Just(Some(Letterbox::Takes)),
        1 => (1..300_u64).prop_map(|ms| Some(Letterbox::TakesAfter(ms))),
        1 => Just(Some(Letterbox::Fails)),
        1 => Just(Some(Letterbox::Panics)),
        1 => Just(Some(Letterbox::Hangs)),
    ];
    let yes = |weight| proptest::bool::weighted(weight);
    let policy = prop_oneof![2 => Just(Policy::Rerun), 1 => Just(Policy::Refuse), 1 => Just(Policy::Probe)];
    (
        (1..=16_usize, prop_oneof![3 => Just(1), 1 => 2..30_usize], prop_oneof![1..=40_usize, Just(25)], policy),
        (yes(0.2), yes(0.2), yes(0.4), yes(0.3), yes(0.1)),
        (proptest::option::weighted(0.2, 0..3_000_u64), letterbox, proptest::option::weighted(0.4, 1..5_u32)),
    )
        .prop_map(|((concurrency, together, chunk, after_unknown), flags, (expected_ms, dead_letters, most))| {
            let (releases_panics, stops_batch, acknowledges_failures, runs_without_key, total_failure_is_error) = flags;
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
                max_receive_count: most,
            }
        })
}

fn kept() -> impl Strategy<Value = (usize, Kept)> {
    let state = prop_oneof![
        Just(State::Completed),
        Just(State::Failed),
        (0..20_000_u64).prop_map(State::InProgress),
        any::<bool>().prop_map(State::Lapsed),
        Just(State::Expired),
    ];
    let kept = (state, proptest::bool::weighted(0.2));
    (0..16_usize, kept).prop_map(|(key, (state, other_payload))| (key, Kept { state, other_payload }))
}

/// Large batches are delivered less often, small ones sometimes to several invocations at once.
fn deliveries(size: usize) -> impl Strategy<Value = Vec<Delivery>> {
    let left = prop_oneof![1 => Just(0), 2 => 400..3_000_u64, 6 => 3_000..60_000_u64, 2 => 60_000..900_000_u64];
    let at_once = if size > 100 { 2..=2_usize } else { 2..=8 };
    let starts = prop_oneof![
        6 => Just(vec![0]),
        1 => vec(prop_oneof![Just(0), 0..5_000_u64], at_once),
    ];
    let after = prop_oneof![1 => Just(0), 1 => 0..5_000_u64, 2 => 5_000..100_000_u64];
    let delivery = (proptest::bool::weighted(0.3), after, left, starts)
        .prop_map(|(all, after_ms, left_ms, starts_ms)| Delivery { all, after_ms, left_ms, starts_ms });
    let most = if size > 300 { 1 } else { 3 };
    vec(delivery, 1..=most)
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let mishap = || {
        select(vec![
            Mishap::Throttled,
            Mishap::ErrorBefore,
            Mishap::ErrorAfter,
            Mishap::AccessDenied,
            Mishap::Delay(300),
            Mishap::Silence,
        ])
    };
    let rate = (mishap(), 1..120_u32).prop_map(|(mishap, rate)| match mishap {
        Mishap::Silence => (mishap, rate / 10),
        _ => (mishap, rate),
    });
    let kind = select(vec![Kind::Claim, Kind::Settle, Kind::Read]);
    prop_oneof![
        4 => Just(Trouble::default()),
        3 => vec(rate, 1..5).prop_map(|rates| Trouble { rates, ..Trouble::default() }),
        1 => vec((kind, mishap()), 1..3).prop_map(|always| Trouble { always, ..Trouble::default() }),
        2 => (1..200_u32, 1..40_000_u64, 0..200_u64)
            .prop_map(|(late, late_ms, latency_ms)| Trouble { late, late_ms, latency_ms, ..Trouble::default() }),
    ]
}
