//! The steps of a worker, as the engine takes them.

use crate::{
    bugs::Bug,
    convert::at,
    state::{Answer, Phase, Record, Request, Settle, State, Status, Worker},
    store::refused,
    system::{System, Verdict},
    world::{Event, Path},
};

impl System {
    /// Begins a delivery with a claim under a fresh token.
    pub(crate) fn begin(&self, state: &mut State, worker: usize) {
        let (plan, now) = (self.world.workers[worker], self.own_time(state, worker));
        let deliveries = state.workers[worker].deliveries - 1;
        let number = u8::try_from(10 * (worker + 1)).unwrap_or(u8::MAX);
        state.workers[worker] = Worker {
            phase: Phase::Claiming,
            owner: number + plan.deliveries - deliveries,
            lease: now + self.world.lease,
            has_effect: self.has(Bug::C7ProbeFirst) && state.histories[usize::from(plan.key)].effects > 0,
            ended: state.histories[usize::from(plan.key)].ended,
            deliveries,
            renewals: plan.renewals,
            ..Worker::IDLE
        };
        match plan.path {
            // The transaction is opened, and its commit decides.
            Path::Claimless => state.workers[worker].phase = Phase::Running,
            _ => self.send_claim(state, worker),
        }
    }

    fn send_claim(&self, state: &mut State, worker: usize) {
        let is_batched = self.world.workers[worker].path == Path::Batched;
        self.send(state, worker, if is_batched { Request::Insert } else { Request::Claim });
    }

    /// Acts on a response of the store.
    pub(crate) fn receive(&self, state: &mut State, worker: usize, events: &mut u64) {
        let current = &mut state.workers[worker];
        let (phase, awaited) = (current.phase, current.awaits.take());
        let Some(answer) = current.answer.take() else { return };
        match phase {
            Phase::Claiming | Phase::Dropped => self.claimed(state, worker, answer, events),
            Phase::Withdrawing => self.withdraw(state, worker, answer, events),
            Phase::Running => match answer {
                // From the first request on, whenever the response comes.
                Answer::Renewed => {
                    let now = self.own_time(state, worker);
                    let lease = awaited.map_or(0, |message| message.lease);
                    let lease = if self.has(Bug::L5Arrival) { now + self.world.lease } else { lease };
                    state.workers[worker].lease = lease.max(state.workers[worker].lease);
                }
                _ => {
                    *events |= Event::LeaseLost.bit();
                    if !self.has(Bug::L5Lost) {
                        self.stop(state, worker);
                    }
                }
            },
            Phase::Settling(settle) => self.settled(state, worker, settle, answer, events),
            Phase::Committing => self.committed(state, worker, answer, events),
            Phase::Deciding => self.decided(state, worker, answer, events),
            Phase::Idle | Phase::Probing => {}
        }
    }

    fn claimed(&self, state: &mut State, worker: usize, answer: Answer, events: &mut u64) {
        match answer {
            Answer::Granted { took_over, .. } => self.granted(state, worker, took_over, events),
            Answer::Completed(record) | Answer::Failed(record) => self.replay(state, worker, &record, events),
            Answer::Superseded => self.acknowledge(state, worker),
            // Nothing more is sent past the handler deadline.
            Answer::Refused | Answer::Found(_) if !self.is_in_time(state, worker) => self.stop(state, worker),
            // The INSERT met a record.
            Answer::Refused => self.send(state, worker, Request::Select),
            Answer::Found(found) => self.found(state, worker, found, events),
            // Its own first request may have been applied.
            Answer::InProgress if state.workers[worker].in_doubt => self.look(state, worker),
            _ => self.stop(state, worker),
        }
    }

