//! A clock for tests.

use std::{
    sync::OnceLock,
    time::{Instant, SystemTime},
};

use crate::clock::{Clock, Timestamp};

/// A clock that follows tokio's. It shows the real time unless a test pauses tokio's time. With paused time it advances
/// with `tokio::time::advance` and with timers that are awaited. All instances show the same time.
///
/// ```
/// use std::time::Duration;
/// use lambda_once::{clock::Clock, testing::TokioClock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let before = TokioClock.now();
/// tokio::time::advance(Duration::from_secs(3_600)).await;
/// assert_eq!(TokioClock.now().since(before), Duration::from_secs(3_600));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        static START: OnceLock<(Instant, SystemTime)> = OnceLock::new();
        let (start, time) = *START.get_or_init(|| (Instant::now(), SystemTime::now()));
        let now = tokio::time::Instant::now().into_std();
        // A test may have paused its time before the first use of this clock.
        let time = match now.checked_duration_since(start) {
            Some(since) => time + since,
            None => time - start.duration_since(now),
        };
        time.into()
    }
}
