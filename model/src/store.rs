//! The store: applies one request by the library's rules, or by those rules with a bug.

use lambda_once::{
    record::Record as LibraryRecord,
    store::{
        ClaimRequest, Claimed, FinalStatus, Refusal, ResultData, SettleRequest, Settled, Settlement, Takeover,
        amend::{AmendRequest, Amended, Amendment, AsRead},
        ordering,
        rules::{self, Change as Applied},
    },
};

use crate::{
    bugs::Bug,
    convert::{
        MOST_DOUBT, at, duration, fingerprint, from_library, key_hash, mark_from_library, mark_to_library, operation,
        result, to_library, token,
    },
    state::{
        Answer, BY_OPERATOR, Change, Key, Mark, Message, NOBODY, Record, Request, Settle, State, Status, Time, position,
    },
    system::System,
    world::{Clock, Event, Policy},
};

/// The reason why the library's rules return no error.
const KNOWN: &str = "the model writes only what the library's rules know";

/// The skew margin.
pub(crate) const MARGIN: u8 = 1;

impl System {
    /// Applies a request, and returns the store's result.
    pub(crate) fn apply(&self, state: &mut State, message: &Message, events: &mut u64) -> Answer {
        let before = state.records[usize::from(message.key)];
        let mark = state.mark.as_ref().filter(|_| message.request == Request::Claim).cloned();
        let answer = match message.request {
            Request::Claim => self.claim(state, message, events),
            Request::Insert if before.is_some() => Answer::Refused,
            Request::Insert => self.claim(state, message, events),
            Request::Select | Request::Read => Answer::Found(before),
            Request::Update { read } => self.update(state, message, &read, events),
            Request::Settle(settle) => self.settle(state, message, settle, events),
            Request::Commit { claims } => self.commit(state, message, claims, events),
            Request::Amend { change, read } => self.amend(state, message, change, &read, events),
        };
        self.check_write(state, message, before, answer);
        if self.world.is_ordered {
            self.check_entity(state, message, before, mark.as_ref(), answer);
        }
        answer
    }

    /// Returns the time at which the request is judged.
    pub(crate) fn judged_at(&self, state: &State, message: &Message) -> Time {
        match self.world.clock {
            Clock::Sender => message.sent,
            Clock::Store => state.now,
        }
    }

    fn claim_request(&self, message: &Message) -> ClaimRequest {
        ClaimRequest {
            key: key_hash(message.key),
            fingerprint: fingerprint(message.payload),
            owner: token(message.owner),
            lease: duration(message.lease.saturating_sub(message.sent)),
            skew_margin: duration(if self.has(Bug::L3Margin) { 0 } else { MARGIN }),
            retention: duration(self.world.retention.0),
            takeover: match self.world.policy {
                Policy::Refuse if !self.has(Bug::C7Refuse) => Takeover::Refused,
                _ => Takeover::Allowed,
            },
            result_data: ResultData::Include,
            order: self.order(message.key),
            operation: operation(),
            label: None,
        }
    }

    /// Judges a record as a worker of a batch does between the steps of its claim.
    pub(crate) fn judge(&self, record: &Record, message: &Message, now: Time) -> rules::Judgement {
        let seen = self.seen_by_claim(*record, message, now);
        rules::judge(&self.library(&seen, message.key), &self.claim_request(message), at(now)).expect(KNOWN)
    }

    fn library(&self, record: &Record, key: Key) -> LibraryRecord {
        to_library(record, self.world.is_ordered.then(|| position(key)))
    }