    fn granted(&self, state: &mut State, worker: usize, took_over: bool, events: &mut u64) {
        let is_late = !self.is_in_time(state, worker);
        let is_dropped = state.workers[worker].phase == Phase::Dropped;
        (state.workers[worker].took_over, state.workers[worker].in_doubt) = (took_over, false);
        state.workers[worker].ended = state.histories[usize::from(self.world.workers[worker].key)].ended;
        if (is_late && !self.has(Bug::C9Late)) || is_dropped {
            *events |= if is_late { Event::LateGrant.bit() } else { Event::Dropped.bit() };
            let release = Request::Settle(self.release(took_over));
            let message = self.message(state, worker, release);
            state.send(message);
            return self.stop(state, worker);
        }
        let probes = took_over && self.probes();
        state.workers[worker].phase = if probes { Phase::Probing } else { Phase::Running };
    }

    /// Acts on the record that blocks a claim of a batch.
    fn found(&self, state: &mut State, worker: usize, found: Option<Record>, events: &mut u64) {
        use lambda_once::store::rules::Judgement;
        let Some(record) = found else { return self.repeat_insert(state, worker) };
        let message = self.message(state, worker, Request::Insert);
        let answer = match self.judge(&record, &message, self.own_time(state, worker)) {
            Judgement::Free if self.has(Bug::C7ReadGrants) => {
                Answer::Granted { lease: message.lease, took_over: record.status == Status::InProgress }
            }
            Judgement::Free if state.workers[worker].has_tried => Answer::InProgress,
            Judgement::Free => {
                state.workers[worker].has_tried = true;
                return self.send(state, worker, Request::Update { read: record });
            }
            Judgement::Mine(grant) => {
                *events |= Event::OwnClaim.bit();
                Answer::Granted { lease: 0, took_over: grant.took_over() && !self.has(Bug::C5History) }
            }
            Judgement::Refused(refusal) => refused(&refusal, events),
        };
        self.check_refusal(state, worker, &record, answer);
        self.claimed(state, worker, answer, events);
    }

    fn repeat_insert(&self, state: &mut State, worker: usize) {
        if state.workers[worker].has_tried {
            return self.stop(state, worker);
        }
        state.workers[worker].has_tried = true;
        self.send(state, worker, Request::Insert);
    }

    /// Looks for a claim that may have been granted without a response.
    fn look(&self, state: &mut State, worker: usize) {
        state.workers[worker].phase = Phase::Withdrawing;
        self.send(state, worker, Request::Read);
    }

    fn withdraw(&self, state: &mut State, worker: usize, answer: Answer, events: &mut u64) {
        if let Answer::Found(Some(record)) = answer
            && record.status == Status::InProgress
            && record.owner == state.workers[worker].owner
        {
            *events |= Event::Withdrawn.bit();
            let release = self.release(record.prior == Some(Status::InProgress));
            let message = self.message(state, worker, Request::Settle(release));
            state.send(message);
        }
        self.stop(state, worker);
    }

    fn release(&self, took_over: bool) -> Settle {
        let deletes = !took_over || self.has(Bug::S9Delete);
        if deletes { Settle::Release } else { Settle::HandBack }
    }

    /// Gives up waiting for a response: sends the request again, or ends the delivery.
    pub(crate) fn time_out(&self, state: &mut State, worker: usize, repeats: bool, events: &mut u64) {
        state.timeouts -= 1;
        let current = &mut state.workers[worker];
        let Some(awaited) = current.awaits.take() else { return };
        current.answer = None;
        if current.phase == Phase::Running {
            return;
        }
        match state.workers[worker].phase {
            Phase::Claiming if repeats => {
                state.workers[worker].in_doubt = true;
                state.workers[worker].has_tried = false;
                if self.has(Bug::C5Token) {
                    state.workers[worker].owner += 100;
                }
                self.send_claim(state, worker);
            }
            Phase::Claiming | Phase::Dropped if self.is_in_time(state, worker) => self.look(state, worker),
            Phase::Settling(_) | Phase::Deciding if repeats => self.send(state, worker, awaited.request),
            Phase::Committing if repeats => self.send(state, worker, awaited.request),
            Phase::Committing
                if self.world.workers[worker].path == Path::Transaction && self.is_in_time(state, worker) =>
            {
                self.decide(state, worker);
            }
            Phase::Committing | Phase::Deciding => self.undecided(state, worker, events),
            Phase::Settling(_) => self.unsettled(state, worker, events),
            _ => self.stop(state, worker),
        }
    }

