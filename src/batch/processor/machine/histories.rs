//! Plays random histories through the machine, with simulated time and no awaiting.

use std::{borrow::Cow, collections::HashSet, sync::Arc, time::Duration};

use super::Machine;
use crate::{
    batch::{
        options::Options,
        processor::{
            records::{NoWork, Operation, Work},
            steps::{Action, Event, OfEach, Step, Terms},
        },
        record::RecordInfo,
        source::Source,
    },
    clock::{Deadline, Timestamp},
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::{
        claim::Claim,
        engine::{Candidate, ClaimAnswer, Conclusion, End, Polled, Withdrawal},
        handle::Idempotency,
        policy::AfterUnknown,
        verdict::Failure,
        window::Window,
    },
    record::{Difference, KeyHash, Owner, Status, StoredResult},
    store::{Grant, Mismatch, MismatchState, Refusal, Settlement, memory::MemoryStore},
};

const HISTORIES: u64 = 5_000;
const START: Timestamp = Timestamp::from_seconds(2_000_000_000);
const LEFT: Duration = Duration::from_secs(20);

/// A record of the event, with its lane and key, if any.
#[derive(Clone, Copy, Debug)]
struct Item {
    lane: Option<u8>,
    key: Option<u8>,
}

#[derive(Clone)]
struct Items;

impl Source for Items {
    type Event = ();
    type Record = Item;
    type Rest = ();
    type Body = Vec<u8>;
    type Response = ();

    const OPERATION: &'static str = "items";
    const WAITS_FOR_LEASE: bool = true;

    fn split(&self, (): ()) -> Result<(Vec<Item>, ()), Error> {
        Ok((Vec::new(), ()))
    }

    fn lane<'a>(&self, item: &'a Item) -> Option<Cow<'a, str>> {
        item.lane.map(|lane| lane.to_string().into())
    }

    fn open(&self, item: Item) -> (RecordInfo, Vec<u8>) {
        (RecordInfo::new("item"), item.key.into_iter().collect())
    }

    fn respond(&self, (): (), _: &[Arc<RecordInfo>]) -> Result<(), Error> {
        Ok(())
    }
}

/// One history, with the pending events and the claims that were neither run nor released.
struct History {
    random: fastrand::Rng,
    now: Timestamp,
    window: Window,
    items: Vec<Item>,
    pending: Vec<Event>,
    running: usize,
    held: HashSet<KeyHash>,
    begun: Vec<usize>,
    /// Records whose ends the machine has received, and that are recorded if they had to be.
    ended: HashSet<usize>,
}

impl History {
    fn claim(&self, candidate: Candidate) -> Claim {
        let prior_status = (self.window.stop > self.now && candidate.key.as_bytes()[0].is_multiple_of(7))
            .then_some(Status::InProgress);
        let grant = Grant { lease_until: self.window.lease_until, attempt: 1, prior_status, has_merged_doubt: false };
        Claim::new(candidate.key, None, Owner::from_bytes([1; 16]), grant, self.window)
    }

    fn answer(&mut self, candidate: Candidate) -> Result<ClaimAnswer, Error> {
        match self.random.u8(0..10) {
            0 => Err(Error::new(ErrorKind::Throttled, ErrorStatus::Temporary, "claim", "planned by the history")),
            1 => Ok(ClaimAnswer::Refused(Refusal::Mismatch(Mismatch::new(MismatchState::Final, Difference::UNKNOWN)))),
            2 | 3 => {
                let lease_until = Some(self.now.after(Duration::from_millis(self.random.u64(0..30_000))));
                Ok(ClaimAnswer::Refused(Refusal::InProgress { lease_until, attempt: 1 }))
            }
            4 => Ok(ClaimAnswer::OutOfTime),
            _ => {
                self.held.insert(candidate.key);
                Ok(ClaimAnswer::Granted(self.claim(candidate)))
            }
        }
    }

    fn end(&mut self, claim: Option<Claim>) -> End<()> {
        let completion = Settlement::complete(StoredResult::DROPPED, LEFT);
        match self.random.u8(0..6) {
            0 => End::released(claim, Conclusion::Failed(Failure::transient("t"))),
            1 => End::kept(claim, Conclusion::Failed(Failure::unknown("u"))),
            _ => {
                let settlement = claim.is_some().then_some(completion);
                End::settled_with(claim, settlement, Conclusion::Completed(()))
            }
        }
    }

    /// Queues the result of a call.
    fn called(&mut self, action: Action) {
        let event = match action {
            Action::Claim(claims, begun) => {
                let answers = claims.into_iter().map(|(index, candidate)| (index, Ok(self.answer(candidate))));
                Event::Claimed(answers.collect(), Withdrawal::default(), begun)
            }
            Action::Settle(ends) => Event::Settled(ends.into_iter().map(|(index, end)| (index, Ok(end))).collect()),
            Action::ClaimAgain(..) => unreachable!("no claim is sent again"),
            Action::Withdraw(_) => unreachable!("every claim is answered"),
            Action::SettleAgain(_) => unreachable!("every settle is answered at once"),
            Action::Release(claims) => {
                claims.iter().for_each(|claim| assert!(self.held.remove(&claim.key()), "released twice, or run"));
                Event::Released
            }
            Action::Poll(waiting) => {
                assert!(waiting.len() <= 25);
                let polled: OfEach<_> = waiting.into_iter().map(|(index, _)| (index, self.polled())).collect();
                Event::Polled(polled)
            }
            Action::LookUp(unclaimed) => {
                let found = unclaimed.into_iter().map(|(index, _)| (index, self.looked_up()));
                Event::LookedUp(found.collect())
            }
            Action::DeadLetter { .. } => unreachable!("there are no dead letters"),
        };
        self.pending.push(event);
    }

