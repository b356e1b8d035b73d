//! Writes requests as arguments of the scripts, directly into the command, because a batch has hundreds of them.

use std::time::Duration;

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::{
    order::{Entity, Order},
    record::{KeyHash, NEWEST_KNOWN_VERSION, RECORD_VERSION, Status, StoredData, StoredResult},
    store::{
        ClaimRequest, ResultData, SettleRequest, Settlement, Takeover,
        amend::{AmendRequest, Amendment},
        remote::terms::Terms,
    },
};

/// The maximum duration, in milliseconds. Up to it Lua's numbers are exact until the year 144,000.
const MAX_MILLIS: u64 = 1 << 52;

/// The name of a key's hash. The half in braces determines the slot.
pub(super) struct Name<'a> {
    pub(super) prefix: &'a str,
    pub(super) key: &'a KeyHash,
}

impl ToRedisArgs for Name<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let hex = self.key.to_hex();
        let (slot, rest) = hex.split_at(hex.len() / 2);
        out.write_arg_fmt(format_args!("{}{{{slot}}}{rest}", self.prefix));
    }
}

impl redis::ToSingleRedisArg for Name<'_> {}

impl<'a> Name<'a> {
    /// Returns the name of the mark of the key's entity.
    pub(super) fn mark(&self) -> MarkName<'a> {
        MarkName { prefix: self.prefix, entity: Entity::of(self.key) }
    }

    /// The name of the index.
    pub(super) fn index(&self) -> IndexName<'a> {
        IndexName { prefix: self.prefix }
    }
}

/// The name of the sorted set that lists read. No record and no mark has a name without braces.
pub(super) struct IndexName<'a> {
    pub(super) prefix: &'a str,
}

impl ToRedisArgs for IndexName<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(format_args!("{}open", self.prefix));
    }
}

impl redis::ToSingleRedisArg for IndexName<'_> {}

/// The name of a mark's hash. It has the slot of the entity's records, but a different length than their names.
pub(super) struct MarkName<'a> {
    pub(super) prefix: &'a str,
    pub(super) entity: Entity,
}

impl ToRedisArgs for MarkName<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(format_args!("{}{{{}}}mark", self.prefix, self.entity));
    }
}

impl redis::ToSingleRedisArg for MarkName<'_> {}

/// Adds the arguments of `claim.lua`.
pub(super) fn of_claim(request: &ClaimRequest, terms: &mut Repeated<Terms>, now: &str, command: &mut Cmd) {
    command.write_arg_fmt(request.owner);
    match request.fingerprint {
        Some(fingerprint) => command.write_arg_fmt(fingerprint),
        None => command.write_arg(b""),
    }
    let words = |terms: &Terms| {
        let [lease, margin, ttl] = [terms.lease, terms.skew_margin, terms.time_to_live()].map(millis);
        let takes_over = u8::from(terms.takeover == Takeover::Allowed);
        let with_data = u8::from(terms.result_data == ResultData::Include);
        format!("{lease} {margin} {ttl} {takes_over} {RECORD_VERSION} {NEWEST_KNOWN_VERSION} {with_data} {now}")
    };
    command.write_arg(terms.text(Terms::of(request), words).as_bytes());
    command.write_arg(request.operation.as_bytes());
    command.write_arg(request.label.as_deref().unwrap_or_default().as_bytes());
    of_order(request.order(), command);
}

/// The settings that the settles of a call usually share. Their keys, owners and results differ.
#[derive(PartialEq)]
pub(super) struct SettleTerms {
    what: &'static str,
    field: &'static str,
    retention: Duration,
    lease: Duration,
    margin: Duration,
}

