//! Amazon MQ brokers (ActiveMQ and RabbitMQ) as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, rabbitmq}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().mq(Key::pointer("/order_id"), book);
//! let batch = rabbitmq::batch(["7", "8"].map(|id| testing::record(&Order { order_id: id.into() })));
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # }
//! ```

use std::{borrow::Cow, collections::BTreeMap, fmt, string::FromUtf8Error, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::{encoding::base64, whole::success_or_error};
use crate::{
    batch::{
        handler::Handler,
        messaging::Messaging,
        raw_json::keeps_json,
        record::RecordInfo,
        service::BatchService,
        source::{FailureReporting, Source},
    },
    decoding::decode,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// Messages of an Amazon MQ broker, ActiveMQ or RabbitMQ.
///
/// Lambda supports no partial response for brokers. If any message fails, the invocation fails, all messages are
/// delivered again, and finished ones are replayed.
///
/// A record's id is the message's, which is unique within its broker and queue. ActiveMQ sets it, and gives a message
/// that is sent to several queues the same id in each. For RabbitMQ it is set by the publisher, and may be missing. In
/// that case use a key from the body or a header. Properties and headers that are strings, numbers or booleans are
/// headers here. The attributes are `broker` (`activemq` or `rabbitmq`), `queue`, `redelivered`, `correlationId` and
/// `timestamp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mq;

/// A batch of messages of an Amazon MQ broker.
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-mq.html>
#[doc(hidden)]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MqEvent {
    #[serde(default)]
    event_source_arn: Option<String>,
    #[serde(default)]
    messages: Option<Vec<ActiveMqMessage>>,
    #[serde(default)]
    rmq_messages_by_queue: Option<BTreeMap<String, Vec<RabbitMqMessage>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActiveMqMessage {
    #[serde(rename = "messageID", default)]
    message_id: Option<String>,
    // AWS's documentation and its libraries spell it in two ways.
    #[serde(rename = "correlationID", alias = "correlationId", default)]
    correlation_id: Option<String>,
    #[serde(default)]
    timestamp: Option<Value>,
    #[serde(default)]
    redelivered: bool,
    #[serde(default)]
    destination: Option<Destination>,
    #[serde(default)]
    properties: Option<BTreeMap<String, Value>>,
    #[serde(deserialize_with = "base64")]
    data: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destination {
    #[serde(default)]
    physical_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RabbitMqMessage {
    basic_properties: BasicProperties,
    #[serde(default)]
    redelivered: bool,
    #[serde(deserialize_with = "base64")]
    data: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BasicProperties {
    #[serde(default)]
    message_id: Option<String>,
    #[serde(default)]
    correlation_id: Option<String>,
    #[serde(default)]
    timestamp: Option<Value>,
    #[serde(default)]
    headers: Option<BTreeMap<String, Value>>,
}

/// A message of either kind of broker.
#[doc(hidden)]
pub struct MqMessage {
    /// The scope in which the id is unique.
    namespace: Option<String>,
    id: Option<String>,
    queue: Option<String>,
    correlation_id: Option<String>,
    timestamp: Option<Value>,
    redelivered: bool,
    headers: BTreeMap<String, Value>,
    data: Vec<u8>,
    /// The product, as named by OpenTelemetry.
    broker: &'static str,
}

impl MqMessage {
    fn active(broker: Option<&str>, message: ActiveMqMessage) -> Self {
        let queue = message.destination.and_then(|destination| destination.physical_name);
        Self {
            namespace: namespace(broker, queue.as_deref()),
            id: message.message_id,
            queue,
            correlation_id: message.correlation_id,
            timestamp: message.timestamp,
            redelivered: message.redelivered,
            headers: message.properties.unwrap_or_default(),
            data: message.data,
            broker: "activemq",
        }
    }

    fn rabbit(broker: Option<&str>, queue: &str, message: RabbitMqMessage) -> Self {
        let properties = message.basic_properties;
        Self {
            namespace: namespace(broker, Some(queue)),
            id: properties.message_id,
            queue: Some(queue.to_owned()),
            correlation_id: properties.correlation_id,
            timestamp: properties.timestamp,
            redelivered: message.redelivered,
            headers: properties.headers.unwrap_or_default(),
            data: message.data,
            broker: "rabbitmq",
        }
    }
}

/// Returns the scope in which an id is unique.
fn namespace(broker: Option<&str>, queue: Option<&str>) -> Option<String> {
    match (broker, queue) {
        (broker, Some(queue)) => Some(format!("{}/{queue}", broker.unwrap_or_default())),
        (broker, None) => broker.map(str::to_owned),
    }
}

/// Shows no headers and no data.
impl fmt::Debug for MqMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqMessage").field("id", &self.id).field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl fmt::Debug for ActiveMqMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveMqMessage").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for RabbitMqMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.basic_properties.message_id;
        f.debug_struct("RabbitMqMessage").field("message_id", id).finish_non_exhaustive()
    }
}

impl Source for Mq {
    type Event = MqEvent;
    type Record = MqMessage;
    type Rest = ();
    type Body = Vec<u8>;
    type Response = ();

    const OPERATION: &'static str = "mq";
    const WAITS_FOR_LEASE: bool = true;
    const REPORTING: FailureReporting = FailureReporting::AllOrNothing;

    fn split(&self, event: MqEvent) -> Result<(Vec<MqMessage>, ()), Error> {
        let broker = event.event_source_arn.as_deref();
        if event.messages.is_none() && event.rmq_messages_by_queue.is_none() {
            let message = "the event has neither `messages` nor `rmqMessagesByQueue`: it is not from Amazon MQ";
            return Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message));
        }
        let active = event.messages.into_iter().flatten().map(|message| MqMessage::active(broker, message));
        let rabbit = event.rmq_messages_by_queue.into_iter().flatten().flat_map(|(queue, messages)| {
            messages.into_iter().map(move |message| MqMessage::rabbit(broker, &queue, message))
        });
        Ok((active.chain(rabbit).collect(), ()))
    }

    fn lane<'a>(&self, _: &'a MqMessage) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, message: MqMessage) -> (RecordInfo, Vec<u8>) {
        let id = message.id.unwrap_or_default();
        let mut info = RecordInfo::local(message.namespace, id)
            .with_attribute("redelivered", message.redelivered.to_string())
            .with_attribute("broker", message.broker);
        let timestamp = message.timestamp.and_then(text);
        for (name, value) in
            [("queue", message.queue), ("correlationId", message.correlation_id), ("timestamp", timestamp)]
        {
            if let Some(value) = value {
                info = info.with_attribute(name, value);
            }
        }
        for (name, value) in message.headers {
            info = match header(value) {
                Some(Ok(text)) => info.with_header(name, text),
                Some(Err(bytes)) => info.with_header_bytes(name, bytes),
                None => info,
            };
        }
        (info, message.data)
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        // RabbitMQ's virtual host follows the name of a queue.
        let queue = record.source_attribute("queue").map(|queue| queue.split("::").next().unwrap_or(queue));
        Messaging::of(record.source_attribute("broker").unwrap_or(Self::OPERATION), queue)
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<(), Error> {
        success_or_error(failed)
    }
}

