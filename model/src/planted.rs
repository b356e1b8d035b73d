//! Plants bugs in the library's rules, by changing the input or the output of a rule.

use crate::{
    bugs::Bug,
    state::{Change, Mark, Message, Record, Settle, Status, Time, position},
    store::{MARGIN, has_lapsed},
    system::System,
};

/// A token of nobody in the model.
const STRANGER: u8 = 255;

impl System {
    /// Returns the record as the rules for claims see it.
    pub(crate) fn seen_by_claim(&self, record: Record, message: &Message, now: Time) -> Record {
        let mut seen = record;
        let is_open = record.status == Status::InProgress;
        match self.bug {
            Some(Bug::C1Expired) => seen.expiration = Time::MAX,
            Some(Bug::C2Payload) => seen.payload = message.payload,
            Some(Bug::C2Takeover) if has_lapsed(&record, now) => seen.payload = message.payload,
            Some(Bug::C3Completed) if record.status == Status::Completed => seen.expiration = 0,
            Some(Bug::C4Failed) if record.status == Status::Failed => seen.expiration = 0,
            Some(Bug::C5Own | Bug::C5Order) if is_open && record.owner == message.owner => seen.owner = STRANGER,
            Some(Bug::C7Released) => seen.released = 0,
            Some(Bug::C6Live) if is_open && record.owner != message.owner => seen.lease = 0,
            _ => {}
        }
        seen
    }

    /// Bends the record that a claim has written.
    pub(crate) fn after_claim(&self, before: Option<Record>, record: &mut Record, now: Time) {
        match self.bug {
            Some(Bug::C8Prior) => record.prior = None,
            Some(Bug::C8Expired)
                if before.is_some_and(|before| before.status == Status::InProgress && before.expiration <= now) =>
            {
                record.prior = Some(Status::InProgress);
            }
            Some(Bug::L4Lease) => record.expiration = now + self.world.retention.0,
            Some(Bug::L4Round) => record.expiration = record.expiration.min(record.lease + MARGIN),
            Some(Bug::O7Later) if before.is_some_and(|before| before.released > 0) => record.released = record.attempt,
            _ => {}
        }
    }

    /// Returns the mark as the rules for claims see it.
    pub(crate) fn mark_seen_by_claim(&self, mark: &Mark, message: &Message, now: Time) -> Mark {
        let mut seen = mark.clone();
        match (self.bug, &mut seen.holder) {
            (Some(Bug::G1Newest), _) => seen.newest = None,
            (Some(Bug::G2Live), Some(holder)) => holder.lease = 0,
            (Some(Bug::G2Older), Some(holder))
                if holder.lease + MARGIN < now && position(message.key) < holder.sequence =>
            {
                seen.holder = None;
            }
            _ => {}
        }
        seen
    }

    /// Bends the mark that a claim has written.
    pub(crate) fn after_claim_of_mark(&self, before: Option<&Mark>, mark: &mut Mark, now: Time) {
        match self.bug {
            Some(Bug::G1Newest) => mark.newest = before.and_then(|before| before.newest),
            Some(Bug::G2Doubt) => mark.doubt = before.map(|before| before.doubt.clone()).unwrap_or_default(),
            Some(Bug::G2Older) => {
                if let Some(holder) = before.and_then(|before| before.holder)
                    && mark.doubt.iter().all(|(key, _)| *key != Some(holder.key))
                {
                    mark.doubt.push((Some(holder.key), holder.sequence));
                }
            }
            Some(Bug::G2Merge) => {
                let lowest = before.and_then(|before| before.doubt.iter().map(|(_, sequence)| *sequence).min());
                for (key, sequence) in &mut mark.doubt {
                    if key.is_none() {
                        *sequence = lowest.unwrap_or(*sequence).min(*sequence);
                    }
                }
            }
            Some(Bug::G4Claim) => {
                mark.expiration = before.map_or(now + self.world.lease + 1, |before| before.expiration)
            }
            _ => {}
        }
    }

    /// Returns the record as the rules for settles see it.
    pub(crate) fn seen_by_settle(
        &self,
        record: Option<Record>,
        message: &Message,
        settle: Settle,
        now: Time,
    ) -> Option<Record> {
        let is_outcome = matches!(settle, Settle::Complete { .. } | Settle::Fail);
        let is_release = matches!(settle, Settle::Release | Settle::HandBack);
        let Some(mut seen) = record else {
            // The earlier record of the claim.
            let creates = self.has(Bug::S1Creates) && is_outcome;
            return creates.then(|| Record { owner: message.owner, ..Self::claimed_record(message, now) });
        };
        match self.bug {
            Some(Bug::S1Owner) if is_outcome => seen.owner = message.owner,
            Some(Bug::S1Status) if is_outcome => seen.status = Status::InProgress,
            Some(Bug::S3Release) if is_release => seen.owner = message.owner,
            Some(Bug::S9Delete | Bug::S9Late) if settle == Settle::Release => seen.prior = None,
            Some(Bug::L5Revives) if settle == Settle::Renew => seen.lease = seen.lease.max(now),
            _ => {}
        }
        Some(seen)
    }

