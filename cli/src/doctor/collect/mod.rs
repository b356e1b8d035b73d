//! Collectors, which fill the facts from AWS and from servers. They only read.

mod dynamodb;
mod postgres;
mod redis;
mod stack;

pub(crate) use dynamodb::table;
pub(crate) use postgres::postgres;
pub(crate) use redis::redis;
pub(crate) use stack::Account;