    fn claim(&self, state: &mut State, message: &Message, events: &mut u64) -> Answer {
        let now = self.judged_at(state, message);
        let before = state.records[usize::from(message.key)];
        let mut request = self.claim_request(message);
        if self.has(Bug::C6Live) {
            request.takeover = Takeover::Allowed;
        }
        let seen = before.map(|record| self.library(&self.seen_by_claim(record, message, now), message.key));
        let mark = state.mark.clone();
        let judged = mark.as_ref().map(|mark| mark_to_library(&self.mark_seen_by_claim(mark, message, now), false));
        let (change, new_mark, claimed) =
            ordering::claim(seen.as_ref(), judged.as_ref(), &request, at(now)).expect(KNOWN);
        let grant = match claimed {
            Claimed::Granted(grant) => grant,
            Claimed::Refused(refusal) => return refused(&refusal, events),
        };
        let mut took_over = grant.took_over();
        if let Applied::Put(record) = change {
            let mut record = from_library(&record);
            self.after_claim(before, &mut record, now);
            took_over = record.prior == Some(Status::InProgress);
            state.records[usize::from(message.key)] = Some(record);
            if let Some(before) = before {
                if before.expiration <= now {
                    *events |= Event::Expired.bit();
                    state.histories[usize::from(message.key)].end();
                }
                if before.released > 0 && before.released == before.attempt {
                    *events |= Event::Released.bit();
                }
            }
            if let Some(new_mark) = new_mark {
                let judged = mark.as_ref().map(|mark| self.mark_seen_by_claim(mark, message, now));
                let mut new_mark = mark_from_library(&new_mark);
                if let Some(full) = judged.filter(|mark| mark.doubt.len() >= MOST_DOUBT) {
                    new_mark.doubt = merged_doubt(&full, request, now);
                }
                if new_mark.doubt.iter().any(|(key, _)| key.is_none()) {
                    *events |= Event::Merged.bit();
                }
                self.after_claim_of_mark(mark.as_ref(), &mut new_mark, now);
                state.mark = Some(new_mark);
                state.runs.granted(message.key, message.owner, record.lease);
            }
        } else {
            *events |= Event::OwnClaim.bit();
            if self.has(Bug::C5History) {
                took_over = false;
            }
        }
        if took_over {
            *events |= Event::TookOver.bit();
        }
        Answer::Granted { lease: grant.lease_until.seconds_rounded_down().try_into().unwrap_or(0), took_over }
    }

    /// Replaces the record that was read, if it is unchanged and may still be replaced.
    fn update(&self, state: &mut State, message: &Message, read: &Record, events: &mut u64) -> Answer {
        let (key, now) = (usize::from(message.key), self.judged_at(state, message));
        let Some(found) = state.records[key] else { return Answer::Found(None) };
        let is_as_read = (found.status, found.attempt) == (read.status, read.attempt);
        let is_expired = read.expiration <= now && (found.expiration <= now || self.has(Bug::C1Update));
        let is_lapsed = read.expiration > now
            && found.lease + MARGIN < now
            && found.payload == read.payload
            && (self.world.policy != Policy::Refuse || found.released == read.attempt);
        let may_replace = match self.bug {
            Some(Bug::C7UpdateAsRead) => (found.owner, found.attempt) == (read.owner, read.attempt),
            Some(Bug::C7UpdateLease) => is_as_read,
            _ => is_as_read && (is_expired || is_lapsed),
        };
        if !may_replace {
            *events |= Event::Changed.bit();
            return Answer::Found(Some(found));
        }
        // The statement is applied whatever the rules say.
        state.records[key] = Some(Record { released: found.released, ..*read });
        match self.claim(state, message, events) {
            granted @ Answer::Granted { .. } => granted,
            _ => {
                state.records[key] = Some(found);
                Answer::Found(Some(found))
            }
        }
    }

    fn settle_request(&self, message: &Message, settle: Settle) -> SettleRequest {
        let retention = duration(self.world.retention.1);
        SettleRequest {
            key: key_hash(message.key),
            owner: token(message.owner),
            fingerprint: fingerprint(message.payload),
            settlement: match settle {
                Settle::Complete { value } => Settlement::complete(result(value), retention),
                Settle::Fail => Settlement::fail(result(message.owner), retention),
                Settle::Release => Settlement::Release,
                Settle::HandBack => Settlement::HandBack,
                Settle::Renew => Settlement::Renew {
                    lease: duration(message.lease.saturating_sub(message.sent)),
                    skew_margin: duration(MARGIN),
                    retention: duration(self.world.retention.0),
                },
            },
            order: self.order(message.key),
        }
    }

