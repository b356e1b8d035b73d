//! A world in motion: the steps of its workers, its network, its clock and its operator.

use lambda_once::order::{Order, Sequence};

use crate::{
    bugs::Bug,
    convert::duration,
    explorer::Model,
    state::{
        Answer, BEGIN, Change, History, Key, MOST, Mark, Message, NOBODY, Phase, Record, Request, Runs, Settle, State,
        Status, Time, Worker, position,
    },
    store::has_lapsed,
    world::{Event, Path, Plan, Policy, World},
};

/// A world, and the bug that is planted in it, if any.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) world: World,
    pub(crate) bug: Option<Bug>,
}

/// A step of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The time passes.
    Tick,
    /// A worker gets a delivery, and claims its key.
    Begin(usize),
    /// The request at this place of the network arrives.
    Arrive { place: usize, answer: Fate },
    /// A worker gets a late response.
    Receive(usize),
    /// A worker gives up waiting for a response, and may send the request again.
    TimeOut { worker: usize, repeats: bool },
    /// A handler takes effect.
    Effect(usize),
    /// A probe looks for the effect of an earlier run.
    Probe(usize),
    /// A handler or a probe ends.
    Finish(usize, Verdict),
    /// A worker renews its lease.
    Renew(usize),
    /// A worker dies.
    Crash(usize),
    /// The client of a request goes, and its future is dropped.
    Drop(usize),
    /// An expired record is deleted.
    Purge(usize),
    /// The operator reads a record.
    Read(usize),
    /// The operator amends the record that it has read.
    Amend(Change),
    /// The operator reads the mark, and looks up the effects.
    Inquire,
    /// The operator states whether the operation at this position took effect.
    State(u8),
}

/// The fate of the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    IsLate,
    IsLost,
    /// It is a definite error, and nothing was applied.
    IsError,
    /// It arrives, and a copy of the request arrives later.
    IsRepeated,
}

/// The end of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Success,
    Transient,
    Permanent,
}

impl System {
    /// Returns whether this bug is planted.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Returns the time on a worker's clock.
    pub(crate) fn own_time(&self, state: &State, worker: usize) -> Time {
        state.now.saturating_add_signed(self.world.workers[worker].skew)
    }

    /// Returns whether a worker may still act under its claim.
    pub(crate) fn is_in_time(&self, state: &State, worker: usize) -> bool {
        self.own_time(state, worker) <= state.workers[worker].lease
    }

    pub(crate) fn order(&self, key: Key) -> Option<Order> {
        self.world
            .is_ordered
            .then(|| Order { sequence: Sequence::from(position(key)), retention: duration(self.world.retention.1) })
    }

    /// The time passes. Workers whose lease has ended stop.
    fn tick(&self, state: &mut State, events: &mut u64) {
        state.now += 1;
        for worker in 0..state.workers.len() {
            if self.is_in_time(state, worker) {
                continue;
            }
            let outlives = self.world.outlives || self.has(Bug::L7Stop);
            match state.workers[worker].phase {
                Phase::Probing | Phase::Running if !outlives => self.stop(state, worker),
                Phase::Settling(_) if !outlives => self.unsettled(state, worker, events),
                Phase::Committing | Phase::Deciding => {
                    *events |= Event::Undecided.bit();
                    self.stop(state, worker);
                }
                _ => {}
            }
        }
    }

    /// Ends a delivery. Its source delivers it again.
    pub(crate) fn stop(&self, state: &mut State, worker: usize) {
        let worker = &mut state.workers[worker];
        let Worker { deliveries, .. } = *worker;
        *worker = Worker { deliveries, ..Worker::IDLE };
    }

    /// Ends a delivery. Its source does not deliver it again.
    pub(crate) fn acknowledge(&self, state: &mut State, worker: usize) {
        state.workers[worker] = Worker { deliveries: 0, ..Worker::IDLE };
    }

    /// Sends a request of a worker, and lets it wait for the response.
    pub(crate) fn send(&self, state: &mut State, worker: usize, request: Request) {
        let message = self.message(state, worker, request);
        let (current, plan) = (&mut state.workers[worker], self.world.workers[worker]);
        (current.awaits, current.answer) = (Some(message), None);
        debug_assert_eq!(plan.key, message.key);
        state.send(message);
    }