    pub(crate) fn probe(&self, state: &mut State, worker: usize, events: &mut u64) {
        let history = state.histories[usize::from(self.world.workers[worker].key)];
        let is_done = if self.has(Bug::C7ProbeFirst) { state.workers[worker].has_effect } else { history.effects > 0 };
        if is_done {
            *events |= Event::Recovered.bit();
            self.settle_with(state, worker, Settle::Complete { value: history.first });
        } else {
            *events |= Event::NotDone.bit();
            state.workers[worker].has_effect = false;
            state.workers[worker].phase = Phase::Running;
        }
    }

    pub(crate) fn finish(&self, state: &mut State, worker: usize, verdict: Verdict) {
        let Worker { took_over, owner, .. } = state.workers[worker];
        // A renewal in flight is dropped.
        (state.workers[worker].awaits, state.workers[worker].answer) = (None, None);
        let path = self.world.workers[worker].path;
        match verdict {
            Verdict::Success if path.commits() => {
                state.workers[worker].phase = Phase::Committing;
                self.send(state, worker, Request::Commit { claims: path == Path::Claimless });
            }
            Verdict::Success => self.settle_with(state, worker, Settle::Complete { value: owner }),
            Verdict::Transient if path == Path::Claimless => self.stop(state, worker),
            Verdict::Transient => self.settle_with(state, worker, self.release(took_over)),
            Verdict::Permanent => self.settle_with(state, worker, Settle::Fail),
        }
    }

    fn settle_with(&self, state: &mut State, worker: usize, settle: Settle) {
        state.workers[worker].phase = Phase::Settling(settle);
        self.send(state, worker, Request::Settle(settle));
    }

    fn settled(&self, state: &mut State, worker: usize, settle: Settle, answer: Answer, events: &mut u64) {
        let owner = state.workers[worker].owner;
        match (settle, answer) {
            (Settle::Complete { value }, Answer::Done { .. }) => {
                *events |= Event::Executed.bit();
                self.tell(state, worker, (Status::Completed, value));
            }
            (Settle::Fail, Answer::Done { .. }) => self.tell(state, worker, (Status::Failed, owner)),
            (Settle::Complete { value }, _) if self.has(Bug::S8OwnRun) => {
                self.tell(state, worker, (Status::Completed, value));
            }
            (Settle::Complete { .. } | Settle::Fail, Answer::Lost { current }) => {
                self.lose(state, worker, current, events);
            }
            _ => self.stop(state, worker),
        }
    }

    /// Ends a run whose lease was lost. A successor's outcome counts (S8).
    fn lose(&self, state: &mut State, worker: usize, current: Option<Record>, events: &mut u64) {
        *events |= Event::LeaseLost.bit();
        let (payload, now) = (self.world.workers[worker].payload, self.own_time(state, worker));
        let decided = current.filter(|record| {
            record.status != Status::InProgress
                && at(record.expiration) > at(now)
                && (record.payload == payload || self.has(Bug::S8Payload))
        });
        match decided {
            Some(record) => {
                *events |= Event::Overtaken.bit();
                self.replay(state, worker, &record, events);
            }
            None => self.stop(state, worker),
        }
    }

    fn replay(&self, state: &mut State, worker: usize, record: &Record, events: &mut u64) {
        let is_failure = record.status == Status::Failed;
        *events |= if is_failure { Event::ReplayedFailure.bit() } else { Event::Replayed.bit() };
        if record.payload != self.world.workers[worker].payload {
            state.broken("an outcome is replayed only to its own payload");
        }
        self.tell(state, worker, (record.status, record.value));
    }

