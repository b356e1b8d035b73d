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

const UNAVAILABLE: (ErrorKind, ErrorStatus) = (ErrorKind::Unavailable, ErrorStatus::Temporary);
const AMBIGUOUS: (ErrorKind, ErrorStatus) = (ErrorKind::Unavailable, ErrorStatus::Ambiguous);
const TIMEOUT: (ErrorKind, ErrorStatus) = (ErrorKind::Timeout, ErrorStatus::Temporary);
const FORMAT: (ErrorKind, ErrorStatus) = (ErrorKind::Format, ErrorStatus::Temporary);
const TABLE: (ErrorKind, ErrorStatus) = (ErrorKind::Table, ErrorStatus::Temporary);
const ACCESS_DENIED: (ErrorKind, ErrorStatus) = (ErrorKind::AccessDenied, ErrorStatus::Temporary);