    /// Returns a request of a worker.
    pub(crate) fn message(&self, state: &State, worker: usize, request: Request) -> Message {
        let plan = self.world.workers[worker];
        let sent = self.own_time(state, worker);
        let lease = match request {
            Request::Settle(Settle::Renew) => sent + self.world.lease,
            Request::Claim | Request::Insert | Request::Update { .. } | Request::Commit { .. } => {
                state.workers[worker].lease
            }
            _ => 0,
        };
        let owner = state.workers[worker].owner;
        Message { request, owner, key: plan.key, payload: plan.payload, sent, lease }
    }

    /// Checks that at most one worker holds the key, and with an order the entity.
    fn check_exclusion(&self, state: &mut State) {
        if self.world.outlives {
            return;
        }
        // Without a bug, a worker is stopped when its lease ends.
        let is_live =
            |worker: usize| state.workers[worker].phase.is_live() && self.world.workers[worker].path != Path::Claimless;
        let live: Vec<Key> = (0..state.workers.len())
            .filter(|&worker| is_live(worker))
            .map(|worker| self.world.workers[worker].key)
            .collect();
        let is_shared = |(place, key): (usize, &Key)| live[..place].contains(key);
        if live.iter().enumerate().any(is_shared) {
            state.broken("at most one claim of a key is live");
        }
        if self.world.is_ordered && live.len() > 1 {
            state.broken("at most one claim of an entity is live");
        }
    }

    fn worker_steps(&self, state: &State, worker: usize, steps: &mut Vec<Step>) {
        let current = &state.workers[worker];
        if current.phase == Phase::Idle {
            if current.deliveries > 0 && state.now < self.world.ends {
                steps.push(Step::Begin(worker));
            }
            return;
        }
        if current.answer.is_some() {
            steps.push(Step::Receive(worker));
        }
        if current.awaits.is_some() && state.timeouts > 0 {
            steps.push(Step::TimeOut { worker, repeats: false });
            let repeats =
                matches!(current.phase, Phase::Claiming | Phase::Settling(_) | Phase::Committing | Phase::Deciding);
            if repeats && self.is_in_time(state, worker) {
                steps.push(Step::TimeOut { worker, repeats: true });
            }
        }
        if state.crashes > 0 && !matches!(current.phase, Phase::Claiming | Phase::Dropped | Phase::Withdrawing) {
            steps.push(Step::Crash(worker));
        }
        if self.world.cancels && !matches!(current.phase, Phase::Dropped | Phase::Withdrawing) {
            steps.push(Step::Drop(worker));
        }
        match current.phase {
            Phase::Probing => {
                steps.push(Step::Probe(worker));
                if self.world.errors.0 {
                    steps.push(Step::Finish(worker, Verdict::Transient));
                }
            }
            Phase::Running => {
                let commits = self.world.workers[worker].path.commits();
                if !current.has_effect && !commits {
                    steps.push(Step::Effect(worker));
                }
                if current.has_effect || commits {
                    steps.push(Step::Finish(worker, Verdict::Success));
                }
                if !current.has_effect && self.world.errors.0 {
                    steps.push(Step::Finish(worker, Verdict::Transient));
                }
                // In an order it asserts that no run of the operation has taken effect.
                let key = usize::from(self.world.workers[worker].key);
                let is_true = !self.world.is_ordered || state.histories[key].effects == 0;
                if !current.has_effect && self.world.errors.1 && is_true {
                    steps.push(Step::Finish(worker, Verdict::Permanent));
                }
                if current.renewals > 0 && current.awaits.is_none() && self.is_in_time(state, worker) {
                    steps.push(Step::Renew(worker));
                }
            }
            _ => {}
        }
    }

