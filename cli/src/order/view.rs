//! The content of a mark.

use std::time::Duration;

use lambda_once::{
    clock::Timestamp,
    order::{Doubt, Holder, Mark, Sequence},
    record::KeyHash,
};
use serde::Serialize;

use crate::{state::State, time::instant};

/// An operation in doubt, or several that have merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubted {
    /// The greatest sequence of several.
    pub(super) sequence: Sequence,
    /// `None` for several.
    pub(super) key: Option<KeyHash>,
    /// The state of its record. `None` for several, and if it was not read.
    pub(super) record: Option<State>,
}

impl From<Doubt> for Doubted {
    fn from(doubt: Doubt) -> Self {
        Self { sequence: doubt.sequence, key: doubt.key, record: None }
    }
}

/// A mark as JSON. Times are in UTC.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MarkView {
    state: &'static str,
    newest: Option<Sequence>,
    holder: Option<HolderView>,
    in_doubt: Vec<DoubtView>,
    expires_at: String,
}

#[derive(Clone, Debug, Serialize)]
struct HolderView {
    id: String,
    sequence: Sequence,
    lease_until: String,
    is_live: bool,
}

#[derive(Clone, Debug, Serialize)]
struct DoubtView {
    sequence: Sequence,
    /// `null` for several.
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'static str>,
}

impl MarkView {
    /// Returns the view of a mark without the records of its operations in doubt, for audit lines.
    pub(super) fn of(mark: &Mark, margin: Duration, now: Timestamp) -> Self {
        let doubted: Vec<Doubted> = in_doubt(mark, margin, now).into_iter().map(Doubted::from).collect();
        Self::with(mark, &doubted, margin, now)
    }

    pub(super) fn with(mark: &Mark, doubted: &[Doubted], margin: Duration, now: Timestamp) -> Self {
        Self {
            state: Standing::of(Some(mark), margin, now).as_str(),
            newest: mark.newest,
            holder: mark.holder.map(|holder| HolderView {
                id: holder.key.to_hex(),
                sequence: holder.sequence,
                lease_until: instant(holder.lease_until),
                is_live: is_live(&holder, margin, now),
            }),
            in_doubt: doubted
                .iter()
                .map(|one| DoubtView {
                    sequence: one.sequence,
                    id: one.key.map(|key| key.to_hex()),
                    record: one.record.map(State::as_str),
                })
                .collect(),
            expires_at: instant(Timestamp::from_seconds(mark.expiration)),
        }
    }
}

/// The state of the order that an operation of the entity encounters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is no mark.
    Absent,
    /// A live claim holds the entity.
    Held,
    /// Operations are in doubt, and older ones wait.
    InDoubt,
    /// Neither.
    Free,
}

impl Standing {
    pub(super) fn of(mark: Option<&Mark>, margin: Duration, now: Timestamp) -> Self {
        match mark {
            None => Self::Absent,
            Some(mark) if mark.holder.is_some_and(|holder| is_live(&holder, margin, now)) => Self::Held,
            Some(mark) if !in_doubt(mark, margin, now).is_empty() => Self::InDoubt,
            Some(_) => Self::Free,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Held => "held",
            Self::InDoubt => "in doubt",
            Self::Free => "free",
        }
    }
}

/// Returns whether the lease or the margin of the holder has not passed.
pub(super) fn is_live(holder: &Holder, margin: Duration, now: Timestamp) -> bool {
    holder.lease_until >= now.before(margin)
}

/// Returns the operations in doubt by their sequences: the entries of the mark, and the operation of a holder that has lapsed, unless a
/// newer one has completed.
pub(super) fn in_doubt(mark: &Mark, margin: Duration, now: Timestamp) -> Vec<Doubt> {
    let lapsed = mark.holder.filter(|holder| !is_live(holder, margin, now) && Some(holder.sequence) > mark.newest);
    let lapsed = lapsed.map(|holder| Doubt { key: Some(holder.key), sequence: holder.sequence });
    let mut doubts = mark.doubt.clone();
    doubts.extend(lapsed.filter(|lapsed| !mark.doubt.contains(lapsed)));
    doubts.sort_by_key(|doubt| doubt.sequence);
    doubts
}