    fn settle(&self, state: &mut State, message: &Message, settle: Settle, events: &mut u64) -> Answer {
        let (key, now) = (usize::from(message.key), self.judged_at(state, message));
        let before = state.records[key];
        let request = self.settle_request(message, settle);
        let seen = self.seen_by_settle(before, message, settle, now);
        let seen = seen.map(|record| self.library(&record, message.key));
        let mark =
            state.mark.as_ref().map(|mark| mark_to_library(&self.mark_seen_by_settle(mark, message, settle), false));
        let (change, new_mark, settled) =
            ordering::settle(Ok(seen.clone()), mark.as_ref(), &request, at(now)).expect(KNOWN);
        match &change {
            Applied::Keep => {}
            Applied::Put(record) => {
                let mut record = from_library(record);
                self.after_settle(before, &mut record, message, settle, now);
                if record.released == record.attempt && before.is_some_and(|before| before.released < record.released) {
                    *events |= Event::PassedOn.bit();
                }
                state.records[key] = Some(record);
            }
            Applied::Delete => state.records[key] = None,
        }
        // Without a mark that lives, only a completion changes anything (G4).
        let keeps_mark = state.mark.as_ref().is_some_and(|mark| mark.expiration > now);
        let changes_entity = keeps_mark || matches!(settle, Settle::Complete { .. });
        if let (true, Applied::Put(record), Settle::Renew) = (self.world.is_ordered, &change, settle) {
            state.runs.renewed(message.key, message.owner, from_library(record).lease);
        } else if self.world.is_ordered && change != Applied::Keep && changes_entity {
            let outcome = match settle {
                Settle::Complete { .. } => Some(Status::Completed),
                Settle::Fail => Some(Status::Failed),
                _ => None,
            };
            state.runs.settled(message.key, message.owner, outcome);
        }
        if let Some(mark) = new_mark {
            let mut mark = mark_from_library(&mark);
            self.after_settle_of_mark(state.mark.as_ref(), &mut mark, message, settle, now);
            state.mark = Some(mark);
        }
        match settled {
            Settled::Renewed { .. } => {
                *events |= Event::Renewed.bit();
                Answer::Renewed
            }
            Settled::Done { .. } if change != Applied::Keep => {
                if settle == Settle::HandBack {
                    *events |= Event::HandedBack.bit();
                }
                Answer::Done { found: None }
            }
            Settled::Done { .. }
                if self.has(Bug::S2Outcome) && !matches!(settle, Settle::Release | Settle::HandBack) =>
            {
                Answer::Lost { current: before }
            }
            Settled::Done { .. } => {
                *events |= Event::AppliedBefore.bit();
                Answer::Done { found: before.filter(|_| !self.has(Bug::S2Hides)) }
            }
            Settled::LeaseLost { .. } => {
                if settle == Settle::Renew {
                    *events |= Event::Refused.bit();
                }
                Answer::Lost { current: before }
            }
        }
    }

    /// Commits the effect and the outcome together, or nothing.
    fn commit(&self, state: &mut State, message: &Message, claims: bool, events: &mut u64) -> Answer {
        let (key, now) = (usize::from(message.key), self.judged_at(state, message));
        let (before, mark, runs) = (state.records[key], state.mark.clone(), state.runs);
        if claims {
            let is_mine = before.is_some_and(|record| record.owner == message.owner);
            if is_mine && before.is_some_and(|record| record.status != Status::InProgress) {
                *events |= Event::AppliedBefore.bit();
                return Answer::Done { found: before };
            }
            if !matches!(self.claim(state, message, events), Answer::Granted { .. }) {
                return Answer::Lost { current: before };
            }
        } else if self.world.is_ordered && !self.may_commit(state, message, now) {
            return Answer::Lost { current: before };
        }
        let answer = self.settle(state, message, Settle::Complete { value: message.owner }, events);
        match answer {
            Answer::Done { found: None } => {
                self.effect(state, (message.owner, message.key, message.payload), false, true);
            }
            _ => (state.records[key], state.mark, state.runs) = (before, mark, runs),
        }
        answer
    }

    /// Returns whether the claim holds the entity, and nothing newer was completed (G3, G1).
    fn may_commit(&self, state: &State, message: &Message, now: Time) -> bool {
        let Some(mark) = state.mark.as_ref().filter(|mark| mark.expiration > now) else { return false };
        let is_held = mark.holder.is_some_and(|holder| holder.owner == message.owner);
        let is_newest = mark.newest.is_none_or(|newest| newest < position(message.key));
        (is_held || self.has(Bug::G3Commit)) && (is_newest || self.has(Bug::G1Commit))
    }

