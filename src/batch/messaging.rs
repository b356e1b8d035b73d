//! Describes the origin of a record for traces.

/// The origin of a record in traces.
///
/// The names come from OpenTelemetry's [conventions for
/// messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/).
///
/// ```
/// use lambda_once::batch::Messaging;
///
/// let messaging = Messaging::new("nats").with_destination("orders").with_partition("7");
/// assert_eq!(messaging.destination, Some("orders"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Messaging<'a> {
    /// `messaging.system`: the product.
    pub system: &'a str,
    /// `messaging.destination.name`: the name of the queue, topic or stream, if the record has it.
    pub destination: Option<&'a str>,
    /// `messaging.destination.partition.id`: the partition or shard, if there is one.
    pub partition: Option<&'a str>,
    /// `faas.trigger`: the kind of event that triggers the function.
    pub trigger: Trigger,
}

impl<'a> Messaging<'a> {
    /// Creates a record of this product. It is a message unless another [trigger](Self::with_trigger) is set.
    pub const fn new(system: &'a str) -> Self {
        Self { system, destination: None, partition: None, trigger: Trigger::PubSub }
    }

    /// Sets the queue, topic or stream by its name, or by its ARN, from which the name is taken.
    #[must_use]
    pub fn with_destination(self, name_or_arn: &'a str) -> Self {
        Self { destination: Some(name_in_arn(name_or_arn)), ..self }
    }

    /// Sets the partition or shard.
    #[must_use]
    pub const fn with_partition(mut self, id: &'a str) -> Self {
        self.partition = Some(id);
        self
    }

    /// Sets the kind of event that triggers the function.
    #[must_use]
    pub const fn with_trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// Creates a record of this product from this destination, if known.
    pub(super) fn of(system: &'a str, destination: Option<&'a str>) -> Self {
        Self { destination: destination.map(name_in_arn), ..Self::new(system) }
    }
}

/// The kinds of events that trigger a function: the values of `faas.trigger`, except HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// A message: `pubsub`.
    PubSub,
    /// A change in a database: `datasource`.
    Datasource,
    /// A schedule: `timer`.
    Timer,
    /// Anything else: `other`.
    Other,
}

impl Trigger {
    /// Returns OpenTelemetry's name of the trigger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PubSub => "pubsub",
            Self::Datasource => "datasource",
            Self::Timer => "timer",
            Self::Other => "other",
        }
    }
}

/// Returns the name in `arn:partition:service:region:account:name`. A type may precede the name and further parts may
/// follow it: `stream/name`, `table/name/stream/time`, `topic:subscription`.
fn name_in_arn(arn: &str) -> &str {
    let Some(resource) = arn.strip_prefix("arn:").and_then(|rest| rest.splitn(5, ':').nth(4)) else { return arn };
    match resource.split_once('/') {
        Some((_type, rest)) => rest.split('/').next().unwrap_or(rest),
        None => resource.split(':').next().unwrap_or(resource),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ARNs are from the AWS documentation.
    #[test]
    fn destinations_are_named_by_the_name_in_their_arn() {
        for (arn, name) in [
            ("arn:aws:sqs:us-east-2:123456789012:my-queue", "my-queue"),
            ("arn:aws-cn:sqs:cn-north-1:123456789012:orders.fifo", "orders.fifo"),
            ("arn:aws:sns:us-east-2:123456789012:sns-lambda", "sns-lambda"),
            ("arn:aws:sns:us-east-2:123456789012:sns-la:21be56ed-a058-49f5-8c98-aedd2564c486", "sns-la"),
            ("arn:aws:kinesis:us-east-2:123456789012:stream/lambda-stream", "lambda-stream"),
            ("arn:aws:kinesis:us-east-2:123456789012:stream/foobar/consumer/test:1600000000", "foobar"),
            ("arn:aws:dynamodb:us-west-2:111122223333:table/TestTable/stream/2015-05-11T21:21:33.291", "TestTable"),
            ("orders", "orders"),
            ("arn:aws:sqs", "arn:aws:sqs"),
        ] {
            assert_eq!(name_in_arn(arn), name);
        }
    }
}
