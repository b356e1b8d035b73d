//! A sequence of requests, which remains valid if any of its steps is removed.

use std::{fmt, time::Duration};

use fastrand::Rng;
use lambda_once::{
    order::Order,
    record::{EncodedData, Fingerprint, KeyHash, Owner, StoredData, StoredResult},
    store::{ClaimRequest, ResultData, SettleRequest, Settlement, Takeover},
};

/// The number of keys, which is small so that claims conflict.
const KEYS: u8 = 3;
/// The number of claims to choose from. A claim that is chosen again is a late copy.
const CLAIMS: usize = 6;
const STEPS: std::ops::RangeInclusive<usize> = 8..=24;

/// The steps, and their claims.
#[derive(Clone)]
pub(super) struct Sequence {
    claims: Vec<Claim>,
    steps: Vec<Step>,
}

/// The parts of a claim that are the same in each performance.
#[derive(Clone, Debug)]
struct Claim {
    key: u8,
    fingerprint: Option<u8>,
    lease: Duration,
    skew_margin: Duration,
    retention: Duration,
    takeover: Takeover,
    result_data: ResultData,
    /// Its position in the order of the single entity of all keys, and the retention of the order marker.
    order: Option<(u8, Duration)>,
}

/// A call of a store, with claims by number.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Claim(Vec<usize>),
    Settle(Vec<(usize, Settlement)>),
    Read(Vec<u8>, ResultData),
    Pass(Duration),
    /// An operator deletes the record.
    Delete(u8),
}

/// The requests of a step, for one performance.
pub(super) enum Requests {
    Claim(Vec<ClaimRequest>),
    Settle(Vec<SettleRequest>),
    Read(Vec<KeyHash>, ResultData),
    Pass(Duration),
    Delete(KeyHash),
}

/// The random part that makes the keys and owners of a performance unique.
pub(super) struct Names([u8; 15]);

impl Names {
    pub(super) fn new() -> Self {
        let mut bytes = [0; 15];
        fastrand::fill(&mut bytes);
        Self(bytes)
    }

    fn owner(&self, number: usize) -> Owner {
        let mut bytes = [0; 16];
        bytes[..15].copy_from_slice(&self.0);
        bytes[15] = number as u8;
        Owner::from_bytes(bytes)
    }

    /// Returns a key. All keys share one half, which is their entity if they are ordered.
    fn key(&self, number: u8) -> KeyHash {
        let mut bytes = [0; 32];
        bytes[..15].copy_from_slice(&self.0);
        bytes[16..].fill(number);
        KeyHash::from_bytes(bytes)
    }
}

impl Sequence {
    /// Generates the same sequence for the same numbers.
    pub(super) fn random(seed: u64, number: u64) -> Self {
        let mut random = Rng::with_seed(seed.rotate_left(32) ^ number);
        let is_ordered = number % 2 == 1;
        let claims: Vec<Claim> = (0..CLAIMS).map(|_| Claim::random(&mut random, is_ordered)).collect();
        let steps = (0..random.usize(STEPS)).map(|_| Step::random(&mut random, &claims)).collect();
        Self { claims, steps }
    }

    /// Returns the requests of each step, and a last step that reads every record.
    pub(super) fn requests(&self, names: &Names) -> Vec<Requests> {
        let last = Step::Read((0..KEYS).collect(), ResultData::Include);
        self.steps.iter().chain([&last]).map(|step| self.of_step(step, names)).collect()
    }

    fn of_step(&self, step: &Step, names: &Names) -> Requests {
        match step {
            Step::Claim(numbers) => Requests::Claim(numbers.iter().map(|&number| self.claim(number, names)).collect()),
            Step::Settle(settles) => {
                let settle = |(number, settlement): &(usize, Settlement)| {
                    let ClaimRequest { key, owner, fingerprint, order, .. } = self.claim(*number, names);
                    SettleRequest { key, owner, fingerprint, settlement: settlement.clone(), order }
                };
                Requests::Settle(settles.iter().map(settle).collect())
            }
            Step::Read(keys, data) => Requests::Read(keys.iter().map(|&key| names.key(key)).collect(), *data),
            Step::Pass(time) => Requests::Pass(*time),
            Step::Delete(key) => Requests::Delete(names.key(*key)),
        }
    }

    fn claim(&self, number: usize, names: &Names) -> ClaimRequest {
        let claim = &self.claims[number];
        ClaimRequest {
            key: names.key(claim.key),
            fingerprint: claim.fingerprint.map(|byte| Fingerprint::from_bytes([byte; 32])),
            owner: names.owner(number),
            lease: claim.lease,
            skew_margin: claim.skew_margin,
            retention: claim.retention,
            takeover: claim.takeover,
            result_data: claim.result_data,
            order: claim.order.map(|(sequence, retention)| Order { sequence: sequence.into(), retention }),
            operation: "orders".into(),
            label: number.is_multiple_of(2).then(|| format!("order {number}").into()),
        }
    }

    /// Returns every sequence that is shorter by one request of one step, or by a whole step.
    pub(super) fn shorter(&self) -> Vec<Self> {
        let mut shorter = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let mut steps = self.steps.clone();
            steps.remove(at);
            shorter.push(Self { steps, ..self.clone() });
            for step in step.shorter() {
                let mut steps = self.steps.clone();
                steps[at] = step;
                shorter.push(Self { steps, ..self.clone() });
            }
        }
        shorter
    }
}

