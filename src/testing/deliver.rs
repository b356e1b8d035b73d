//! Sequential and concurrent deliveries of an event, and their outcomes.

use std::time::Duration;

use futures_util::future::join;
use lambda_runtime::LambdaEvent;

use super::{context, diagnosis::diagnose};
use crate::batch::{BatchService, Handler, Processed, Source};

/// The time left of an invocation that delivers an event here. A claim that it leaves behind can be taken over 62 s
/// after its beginning, one second after the deadline plus the skew margin.
pub const TIME_LEFT: Duration = Duration::from_secs(60);

/// An event that can be delivered repeatedly. The builders of this module make such events. For a custom source, use a
/// closure.
///
/// ```
/// use lambda_once::testing::Redeliver;
///
/// let tickets = |_number: u32| vec!["ticket 1", "ticket 2"];
/// assert_eq!(tickets.delivery(1), tickets.delivery(2));
/// ```
pub trait Redeliver {
    /// The event as Lambda sends it.
    type Event;

    /// Returns the event of the first delivery, the second, and so on. The records are the same, with the source's
    /// changes to them, such as the receive count.
    fn delivery(&self, number: u32) -> Self::Event;
}

impl<E, F: Fn(u32) -> E> Redeliver for F {
    type Event = E;

    fn delivery(&self, number: u32) -> E {
        self(number)
    }
}

/// The outcomes of two deliveries of the same event.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "whether the records are safe to deliver again shows only when it is asserted"]
pub struct Deliveries<R> {
    /// The first delivery.
    pub first: Processed<R>,
    /// The second delivery.
    pub second: Processed<R>,
}

impl<R> Deliveries<R> {
    /// Asserts that each record's handler ran in at most one delivery, and that no record was reported.
    ///
    /// A record that is in progress in one delivery, or was skipped because of that, may be reported by the other one.
    /// The queue delivers it again, and it is replayed. A [superseded](crate::Outcome::Superseded) record has nothing
    /// left to do, and counts as processed.
    ///
    /// # Panics
    ///
    /// If this does not hold. The message lists the outcome of each record in each delivery, with its fault.
    #[track_caller]
    pub fn assert_once(&self) {
        if let Some(diagnosis) = diagnose(&self.first, &self.second) {
            panic!("{diagnosis}");
        }
    }
}

/// Delivers an event once, in an invocation with [a minute left](TIME_LEFT). For a different
/// [context](super::context()) call [`BatchService::process`].
///
/// ```
/// # #[cfg(feature = "sqs")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use lambda_once::{ErrorKind, Failure, Key, OutcomeKind, testing::{self, sqs}};
///
/// let service = testing::engine().sqs(Key::pointer("/order_id"), |_: serde_json::Value| async { Ok::<_, Failure>(()) });
/// let order = serde_json::json!({ "order_id": "7" });
/// let batch = sqs::batch([testing::record(&order), testing::record(&order), testing::bytes("no order").id("m-3")]);
/// let delivered = testing::deliver(&service, &batch).await;
/// let expected = [Ok(OutcomeKind::Executed), Ok(OutcomeKind::Replayed), Err(ErrorKind::Payload)];
/// assert_eq!(delivered.outcomes(), expected);
/// assert_eq!(delivered.reported(), ["m-3"]);
/// # }
/// # #[cfg(not(feature = "sqs"))] fn main() {}
/// ```
pub async fn deliver<S, H, T, Args, E>(service: &BatchService<S, H, T, Args>, event: &E) -> Processed<S::Response>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
    E: Redeliver<Event = S::Event> + Sync + ?Sized,
{
    nth(service, event, 1).await
}

/// Delivers an event twice, one delivery after the other.
pub async fn deliver_twice<S, H, T, Args, E>(
    service: &BatchService<S, H, T, Args>,
    event: &E,
) -> Deliveries<S::Response>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
    E: Redeliver<Event = S::Event> + Sync + ?Sized,
{
    let first = nth(service, event, 1).await;
    let second = nth(service, event, 2).await;
    Deliveries { first, second }
}

/// Delivers an event to two concurrent invocations. The second one begins when the first one waits for its handlers or
/// for the recording of their outcomes.
///
/// Each record runs in one of them. In the other it is either done and replayed, or in progress and reported or waited
/// for. [`Deliveries::assert_once`] allows each.
pub async fn deliver_at_once<S, H, T, Args, E>(
    service: &BatchService<S, H, T, Args>,
    event: &E,
) -> Deliveries<S::Response>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
    E: Redeliver<Event = S::Event> + Sync + ?Sized,
{
    let (first, second) = join(nth(service, event, 1), nth(service, event, 2)).await;
    Deliveries { first, second }
}

async fn nth<S, H, T, Args, E>(service: &BatchService<S, H, T, Args>, event: &E, number: u32) -> Processed<S::Response>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
    E: Redeliver<Event = S::Event> + Sync + ?Sized,
{
    service.process(LambdaEvent::new(event.delivery(number), context(TIME_LEFT))).await
}
