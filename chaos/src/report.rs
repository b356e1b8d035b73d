//! The faults by kind, the progress of a run, and its results.

use std::{
    fs,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use serde_json::{Map, Value, json};

use crate::{
    history::{Fact, History, KeyId, Ms},
    judge::{Index, judge, summarize},
    options::Options,
    settings::terms,
};

macro_rules! faults {
    ($($fault:ident: $name:literal,)*) => {
        /// A fault, or an action of an operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($fault,)*
        }

        const NAMES: &[&str] = &[$($name),*];
    };
}

faults! {
    Killed: "workers killed",
    Frozen: "workers frozen",
    Ended: "workers that ended by themselves",
    TimedOut: "invocations that responded after their deadline",
    DeliveredTwice: "messages delivered again before their visibility timeout",
    ServerKilled: "servers killed and restarted",
    LoginsRefused: "log-ins refused for a while",
    MemoryFull: "servers out of memory for a while",
    FailedOver: "failovers",
    ReplicaKilled: "replicas killed and restarted",
    SlotsMoved: "moves of 400 slots between nodes",
    KeyMoved: "keys in these slots",
    ReleasedByTool: "operations released by an operator",
    SettledByTool: "operations settled by an operator",
    Purged: "purges of expired rows",
    RequestLost: "requests lost",
    RequestSilent: "requests lost in silence",
    ResponseLost: "responses lost",
    ResponseSilent: "responses lost in silence",
    RequestLate: "requests late, after their sender had given up",
    RequestRepeated: "requests that arrived twice",
    RequestSlow: "requests slow",
    Throttled: "requests throttled",
    FailedAfter: "requests applied and reported as failed",
    ServerSlow: "responses that took more than 0.25 s",
    Stalled: "stalls of the machine",
}

/// Counts of faults.
#[derive(Clone, Debug)]
pub(crate) struct Faults([u64; NAMES.len()]);

impl Default for Faults {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.add_all(fault, 1);
    }

    pub(crate) fn add_all(&mut self, fault: Fault, count: u64) {
        self.0[fault as usize] += count;
    }
}

