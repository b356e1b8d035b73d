//! PostgreSQL: round trips, races, locks, outages and stored rows.

mod access;
mod calls;
mod clock;
mod engine;
mod locks;
mod maintenance;
mod marks;
mod orders;
mod outages;
mod plans;
mod proxy;
mod rows;
mod sessions;

use std::time::Duration;

use lambda_once::{
    Error, ErrorKind, ErrorStatus, Store,
    clock::Timestamp,
    record::Record,
    store::{ClaimRequest, Claimed, Grant, ResultData, Settled, Settlement},
};

use crate::support::{self, requests::*};

/// The first midnight after the time of [`future_clock`](support::future_clock).
const MIDNIGHT: Timestamp = Timestamp::from_seconds(46_297 * 86_400);

fn of(error: &Error) -> (ErrorKind, ErrorStatus) {
    (error.kind(), error.status())
}

/// Returns a response of the server with this severity and SQLSTATE.
fn refusal(severity: &str, code: &str) -> Vec<u8> {
    let fields = format!("S{severity}\0V{severity}\0C{code}\0Minjected by the test\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    [b"E".as_slice(), &length, fields.as_bytes(), b"Z\0\0\0\x05I"].concat()
}

const UNAVAILABLE: (ErrorKind, ErrorStatus) = (ErrorKind::Unavailable, ErrorStatus::Temporary);
const AMBIGUOUS: (ErrorKind, ErrorStatus) = (ErrorKind::Unavailable, ErrorStatus::Ambiguous);
const TIMEOUT: (ErrorKind, ErrorStatus) = (ErrorKind::Timeout, ErrorStatus::Temporary);
const FORMAT: (ErrorKind, ErrorStatus) = (ErrorKind::Format, ErrorStatus::Temporary);
const TABLE: (ErrorKind, ErrorStatus) = (ErrorKind::Table, ErrorStatus::Temporary);
const ACCESS_DENIED: (ErrorKind, ErrorStatus) = (ErrorKind::AccessDenied, ErrorStatus::Temporary);
