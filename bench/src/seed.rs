//! The records at the start of a scenario, and its events.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_dynamodb::{
    Client,
    types::{AttributeValue, PutRequest, WriteRequest},
};
use lambda_once::{MemoryStore, Store, store::ResultData};

use crate::{
    cell::{Cell, Column, Scenario},
    library, order, raw,
};

/// DynamoDB's limit for a call of `BatchWriteItem`.
const WRITES: usize = 25;

/// Creates the batches of a cell, and the records that they find.
#[derive(Debug)]
pub struct Seeder {
    cell: Cell,
    client: Client,
    table: String,
    batches: u32,
}

/// A batch, and the number of its records that the handler must run.
#[derive(Debug)]
pub struct Batch {
    /// The event.
    pub event: SqsEvent,
    /// The number of records that the handler must run.
    pub to_handle: usize,
}

/// The state of the table before a batch is delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Done,
    Lapsed,
}

impl Scenario {
    const fn before(self, index: usize) -> Before {
        match (self, index % 3) {
            (Self::New, _) | (Self::Mixed, 0) => Before::Nothing,
            (Self::Duplicate, _) | (Self::Mixed, 1) => Before::Done,
            (Self::Mixed, _) => Before::Lapsed,
        }
    }
}

impl Seeder {
    /// Creates a seeder. `client` is not the measured one.
    pub const fn new(cell: Cell, client: Client, table: String) -> Self {
        Self { cell, client, table, batches: 0 }
    }

    /// Returns new orders, which do not affect the batches.
    ///
    /// # Errors
    ///
    /// None in practice.
    pub fn warm_up(&self, size: usize) -> Result<Batch> {
        let ids: Vec<String> = (0..size).map(|i| format!("warm-up-{i:028}")).collect();
        Ok(Batch { event: order::event(&ids)?, to_handle: size })
    }

    /// Returns the next batch, with its records in the table. Duplicates are the same in each batch.
    ///
    /// # Errors
    ///
    /// If the store rejects the records.
    pub async fn next(&mut self) -> Result<Batch> {
        let Cell { scenario, size, column, .. } = self.cell;
        let repeats = scenario == Scenario::Duplicate;
        let number = if repeats { 0 } else { self.batches };
        let ids: Vec<String> = (0..size).map(|i| format!("3f1c9a52-{number:08}-{i:018}")).collect();
        let seeds: Vec<(&String, Before)> = ids
            .iter()
            .enumerate()
            .map(|(i, id)| (id, scenario.before(i)))
            .filter(|(_, before)| *before != Before::Nothing)
            .collect();
        let to_handle = seeds.iter().filter(|(_, before)| *before == Before::Lapsed).count() + size - seeds.len();
        // The local cache is filled by the first deliveries, which are not measured.
        let seeded = repeats && (self.batches > 0 || column == Column::Cached);
        if !seeded {
            // In small portions, so that no memory is left over.
            for seeds in seeds.chunks(WRITES) {
                self.write(seeds).await?;
            }
        }
        self.batches += 1;
        Ok(Batch { event: order::event(&ids)?, to_handle })
    }

    async fn write(&self, seeds: &[(&String, Before)]) -> Result<()> {
        let ids: Vec<String> = seeds.iter().map(|(id, _)| (*id).clone()).collect();
        let identities = if self.cell.column.is_library() {
            of_library(&ids).await?
        } else {
            ids.iter().map(|id| (raw::id(id), None)).collect()
        };
        let writes = seeds.iter().zip(identities).map(|((order_id, before), (id, validation))| {
            let put = PutRequest::builder().set_item(Some(item(id, validation, *before, order_id))).build()?;
            Ok(WriteRequest::builder().put_request(put).build())
        });
        let writes = writes.collect::<Result<Vec<_>>>()?;
        let answer = self.client.batch_write_item().request_items(&self.table, writes).send().await?;
        ensure!(answer.unprocessed_items.unwrap_or_default().is_empty(), "the store did not take all records");
        Ok(())
    }
}

/// Returns the partition keys and fingerprints that the library gives these orders, by a delivery to another store.
async fn of_library(ids: &[String]) -> Result<Vec<(String, Option<String>)>> {
    let memory = MemoryStore::new();
    let engine = library::engine(memory.clone())?;
    library::deliver(&library::service(&engine), order::event(ids)?).await?;
    let keys = ids.iter().map(|id| engine.key_hash("sqs", id)).collect::<Result<Vec<_>, _>>()?;
    let records = memory.read(&keys, ResultData::Include).await;
    let identity = |(key, record): (_, Result<Option<lambda_once::record::Record>, _>)| {
        let fingerprint = record?.context("a record for each order")?.fingerprint;
        Ok((format!("once#{key}"), fingerprint.map(|fingerprint| fingerprint.to_text())))
    };
    keys.into_iter().zip(records).map(identity).collect()
}

fn item(id: String, validation: Option<String>, before: Before, order_id: &str) -> HashMap<String, AttributeValue> {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let number = |value: u128| AttributeValue::N(value.to_string());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let hour = Duration::from_secs(3_600);
    let mut item = HashMap::from([
        ("id".to_owned(), AttributeValue::S(id)),
        ("expiration".to_owned(), number((now + hour).as_secs().into())),
        ("in_progress_expiration".to_owned(), number((now - hour).as_millis())),
        ("owner".to_owned(), text("00112233445566778899aabbccddeeff")),
        ("attempt".to_owned(), number(1)),
        ("prior_status".to_owned(), text("NONE")),
        ("v".to_owned(), number(1)),
    ]);
    item.extend(validation.map(|validation| ("validation".to_owned(), AttributeValue::S(validation))));
    if before == Before::Done {
        let result = format!(r#"{{"order_id":"{order_id}","charged_cents":15970}}"#);
        item.insert("data".to_owned(), AttributeValue::S(result));
    }
    let status = if before == Before::Done { "COMPLETED" } else { "INPROGRESS" };
    item.insert("status".to_owned(), text(status));
    item
}
