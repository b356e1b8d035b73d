//! Measures the library without a store, and prints [`Times`] as JSON.

use std::{hint::black_box, time::Duration};

use anyhow::{Result, ensure};
use benches::{
    alone::Times,
    instant::InstantStore,
    library,
    order::{self, Order},
    plain, usage,
};
use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::sqs::Sqs, key::canonical::canonical};
use sha2::{Digest, Sha256};

const SIZES: [usize; 3] = [100, 1_000, 10_000];
const ROUNDS: usize = 15;
/// The number of records of a measurement, in as many batches as necessary.
const RECORDS: usize = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let ids: Vec<String> = (0..RECORDS).map(|i| format!("3f1c9a52-00000000-{i:018}")).collect();
    let bodies: Vec<String> = ids.iter().map(|id| order::body(id)).collect();
    let refusing = library::engine(InstantStore::Refuses)?;
    let refused = refusing.batch(Sqs, Key::pointer("/order_id"), |_, _| Ok(()), |()| async { Ok::<_, Failure>(()) });

    let granting = library::engine(InstantStore::Grants)?;

    let (mut decode, mut canonicalise, mut hashes, mut claim) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut scheduling = SIZES.map(|size| (size, Vec::new()));
    let (mut in_memory, mut granted) = (SIZES.map(|size| (size, Vec::new())), SIZES.map(|size| (size, Vec::new())));
    for _ in 0..ROUNDS {
        for (size, times) in &mut scheduling {
            times.push(schedule(&granting, &ids, *size).await?);
        }

        let begun = usage::cpu();
        for body in &bodies {
            black_box(serde_json::from_str::<Order>(black_box(body))?);
        }
        decode.push(usage::cpu() - begun);

        let begun = usage::cpu();
        for body in &bodies {
            black_box(canonical(black_box(body.as_bytes())).map_err(anyhow::Error::msg)?);
        }
        canonicalise.push(usage::cpu() - begun);

        let begun = usage::cpu();
        for (id, body) in ids.iter().zip(&bodies) {
            black_box(Sha256::digest(black_box(body)));
            black_box(Sha256::digest(black_box(id)));
        }
        hashes.push(usage::cpu() - begun);

        let mut spent = Duration::ZERO;
        for ids in ids.chunks(1_000) {
            let event = order::event(ids)?;
            let begun = usage::cpu();
            let response = library::deliver(&refused, event).await?;
            spent += usage::cpu() - begun;
            ensure!(response.batch_item_failures.len() == ids.len(), "a record ran");
        }
        claim.push(spent);

        for (size, times) in &mut in_memory {
            times.push(deliver(&ids, *size, || library::engine(MemoryStore::new())).await?);
        }
        for (size, times) in &mut granted {
            times.push(deliver(&ids, *size, || library::engine(InstantStore::Grants)).await?);
        }
    }
    let times = Times {
        body_bytes: bodies.first().map_or(0, String::len),
        scheduling_us: scheduling.map(|(size, times)| (size, per_record(times))).into(),
        decode_us: per_record(decode),
        canonical_us: per_record(canonicalise),
        hashes_us: per_record(hashes),
        claim_us: per_record(claim),
        in_memory_us: in_memory.map(|(size, times)| (size, per_record(times))).into(),
        granted_us: granted.map(|(size, times)| (size, per_record(times))).into(),
    };
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

/// Returns the CPU time for records with these ids without anything to decode, in batches of `size`.
async fn schedule(engine: &Idempotency, ids: &[String], size: usize) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    for ids in ids.chunks(size) {
        let ids = ids.to_vec();
        let begun = usage::cpu();
        plain::deliver(engine, ids).await?;
        spent += usage::cpu() - begun;
    }
    Ok(spent)
}

/// Returns the CPU time for these orders in batches of `size`, with an engine for each batch.
async fn deliver(ids: &[String], size: usize, engine: impl Fn() -> Result<Idempotency>) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    for ids in ids.chunks(size) {
        let service = library::service(&engine()?);
        let event = order::event(ids)?;
        let begun = usage::cpu();
        let response = library::deliver(&service, event).await?;
        spent += usage::cpu() - begun;
        ensure!(response.batch_item_failures.is_empty(), "a record failed");
    }
    Ok(spent)
}

/// Returns the median, in microseconds for each record.
fn per_record(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6 / RECORDS as f64
}
