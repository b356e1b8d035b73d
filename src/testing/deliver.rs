//! Deliveries, one after the other or at once, and their outcomes.

use std::time::Duration;

use futures_util::future::join;
use lambda_runtime::LambdaEvent;

use super::{context, diagnosis::diagnose};
use crate::batch::{BatchService, Handler, Processed, Source};

/// How much time an invocation has left in which something is delivered here. So a claim that was left behind by one can be
/// taken over 62 s after its beginning: a second after the deadline, and the skew margin.
pub const TIME_LEFT: Duration = Duration::from_secs(60);

/// An event that can be delivered again. The builders of this module make such; for a custom source a closure
/// will do.
///
/// ```
/// use lambda_once::testing::Redeliver;
///
/// let tickets = |_number: u32| vec!["ticket 1", "ticket 2"];
/// assert_eq!(tickets.delivery(1), tickets.delivery(2));
/// ```
pub trait Redeliver {
    /// The event, as Lambda sends it.
    type Event;

    /// The event as it comes in its first delivery, its second, and so on: the same records, with what the source changes
    /// about them, such as the receive count.
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
    /// Asserts that each record's handler ran in one delivery at most, and that no record was reported.
    ///
    /// A record that is in progress in one delivery, or was skipped for that, may be reported by the other one: the queue
    /// delivers it again, and it is replayed. A record that is [superseded](crate::Outcome::Superseded) has nothing left to do, and
    /// counts as handled.
    ///
    /// # Panics
    ///
    /// If it was not so. The message lists the outcome of each record in each delivery, and what is wrong with it.
    #[track_caller]
    pub fn assert_once(&self) {
        if let Some(diagnosis) = diagnose(&self.first, &self.second) {
            panic!("{diagnosis}");
        }
    }
}

/// Delivers an event once, in an invocation that has [a minute left](TIME_LEFT). For another
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

/// Delivers an event, and then once more.
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

/// Delivers an event to two invocations at once. The second one begins when the first one waits for something: for its
/// handlers, or for their outcomes to be recorded.
///
/// Each record runs in one of them. The other one finds it done, and replays it, or in progress, and reports it or waits for it;
/// [`Deliveries::assert_once`] allows each.
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
