//! The clock of tests.

use std::{
    sync::OnceLock,
    time::{Instant, SystemTime},
};

use crate::clock::{Clock, Timestamp};

/// A clock that follows tokio's: it shows the real time where a test lets that pass, and in a test with paused time moves
/// with `tokio::time::advance`, and with whatever is waited for. All its instances show the same time.
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
        // A test's time may have been paused before this clock was looked at for the first time.
        let time = match now.checked_duration_since(start) {
            Some(since) => time + since,
            None => time - start.duration_since(now),
        };
        time.into()
    }
}
