//! A worker outside Lambda that polls an SQS queue, in a container for example.

use std::time::Duration;

use aws_sdk_sqs::{Client, types::Message};
use futures_util::future::join_all;
use lambda_once::{DynamoDbStore, Failure, Idempotency, store::dynamodb::Config};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::timeout,
};

/// The lease. It is renewed while a shipment runs, and ends soon after a worker has died.
const LEASE: Duration = Duration::from_secs(30);
/// The maximum duration of a shipment. The queue's visibility timeout is longer than this and than the lease.
const MAX_DURATION: Duration = Duration::from_secs(60);
/// The pause after an error from SQS.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
}

async fn ship(order: &Order) -> Result<String, Failure> {
    Ok(format!("order {} is shipped", order.id))
}

/// Returns an engine that renews the claim during a run, because no deadline ends the run outside Lambda.
fn engine(store: impl lambda_once::store::Store) -> Result<Idempotency, lambda_once::Error> {
    Idempotency::builder(store).scope("shipments").lease(LEASE).heartbeat(MAX_DURATION).build()
}

/// Returns whether the message is done, now or earlier. Otherwise it stays in the queue. It is received again after its
/// visibility timeout, and the redrive policy moves it to the dead-letter queue in the end.
async fn is_done(once: &Idempotency, message: &Message) -> bool {
    let Ok(order) = serde_json::from_str::<Order>(message.body().unwrap_or_default()) else { return false };
    match once.operation("ship", &order.id).payload(&order).run(|| ship(&order)).await {
        Ok(outcome) => outcome.is_done(),
        Err(error) => {
            tracing::warn!(%error, "the order is received again");
            false
        }
    }
}

/// Receives messages and deletes those that are done, until it is stopped.
async fn poll(sqs: &Client, queue: &str, once: &Idempotency, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let receive = sqs.receive_message().queue_url(queue).max_number_of_messages(10).wait_time_seconds(20).send();
        let received = tokio::select! {
            received = receive => received,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let messages = match received {
            Ok(received) => received.messages.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no messages");
                let _ = timeout(PAUSE, stop.wait_for(|stop| *stop)).await;
                continue;
            }
        };
        // Not cancelled by `stop`, so that received messages are finished.
        join_all(messages.into_iter().map(async |message| {
            if is_done(once, &message).await {
                let delete = sqs.delete_message().queue_url(queue).set_receipt_handle(message.receipt_handle);
                // If the deletion fails, the message is received again, and replayed.
                let _ = delete.send().await;
            }
        }))
        .await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let once = engine(DynamoDbStore::from_env().await?)?;
    let sqs = Client::new(&Config::sdk_config().await);
    let queue = std::env::var("QUEUE_URL")?;
    let (sender, stop) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        sender.send_replace(true);
    });
    poll(&sqs, &queue, &once, stop).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, retry::RetryConfig};
    use axum::{
        Json, Router,
        http::{HeaderMap, StatusCode},
        routing::post,
    };
    use lambda_once::{Outcome, testing};
    use serde_json::{Value, json};

    use super::*;

    /// A queue whose visibility timeout has always passed. It refuses the first deletion of each message.
    #[derive(Default)]
    struct Queue {
        messages: Vec<&'static str>,
        refused: Vec<String>,
        receives: usize,
    }

    impl Queue {
        fn respond(&mut self, target: &str, request: &Value, stop: &watch::Sender<bool>) -> (StatusCode, Json<Value>) {
            let handle = request["ReceiptHandle"].as_str().unwrap_or_default().to_owned();
            match target {
                "AmazonSQS.ReceiveMessage" => {
                    self.receives += 1;
                    let messages = self.messages.iter();
                    let messages =
                        messages.map(|body| json!({ "MessageId": body, "ReceiptHandle": body, "Body": body }));
                    (StatusCode::OK, Json(json!({ "Messages": messages.collect::<Vec<_>>() })))
                }
                "AmazonSQS.DeleteMessage" if !self.refused.contains(&handle) => {
                    self.refused.push(handle);
                    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({})))
                }
                "AmazonSQS.DeleteMessage" => {
                    self.messages.retain(|body| *body != handle);
                    // Only the message that is not an order is left.
                    stop.send_replace(self.messages.len() == 1);
                    (StatusCode::OK, Json(json!({})))
                }
                other => panic!("{other}"),
            }
        }
    }

    #[tokio::test]
    async fn a_message_that_is_received_again_is_replayed_and_deleted() -> Result<(), Box<dyn std::error::Error>> {
        let messages = vec![r#"{"id":"7"}"#, r#"{"id":"8"}"#, "no order"];
        let queue = Arc::new(Mutex::new(Queue { messages, ..Queue::default() }));
        let (sender, stop) = watch::channel(false);
        let served = Arc::clone(&queue);
        let serve = async move |headers: HeaderMap, body: String| {
            let request = serde_json::from_str(&body).expect("JSON");
            let target = headers["x-amz-target"].to_str().expect("text").to_owned();
            served.lock().expect("no panic").respond(&target, &request, &sender)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(serve))).await });

        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(&url)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .retry_config(RetryConfig::disabled());
        let once = engine(testing::store())?;
        let sqs = Client::from_conf(config.build());
        timeout(Duration::from_secs(60), poll(&sqs, &format!("{url}/queue"), &once, stop)).await?;

        {
            let queue = queue.lock().expect("no panic");
            assert_eq!((&*queue.messages, queue.receives), (&["no order"][..], 2));
        }
        for id in ["7", "8"] {
            let again =
                once.operation("ship", id).run(|| async { Err::<String, _>(Failure::permanent("a second run")) });
            assert!(matches!(again.await?, Outcome::Replayed(receipt) if receipt == format!("order {id} is shipped")));
        }
        Ok(())
    }
}