fn say(text: &str) {
    // A reader that has seen enough closes the pipe.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints a line of progress.
pub(crate) fn progress(history: &History, faults: &Faults, now: Ms, open: u32) {
    let count = |wanted: fn(&Fact) -> bool| history.events.iter().filter(|event| wanted(&event.fact)).count();
    let effects = count(|fact| matches!(fact, Fact::Effect { .. }));
    let takeovers = count(|fact| matches!(fact, Fact::Began { took_over: true, .. }));
    let [kills, freezes, ..] = faults.0;
    let operations = history.keys.len();
    say(&format!(
        "{:>4} s  {operations} operations, {open} open, {effects} effects, {takeovers} took over; {kills} kills, {freezes} freezes",
        now / 1_000
    ));
}

/// Judges the run, prints its results, and adds them to the file.
pub(crate) fn report(
    options: &Options,
    history: &History,
    faults: &Faults,
    server: &str,
    time: Duration,
    is_complete: bool,
) -> Result<ExitCode, Box<dyn std::error::Error + Send + Sync>> {
    let terms = terms(options.store);
    let violations = judge(history, terms);
    let summary = summarize(history, &Index::new(history, terms));
    let mut counts: Vec<(&str, u64)> = summary.counts.clone();
    counts.extend(NAMES.iter().copied().zip(faults.0));
    let of = |property: &str| violations.iter().filter(|violation| violation.property == property).count() as u64;
    counts.extend([
        ("runs", 1),
        ("seconds", time.as_secs()),
        (LOST, of("no message is lost")),
        (STUCK, of("no key is stuck")),
        (VIOLATIONS, violations.len() as u64),
    ]);
    say(&format!("\n{server}, seed {}", options.seed));
    counts.iter().for_each(|(name, count)| say(&format!("{count:>9}  {name}")));
    let buckets = buckets(&summary.recoveries);
    say(&recovery(&buckets));
    if let Some((_, slowest)) = summary.recoveries.last()
        && options.trace
    {
        say(&format!("\nthe slowest recovery\n{:?}\n{}", history.keys[*slowest as usize], history.of_key(*slowest)));
    }
    if !is_complete {
        say("the last operations took too long");
    }
    if options.is_control {
        say(&format!("control: {} effects were repeated, and {} promises broken", summary.repeated, violations.len()));
        let is_seen =
            summary.repeated > 0 && violations.iter().any(|violation| violation.property == "at most one effect");
        return Ok(if is_seen { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if let Some(path) = &options.json {
        add(path, options, server, &counts, &buckets)?;
    }
    for violation in violations.iter().take(5) {
        say(&format!("\nviolated: {violation}\n{:?}", history.keys[violation.key as usize]));
    }
    if let Some(first) = violations.first() {
        say(&format!("the first is found after {} operations", begun_before(history, first.at)));
        say(&format!("\n{}", history.of_key(first.key)));
        say(&format!("{} violations in all", violations.len()));
    }
    Ok(if violations.is_empty() && is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the number of operations that had begun at this time.
fn begun_before(history: &History, at: Ms) -> usize {
    let events = history.events.iter().take_while(|event| event.at <= at);
    let keys = events.filter_map(|event| match event.fact {
        Fact::Sent { key, .. } | Fact::Asked { key, .. } => Some(key),
        _ => None,
    });
    keys.max().map_or(0, |key| key as usize + 1)
}

const LOST: &str = "messages lost";
const STUCK: &str = "keys stuck";
const VIOLATIONS: &str = "violations of the promise";
const RECOVERY: &str = "recoveries by tenths of a second";
/// The width of a bucket of recovery times.
const BUCKET: Ms = 100;

/// Counts times by tenths of a second.
fn buckets(times: &[(Ms, KeyId)]) -> Vec<u64> {
    let mut buckets = Vec::new();
    for (time, _) in times {
        let place = usize::try_from(time / BUCKET).unwrap_or(usize::MAX);
        if buckets.len() <= place {
            buckets.resize(place + 1, 0);
        }
        buckets[place] += 1;
    }
    buckets
}

/// Returns the percentiles of times that are counted by tenths of a second.
fn recovery(buckets: &[u64]) -> String {
    let all: u64 = buckets.iter().sum();
    let below = |share: u64| {
        let mut left = (all * share).div_ceil(100);
        let place = buckets.iter().position(|count| {
            left = left.saturating_sub(*count);
            left == 0
        });
        place.map_or(0.0, |place| (place + 1) as f64 / 10.0)
    };
    format!(
        "{all:>9}  recoveries from a kill or a freeze, p50 {:.1} s, p99 {:.1} s, longest {:.1} s",
        below(50),
        below(99),
        below(100)
    )
}

/// Adds counts to the totals of the file and of the commit.
fn add(
    path: &str,
    options: &Options,
    server: &str,
    counts: &[(&str, u64)],
    buckets: &[u64],
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut file: Map<String, Value> = match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(error.into()),
    };
    for name in ["total"].into_iter().chain(options.commit.as_deref()) {
        let part = file.entry(name).or_insert_with(|| json!({}));
        for (name, count) in counts {
            let before = part[name].as_u64().unwrap_or(0);
            part[name] = (before + count).into();
        }
        let before: Vec<u64> = serde_json::from_value(part[RECOVERY].take()).unwrap_or_default();
        let at = |counts: &[u64], place| counts.get(place).copied().unwrap_or(0);
        let longest = before.len().max(buckets.len());
        part[RECOVERY] = (0..longest).map(|place| at(&before, place) + at(buckets, place)).collect::<Vec<_>>().into();
    }
    let mut seeds: Vec<u64> =
        file.remove("seeds").and_then(|seeds| serde_json::from_value(seeds).ok()).unwrap_or_default();
    seeds.push(options.seed);
    file.insert("seeds".to_owned(), seeds.into());
    file.insert("server".to_owned(), server.into());
    Ok(fs::write(path, serde_json::to_string_pretty(&file)? + "\n")?)
}
