//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a source gives it [`Incoming`] records in event order, and gets one
//! [`Report`] for each.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    future::poll_fn,
    sync::Arc,
    task::Poll,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lambda_runtime::Context;

use super::{
    Decode, Handler, Options, Payload, RecordContext,
    context::RecordInfo,
    report::{RecordOutcome, Report},
    schedule::Schedule,
};
use crate::{
    Claim, Error, ErrorKind, Idempotency, Key, Outcome,
    clock::{Deadline, Timestamp},
    idempotency::{
        engine::{Candidate, Conclusion, Due, Finished, Settling, Standing, Success},
        guard::contain,
        window::Window,
    },
    key::{
        Body, Delivery,
        hash::{Form, KeyHasher, fingerprint},
    },
    record::{Fingerprint, KeyHash},
    store::{BoxFuture, Refusal},
    telemetry::event_at,
};

/// A record as its source delivers it.
pub(super) struct Incoming {
    pub(super) info: RecordInfo,
    pub(super) body: String,
}

/// What all records of a service share.
pub(super) struct Processor<H, T> {
    pub(super) engine: Idempotency,
    pub(super) operation: &'static str,
    pub(super) key: Key,
    pub(super) handler: H,
    pub(super) decode: Decode<T>,
    pub(super) options: Options,
}

/// A record that can run.
struct Ready<T> {
    index: usize,
    payload: T,
    info: Arc<RecordInfo>,
    claim: Option<Claim>,
}

impl<T> Ready<T> {
    /// The claim that is to be released. Dropping the payload runs code of the user's.
    fn give_up(self) -> Option<Claim> {
        let Self { payload, claim, .. } = self;
        let _ = contain(|| drop(payload));
        claim
    }
}

/// What decoding and hashing gave.
struct Prepared<T> {
    payload: T,
    /// `None` if it runs unprotected.
    candidate: Option<Candidate>,
}

/// A record whose handler has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    index: usize,
    at: Timestamp,
}

/// Something under way has come to its end.
#[expect(clippy::large_enum_variant, reason = "most steps are of the large kind; a box would cost each record one")]
enum Step<T> {
    Claimed(Vec<Ready<T>>, Vec<Result<Standing, Error>>),
    /// A handler without a claim.
    Ran(Begun, Outcome<()>),
    /// A handler with a claim, which may be due to be settled.
    Finished(Begun, Claim, Finished<()>),
    /// The first call for claims that were settled together.
    Settled(Settling<Begun, ()>),
    /// Those of them that took more than one call.
    SettledAgain(Vec<(Begun, Claim, Conclusion<()>)>),
    Released,
}

/// A record's place behind an earlier one with the same key.
#[derive(Clone, Copy)]
struct Follows {
    leader: usize,
    /// Whether its payload is the leader's too.
    same_payload: bool,
}

/// The state of one invocation.
struct Invocation<T> {
    lambda: Arc<Context>,
    /// Whose keys these are.
    scope: KeyHasher,
    window: Window,
    schedule: Schedule,
    incoming: VecDeque<Incoming>,
    /// The index of the next record that is incoming.
    next: usize,
    infos: Vec<Arc<RecordInfo>>,
    ready: VecDeque<Ready<T>>,
    running: usize,
    claiming: bool,
    /// Claims whose handlers have ended, to be settled by the next call.
    due: Vec<(Begun, Due<()>)>,
    /// How many claims are due or being settled.
    unsettled: usize,
    /// Whether a first call to settle is under way.
    settling: bool,
    stopped: bool,
    outcomes: Vec<Option<RecordOutcome>>,
    keys: Vec<Option<KeyHash>>,
    /// For a key: the earliest record with it.
    leaders: HashMap<KeyHash, (usize, Option<Fingerprint>)>,
    /// For a record: the earlier one with its key.
    follows: Vec<Option<Follows>>,
}

impl<T> Invocation<T> {
    /// A handler has ended.
    fn ended(&mut self, begun: Begun, now: Timestamp) {
        self.running -= 1;
        self.schedule.ran(now.since(begun.at));
    }

    /// Whether there is something to settle, and no call under way that it has to wait for. After the stop point there
    /// is no time to wait.
    fn may_settle(&self) -> bool {
        !self.due.is_empty() && (!self.settling || self.stopped)
    }
}

type Steps<'a, T> = FuturesUnordered<BoxFuture<'a, Step<T>>>;

