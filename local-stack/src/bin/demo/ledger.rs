//! The ledger: the functions put one row into it each time an effect happens.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use aws_sdk_dynamodb::Client;

use crate::events::Effect;

/// The effects, in order.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The effect of each row.
    pub(crate) effects: Vec<Effect>,
    /// The time of each row, in milliseconds since 1970.
    pub(crate) times: Vec<u64>,
}

impl Ledger {
    /// Reads the rows in the order of their times.
    pub(crate) async fn read(client: &Client, table: &str) -> Result<Self> {
        let rows = client.scan().table_name(table).consistent_read(true).into_paginator().items().send();
        let rows = rows.collect::<Result<Vec<_>, _>>().await;
        let mut effects = Vec::new();
        for row in rows.context("the ledger cannot be read")? {
            let text = |name: &str| {
                let value = row.get(name).and_then(|value| value.as_s().or_else(|_| value.as_n()).ok());
                value.with_context(|| format!("a ledger row has no {name:?}: {row:?}"))
            };
            let at: u64 = text("at")?.parse().with_context(|| format!("a ledger row's time: {row:?}"))?;
            let operation = text("operation")?;
            // The key of a charge is the hash of its claim's key, which does not exist without protection.
            let key = text(if operation == "charge" { "party_id" } else { "key" })?;
            effects.push((at, Effect::new(operation, key)));
        }
        effects.sort_by_key(|(at, _)| *at);
        let (times, effects) = effects.into_iter().unzip();
        Ok(Self { effects, times })
    }

    /// Counts the occurrences of each effect.
    pub(crate) fn counts(&self) -> BTreeMap<&Effect, usize> {
        let mut counts = BTreeMap::new();
        for effect in &self.effects {
            *counts.entry(effect).or_default() += 1;
        }
        counts
    }
}
