//! Runs one section of `make instructions` for callgrind: `instructions SECTION` prints the number of its records, and
//! `instructions` alone prints the sections' names.
//!
//! The counted work happens in [`counted`], on one thread, with responses from the process itself. The library's clock
//! does not advance. Otherwise callgrind's slowness would decide how far claims run ahead.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use bench_batches::{
    instant::InstantStore,
    library, order, plain,
    raw::{self, Table},
    stub,
};
use lambda_once::{
    Failure, Idempotency, Key, Store,
    batch::sqs::Sqs,
    clock::{Clock, ManualClock, SystemClock},
    store::dynamodb::{Calls, Config},
};
use tokio::runtime::{Builder, Runtime};

const TABLE: &str = "records";

/// The number of batches in a section, besides the first, which is not counted.
const BATCHES: usize = 10;

/// A section: its work, and the number of records per batch.
struct Section {
    name: &'static str,
    work: Work,
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Claims and completes, up to 25 in a call.
    Batched,
    /// The same, hand-written.
    BatchedByHand,
    /// Claims and completes, each by a separate call.
    Single,
    /// The same, hand-written.
    SingleByHand,
    /// Key, fingerprint and a claim that is refused immediately.
    Refused,
    /// Records without bodies, whose claims and completions return immediately.
    Scheduling,
}

const SECTIONS: [Section; 9] = [
    Section { name: "batched, 100 records", work: Work::Batched, size: 100 },
    Section { name: "by hand, batched, 100 records", work: Work::BatchedByHand, size: 100 },
    Section { name: "batched, 10 records", work: Work::Batched, size: 10 },
    Section { name: "by hand, batched, 10 records", work: Work::BatchedByHand, size: 10 },
    Section { name: "batched, 1 record", work: Work::Batched, size: 1 },
    Section { name: "single, 1 record", work: Work::Single, size: 1 },
    Section { name: "by hand, single, 1 record", work: Work::SingleByHand, size: 1 },
    Section { name: "key, fingerprint and a refusal, 100 records", work: Work::Refused, size: 100 },
    Section { name: "scheduling, 100 records", work: Work::Scheduling, size: 100 },
];

fn main() -> Result<()> {
    let Some(name) = std::env::args().nth(1) else {
        SECTIONS.iter().for_each(|section| println!("{}", section.name));
        return Ok(());
    };
    let Section { work, size, .. } = SECTIONS.iter().find(|section| section.name == name).context("no such section")?;
    let runtime = Builder::new_current_thread().enable_time().build()?;
    perform(&runtime, *work, *size)?;
    println!("{}", BATCHES * size);
    Ok(())
}

/// Marks the work that callgrind counts.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    // Not in tail position, or it would be jumped to instead of called.
    std::hint::black_box(work())
}

fn engine(store: impl Store) -> Result<Idempotency> {
    let clock = ManualClock::at(SystemClock.now());
    Ok(Idempotency::builder(store).scope("bench").clock(clock).build()?)
}

fn perform(runtime: &Runtime, work: Work, size: usize) -> Result<()> {
    let client = stub::client(Duration::ZERO);
    match work {
        Work::Batched | Work::Single => {
            let calls = if work == Work::Single { Calls::Single } else { Calls::Batched };
            let service = library::service(&engine(Config::new(TABLE).calls(calls).build(client)?)?);
            batches(runtime, size, 0, async |event| Ok(library::deliver(&service, event).await?))
        }
        Work::BatchedByHand => {
            let table = Table::new(client, TABLE.to_owned());
            batches(runtime, size, 0, async |event| Ok(raw::batched(&table, event).await))
        }
        Work::SingleByHand => {
            let table = Table::new(client, TABLE.to_owned());
            batches(runtime, size, 0, async |event| Ok(raw::sequential(&table, event).await))
        }
        Work::Refused => {
            let nothing = |()| async { Ok::<_, Failure>(()) };
            let service = engine(InstantStore::Refuses)?.batch(Sqs, Key::pointer("/order_id"), |_, _| Ok(()), nothing);
            batches(runtime, size, size, async |event| Ok(library::deliver(&service, event).await?))
        }
        Work::Scheduling => {
            let engine = engine(InstantStore::Grants)?;
            runtime.block_on(plain::deliver(&engine, ids(0, size)))?;
            let batches: Vec<_> = (1..=BATCHES).map(|number| ids(number, size)).collect();
            counted(|| batches.into_iter().try_for_each(|ids| runtime.block_on(plain::deliver(&engine, ids))))
        }
    }
}

/// Delivers batches of new orders, of which `failures` fail.
fn batches(
    runtime: &Runtime,
    size: usize,
    failures: usize,
    deliver: impl AsyncFn(SqsEvent) -> Result<SqsBatchResponse>,
) -> Result<()> {
    runtime.block_on(deliver(order::event(&ids(0, size))?))?;
    let events = (1..=BATCHES).map(|number| order::event(&ids(number, size))).collect::<Result<Vec<_>, _>>()?;
    let handled = order::handled();
    let responses = counted(|| {
        events.into_iter().map(|event| runtime.block_on(deliver(event))).collect::<Result<Vec<SqsBatchResponse>>>()
    })?;
    let failed: usize = responses.iter().map(|response| response.batch_item_failures.len()).sum();
    let handled = order::handled() - handled;
    ensure!((failed, handled) == (BATCHES * failures, BATCHES * (size - failures)), "{failed} failed, {handled} ran");
    Ok(())
}

fn ids(batch: usize, size: usize) -> Vec<String> {
    (0..size).map(|i| format!("3f1c9a52-{batch:08}-{i:018}")).collect()
}
