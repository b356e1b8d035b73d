//! The ledger: the functions put one row into it each time an effect happens.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use aws_sdk_dynamodb::Client;

use crate::events::Effect;

/// How often each effect happened.
pub(crate) async fn count(client: &Client, table: &str) -> Result<BTreeMap<Effect, usize>> {
    let rows = client.scan().table_name(table).consistent_read(true).into_paginator().items().send();
    let rows = rows.collect::<Result<Vec<_>, _>>().await;
    let mut effects = BTreeMap::new();
    for row in rows.context("the ledger cannot be read")? {
        let text = |name: &str| {
            let value = row.get(name).and_then(|value| value.as_s().ok());
            value.with_context(|| format!("a ledger row has no string {name:?}: {row:?}"))
        };
        // An `Idempotency-Key` may be quoted; bare or quoted, it is the same key.
        let key = text("key")?.trim_matches('"');
        let times: &mut usize = effects.entry(Effect::new(text("operation")?, key)).or_default();
        *times += 1;
    }
    Ok(effects)
}
