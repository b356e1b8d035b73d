//! A queue whose duplicates are counted in CloudWatch.

use lambda_once::{DynamoDbStore, Failure, Idempotency, Key, telemetry::Emf};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
}

async fn ship(order: Order) -> Result<String, Failure> {
    Ok(format!("shipped {}", order.id))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::builder(DynamoDbStore::from_env().await?).observer(Emf::new("Shop")).build()?;
    lambda_runtime::run(once.sqs(Key::pointer("/id"), ship).validate()?).await
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use lambda_once::testing;

    use super::*;

    #[tokio::test]
    async fn a_redelivery_is_a_duplicate_in_the_metrics() -> Result<(), Box<dyn std::error::Error>> {
        let lines = Arc::new(Mutex::new(Vec::<serde_json::Value>::new()));
        let written = Arc::clone(&lines);
        let emf = Emf::new("Shop").function("orders").writer(move |line| {
            written.lock().expect("no panic").extend(serde_json::from_str::<serde_json::Value>(line));
        });
        let once = testing::builder(testing::store()).observer(emf).build()?;
        let service = once.sqs(Key::pointer("/id"), ship);
        let batch = testing::sqs::batch([testing::record(&Order { id: "7".to_owned() })]);
        testing::deliver_twice(&service, &batch).await.assert_once();
        let lines = lines.lock().expect("no panic");
        let counts = |name: &str| lines.iter().map(|line| line[name].as_u64()).collect::<Vec<_>>();
        assert_eq!((counts("DuplicatesSaved"), counts("Executed")), (vec![Some(0), Some(1)], vec![Some(1), None]));
        Ok(())
    }
}