    fn operator_steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.amendments == 0 {
            return;
        }
        let Some((_, read)) = state.read else {
            steps.extend((0..MOST).filter(|&key| state.records[key].is_some()).map(Step::Read));
            return;
        };
        let is_open = read.status == Status::InProgress;
        for &change in &self.world.changes {
            let applies = match change {
                Change::Forget => read.status != Status::Completed || self.has(Bug::O4Completed),
                Change::Settle(_) => is_open && has_lapsed(&read, operator_time(state)),
                Change::Release => is_open,
                Change::Redact => !is_open,
            };
            if applies {
                steps.push(Step::Amend(change));
            }
        }
    }

    fn amend_read(&self, state: &mut State, change: Change) {
        let Some((key, read)) = state.read.take() else { return };
        state.amendments -= 1;
        // The operator has looked up the effect.
        let change = match change {
            Change::Settle(_) => Change::Settle(state.histories[usize::from(key)].effects > 0),
            change => change,
        };
        let request = Request::Amend { change, read };
        state.send(Message { request, owner: NOBODY, key, payload: 0, sent: operator_time(state), lease: 0 });
    }
}

/// Returns the time on the operator's clock, which is ahead by the margin.
pub(crate) fn operator_time(state: &State) -> Time {
    state.now + 1
}

impl Worker {
    /// A worker without a delivery.
    pub(crate) const IDLE: Self = Self {
        phase: Phase::Idle,
        owner: NOBODY,
        lease: 0,
        took_over: false,
        has_effect: false,
        in_doubt: false,
        ended: 0,
        has_tried: false,
        deliveries: 0,
        renewals: 0,
        awaits: None,
        answer: None,
    };
}

impl Model for System {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let worker = |plan: &Plan| Worker { deliveries: plan.deliveries, ..Worker::IDLE };
        let mut state = State {
            now: BEGIN,
            records: [None; MOST],
            mark: None,
            workers: self.world.workers.iter().map(worker).collect(),
            network: Vec::new(),
            histories: [History::default(); MOST],
            newest_effect: 0,
            newest_until: 0,
            crashes: self.world.crashes,
            timeouts: self.world.timeouts,
            late_answers: self.world.late_answers,
            copies: self.world.copies,
            amendments: self.world.amendments,
            statements: self.world.statements,
            read: None,
            inquiry: None,
            runs: Runs::default(),
            breach: None,
        };
        if !self.world.doubt.is_empty() {
            // As after crashes of the runs at these positions, the last of which has taken effect.
            let lapsed = |owner| Record {
                status: Status::InProgress,
                owner,
                attempt: 1,
                prior: None,
                lease: 0,
                expiration: Time::MAX,
                payload: 1,
                value: 0,
                released: 0,
            };
            let mut doubt = Vec::new();
            for &at in &self.world.doubt {
                let (key, owner) = (usize::from(at - 1), 200 + at);
                state.records[key] = Some(lapsed(owner));
                doubt.push((Some(at - 1), at));
                state.runs.lost[key] = true;
                (state.newest_effect, state.newest_until) = (at, Time::MAX);
                state.histories[key] = History { effects: 1, first: owner, payload: 1, ..History::default() };
            }
            state.mark = Some(Mark { newest: None, holder: None, doubt, expiration: Time::MAX });
            if self.world.is_late {
                let (owner, key) = (200 + self.world.doubt[0], self.world.doubt[0] - 1);
                let request = Request::Settle(Settle::Complete { value: owner });
                state.send(Message { request, owner, key, payload: 1, sent: BEGIN, lease: 0 });
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.now < self.world.ends {
            steps.push(Step::Tick);
        }
        for worker in 0..state.workers.len() {
            self.worker_steps(state, worker, steps);
        }
        for place in 0..state.network.len() {
            if place > 0 && state.network[place - 1] == state.network[place] {
                continue;
            }
            let mut arrive = |answer| steps.push(Step::Arrive { place, answer });
            let message = state.network[place];
            let is_awaited = state.workers.iter().any(|worker| worker.awaits == Some(message));
            let is_write = !matches!(message.request, Request::Select | Request::Read);
            arrive(Fate::Arrives);
            if is_awaited && is_write && state.timeouts > 0 {
                arrive(Fate::IsLost);
            }
            if is_awaited && state.timeouts > 0 && matches!(message.request, Request::Commit { claims: false }) {
                arrive(Fate::IsError);
            }
            if is_awaited && state.late_answers > 0 {
                arrive(Fate::IsLate);
            }
            if is_write && state.copies > 0 {
                arrive(Fate::IsRepeated);
            }
        }
        if self.world.purges {
            steps.extend((0..MOST).filter(|&key| self.may_purge(state, key)).map(Step::Purge));
        }
        self.operator_steps(state, steps);
        self.statement_steps(state, steps);
    }

    fn next_state(&self, state: &State, step: &Step, events: &mut u64) -> State {
        let mut next = state.clone();
        match *step {
            Step::Tick => self.tick(&mut next, events),
            Step::Begin(worker) => self.begin(&mut next, worker),
            Step::Arrive { place, answer } => self.arrive(&mut next, place, answer, events),
            Step::Receive(worker) => self.receive(&mut next, worker, events),
            Step::TimeOut { worker, repeats } => self.time_out(&mut next, worker, repeats, events),
            Step::Effect(worker) => {
                let (plan, current) = (self.world.workers[worker], &mut next.workers[worker]);
                current.has_effect = true;
                let (owner, took_over) = (current.owner, current.took_over);
                self.effect(&mut next, (owner, plan.key, plan.payload), took_over, false);
            }
            Step::Probe(worker) => self.probe(&mut next, worker, events),
            Step::Finish(worker, verdict) => self.finish(&mut next, worker, verdict),
            Step::Renew(worker) => {
                next.workers[worker].renewals -= 1;
                self.send(&mut next, worker, Request::Settle(Settle::Renew));
            }
            Step::Crash(worker) => {
                next.crashes -= 1;
                self.stop(&mut next, worker);
            }
            Step::Drop(worker) => self.drop_request(&mut next, worker),
            Step::Purge(key) => {
                *events |= Event::Purged.bit();
                self.purge(&mut next, key);
            }
            Step::Read(key) => next.read = next.records[key].and_then(|record| Some((u8::try_from(key).ok()?, record))),
            Step::Amend(change) => self.amend_read(&mut next, change),
            Step::Inquire => self.inquire(&mut next),
            Step::State(position) => self.state_effect(&mut next, position, events),
        }
        self.forget_spent(&mut next);
        self.check_exclusion(&mut next);
        next
    }

    fn breach(&self, state: &State) -> Option<&'static str> {
        state.breach
    }
}

