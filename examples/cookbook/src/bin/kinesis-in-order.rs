//! A Kinesis stream of readings. The readings of a sensor are stored in order, and an older one never replaces a newer one.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use lambda_once::{
    DynamoDbStore, Failure, Idempotency, Key,
    batch::{BatchService, kinesis::Kinesis, stream::StreamOrder},
};

#[derive(serde::Deserialize, serde::Serialize)]
struct Reading {
    sensor: String,
    /// Incremented by the sensor.
    version: u64,
    celsius: f64,
}

/// Stands in for a table in a database.
#[derive(Default)]
struct Table {
    celsius: HashMap<String, f64>,
    /// The rows that the next write finds locked.
    locked: HashSet<String>,
}

async fn store(table: Arc<Mutex<Table>>, reading: Reading) -> Result<(), Failure> {
    let mut table = table.lock().map_err(|_| Failure::transient("the table is gone"))?;
    if table.locked.remove(&reading.sensor) {
        return Err(Failure::transient("the row is locked"));
    }
    table.celsius.insert(reading.sensor, reading.celsius);
    Ok(())
}

/// A reading that the producer sends again has a different position in the stream, but the same sensor and version.
fn key() -> Key {
    Key::composite([Key::pointer("/sensor"), Key::pointer("/version")])
}

/// The partition key is the sensor. A failure holds back later readings of the same sensor, while others are stored.
fn in_order<H, T, Args>(service: BatchService<Kinesis, H, T, Args>) -> BatchService<Kinesis, H, T, Args> {
    service.order(StreamOrder::Key).ordered_by(Key::pointer("/sensor"), Key::pointer("/version"))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    let table = Arc::default();
    let service = once.kinesis(key(), move |reading| store(Arc::clone(&table), reading));
    lambda_runtime::run(in_order(service).validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{OutcomeKind::*, Verdict, testing};

    use super::*;

    #[tokio::test]
    async fn a_failure_holds_back_its_sensor_and_an_older_reading_is_left_out() {
        let table = Arc::new(Mutex::new(Table { locked: ["s-1".to_owned()].into(), ..Table::default() }));
        let written = Arc::clone(&table);
        let service = testing::engine().kinesis(key(), move |reading| store(Arc::clone(&written), reading));
        let service = in_order(service);
        let reading = |sensor: &str, version, celsius| {
            let reading = Reading { sensor: sensor.to_owned(), version, celsius };
            testing::record(&reading).attribute("partitionKey", sensor)
        };
        let batch = testing::kinesis::batch([
            reading("s-1", 1, 20.0),
            reading("s-2", 1, 30.0),
            reading("s-1", 2, 21.0),
            reading("s-2", 2, 31.0),
        ]);

        let first = testing::deliver(&service, &batch).await;
        let locked = Ok(Failed(Verdict::Transient));
        assert_eq!(first.outcomes(), [locked, Ok(Executed), Ok(Skipped), Ok(Executed)]);
        // Lambda resumes at the first of them.
        let failed = [first.records[0].record.id(), first.records[2].record.id()];
        assert_eq!(first.reported(), failed);

        let second = testing::deliver(&service, &batch).await;
        assert_eq!(second.outcomes(), [Ok(Executed), Ok(Replayed), Ok(Executed), Ok(Replayed)]);

        // One from a producer that sends again, and a late one.
        let late = testing::kinesis::batch([reading("s-1", 1, 20.0), reading("s-1", 0, 19.0)]);
        assert_eq!(testing::deliver(&service, &late).await.outcomes(), [Ok(Replayed), Ok(Superseded)]);
        assert_eq!(
            table.lock().expect("no panic").celsius,
            [("s-1".to_owned(), 21.0), ("s-2".to_owned(), 31.0)].into()
        );
    }
}
