//! Decides which messages a redrive moves, and reads the queue to show the decisions first.

use std::{collections::HashSet, fmt};

use anyhow::Result;
use lambda_once::clock::{Clock, SystemClock, Timestamp};

use super::{Target, examine::Examined, is_selected, queue::Queue, reader::Reader, refusal::Refusal, survey};
use crate::args::DlqRedrive;

/// The decision on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Move,
    Unselected,
    /// It is selected, and an earlier message of its group stays.
    Behind,
    Refused(Refusal),
}

/// The rules of a pass over the queue.
pub(super) struct Rules<'a> {
    pub(super) redrive: &'a DlqRedrive,
    pub(super) to: &'a Queue,
    /// The ids of the messages that the operator has seen. `None` if nobody was asked.
    pub(super) confirmed: Option<HashSet<String>>,
}

impl Rules<'_> {
    /// Returns the largest number of messages to move.
    pub(super) fn limit(&self) -> usize {
        let limit = self.redrive.filter.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        self.confirmed.as_ref().map_or(limit, HashSet::len)
    }

    /// Decides on a message. One that is not moved stays in the queue, and holds its group.
    pub(super) fn decide(
        &self,
        examined: &Examined,
        has_room: bool,
        reader: &mut Reader<'_>,
        now: Timestamp,
    ) -> Verdict {
        let id = &examined.message.id;
        let is_confirmed = self.confirmed.as_ref().is_none_or(|ids| ids.contains(id));
        let verdict = if !has_room || !is_confirmed || !is_selected(examined, &self.redrive.filter, now) {
            Verdict::Unselected
        } else if reader.is_behind(examined) {
            Verdict::Behind
        } else {
            Refusal::of(examined, self.redrive, self.to).map_or(Verdict::Move, Verdict::Refused)
        };
        if verdict != Verdict::Move {
            reader.keep(&examined.message);
        }
        verdict
    }
}

/// The effect of a redrive, which is printed before it begins.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The selected messages.
    pub(super) selected: Vec<Examined>,
    /// The ids of those that would be moved.
    pub(super) moved: HashSet<String>,
    refused: Vec<Refusal>,
    behind: usize,
    pub(super) is_interrupted: bool,
}

impl Plan {
    /// Reads the queue, and leaves all messages in it.
    ///
    /// # Errors
    ///
    /// Returns the errors of SQS and of the store.
    pub(super) async fn make(rules: &Rules<'_>, target: &Target) -> Result<Self> {
        let (mut plan, limit) = (Self::default(), rules.limit());
        let is_interrupted = survey(&rules.redrive.dlq, target, |reader, received| {
            let now = SystemClock.now();
            for examined in received {
                match rules.decide(&examined, plan.moved.len() < limit, reader, now) {
                    Verdict::Unselected => continue,
                    Verdict::Move => _ = plan.moved.insert(examined.message.id.clone()),
                    Verdict::Behind => plan.behind += 1,
                    Verdict::Refused(why) => plan.refused.push(why),
                }
                plan.selected.push(examined);
            }
            plan.moved.len() < limit
        });
        plan.is_interrupted = is_interrupted.await?;
        Ok(plan)
    }
}

/// Prints the numbers of messages that stay in the queue, and the reasons.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.refused.first() {
            write!(f, ", {} refused: {why}", self.refused.len())?;
        }
        if self.behind > 0 {
            write!(f, ", {} left {BEHIND}", self.behind)?;
        }
        Ok(())
    }
}

/// The reason that messages of a FIFO queue stay.
pub(super) const BEHIND: &str = "behind an earlier message of the group";