    /// Ends a run whose outcome could not be recorded (S4, B8).
    pub(crate) fn unsettled(&self, state: &mut State, worker: usize, events: &mut u64) {
        let Worker { phase, took_over, .. } = state.workers[worker];
        if !matches!(phase, Phase::Settling(Settle::Complete { .. })) {
            return self.stop(state, worker);
        }
        *events |= Event::Unrecorded.bit();
        if self.has(Bug::S4Release) {
            let message = self.message(state, worker, Request::Settle(self.release(took_over)));
            state.send(message);
            return self.stop(state, worker);
        }
        if self.world.is_ordered && !self.has(Bug::B8Order) {
            return self.stop(state, worker);
        }
        let key = usize::from(self.world.workers[worker].key);
        if self.world.is_ordered && state.records[key].is_none_or(|record| record.status == Status::InProgress) {
            state.broken("an acknowledged operation of an order is recorded");
        }
        self.acknowledge(state, worker);
    }

    fn committed(&self, state: &mut State, worker: usize, answer: Answer, events: &mut u64) {
        let owner = state.workers[worker].owner;
        match answer {
            Answer::Done { .. } => {
                *events |= Event::Executed.bit();
                self.tell_committed(state, worker, (Status::Completed, owner));
            }
            Answer::Lost { current } => self.lose(state, worker, current, events),
            Answer::Error if self.has(Bug::TransactionError) => self.undone(state, worker, events),
            // An earlier request may still be applied.
            Answer::Error if self.is_in_time(state, worker) => self.decide(state, worker),
            _ => self.undecided(state, worker, events),
        }
    }

    /// Sends the settle that decides about a commit without a response.
    fn decide(&self, state: &mut State, worker: usize) {
        let Worker { took_over, owner, .. } = state.workers[worker];
        state.workers[worker].phase = Phase::Deciding;
        let request = match self.bug {
            Some(Bug::TransactionRead) => Request::Read,
            Some(Bug::TransactionComplete) => Request::Settle(Settle::Complete { value: owner }),
            _ => Request::Settle(self.release(took_over)),
        };
        self.send(state, worker, request);
    }

    fn decided(&self, state: &mut State, worker: usize, answer: Answer, events: &mut u64) {
        let owner = state.workers[worker].owner;
        let is_decided = |record: &Record| record.status != Status::InProgress;
        match answer {
            Answer::Done { found: Some(record) } | Answer::Found(Some(record))
                if record.owner == owner && is_decided(&record) =>
            {
                *events |= Event::Committed.bit();
                self.tell_committed(state, worker, (Status::Completed, owner));
            }
            Answer::Done { found: None } if self.has(Bug::TransactionComplete) => {
                self.tell_committed(state, worker, (Status::Completed, owner));
            }
            Answer::Done { found: Some(record) } | Answer::Lost { current: Some(record) } if is_decided(&record) => {
                self.lose(state, worker, Some(record), events);
            }
            // A late copy of the claim has taken over, so the commit may still arrive.
            Answer::Lost { current: Some(record) } if record.owner == owner => self.undecided(state, worker, events),
            _ => self.undone(state, worker, events),
        }
    }

    /// Reports that nothing was committed.
    fn undone(&self, state: &mut State, worker: usize, events: &mut u64) {
        *events |= Event::Undone.bit();
        let Worker { owner, in_doubt, .. } = state.workers[worker];
        if !in_doubt {
            state.histories[usize::from(self.world.workers[worker].key)].undone = owner;
        }
        self.stop(state, worker);
    }

    fn undecided(&self, state: &mut State, worker: usize, events: &mut u64) {
        *events |= Event::Undecided.bit();
        if self.has(Bug::B8Transaction) {
            let owner = state.workers[worker].owner;
            return self.tell_committed(state, worker, (Status::Completed, owner));
        }
        self.stop(state, worker);
    }

    /// Drops the future of a request whose client has gone.
    pub(crate) fn drop_request(&self, state: &mut State, worker: usize) {
        let Worker { phase, took_over, .. } = state.workers[worker];
        match phase {
            Phase::Claiming if !self.has(Bug::L7Claim) => state.workers[worker].phase = Phase::Dropped,
            Phase::Running | Phase::Probing if self.has(Bug::L7Drop) => {
                let message = self.message(state, worker, Request::Settle(self.release(took_over)));
                state.send(message);
                self.stop(state, worker);
            }
            // The claim is kept, and a settle in flight may still be applied.
            _ => self.stop(state, worker),
        }
    }
}
