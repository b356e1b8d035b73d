//! Settings, from the environment.

use std::{env, str::FromStr, time::Duration};

use anyhow::{Context as _, Result, ensure};

/// The maximum difference between the clocks of two hosts.
pub(crate) const SKEW_MARGIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) redis_url: String,
    pub(crate) stream: String,
    pub(crate) group: String,
    /// This process's name in the group.
    pub(crate) consumer: String,
    pub(crate) dead_letters: String,
    /// The most entries that are handled simultaneously.
    pub(crate) concurrency: usize,
    /// The time for which a crash blocks an order. Longer work renews it.
    pub(crate) lease: Duration,
    /// The time that entries that have been read may take after SIGTERM.
    pub(crate) drain: Duration,
    /// Slows every debit down, for tests.
    pub(crate) delay: Duration,
}

impl Config {
    pub(crate) fn from_env() -> Result<Self> {
        let stream = text("STREAM", "orders");
        let config = Self {
            redis_url: text("REDIS_URL", "redis://127.0.0.1:6379"),
            group: text("GROUP", "debits"),
            consumer: env::var("CONSUMER").or_else(|_| env::var("HOSTNAME")).context("CONSUMER is not set")?,
            dead_letters: text("DEAD_LETTERS", &format!("{stream}-dead-letters")),
            concurrency: number("CONCURRENCY", 8)?,
            lease: millis("LEASE_MS", 30_000)?,
            drain: millis("DRAIN_MS", 25_000)?,
            delay: millis("DELAY_MS", 0)?,
            stream,
        };
        ensure!(config.concurrency > 0, "CONCURRENCY is 0");
        Ok(config)
    }

    /// Returns the time for which an entry is left to its consumer. If the consumer has died, the order can be claimed
    /// again after this time, because the entry was delivered shortly before the claim.
    pub(crate) fn min_idle(&self) -> Duration {
        self.lease + 2 * SKEW_MARGIN
    }
}

fn text(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str, default: T) -> Result<T> {
    let Ok(text) = env::var(name) else { return Ok(default) };
    text.parse().with_context(|| format!("{name} is {text:?}"))
}

fn millis(name: &str, default: u64) -> Result<Duration> {
    Ok(Duration::from_millis(number(name, default)?))
}