impl System {
    fn arrive(&self, state: &mut State, place: usize, fate: Fate, events: &mut u64) {
        let message = state.network[place];
        if fate == Fate::IsRepeated {
            state.copies -= 1;
        } else {
            state.network.remove(place);
        }
        let answer = if fate == Fate::IsError { Answer::Error } else { self.apply(state, &message, events) };
        let waits = |worker: &Worker| worker.awaits == Some(message) && worker.answer.is_none();
        let Some(worker) = state.workers.iter().position(waits) else { return };
        match fate {
            Fate::IsLost => {}
            Fate::IsLate => {
                state.late_answers -= 1;
                state.workers[worker].answer = Some(answer);
            }
            Fate::Arrives | Fate::IsRepeated | Fate::IsError => {
                if fate == Fate::IsError {
                    state.timeouts -= 1;
                }
                state.workers[worker].answer = Some(answer);
                self.receive(state, worker, events);
            }
        }
    }

    /// Removes requests that change nothing any more, and for which nobody waits: reads, and settles of a claim that is
    /// over and cannot come back.
    fn forget_spent(&self, state: &mut State) {
        let State { workers, network, records, .. } = state;
        let claims = |message: &Message| {
            matches!(
                message.request,
                Request::Claim | Request::Insert | Request::Update { .. } | Request::Commit { .. }
            )
        };
        let may_hold: Vec<_> = network
            .iter()
            .filter(|message| claims(message))
            .map(|message| message.owner)
            .chain(workers.iter().map(|worker| worker.owner))
            .chain(records.iter().flatten().map(|record| record.owner))
            .collect();
        let keeps_settles = self.bug.is_some_and(Bug::ignores_owners);
        network.retain(|message| {
            let is_spent = match message.request {
                Request::Select | Request::Read => true,
                Request::Settle(_) => !keeps_settles && !may_hold.contains(&message.owner),
                _ => false,
            };
            !is_spent || workers.iter().any(|worker| worker.awaits == Some(*message) && worker.answer.is_none())
        });
    }

    /// Returns whether a takeover calls the probe.
    pub(crate) fn probes(&self) -> bool {
        self.world.policy == Policy::Probe && !self.has(Bug::C7NoProbe)
    }
}