    /// Returns the mark as the rules for settles see it.
    pub(crate) fn mark_seen_by_settle(&self, mark: &Mark, message: &Message, settle: Settle) -> Mark {
        let mut seen = mark.clone();
        if let (Some(Bug::G3Renewal), Settle::Renew, Some(holder)) = (self.bug, settle, &mut seen.holder) {
            holder.owner = message.owner;
        }
        seen
    }

    fn claimed_record(message: &Message, now: Time) -> Record {
        Record {
            status: Status::InProgress,
            owner: message.owner,
            attempt: 1,
            prior: None,
            lease: now,
            expiration: Time::MAX,
            payload: message.payload,
            value: 0,
            released: 0,
        }
    }

    /// Bends the record that a settle has written.
    pub(crate) fn after_settle(
        &self,
        before: Option<Record>,
        record: &mut Record,
        message: &Message,
        settle: Settle,
        now: Time,
    ) {
        match (self.bug, settle) {
            (Some(Bug::L5Lowers), Settle::Renew) => record.lease = now + message.lease.saturating_sub(message.sent),
            (Some(Bug::L4Renewal), Settle::Renew) => {
                record.expiration = before.map_or(record.expiration, |before| before.expiration);
            }
            (Some(Bug::S9Owner), Settle::HandBack) => record.owner = message.owner,
            (Some(Bug::S9PassOn), Settle::HandBack) => {
                record.released = before.map_or(record.released, |before| before.released);
            }
            _ => {}
        }
    }

    /// Bends the mark that a settle has written.
    pub(crate) fn after_settle_of_mark(
        &self,
        before: Option<&Mark>,
        mark: &mut Mark,
        message: &Message,
        settle: Settle,
        now: Time,
    ) {
        let at = position(message.key);
        let held = before.and_then(|before| before.newest);
        match (self.bug, settle) {
            (Some(Bug::G2Release), Settle::Release | Settle::HandBack) => {
                mark.doubt.retain(|(key, _)| *key != Some(message.key));
            }
            (Some(Bug::G2Renewal), Settle::Renew) => mark.holder = before.and_then(|before| before.holder),
            (Some(Bug::G2MergedKey), Settle::Fail) => mark.doubt.retain(|(key, _)| key.is_some()),
            (Some(Bug::G2FailsAll), Settle::Fail) => mark.doubt.clear(),
            (Some(Bug::G2LowerEnds), Settle::Complete { .. }) => mark.doubt.clear(),
            (Some(Bug::G3Newest), Settle::Complete { .. }) => mark.newest = held,
            (Some(Bug::G3Lowers), Settle::Complete { .. }) => mark.newest = Some(at),
            (Some(Bug::G3Renewal), Settle::Renew) => {
                if let Some(before) =
                    before.filter(|mark| mark.holder.is_some_and(|holder| holder.owner != message.owner))
                {
                    *mark = before.clone();
                }
            }
            (Some(Bug::G2Ends), Settle::Complete { .. }) => {
                mark.doubt = before.map(|before| before.doubt.clone()).unwrap_or_default();
            }
            (Some(Bug::G3Keeps), Settle::Complete { .. } | Settle::Fail | Settle::Release | Settle::HandBack) => {
                mark.holder = before.and_then(|before| before.holder);
            }
            (Some(Bug::G3Frees), _) => mark.holder = None,
            (Some(Bug::G4Settle), Settle::Complete { .. } | Settle::Fail) => {
                mark.expiration = before.map_or(now + 1, |before| before.expiration.min(now + 1));
            }
            _ => {}
        }
    }

    /// Returns the record as the rules for amendments see it.
    pub(crate) fn seen_by_amendment(&self, record: Record) -> Record {
        let mut seen = record;
        match self.bug {
            Some(Bug::O2Expired) => seen.expiration = Time::MAX,
            Some(Bug::O3Stands) => seen.lease = 0,
            _ => {}
        }
        seen
    }

    /// Bends the record that an amendment has written.
    pub(crate) fn after_amendment(&self, before: &Record, record: &mut Record, change: Change) {
        match (self.bug, change) {
            (Some(Bug::O3Stands), _) => record.lease = before.lease,
            (Some(Bug::O5Owner), Change::Settle(_)) => record.owner = before.owner,
            (Some(Bug::O6Payload), Change::Redact) => record.payload = 0,
            _ => {}
        }
    }
}
