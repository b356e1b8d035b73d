//! Reads the replies of the scripts.

use redis::Value;

use super::{error, failure::Failure, mark, record};
use crate::{
    clock::Timestamp,
    error::Error,
    order::Entity,
    record::Status,
    store::{
        ClaimRequest, Claimed, Grant, SettleRequest, Settled, Settlement,
        amend::{AmendRequest, Amended},
        ordering,
        rules::{self, Judgement},
    },
};

const CLAIM: &str = "claim";
const AMEND: &str = "amend";

/// Reads the reply of `claim.lua`: a number or text if the claim is granted, or else the time, the record, and the mark
/// of an ordered operation.
pub(super) fn claimed(request: &ClaimRequest, answer: Result<Value, Failure>) -> Result<Claimed, Error> {
    let unexpected = || error::unexpected(CLAIM);
    match answer.map_err(|failure| failure.into_error(CLAIM))? {
        Value::Int(lease_until) => first_grant(lease_until).map(Claimed::Granted).ok_or_else(unexpected),
        Value::BulkString(text) => grant(&text).map(Claimed::Granted).ok_or_else(unexpected),
        Value::Array(refused) => match refusal(request, refused)? {
            Judgement::Mine(grant) => Ok(Claimed::Granted(grant)),
            Judgement::Refused(refusal) => Ok(Claimed::Refused(refusal)),
            // The script would have granted it.
            Judgement::Free => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

/// Returns the reason why the script did not grant the claim, by the rules.
fn refusal(request: &ClaimRequest, refused: Vec<Value>) -> Result<Judgement, Error> {
    let unexpected = || error::unexpected(CLAIM);
    let mut refused = refused.into_iter();
    let Some(Value::BulkString(now)) = refused.next() else { return Err(unexpected()) };
    let now = number(std::str::from_utf8(&now).ok()).map(Timestamp::from_millis).ok_or_else(unexpected)?;
    let record = record::record(refused.next().ok_or_else(unexpected)?, CLAIM)?;
    let Some(order) = request.order() else {
        return rules::judge(&record.ok_or_else(unexpected)?, request, now);
    };
    let mark = mark::mark(refused.next().ok_or_else(unexpected)?, Entity::of(&request.key), CLAIM);
    ordering::judge_found(record.as_ref(), &mark, request, order, now)
}

/// Reads the reply of `settle.lua`: a number if the settle is applied, or else the record.
pub(super) fn settled(request: &SettleRequest, answer: Result<Value, Failure>) -> Result<Settled, Error> {
    let operation = request.settlement.as_str();
    match (answer.map_err(|failure| failure.into_error(operation))?, &request.settlement) {
        (Value::Int(lease_until), Settlement::Renew { .. }) => {
            let lease_until = u64::try_from(lease_until).map_err(|_| error::unexpected(operation))?;
            Ok(Settled::Renewed { lease_until: Timestamp::from_millis(lease_until) })
        }
        (Value::Int(_), _) => Ok(Settled::Done { found: None }),
        (Value::BulkString(version), _) => Err(mark::of_another_version(&version, operation)),
        (found @ Value::Array(_), _) => rules::explain_settle(request, record::record(found, operation)),
        _ => Err(error::unexpected(operation)),
    }
}

/// Reads the reply of `amend.lua`: a number if the record was amended, or else the time and the record, or the version
/// of a newer mark.
pub(super) fn amended(request: &AmendRequest, answer: Option<Result<Value, Failure>>) -> Result<Amended, Error> {
    let unexpected = || error::unexpected(AMEND);
    match answer.ok_or_else(unexpected)?.map_err(|failure| failure.into_error(AMEND))? {
        Value::Int(_) => Ok(Amended::Changed),
        Value::BulkString(version) => Err(mark::of_another_version(&version, AMEND)),
        Value::Array(refused) => {
            let [Value::BulkString(now), fields] = <[Value; 2]>::try_from(refused).map_err(|_| unexpected())? else {
                return Err(unexpected());
            };
            let now = number(std::str::from_utf8(&now).ok()).map(Timestamp::from_millis).ok_or_else(unexpected)?;
            rules::explain_amendment(request, record::record(fields, AMEND)?, now)
        }
        _ => Err(unexpected()),
    }
}

/// Returns the grant of a claim that found no record.
fn first_grant(lease_until: i64) -> Option<Grant> {
    let lease_until = Timestamp::from_millis(lease_until.try_into().ok()?);
    Some(Grant { lease_until, attempt: 1, prior_status: None, has_merged_doubt: false })
}

fn grant(text: &[u8]) -> Option<Grant> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let (lease_until, attempt) = (number(words.next())?, number(words.next())?);
    let prior_status = Status::from_word(words.next()?);
    let has_merged_doubt = words.next().is_some();
    Some(Grant { lease_until: Timestamp::from_millis(lease_until), attempt, prior_status, has_merged_doubt })
}

fn number(digits: Option<&str>) -> Option<u64> {
    digits?.parse().ok()
}