    fn polled(&mut self) -> Result<Polled, Error> {
        Ok(match self.random.u8(0..4) {
            0 => Polled::Free,
            1 => Polled::Refused(Refusal::Abandoned { attempt: 1 }),
            _ => {
                let lease_until = Some(self.now.after(Duration::from_millis(self.random.u64(0..30_000))));
                Polled::Refused(Refusal::InProgress { lease_until, attempt: 1 })
            }
        })
    }

    fn looked_up(&mut self) -> Result<Polled, Error> {
        match self.random.u8(0..4) {
            0 => self.polled(),
            1 => Ok(Polled::Free),
            _ => Ok(Polled::Refused(Refusal::Mismatch(Mismatch::new(MismatchState::Final, Difference::UNKNOWN)))),
        }
    }

    fn begin(&mut self, index: usize, claim: Option<Claim>, concurrency: usize) {
        self.running += 1;
        assert!(self.running <= concurrency, "{} run at once", self.running);
        assert!(self.now < self.window.stop, "it begins after the handler deadline");
        if let Some(claim) = &claim {
            assert!(self.held.remove(&claim.key()), "it runs under a claim that is not held");
        }
        let lane = self.items[index].lane;
        let before = self.begun.iter().filter(|other| lane.is_some() && self.items[**other].lane == lane);
        for other in before {
            assert!(*other < index && self.ended.contains(other), "{index} begins before {other} is over");
        }
        self.begun.push(index);
        let end = self.end(claim);
        self.pending.push(Event::Ran(index, end, self.now));
    }

    /// Passes a random pending event to the machine.
    fn tell(&mut self, machine: &mut Machine<'_, Items, ()>) {
        let event = self.pending.swap_remove(self.random.usize(..self.pending.len()));
        match &event {
            Event::Ran(index, end, _) => {
                self.running -= 1;
                if !end.is_due() {
                    self.ended.insert(*index);
                }
            }
            Event::Settled(settled) => self.ended.extend(settled.iter().map(|(index, _)| *index)),
            _ => {}
        }
        machine.ended(event, self.now);
    }

    fn play(&mut self, mut machine: Machine<'_, Items, ()>, concurrency: usize) {
        let count = self.items.len();
        let mut is_quiet = true;
        for turn in 0.. {
            assert!(turn < 1_000 * (count + 1), "it does not come to an end");
            match machine.turn(self.now, is_quiet) {
                Step::Decode(index, _, body) => {
                    let key = body.first().map(|key| KeyHash::from_bytes([*key; 32]));
                    let operation = key.map(|key| Operation { key, fingerprint: None });
                    let is_bad = self.random.u8(0..20) == 0;
                    let work = if is_bad {
                        Err(NoWork::Failed(Error::undecodable("bad")))
                    } else {
                        Ok((Work { payload: (), operation }, None))
                    };
                    machine.decoded(index, body, work);
                }
                Step::Call(action) => self.called(action),
                Step::Begin(run, _) => self.begin(run.index, run.claim, concurrency),
                Step::BeginTogether(..) => unreachable!("handlers take one record"),
                Step::Poll => is_quiet = true,
                Step::Yield => {
                    machine.had_turn(self.now);
                    if !self.pending.is_empty() && self.random.bool() {
                        self.tell(&mut machine);
                    }
                }
                Step::Wait(until) => {
                    is_quiet = false;
                    let most = until.map_or(Duration::from_secs(3), |until| until.since(self.now));
                    assert!(until.is_some() || !self.pending.is_empty(), "it waits for nothing");
                    if self.pending.is_empty() {
                        self.now = self.now.after(most);
                    } else {
                        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX).min(3_000);
                        self.now = self.now.after(Duration::from_millis(self.random.u64(0..=millis)));
                        self.tell(&mut machine);
                    }
                    machine.had_turn(self.now);
                }
                Step::Done => break,
            }
        }
        assert!(self.pending.is_empty(), "it ends before pending calls");
        assert!(self.held.is_empty(), "claims are left of work that never began: {:?}", self.held);
        let indices: Vec<usize> = machine.into_reports().into_iter().map(|report| report.index).collect();
        assert_eq!(indices, (0..count).collect::<Vec<_>>(), "one report for each record, in the order of the event");
    }
}

#[test]
fn any_history_reports_each_record_once_in_order_and_leaves_no_claim() {
    for seed in 0..HISTORIES {
        let mut random = fastrand::Rng::with_seed(seed);
        let policy = [AfterUnknown::Rerun, AfterUnknown::Refuse][random.usize(0..2)];
        let engine =
            Idempotency::builder(MemoryStore::new()).after_unknown(policy).disabled(false).build().unwrap().engine;
        let concurrency = random.usize(1..6);
        let options = Options { concurrency, ..Options::default() };
        let lanes = random.u8(0..4);
        let mut item = || Item {
            lane: (lanes > 0).then(|| random.u8(0..lanes)),
            key: (random.u8(0..10) > 0).then(|| random.u8(..)),
        };
        let items: Vec<Item> = std::iter::repeat_with(&mut item).take(1 + (seed % 60) as usize).collect();
        let window = Window::new(START, Deadline::at(START.after(LEFT)), &engine.settings);
        let terms = Terms {
            options: &options,
            engine: &engine,
            operation: "items",
            probes: false,
            bulk_size: 1,
            takes_consecutive: false,
        };
        let machine = Machine::new(Items, items.clone(), window, START, terms);
        let mut history = History {
            random,
            now: START,
            window,
            items,
            pending: Vec::new(),
            running: 0,
            held: HashSet::new(),
            begun: Vec::new(),
            ended: HashSet::new(),
        };
        history.play(machine, concurrency);
    }
}
