//! A Lambda function behind the stream of the table `outbox`: publishes each message that is put into the table.
//!
//! The stream has new images, and the event source mapping `ReportBatchItemFailures`: what could not be published is delivered
//! again, with the messages behind it in the shard. So a message is published at least once, each time with the same id.

use lambda_once::{
    Failure, Idempotency, Key,
    batch::dynamodb::{Change, ChangeKind},
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt as _, stdout};

#[derive(Deserialize, Serialize)]
struct Message {
    id: String,
    payload: String,
}

/// Stands in for a queue. Returns when the queue has the message.
async fn publish(message: &Message) -> Result<(), Failure> {
    let mut queue = stdout();
    queue.write_all(format!("{}\n", serde_json::to_string(message)?).as_bytes()).await?;
    Ok(queue.flush().await?)
}

async fn relay(change: Change<Message>) -> Result<(), Failure> {
    match (change.kind, change.new) {
        (ChangeKind::Insert, Some(message)) => publish(&message).await,
        (ChangeKind::Insert, None) => Err(Failure::permanent("the stream holds no new images")),
        // The time to live has deleted a message.
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    // Claims would cost two writes a message, and hold the shard up after a crash until they end. Consumers tell duplicates
    // by their id in any case.
    let once = Idempotency::disabled();
    lambda_runtime::run(once.dynamodb_stream(Key::message_id(), relay)).await
}
