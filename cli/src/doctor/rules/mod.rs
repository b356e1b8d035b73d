//! Rules, which are pure functions of the facts.

mod functions;
mod postgres;
mod queues;
mod redis;
mod tables;

pub(crate) use functions::function;
pub(crate) use postgres::postgres;
pub(crate) use redis::redis;
pub(crate) use tables::{LISTING_INDEX, table};

use super::{
    facts::Stated,
    finding::{Report, Severity},
};