/// Adds the arguments of `settle.lua`.
pub(super) fn of_settle(request: &SettleRequest, terms: &mut Repeated<SettleTerms>, now: &str, command: &mut Cmd) {
    const NONE: Duration = Duration::ZERO;
    let (what, [retention, lease, margin]) = match &request.settlement {
        Settlement::Record { outcome, retention, .. } => (Status::from(*outcome).as_str(), [*retention, NONE, NONE]),
        Settlement::Release => ("release", [NONE; 3]),
        Settlement::HandBack => ("hand_back", [NONE; 3]),
        Settlement::Renew { lease, skew_margin, retention } => ("renew", [*retention, *lease, *skew_margin]),
    };
    let (field, value) = result(&request.settlement).unwrap_or(("-", b""));
    let words = |terms: &SettleTerms| {
        let [retention, lease, margin] = [terms.retention, terms.lease, terms.margin].map(millis);
        format!("{} {retention} {lease} {margin} {} {now}", terms.what, terms.field)
    };
    let terms = terms.text(SettleTerms { what, field, retention, lease, margin }, words);
    command.write_arg_fmt(request.owner);
    command.arg(terms).arg(value);
    of_order(request.order(), command);
}

/// The last settings and their text, because the settings within a batch are usually the same.
pub(super) struct Repeated<T>(Option<(T, String)>);

impl<T: PartialEq> Repeated<T> {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    fn text(&mut self, terms: T, write: impl FnOnce(&T) -> String) -> &str {
        let kept = self.0.take().filter(|(last, _)| *last == terms);
        let (_, text) = self.0.insert(kept.unwrap_or_else(|| {
            let text = write(&terms);
            (terms, text)
        }));
        text
    }
}

/// Adds the arguments of `mark.lua`.
fn of_order(order: Option<&Order>, command: &mut Cmd) {
    if let Some(order) = order {
        command.arg(order.sequence.to_digits()).arg(millis(order.retention));
    }
}

/// Adds the arguments of `amend.lua`.
pub(super) fn of_amend(request: &AmendRequest, now: &str, command: &mut Cmd) {
    let AmendRequest { read, skew_margin, amendment, .. } = request;
    let (what, retention) = match amendment {
        Amendment::Settle { outcome, retention, .. } => (Status::from(*outcome).as_str(), *retention),
        Amendment::Forget { .. } => ("forget", Duration::ZERO),
        Amendment::Redact => ("redact", Duration::ZERO),
        Amendment::Release => ("release", Duration::ZERO),
    };
    let (status, attempt) = (read.status.as_str(), read.attempt);
    let sequence = read.sequence.map_or_else(|| "-".to_owned(), |sequence| sequence.to_digits());
    let [margin, retention] = [*skew_margin, retention].map(millis);
    let (field, value) = amended(request);
    command.arg(read.owner.map(|owner| owner.to_hex()).unwrap_or_default());
    command
        .arg(format!("{what} {status} {attempt} {margin} {retention} {NEWEST_KNOWN_VERSION} {field} {sequence} {now}"))
        .arg(value);
    of_order(request.order().as_ref(), command);
}

/// Returns the field that an amendment writes as the result, and its value.
pub(super) fn amended(request: &AmendRequest) -> (&'static str, &[u8]) {
    const NOTHING: (&str, &[u8]) = ("-", b"");
    match &request.amendment {
        Amendment::Settle { result, .. } => field_of(result).unwrap_or(NOTHING),
        Amendment::Forget { .. } | Amendment::Redact | Amendment::Release => NOTHING,
    }
}

/// Returns the field for the result, and its value.
pub(super) fn result(settlement: &Settlement) -> Option<(&'static str, &[u8])> {
    field_of(settlement.result()?)
}

fn field_of(result: &StoredResult) -> Option<(&'static str, &[u8])> {
    match result {
        StoredResult { data: Some(StoredData::Json(text)), .. } => Some(("data", text.as_bytes())),
        StoredResult { data: Some(StoredData::Deflated(bytes)), .. } => Some(("deflated", bytes)),
        StoredResult { data: Some(StoredData::Encoded(data)), .. } => Some(("encoded", data.as_packed())),
        StoredResult { dropped: true, .. } => Some(("result_dropped", b"1")),
        StoredResult { superseded: true, .. } => Some(("superseded", b"1")),
        _ => None,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(MAX_MILLIS)
}