/// Returns the messages of an event, in the order of [`Source::split`].
fn json_messages(event: &RawValue) -> serde_json::Result<Vec<Box<RawValue>>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Event {
        messages: Option<Vec<Box<RawValue>>>,
        rmq_messages_by_queue: Option<BTreeMap<String, Vec<Box<RawValue>>>>,
    }

    let Event { messages, rmq_messages_by_queue } = serde_json::from_str(event.get())?;
    let rabbit = rmq_messages_by_queue.into_iter().flat_map(BTreeMap::into_values).flatten();
    Ok(messages.into_iter().flatten().chain(rabbit).collect())
}

keeps_json!(Mq, json_messages);

/// Returns the text of a property, if it is one.
fn text(value: Value) -> Option<String> {
    header(value)?.ok()
}

/// Returns the text of a property or header, or its bytes. In events, RabbitMQ's strings are `{"bytes": […]}` with
/// signed bytes.
fn header(value: Value) -> Option<Result<String, Vec<u8>>> {
    match value {
        Value::String(text) => Some(Ok(text)),
        Value::Number(number) => Some(Ok(number.to_string())),
        Value::Bool(truth) => Some(Ok(truth.to_string())),
        Value::Object(object) => {
            let byte = |byte: &Value| u8::try_from(byte.as_i64()?.rem_euclid(256)).ok();
            let bytes: Option<Vec<u8>> = object.get("bytes")?.as_array()?.iter().map(byte).collect();
            Some(String::from_utf8(bytes?).map_err(FromUtf8Error::into_bytes))
        }
        Value::Null | Value::Array(_) => None,
    }
}

impl Idempotency {
    /// Makes a service for an Amazon MQ broker (ActiveMQ or RabbitMQ), which runs `handler` for each message, once per
    /// `key`. The data is JSON.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { order_id: String }
    ///
    /// async fn book(order: Order) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// lambda_runtime::run(once.mq(Key::pointer("/order_id"), book)).await
    /// # }
    /// ```
    #[track_caller]
    pub fn mq<H, T, Args>(&self, key: Key, handler: H) -> BatchService<Mq, H, T, Args>
    where
        H: Handler<T, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        self.batch(Mq, key, |_, data| decode(data).map_err(Into::into), handler)
    }
}