    fn amend(&self, state: &mut State, message: &Message, change: Change, read: &Record, events: &mut u64) -> Answer {
        let (key, now) = (usize::from(message.key), self.judged_at(state, message));
        let Some(before) = state.records[key] else { return Answer::Refused };
        let seen = self.library(&self.seen_by_amendment(before), message.key);
        let as_read = self.library(read, message.key);
        let as_read = AsRead::of(if self.has(Bug::O1AsRead) { &seen } else { &as_read });
        let request = AmendRequest {
            key: key_hash(message.key),
            read: as_read,
            skew_margin: duration(if self.has(Bug::O3Margin) { 0 } else { MARGIN }),
            amendment: match change {
                Change::Forget => Amendment::Forget { completed: self.has(Bug::O4Completed) },
                Change::Settle(took_effect) => Amendment::Settle {
                    outcome: if took_effect { FinalStatus::Completed } else { FinalStatus::Failed },
                    result: result(BY_OPERATOR),
                    retention: duration(self.world.retention.1),
                },
                Change::Release => Amendment::Release,
                Change::Redact => Amendment::Redact,
            },
        };
        let mark = state.mark.as_ref().map(|mark| mark_to_library(mark, false));
        let amended = ordering::amend(Some(&seen), mark.as_ref(), &request, at(now));
        // The operator has not read this record, so its request may contradict it.
        if self.has(Bug::O1AsRead) && amended.is_err() {
            return Answer::Refused;
        }
        let (applied, new_mark, amended) = amended.expect(KNOWN);
        if amended != Amended::Changed {
            *events |= Event::Unchanged.bit();
            return Answer::Refused;
        }
        let history = &mut state.histories[key];
        match applied {
            Applied::Keep => return Answer::Done { found: Some(before) },
            Applied::Delete => {
                state.records[key] = None;
                if before.status != Status::Completed {
                    history.end();
                }
                *events |= Event::Forgotten.bit();
            }
            Applied::Put(record) => {
                let mut record = from_library(&record);
                self.after_amendment(&before, &mut record, change);
                if change == Change::Release && record.released != before.released {
                    history.permits += 1;
                }
                if let (true, Change::Settle(took_effect)) = (self.world.is_ordered, change) {
                    let outcome = if took_effect { Status::Completed } else { Status::Failed };
                    state.runs.settled(message.key, before.owner, Some(outcome));
                }
                *events |= match change {
                    Change::Settle(_) => Event::SettledBy.bit(),
                    Change::Redact => Event::Redacted.bit(),
                    _ => 0,
                };
                state.records[key] = Some(record);
            }
        }
        if let Some(mark) = new_mark.filter(|_| !self.has(Bug::O5Mark)) {
            state.mark = Some(mark_from_library(&mark));
        }
        Answer::Done { found: None }
    }

    /// Deletes an expired record, as TTL or a purge does.
    pub(crate) fn purge(&self, state: &mut State, key: usize) {
        state.records[key] = None;
        state.histories[key].end();
    }

    /// Returns whether a record may be deleted as expired, by a clock that is ahead by the margin if senders' clocks
    /// decide.
    pub(crate) fn may_purge(&self, state: &State, key: usize) -> bool {
        let ahead = if self.world.clock == Clock::Sender { MARGIN } else { 0 };
        state.records[key].is_some_and(|record| record.expiration <= state.now + ahead)
    }
}

/// Returns the operations in doubt after a claim of a mark that lists as many as the model's may. It is filled up, so
/// that the library merges. The claim is made newer than what fills it up.
fn merged_doubt(full: &Mark, mut request: ClaimRequest, now: Time) -> Vec<(Option<Key>, u8)> {
    if let Some(order) = &mut request.order {
        order.sequence = u64::MAX.into();
    }
    let filled = mark_to_library(full, true);
    let (_, mark, _) = ordering::claim(None, Some(&filled), &request, at(now)).expect(KNOWN);
    mark_from_library(&mark.expect("the claim is granted")).doubt
}

/// Returns the refusal of a claim.
pub(crate) fn refused(refusal: &Refusal, events: &mut u64) -> Answer {
    let (answer, event) = match refusal {
        Refusal::Completed(record) => return Answer::Completed(from_library(record)),
        Refusal::Failed(record) => return Answer::Failed(from_library(record)),
        Refusal::InProgress { lease_until: None, .. } => (Answer::InProgress, Event::InDoubt),
        Refusal::InProgress { .. } => (Answer::InProgress, Event::InProgress),
        Refusal::Abandoned { .. } => (Answer::Abandoned, Event::Abandoned),
        Refusal::Mismatch(_) => (Answer::Mismatch, Event::Mismatch),
        Refusal::Superseded { .. } => (Answer::Superseded, Event::Superseded),
    };
    *events |= event.bit();
    answer
}

/// Returns whether the claim on a record has lapsed, by the rule itself.
pub(crate) fn has_lapsed(record: &Record, now: Time) -> bool {
    record.status == Status::InProgress && (record.owner == NOBODY || record.lease + MARGIN < now)
}
