//! Lists records with one `SCAN` of the keys or one `ZSCAN` of the index per page, and reads of the records that it finds.

use redis::{Cmd, Value};

use super::{RedisStore, arguments::IndexName, error, failure::Failure, record};
use crate::{
    clock::Timestamp,
    error::Error,
    record::KeyHash,
    store::{
        ResultData,
        listing::{Cursor, ListRequest, ListedRecord, Page},
    },
};

const LIST: &str = "list";

/// Start of a scan: the first slot of a primary, and the cursor on it. On a single server the slot is unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u16,
    pub(super) cursor: u64,
}

/// The replies of a primary.
pub(super) struct Scanned {
    pub(super) answers: Vec<Value>,
    /// The primary's first slot.
    pub(super) slot: u16,
    /// The first slot of the primary after it, if there is one.
    pub(super) next_node: Option<u16>,
}

impl Place {
    fn read(cursor: &Cursor) -> Option<Self> {
        let (slot, cursor) = cursor.as_str().split_once(' ')?;
        Some(Self { slot: slot.parse().ok()?, cursor: cursor.parse().ok()? })
    }
}

impl RedisStore {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<Page, Error> {
        let place = match &request.after {
            Some(cursor) => Place::read(cursor).ok_or_else(Cursor::unreadable)?,
            None => Place::default(),
        };
        let failed = |failure: Failure| failure.into_error(LIST);
        let scan = self.scan(place.cursor, request.reads());
        let scanned = self.link.scan(place.slot, vec![redis::cmd("TIME"), scan]).await.map_err(failed)?;
        let Scanned { answers, slot, next_node } = scanned;
        // A cursor belongs to one primary. After the slot has moved to another primary, the page would skip some of its
        // keys.
        if place.cursor != 0 && slot != place.slot {
            return Err(Cursor::unreadable());
        }
        let [time, scanned] = <[Value; 2]>::try_from(answers).map_err(|_| error::unexpected(LIST))?;
        let now = match &self.clock {
            Some(clock) => clock.now(),
            None => {
                let (seconds, micros): (u64, u64) =
                    redis::from_redis_value(time).map_err(|_| error::unexpected(LIST))?;
                Timestamp::from_millis(seconds * 1_000 + micros / 1_000)
            }
        };
        let (cursor, names): (String, Vec<String>) =
            redis::from_redis_value(scanned).map_err(|_| error::unexpected(LIST))?;
        let cursor: u64 = cursor.parse().map_err(|_| error::unexpected(LIST))?;
        let next = match cursor {
            0 => next_node.map(|slot| Place { slot, cursor: 0 }),
            cursor => Some(Place { slot, cursor }),
        };
        // An entry of the index is followed by its score, which is no name.
        let keys: Vec<KeyHash> =
            names.iter().filter_map(|name| key_of(name.strip_prefix(&*self.key_prefix)?)).collect();
        let mut records = Vec::new();
        for (key, answer) in keys.iter().zip(self.read_fields(&keys, ResultData::Omit).await) {
            // A key of a different type, or a record in an unreadable format, is left out. Any other error fails the
            // page.
            let record = match answer {
                Err(failure) if failure.error.code() == Some("WRONGTYPE") => continue,
                answer => record::record(answer.map_err(failed)?, LIST).ok().flatten(),
            };
            let record = record.filter(|record| request.includes(record, now));
            records.extend(record.map(|record| ListedRecord { key: *key, record }));
        }
        let next = next.map(|place| Cursor::new(format!("{} {}", place.slot, place.cursor)));
        Ok(Page { records, read: keys.len() as u64, next })
    }

    /// Both commands return each element that is there from the first call to the last, and a small set as a whole.
    fn scan(&self, cursor: u64, count: u32) -> Cmd {
        let mut scan = Cmd::new();
        if self.has_listing_index {
            scan.arg("ZSCAN").arg(IndexName { prefix: &self.key_prefix }).arg(cursor);
        } else {
            scan.arg("SCAN").arg(cursor).arg("MATCH").arg(format!("{}{{*}}*", escaped(&self.key_prefix)));
        }
        scan.arg("COUNT").arg(count);
        scan
    }
}

/// Returns the key of a record with this name, or `None` for a mark.
fn key_of(name: &str) -> Option<KeyHash> {
    let (slot, rest) = name.strip_prefix('{')?.split_once('}')?;
    if slot.len() == rest.len() { KeyHash::from_hex(&[slot, rest].concat()) } else { None }
}

/// Returns a pattern that matches only this text.
fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let is_special = matches!(character, '*' | '?' | '[' | ']' | '\\');
            is_special.then_some('\\').into_iter().chain([character])
        })
        .collect()
}

/// Returns the first slot of each primary, in order, from the reply to `CLUSTER SLOTS`.
#[cfg(feature = "redis-cluster")]
pub(super) fn first_slots(answer: Value) -> Option<Vec<u16>> {
    let Value::Array(ranges) = answer else { return None };
    let mut first = std::collections::BTreeMap::new();
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(begin), Value::Int(_), Value::Array(primary), ..] = &parts[..] else { return None };
        // Host and port.
        let address = format!("{:?}", primary.get(..2)?);
        let begin = u16::try_from(*begin).ok()?;
        let slot: &mut u16 = first.entry(address).or_insert(begin);
        *slot = begin.min(*slot);
    }
    let mut slots: Vec<u16> = first.into_values().collect();
    slots.sort_unstable();
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_matched_as_it_is_written() {
        assert_eq!(escaped(r"a*[b]?\:"), r"a\*\[b\]\?\\:");
    }

    #[test]
    fn only_records_have_a_key() {
        let half = "ab".repeat(16);
        assert_eq!(key_of(&format!("{{{half}}}{half}")), KeyHash::from_hex(&half.repeat(2)));
        let unequal = format!("{{{half}a}}{}", &half[1..]);
        for name in [format!("{{{half}}}mark"), unequal, half.repeat(2), String::new()] {
            assert_eq!(key_of(&name), None, "{name}");
        }
    }
}