impl<H, T> Processor<H, T>
where
    T: Send + 'static,
{
    /// One report for each record, in order.
    pub(super) async fn process<Args>(&self, incoming: Vec<Incoming>, lambda: Context) -> Vec<(String, Report)>
    where
        H: Handler<T, Args>,
    {
        let now = self.engine.clock.now();
        let window = Window::new(now, Deadline::from(&lambda), &self.engine.settings);
        let count = incoming.len();
        let operation = self.engine.operation_name(self.operation);
        let scope = self.engine.scope(operation, lambda.tenant_id.as_deref().map(str::as_bytes)).hasher();
        let mut invocation = Invocation {
            lambda: Arc::new(lambda),
            scope,
            window,
            schedule: Schedule::new(
                window.stop,
                self.options.expected_duration,
                self.options.concurrency,
                self.engine.store.limits().batch,
                self.engine.settings.after_unknown,
            ),
            incoming: incoming.into(),
            next: 0,
            infos: Vec::with_capacity(count),
            ready: VecDeque::new(),
            running: 0,
            claiming: false,
            due: Vec::new(),
            unsettled: 0,
            settling: false,
            stopped: false,
            outcomes: (0..count).map(|_| None).collect(),
            keys: vec![None; count],
            leaders: HashMap::new(),
            follows: vec![None; count],
        };
        let mut steps = Steps::new();
        let mut yielded = false;
        loop {
            self.start(&mut invocation, &steps);
            if invocation.schedule.fills_a_call(invocation.due.len()) {
                self.settle(&mut invocation, &steps);
            }
            match poll_fn(|context| Poll::Ready(steps.poll_next_unpin(context))).await {
                Poll::Ready(Some(step)) => self.finish(&mut invocation, &steps, step),
                // Whatever ends at the same time shares one call: nothing is waited for but one turn of the runtime.
                _ if invocation.may_settle() && !yielded => {
                    tokio::task::yield_now().await;
                    yielded = true;
                }
                _ if invocation.may_settle() => {
                    self.settle(&mut invocation, &steps);
                    yielded = false;
                }
                Poll::Ready(None) if invocation.stopped || invocation.next == count => break,
                Poll::Ready(None) => {}
                Poll::Pending => {
                    if let Some(step) = steps.next().await {
                        self.finish(&mut invocation, &steps, step);
                    }
                }
            }
        }
        self.report(invocation)
    }

    /// Starts whatever may be started now.
    fn start<'a, Args>(&'a self, invocation: &mut Invocation<T>, steps: &Steps<'a, T>)
    where
        H: Handler<T, Args>,
    {
        loop {
            if !invocation.stopped && !invocation.schedule.in_time(self.engine.clock.now()) {
                invocation.stopped = true;
            }
            if invocation.stopped {
                let left: Vec<Claim> = invocation.ready.drain(..).filter_map(Ready::give_up).collect();
                if !left.is_empty() {
                    steps.push(Box::pin(async move {
                        self.engine.release(left).await;
                        Step::Released
                    }));
                }
                return;
            }
            if invocation.schedule.has_free_slot(invocation.running)
                && let Some(ready) = invocation.ready.pop_front()
            {
                invocation.running += 1;
                steps.push(self.run(ready, Arc::clone(&invocation.lambda), invocation.window));
                continue;
            }
            let Invocation { ready, running, unsettled, .. } = &*invocation;
            let room = invocation.schedule.claimable(ready.len(), *running, *unsettled);
            if invocation.claiming || room == 0 || invocation.incoming.is_empty() {
                return;
            }
            let (waiting, candidates) = self.prepare_chunk(invocation, room);
            if !candidates.is_empty() {
                invocation.claiming = true;
                let window = invocation.window;
                steps.push(Box::pin(async move {
                    let standings = self.engine.claim(&candidates, window).await;
                    Step::Claimed(waiting, standings)
                }));
            }
        }
    }

    /// Decodes records until `room` of them want a claim. Those that need none are ready at once.
    fn prepare_chunk(&self, invocation: &mut Invocation<T>, room: usize) -> (Vec<Ready<T>>, Vec<Candidate>) {
        let mut waiting = Vec::new();
        let mut candidates = Vec::new();
        while candidates.len() < room
            && invocation.ready.is_empty()
            && let Some(Incoming { info, body }) = invocation.incoming.pop_front()
        {
            let index = invocation.next;
            invocation.next += 1;
            let prepared = self.prepare(&info, &body, &invocation.scope);
            let info = Arc::new(info);
            invocation.infos.push(Arc::clone(&info));
            let Prepared { payload, candidate } = match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    invocation.outcomes[index] = Some(Err(error));
                    continue;
                }
            };
            let ready = Ready { index, payload, info, claim: None };
            let Some(candidate) = candidate else {
                invocation.ready.push_back(ready);
                continue;
            };
            invocation.keys[index] = Some(candidate.key);
            match invocation.leaders.get(&candidate.key) {
                Some(&(leader, theirs)) => {
                    ready.give_up();
                    let same_payload = theirs == candidate.fingerprint;
                    invocation.follows[index] = Some(Follows { leader, same_payload });
                    if !same_payload {
                        invocation.outcomes[index] = Some(Ok(Outcome::Mismatch));
                    }
                }
                None => {
                    invocation.leaders.insert(candidate.key, (index, candidate.fingerprint));
                    waiting.push(ready);
                    candidates.push(candidate);
                }
            }
        }
        (waiting, candidates)
    }

    /// Decodes one body and hashes its key. Code of the user's runs here, and may panic.
    fn prepare(&self, info: &RecordInfo, body: &str, scope: &KeyHasher) -> Result<Prepared<T>, Error> {
        let prepared = contain(|| {
            let payload = (self.decode)(body).map_err(|source| undecodable(&*source))?;
            if self.engine.settings.disabled {
                return Ok(Prepared { payload, candidate: None });
            }
            let candidate = match self.candidate(info, body, scope) {
                Ok(candidate) => Some(candidate),
                Err(error) if error.kind() == ErrorKind::KeyMissing && self.engine.runs_without_key() => {
                    tracing::warn!(target: "lambda_once", message_id = info.message_id, "the record has no key and runs unprotected");
                    None
                }
                Err(error) => return Err(error),
            };
            Ok(Prepared { payload, candidate })
        });
        prepared.unwrap_or_else(|| Err(Error::payload("decoding the body, or finding its key, panicked")))
    }

    fn candidate(&self, info: &RecordInfo, body: &str, scope: &KeyHasher) -> Result<Candidate, Error> {
        let body = Body::new(body.as_bytes());
        let delivery = Delivery::new(&body, Some(&info.message_id));
        let key = self.key.select(&delivery)?;
        let fingerprint = match &self.options.payload {
            Payload::Ignored => None,
            Payload::Part(part) => Some(fingerprint(Form::CanonicalJson, &[&part.select_part(&delivery)?])),
            Payload::Body => Some(body.fingerprint()),
        };
        Ok(Candidate { key: scope.hash(&key), fingerprint })
    }

    /// Runs one record to its end.
    fn run<'a, Args>(&'a self, ready: Ready<T>, lambda: Arc<Context>, window: Window) -> BoxFuture<'a, Step<T>>
    where
        H: Handler<T, Args>,
    {
        let Ready { index, payload, info, claim } = ready;
        let begun = Begun { index, at: self.engine.clock.now() };
        let context = RecordContext { record: info, lambda, claim: claim.clone(), stop: window.stop };
        // The handler's own future is made inside, so that a panic in making it is caught too.
        let work = async move { self.handler.call(payload, context).await };
        Box::pin(async move {
            let Some(claim) = claim else {
                let work = async move { work.await.map(drop) };
                return Step::Ran(begun, self.engine.run_unprotected(window, work).await);
            };
            let work = async move { work.await.map(Success::Remember) };
            // Only the stored form of the value is needed from here on. Dropping it runs code of the user's.
            let keep = |value| {
                let _ = contain(|| drop(value));
            };
            Step::Finished(begun, claim.clone(), self.engine.run(claim, work, keep).await)
        })
    }

    /// Settles all that is due with one call.
    fn settle<'a>(&'a self, invocation: &mut Invocation<T>, steps: &Steps<'a, T>) {
        invocation.settling = true;
        let due = std::mem::take(&mut invocation.due);
        let engine = &self.engine;
        steps.push(Box::pin(async move { Step::Settled(engine.settle_together(due).await) }));
    }

    fn finish<'a>(&'a self, invocation: &mut Invocation<T>, steps: &Steps<'a, T>, step: Step<T>) {
        match step {
            Step::Released => {}
            Step::Ran(begun, outcome) => {
                invocation.ended(begun, self.engine.clock.now());
                self.decide(invocation, begun, outcome);
            }
            Step::Finished(begun, claim, finished) => {
                invocation.ended(begun, self.engine.clock.now());
                match finished {
                    Finished::Due(due) => {
                        invocation.unsettled += 1;
                        invocation.due.push((begun, due));
                    }
                    Finished::Concluded(conclusion) => self.conclude(invocation, begun, &claim, conclusion),
                }
            }
            Step::Settled(Settling { concluded, open }) => {
                invocation.settling = false;
                self.conclude_settled(invocation, concluded);
                // They hold nobody else up.
                if !open.is_empty() {
                    let engine = &self.engine;
                    steps.push(Box::pin(async move { Step::SettledAgain(engine.settle_again(open).await) }));
                }
            }
            Step::SettledAgain(concluded) => self.conclude_settled(invocation, concluded),
            Step::Claimed(waiting, standings) => {
                invocation.claiming = false;
                for (mut ready, standing) in waiting.into_iter().zip(standings) {
                    let index = ready.index;
                    let outcome = match standing {
                        Ok(Standing::Claimed(claim)) => {
                            ready.claim = Some(claim);
                            invocation.ready.push_back(ready);
                            continue;
                        }
                        Ok(Standing::Refused(refusal)) => Ok(replayed(refusal)),
                        Ok(Standing::NotStarted) => Ok(Outcome::NotStarted),
                        Err(error) => Err(error),
                    };
                    ready.give_up();
                    invocation.outcomes[index] = Some(outcome);
                }
            }
        }
    }

    fn conclude_settled(&self, invocation: &mut Invocation<T>, concluded: Vec<(Begun, Claim, Conclusion<()>)>) {
        for (begun, claim, conclusion) in concluded {
            invocation.unsettled -= 1;
            self.conclude(invocation, begun, &claim, conclusion);
        }
    }

    fn conclude(&self, invocation: &mut Invocation<T>, begun: Begun, claim: &Claim, conclusion: Conclusion<()>) {
        let replay = |refusal| Ok::<_, Infallible>(replayed(refusal));
        let Ok(outcome) = conclusion.into_outcome(claim, |()| (), replay);
        self.decide(invocation, begun, outcome);
    }

    fn decide(&self, invocation: &mut Invocation<T>, begun: Begun, outcome: Outcome<()>) {
        invocation.outcomes[begun.index] = Some(Ok(outcome));
    }

    /// Every record's report, and one event for each. What has no outcome by now was not started.
    fn report(&self, invocation: Invocation<T>) -> Vec<(String, Report)> {
        let Invocation { outcomes, keys, follows, infos, incoming, .. } = invocation;
        let unseen = incoming.into_iter().map(|incoming| Arc::new(incoming.info));
        let operation = self.engine.operation_name(self.operation);
        let mut reports: Vec<(String, Report)> = Vec::with_capacity(outcomes.len());
        for (index, (outcome, info)) in outcomes.into_iter().zip(infos.into_iter().chain(unseen)).enumerate() {
            let outcome = outcome.unwrap_or(Ok(Outcome::NotStarted));
            let report = Report::new(&outcome, self.options.permanent_failures);
            let report = match follows[index] {
                None => report,
                Some(Follows { leader, same_payload: true }) => reports[leader].1.of_follower(),
                // Only a record that stands makes another payload a misuse of its key.
                Some(Follows { leader, .. }) => {
                    Report { reported: report.reported || !reports[leader].1.decided, ..report }
                }
            };
            let key = keys[index].map(tracing::field::display);
            let Report { reported, outcome: name, level, .. } = report;
            let error = match &outcome {
                // The text is the user's, and printing it may panic.
                Ok(Outcome::Failed(failure)) => contain(|| failure.to_string()),
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            };
            event_at!(
                level,
                message_id = info.message_id,
                receive_count = info.receive_count,
                outcome = name,
                reported,
                operation,
                key,
                error,
                "record"
            );
            reports.push((info.message_id.clone(), report));
        }
        reports
    }
}

/// A record that did not run. A queue acknowledges what is done without decoding its result.
fn replayed(refusal: Refusal) -> Outcome<()> {
    match refusal {
        Refusal::Completed(_) => Outcome::Replayed(()),
        Refusal::Failed(_) => Outcome::ReplayedFailure(crate::StoredFailure { message: None }),
        Refusal::InProgress { lease_until, attempt } => Outcome::InProgress { lease_until, attempt },
        Refusal::Abandoned { attempt } => Outcome::Abandoned { attempt },
        Refusal::Mismatch => Outcome::Mismatch,
    }
}

/// The decoder's own text may quote the body, so of `serde_json`'s errors only the place is kept.
fn undecodable(source: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    let place = source.downcast_ref::<serde_json::Error>().map(|error| (error.line(), error.column()));
    match place {
        Some((line, column)) => {
            Error::payload(format!("the body is not what the handler takes, at line {line} column {column}"))
        }
        None => Error::payload("the body is not what the handler takes"),
    }
}
