//! A queue that S3 notifies of new objects, several of which may come in one message.

use lambda_once::{
    DynamoDbStore, Failure, Idempotency, Key,
    batch::envelope::{S3, S3Record},
};

async fn thumbnail(record: S3Record) -> Result<String, Failure> {
    Ok(format!("{}/{}", record.bucket, record.key))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    // Bucket, key, version, event and sequencer.
    let service = once.sqs(Key::message_id(), thumbnail).envelope(S3);
    lambda_runtime::run(service.validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{
        OutcomeKind::*,
        testing::{self, s3},
    };

    use super::*;

    #[tokio::test]
    async fn each_object_has_its_outcome_and_a_test_event_is_no_work() {
        let service = testing::engine().sqs(Key::message_id(), thumbnail).envelope(S3);
        let photos = ["a.jpg", "b c.jpg"].map(|key| s3::created("photos", key));
        let messages = [s3::notification(photos), s3::test_event("photos")];
        let batch = testing::sqs::batch(messages);
        let outcomes = testing::deliver(&service, &batch).await.outcomes();
        assert_eq!(outcomes, [Ok(Executed), Ok(Executed), Ok(Ignored)]);
        let outcomes = testing::deliver(&service, &batch).await.outcomes();
        assert_eq!(outcomes, [Ok(Replayed), Ok(Replayed), Ok(Ignored)]);
    }
}
