//! A Lambda function behind the stream of the table `outbox`, which publishes each message that is written to the table.
//!
//! The stream needs new images, and the event source mapping needs `ReportBatchItemFailures`. Messages that could not be
//! published are redelivered, with the messages behind them in the shard. So a message is published at least once, each
//! time with the same id.

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
    // Claims would cost two writes per message, and block the shard after a crash until they end. Consumers detect
    // duplicates by their ids in any case.
    let once = Idempotency::disabled();
    lambda_runtime::run(once.dynamodb_stream(Key::message_id(), relay)).await
}
