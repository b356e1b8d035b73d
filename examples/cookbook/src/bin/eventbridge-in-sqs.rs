//! A queue that is the target of an EventBridge rule.

use lambda_once::{DynamoDbStore, Failure, Idempotency, Key, batch::envelope::EventBridge};

#[derive(serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
struct StateChange {
    instance_id: String,
    state: String,
}

async fn note(change: StateChange) -> Result<String, Failure> {
    Ok(format!("{} is {}", change.instance_id, change.state))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    // An event that is replayed from an archive has the same id.
    let service = once.sqs(Key::message_id(), note).envelope(EventBridge);
    lambda_runtime::run(service.validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::testing;

    use super::*;

    #[tokio::test]
    async fn an_event_is_safe_to_redeliver() {
        let change = StateChange { instance_id: "i-7".to_owned(), state: "terminated".to_owned() };
        let service = testing::engine().sqs(Key::message_id(), note).envelope(EventBridge);
        let batch = testing::sqs::batch([testing::eventbridge::message(&testing::record(&change))]);
        testing::deliver_twice(&service, &batch).await.assert_once();
    }
}