impl Claim {
    fn random(random: &mut Rng, is_ordered: bool) -> Self {
        Self {
            key: random.u8(0..KEYS),
            fingerprint: *choose(random, &[None, Some(1), Some(1), Some(2)]),
            lease: duration(random, &[1_000, 2_000]),
            skew_margin: duration(random, &[0, 500]),
            retention: duration(random, &[0, 3_000, 60_000]),
            takeover: *choose(random, &[Takeover::Allowed, Takeover::Allowed, Takeover::Refused]),
            result_data: *choose(random, &[ResultData::Include, ResultData::Omit]),
            order: is_ordered.then(|| (random.u8(1..5), duration(random, &[0, 3_000, 60_000]))),
        }
    }
}

impl Step {
    fn random(random: &mut Rng, claims: &[Claim]) -> Self {
        match random.u8(0..21) {
            0..8 => Self::Claim(distinct(random, claims)),
            8..14 => {
                let numbers = distinct(random, claims);
                Self::Settle(numbers.into_iter().map(|number| (number, settlement(random))).collect())
            }
            14..16 => {
                let keys = distinct(random, claims).into_iter().map(|number| claims[number].key).collect();
                Self::Read(keys, *choose(random, &[ResultData::Include, ResultData::Omit]))
            }
            16 => Self::Delete(random.u8(0..KEYS)),
            // Sums of these match the ends of leases and margins exactly, or miss them by a millisecond.
            _ => Self::Pass(duration(random, &[1, 499, 500, 501, 999, 1_000, 1_001, 1_500, 2_500, 30_000])),
        }
    }

    fn shorter(&self) -> Vec<Self> {
        fn without<T: Clone>(items: &[T]) -> impl Iterator<Item = Vec<T>> {
            let places = if items.len() > 1 { 0..items.len() } else { 0..0 };
            places.map(|place| [&items[..place], &items[place + 1..]].concat())
        }
        match self {
            Self::Claim(numbers) => without(numbers).map(Self::Claim).collect(),
            Self::Settle(settles) => without(settles).map(Self::Settle).collect(),
            Self::Read(keys, data) => without(keys).map(|keys| Self::Read(keys, *data)).collect(),
            Self::Pass(_) | Self::Delete(_) => Vec::new(),
        }
    }
}

/// Returns the numbers of claims on distinct keys, mostly a single one, otherwise several in any order.
fn distinct(random: &mut Rng, claims: &[Claim]) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..claims.len()).collect();
    random.shuffle(&mut numbers);
    let mut keys = Vec::new();
    numbers.retain(|&number| {
        let is_new = !keys.contains(&claims[number].key);
        keys.push(claims[number].key);
        is_new
    });
    numbers.truncate(*choose(random, &[1, 1, 1, 2, 3]));
    numbers
}

fn settlement(random: &mut Rng) -> Settlement {
    match random.u8(0..10) {
        0..3 => Settlement::complete(result(random), duration(random, &[0, 3_000, 60_000])),
        3 => Settlement::fail(result(random), duration(random, &[0, 3_000, 60_000])),
        4..6 => Settlement::Release,
        6 => Settlement::HandBack,
        _ => Settlement::Renew {
            lease: duration(random, &[500, 1_000, 3_000]),
            skew_margin: duration(random, &[0, 500]),
            retention: duration(random, &[0, 3_000, 60_000]),
        },
    }
}

fn result(random: &mut Rng) -> StoredResult {
    let data = match random.u8(0..5) {
        0 => return choose(random, &[StoredResult::DROPPED, StoredResult::SUPERSEDED]).clone(),
        1 => None,
        2 => Some(StoredData::Deflated(vec![random.u8(..), 0, 255])),
        3 => Some(StoredData::Encoded(EncodedData::new("key-1", vec![random.u8(..), b' ', 255]).unwrap())),
        _ => Some(StoredData::Json(format!("{{\"b\": {}, \"a\":\"é\"}}", random.u8(..)))),
    };
    StoredResult { data, ..StoredResult::default() }
}

fn duration(random: &mut Rng, millis: &[u64]) -> Duration {
    Duration::from_millis(*choose(random, millis))
}

fn choose<'a, T>(random: &mut Rng, items: &'a [T]) -> &'a T {
    &items[random.usize(0..items.len())]
}

impl fmt::Display for Sequence {
    /// Formats the steps, and the claims that a step uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut used: Vec<usize> = self.steps.iter().flat_map(Step::claims).collect();
        used.sort_unstable();
        used.dedup();
        for number in used {
            writeln!(f, "  claim {number}: {:?}", self.claims[number])?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  step {}: {step:?}", number + 1)?;
        }
        write!(f, "  step {}: read all {KEYS} records", self.steps.len() + 1)
    }
}

impl Step {
    fn claims(&self) -> Vec<usize> {
        match self {
            Self::Claim(numbers) => numbers.clone(),
            Self::Settle(settles) => settles.iter().map(|(number, _)| *number).collect(),
            Self::Read(..) | Self::Pass(_) | Self::Delete(_) => Vec::new(),
        }
    }
}
