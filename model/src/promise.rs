//! The promises of the protocol, checked at each step that could break one.

use crate::{
    state::{
        Answer, Change, History, Key, MOST, Mark, Message, Owner, Phase, Record, Request, Settle, State, Status, Time,
        Worker, position,
    },
    store::{MARGIN, has_lapsed},
    system::System,
    world::{Clock, Policy},
};

/// The promises that restate a rule. A bug against that rule always breaks them, so they do not show that the rule is needed.
const RULES: &[&str] = &[
    "only a claim creates a record",
    "an expired record refuses no claim",
    "no claim takes over from another payload",
    "no claim is refused because of itself",
    "a lapsed claim blocks no other",
    "no renewal revives a lapsed claim",
    "a late request holds the key no longer than it may",
    "an amendment changes only the record that was read",
    "no amendment changes an expired record",
    "an operator never changes a claim that stands",
    "nothing stays in doubt at or below a completion",
    "only a completed operation supersedes a claim",
    "a claim of an order waits only for one that stands or a newer one in doubt",
];

/// Returns whether a promise restates a rule.
pub(crate) fn is_rule(promise: &str) -> bool {
    RULES.contains(&promise)
}

impl System {
    /// Checks a request that was applied to the record.
    pub(crate) fn check_write(&self, state: &mut State, message: &Message, before: Option<Record>, answer: Answer) {
        let now = self.judged_at(state, message);
        let after = state.records[usize::from(message.key)];
        let claims = match message.request {
            Request::Claim | Request::Insert | Request::Update { .. } => true,
            Request::Commit { claims } => claims,
            _ => false,
        };
        if before.is_none() && after.is_some() && !claims {
            state.broken("only a claim creates a record");
        }
        if let Some(before) = before {
            self.check_change(state, message, &before, now);
        }
        if claims && matches!(answer, Answer::Granted { .. }) {
            let takes_over = after.is_some_and(|record| record.prior == Some(Status::InProgress));
            let counts = |before: Record| before.expiration > now || takes_over;
            if before.is_some_and(|before| counts(before) && before.payload != message.payload) {
                state.broken("no claim takes over from another payload");
            }
            // Nothing is promised for a late copy of the claim.
            let history = &mut state.histories[usize::from(message.key)];
            if history.undone == message.owner {
                history.undone = 0;
            }
            let decides = |worker: &&mut Worker| worker.owner == message.owner && worker.phase == Phase::Deciding;
            if let Some(worker) = state.workers.iter_mut().find(decides).filter(|_| after != before) {
                worker.in_doubt = true;
            }
        }
        if message.request == Request::Claim
            && let Some(before) = before
        {
            self.check_refused(state, message, &before, answer, now);
        }
        if let Some(after) = after.filter(|after| Some(*after) != before) {
            self.check_lease(state, message, before, &after);
            // The outcome keeps the mark anew, unless it was gone.
            let is_newest = self.world.is_ordered && position(message.key) == state.newest_effect;
            if is_newest && after.status == Status::Completed && state.now < state.newest_until {
                state.newest_until = state.newest_until.max(now.saturating_add(self.world.retention.1));
            }
        }
    }

    fn check_change(&self, state: &mut State, message: &Message, before: &Record, now: Time) {
        let after = state.records[usize::from(message.key)];
        if after == Some(*before) {
            return;
        }
        let is_decided = before.status != Status::InProgress && before.expiration > now;
        let Request::Amend { change, read } = message.request else {
            if is_decided {
                state.broken("a recorded outcome is never changed");
            }
            return;
        };
        let keeps = after.is_some_and(|after| {
            (after.status, after.payload, after.expiration) == (before.status, before.payload, before.expiration)
        });
        if is_decided && !(change == Change::Redact && keeps) && before.status == Status::Completed {
            state.broken("a recorded outcome is never changed");
        }
        if before.expiration <= now {
            state.broken("no amendment changes an expired record");
        }
        if (before.status, before.owner, before.attempt) != (read.status, read.owner, read.attempt) {
            state.broken("an amendment changes only the record that was read");
        }
        let is_holder = |worker: usize| {
            let current = &state.workers[worker];
            let acts = current.phase.is_live()
                || matches!(current.phase, Phase::Settling(_) | Phase::Committing | Phase::Deciding);
            acts && current.owner == before.owner && self.is_in_time(state, worker)
        };
        if before.status == Status::InProgress && (0..state.workers.len()).any(is_holder) {
            state.broken("an operator never changes a claim that stands");
        }
    }

