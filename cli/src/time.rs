//! Times and durations in human-readable form.

use std::time::Duration;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use lambda_once::clock::Timestamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Reads a duration: a whole number and `s`, `m`, `h` or `d`.
///
/// # Errors
///
/// Returns an error for any other text.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(MINUTE),
        'h' => Some(HOUR),
        'd' => Some(DAY),
        _ => None,
    });
    let count = text.get(..text.len().saturating_sub(1)).and_then(whole);
    let seconds = unit.zip(count).and_then(|(unit, count)| unit.checked_mul(count));
    seconds.map(Duration::from_secs).ok_or_else(|| "write a number and s, m, h or d, such as 10m".to_owned())
}

/// Reads a duration as [`parse`] does, or in milliseconds: `800ms`.
///
/// # Errors
///
/// Returns an error for any other text.
pub(crate) fn parse_precise(text: &str) -> Result<Duration, String> {
    match text.strip_suffix("ms") {
        Some(count) => whole(count)
            .map(Duration::from_millis)
            .ok_or_else(|| "write a number and ms, s, m, h or d, such as 800ms".to_owned()),
        None => parse(text),
    }
}

/// Returns the number that consists of these digits. A sign is no digit.
fn whole(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

/// Formats a time in UTC, to the second: `2026-11-25T10:12:04Z`.
pub(crate) fn instant(time: Timestamp) -> String {
    let seconds = i64::try_from(time.seconds_rounded_down()).unwrap_or(i64::MAX);
    // Times beyond the year 9999 have no such text.
    DateTime::from_secs(seconds).fmt(DateTimeFormat::DateTime).unwrap_or_else(|_| format!("{seconds} s since 1970"))
}

/// Formats a duration in the largest unit of which it has at least two, rounded down: `119 s`, `2 min`, `47 h`, `2 days`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / MINUTE),
        7_200..172_800 => format!("{} h", seconds / HOUR),
        _ => format!("{} days", seconds / DAY),
    }
}

/// Formats a time, and its distance from now.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let distance =
        if time > now { format!("in {}", span(time.since(now))) } else { format!("{} ago", span(now.since(time))) };
    format!("{} ({distance})", instant(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse("15d"), Ok(Duration::from_secs(1_296_000)));
        assert_eq!(parse_precise("800ms"), Ok(Duration::from_millis(800)));
        assert_eq!(parse_precise("2s"), Ok(Duration::from_secs(2)));
        assert!(parse("800ms").is_err() && parse_precise("+1ms").is_err() && parse_precise("ms").is_err());
        for bad in
            ["", "s", "10", "-1s", "+1s", "1.5h", "10 m", "10é", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_have_at_least_two_of_their_unit() {
        let spans = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }

    #[test]
    fn times_are_in_utc_with_their_distance() {
        let time = Timestamp::from_millis(1_700_000_000_999);
        assert_eq!(instant(time), "2023-11-14T22:13:20Z");
        assert_eq!(instant(Timestamp::from_millis(u64::MAX)), "18446744073709551 s since 1970");
        assert_eq!(relative(time, time.after(Duration::from_secs(5))), "2023-11-14T22:13:20Z (5 s ago)");
        assert_eq!(relative(time, time.before(Duration::from_secs(5))), "2023-11-14T22:13:20Z (in 5 s)");
    }
}