    /// Checks the refusal of a claim by this record.
    fn check_refused(&self, state: &mut State, message: &Message, before: &Record, answer: Answer, now: Time) {
        let by_entity = self.world.is_ordered && matches!(answer, Answer::InProgress | Answer::Superseded);
        if matches!(answer, Answer::Granted { .. }) {
            return;
        }
        if before.expiration <= now && !by_entity {
            state.broken("an expired record refuses no claim");
        }
        // In an order a record that has expired or lapsed leaves the decision to the mark.
        if answer != Answer::InProgress || (by_entity && (before.expiration <= now || has_lapsed(before, now))) {
            return;
        }
        // Another token of the same claim differs by hundreds.
        if before.status == Status::InProgress && before.owner % 100 == message.owner % 100 {
            state.broken("no claim is refused because of itself");
        }
        if has_lapsed(before, now) {
            state.broken("a lapsed claim blocks no other");
        }
    }

    /// Checks the refusal of an ordered claim against the history of its entity, and that a completion ends doubt.
    pub(crate) fn check_entity(
        &self,
        state: &mut State,
        message: &Message,
        before: Option<Record>,
        mark: Option<&Mark>,
        answer: Answer,
    ) {
        let now = self.judged_at(state, message);
        let at = position(message.key);
        let after = state.records[usize::from(message.key)];
        let completes = after != before && after.is_some_and(|after| after.status == Status::Completed);
        let lists = |mark: &Mark| mark.doubt.iter().any(|(_, position)| *position <= at);
        if completes && state.mark.as_ref().is_some_and(lists) {
            state.broken("nothing stays in doubt at or below a completion");
        }
        if message.request != Request::Claim {
            return;
        }
        if answer == Answer::Superseded && state.runs.completed < at {
            state.broken("only a completed operation supersedes a claim");
        }
        // A merged entry represents operations whose failure no longer ends it.
        let has_merged = mark.is_some_and(|mark| mark.doubt.iter().any(|(key, _)| key.is_none()));
        // By some clocks it has expired, so that a settle left it unchanged.
        let is_expiring = mark.is_some_and(|mark| mark.expiration <= state.now + MARGIN);
        if answer != Answer::InProgress || has_merged || is_expiring {
            return;
        }
        let stands = |record: &Record| {
            let is_open = record.status == Status::InProgress && record.expiration > now;
            is_open && record.owner != message.owner && !has_lapsed(record, now)
        };
        let newer = usize::from(message.key) + 1..MOST;
        let is_in_doubt = |key: usize| state.runs.lost[key] || state.runs.open[key].is_some();
        let holds = |(owner, lease): &(Owner, Time)| *owner != message.owner && *lease + MARGIN >= now;
        let is_held = before.iter().any(stands) || state.runs.open.iter().flatten().any(holds);
        if !is_held && !newer.into_iter().any(is_in_doubt) {
            state.broken("a claim of an order waits only for one that stands or a newer one in doubt");
        }
    }

    /// Checks the refusal of a claim of a batch by the record that a worker has read.
    pub(crate) fn check_refusal(&self, state: &mut State, worker: usize, read: &Record, answer: Answer) {
        let message = self.message(state, worker, Request::Insert);
        if read.status == Status::InProgress && !state.workers[worker].has_tried {
            self.check_refused(state, &message, read, answer, message.sent);
        }
    }

    /// Checks that a late request holds a key no longer than it may.
    fn check_lease(&self, state: &mut State, message: &Message, before: Option<Record>, after: &Record) {
        let before_lease = before.filter(|before| before.owner == after.owner).map_or(0, |before| before.lease);
        if after.status != Status::InProgress || after.lease <= before_lease {
            return;
        }
        let longest = match self.world.clock {
            Clock::Sender => message.lease,
            Clock::Store => state.now + self.world.lease,
        };
        if after.lease > longest {
            state.broken("a late request holds the key no longer than it may");
        }
        let revives = message.request == Request::Settle(Settle::Renew)
            && self.world.clock == Clock::Store
            && before_lease + MARGIN < state.now;
        if revives {
            state.broken("no renewal revives a lapsed claim");
        }
    }

    /// A run takes effect.
    pub(crate) fn effect(
        &self,
        state: &mut State,
        (owner, key, payload): (Owner, Key, u8),
        took_over: bool,
        commits: bool,
    ) {
        let history = &mut state.histories[usize::from(key)];
        let History { effects, told, permits, undone, .. } = *history;
        let is_first = effects == 0;
        if is_first {
            (history.first, history.payload) = (owner, payload);
        }
        let is_other = history.payload != payload;
        history.effects += 1;
        if self.world.outlives {
            return;
        }
        let broken = match self.world.policy {
            _ if undone == owner && commits => Some("what was reported as not committed is never committed"),
            _ if is_first => None,
            _ if told.is_some() => Some("nothing takes effect again after its outcome was told"),
            _ if is_other => Some("only one payload of a key takes effect"),
            _ if commits => Some("a transaction takes effect once"),
            Policy::Refuse => (effects > permits).then_some("under Refuse an operation takes effect at most once"),
            Policy::Probe => Some("with a truthful probe an operation takes effect once"),
            Policy::Rerun => (!took_over).then_some("a run after a lost outcome is told that it took over"),
        };
        if let Some(promise) = broken {
            state.broken(promise);
        }
        if self.world.is_ordered {
            self.check_order(state, owner, position(key));
        }
    }

    /// Checks an effect against the newest one on the entity, within the retention.
    fn check_order(&self, state: &mut State, owner: Owner, position: u8) {
        let holder = state.workers.iter().find(|worker| worker.owner == owner);
        let claimed_at = holder.map_or(0, |worker| worker.lease.saturating_sub(self.world.lease));
        if state.newest_effect > position && claimed_at < state.newest_until {
            state.broken("an older operation never takes effect after a newer one");
        }
        let until = claimed_at.saturating_add(self.world.retention.1);
        if position >= state.newest_effect {
            state.newest_until = if position > state.newest_effect { until } else { state.newest_until.max(until) };
            state.newest_effect = position;
        }
    }

    /// Reports the outcome to the caller, which ends the delivery.
    pub(crate) fn tell(&self, state: &mut State, worker: usize, (status, value): (Status, u8)) {
        let key = usize::from(self.world.workers[worker].key);
        if state.workers[worker].ended != state.histories[key].ended {
            // It belongs to a protection that has ended.
            return self.acknowledge(state, worker);
        }
        // A redacted result has no value.
        let differs =
            |(other, of_other): (Status, u8)| other != status || (value != 0 && of_other != 0 && of_other != value);
        let now = self.own_time(state, worker);
        let recorded = state.records[key]
            .filter(|record| record.status != Status::InProgress && record.expiration > now.max(state.now))
            .map(|record| (record.status, record.value));
        let history = &mut state.histories[key];
        if recorded.is_some_and(differs) || history.told.is_some_and(differs) {
            state.broken("all answers of a key are equal");
        }
        let told = &mut state.histories[key].told;
        if told.is_none_or(|(_, value)| value == 0) {
            *told = Some((status, value));
        }
        self.acknowledge(state, worker);
    }

    /// The same for a run in a transaction, which must have been committed.
    pub(crate) fn tell_committed(&self, state: &mut State, worker: usize, outcome: (Status, u8)) {
        if state.histories[usize::from(self.world.workers[worker].key)].effects == 0 {
            state.broken("what was reported as done was committed");
        }
        self.tell(state, worker, outcome);
    }
}
