//! Processes that are killed (`SIGKILL`) at each of their calls to the store: before a request arrives, after the server
//! has responded, and while a request is on its way, which then arrives late.
//!
//! The record and the number of effects are then read from outside. They alone determine the outcome of the next
//! delivery, by the table in [`Remains`].

mod delivery;
mod effects;
mod process;
mod remains;

use std::{collections::BTreeSet, time::Duration};

use lambda_once::{
    Idempotency, OutcomeKind, Verdict,
    clock::{Clock, ManualClock},
};

use crate::support::{
    future_clock,
    stores::{Backend, Records, on_each_proxied_store, on_each_store},
    wire::{self, Proxy},
};
use delivery::{Delivery, End, Policy, Work, engine};
use effects::Effects;
use process::killed_when;
use remains::{Left, Remains, remains};

/// The time of death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// While the request is on its way. It never arrives.
    BeforeArrival,
    /// After the server has responded, and before the response arrives.
    AfterResponse,
    /// While the request is on its way. It arrives before the next delivery.
    Late,
}

const CUTS: [Cut; 3] = [Cut::BeforeArrival, Cut::AfterResponse, Cut::Late];

/// Longer than any lease here and the margin.
const LAPSE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);

/// One operation, or one batch, on separate records.
struct World {
    backend: Backend,
    /// The time of the next delivery, which does not advance. The process's clock starts at the same time.
    clock: ManualClock,
    records: Records,
    effects: Effects,
    once: Idempotency,
    delivery: Delivery,
}

impl World {
    async fn new(backend: Backend, work: Work, end: End, policy: Policy) -> Self {
        let clock = future_clock();
        let records = Records::new(backend, clock.clone()).await;
        let effects = Effects::create(backend, work).await;
        let once = engine(records.store().await, clock.clone(), work, policy);
        let delivery = Delivery { work, end, policy, effects: effects.name().to_owned() };
        let world = Self { backend, clock, records, effects, once, delivery };
        // The client may have to send a script before the server has its hash.
        assert_eq!(world.delivery.warm(&world.once).await, OutcomeKind::Executed);
        if work == Work::TakingOver {
            assert_eq!(world.deliver(End::Unknown).await, [OutcomeKind::Failed(Verdict::Unknown)]);
            world.clock.advance(LAPSE);
        }
        world
    }

    /// Starts a process that is killed at its call with this number, from 1. Returns the outcomes if it has fewer calls.
    async fn die_at(&self, place: usize, cut: Cut) -> Option<Vec<String>> {
        let (protocol, url) = self.backend.wire();
        let proxy = Proxy::start(protocol, wire::host_and_port(&url)).await;
        let fault = proxy.on(|_| true).nth(place);
        let start = || {
            let url = proxy.in_place_of(&url);
            process::start(self.backend, self.records.name(), &url, self.clock.now(), &self.delivery)
        };
        let outcomes = if cut == Cut::AfterResponse {
            let mut withheld = fault.withhold_response();
            killed_when(start(), withheld.answered()).await
        } else {
            let mut kept = fault.hang();
            let outcomes = killed_when(start(), kept.arrived()).await;
            if outcomes.is_none() && cut == Cut::Late {
                kept.deliver().await;
            }
            outcomes
        };
        proxy.all_closed().await;
        outcomes
    }

    /// Delivers the work here and now, with handlers that end as given.
    async fn deliver(&self, end: End) -> Vec<OutcomeKind> {
        let delivery = Delivery { end, ..self.delivery.clone() };
        delivery.perform(&self.records, &self.backend.wire().1, self.clock.clone()).await
    }

    async fn remains(&self) -> Vec<Remains> {
        let mut all = Vec::new();
        for key in self.delivery.work.keys() {
            all.push(remains(self, key).await);
        }
        all
    }

    /// Delivers the work, and asserts that outcomes and effects are those that follow from the remains.
    async fn assert_delivery(&self, what: &str, expected: impl Iterator<Item = (OutcomeKind, usize)>) {
        let expected: Vec<_> = expected.collect();
        let before = self.effects.count_each(self.delivery.work).await;
        let outcomes = self.deliver(End::Success).await;
        let after = self.effects.count_each(self.delivery.work).await;
        let added = after.iter().zip(before).map(|(after, before)| after - before);
        let actual: Vec<_> = outcomes.into_iter().zip(added).collect();
        assert_eq!(actual, expected, "{what}");
    }

    /// Asserts the promise for an operation of a process that left this.
    async fn assert_promise(&self, remains: &[Remains], what: &str) {
        let policy = self.delivery.policy;
        self.assert_delivery(&format!("{what}, at once"), remains.iter().map(|one| one.at_once(policy))).await;
        if let Some(last) = remains.iter().filter_map(Remains::last_moment).max() {
            self.clock.set(last);
            let expected = remains.iter().map(|one| one.at_its_last_moment(last, policy));
            self.assert_delivery(&format!("{what}, at the end of the lease and the margin"), expected).await;
            self.clock.advance(MILLISECOND);
            let expected = remains.iter().map(|one| one.after_its_lease(last, policy));
            self.assert_delivery(&format!("{what}, after the lease"), expected).await;
        }
        self.clock.advance(LAPSE);
        self.assert_delivery(&format!("{what}, finally"), remains.iter().map(|one| one.finally(policy))).await;
    }
}

/// Kills a process at each call, and returns everything that was left by any.
async fn kill_at_each_call(backend: Backend, work: Work, end: End, policy: Policy) -> BTreeSet<(Left, usize)> {
    let mut seen = BTreeSet::new();
    for cut in CUTS.into_iter().filter(|&cut| cut != Cut::Late || work.has_separate_calls(backend)) {
        for place in 1.. {
            let world = World::new(backend, work, end, policy).await;
            let outcomes = world.die_at(place, cut).await;
            let remains = world.remains().await;
            seen.extend(remains.iter().map(|one| (one.left, one.effects)));
            world
                .assert_promise(&remains, &format!("{work:?} {policy:?}, killed {cut:?} of call {place}: {remains:?}"))
                .await;
            if let Some(outcomes) = outcomes {
                assert!(place > 1, "it makes no call");
                assert_eq!(outcomes, vec![work.outcome_if_it_lives(end).as_str(); work.keys().len()]);
                assert!(remains.iter().all(|one| one.left == work.leaves_if_it_lives(end)), "{work:?}: {remains:?}");
                break;
            }
        }
    }
    seen
}

/// Everything that a successful operation can leave.
const STAGES: [(Left, usize); 4] = [(Left::Nothing, 0), (Left::Claim, 0), (Left::Claim, 1), (Left::Result, 1)];

// Tests C1, C6, C7, S1, L3, P10, P11, P12, P18.
async fn an_operation_of_a_killed_process_takes_effect_by_its_policy(backend: Backend) {
    for policy in [Policy::Rerun, Policy::Refuse, Policy::Probe] {
        let seen = kill_at_each_call(backend, Work::Operation, End::Success, policy).await;
        assert_eq!(seen, BTreeSet::from(STAGES), "{policy:?}");
    }
}

// Tests C4, S9.
async fn an_operation_that_fails_in_a_killed_process_is_free_or_failed(backend: Backend) {
    let seen = kill_at_each_call(backend, Work::Operation, End::Transient, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from([(Left::Nothing, 0), (Left::Claim, 0)]));
    let seen = kill_at_each_call(backend, Work::Operation, End::Permanent, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from([(Left::Nothing, 0), (Left::Claim, 0), (Left::Failure, 0)]));
}

// Tests C8, S9.
async fn a_killed_takeover_is_taken_over(backend: Backend) {
    let seen = kill_at_each_call(backend, Work::TakingOver, End::Transient, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from([(Left::LapsedClaim, 0), (Left::Claim, 0)]));
}

// Tests G2.
async fn an_ordered_operation_of_a_killed_process_takes_effect_in_its_order(backend: Backend) {
    let seen = kill_at_each_call(backend, Work::Ordered, End::Success, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from(STAGES));
}

// Tests B6.
async fn each_message_of_a_killed_batch_takes_effect(backend: Backend) {
    let seen = kill_at_each_call(backend, Work::Batch, End::Success, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from(STAGES));
}

// Tests L5.
async fn a_killed_process_with_a_heartbeat_holds_its_claim_for_its_last_lease(backend: Backend) {
    let seen = kill_at_each_call(backend, Work::Renewed, End::Success, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from(STAGES));
}

/// A transaction never leaves an effect without its result.
// Tests P19, P20.
async fn a_transaction_of_a_killed_process_takes_effect_once(backend: Backend) {
    for policy in [Policy::Rerun, Policy::Refuse] {
        let seen = kill_at_each_call(backend, Work::Transaction, End::Success, policy).await;
        assert_eq!(seen, BTreeSet::from([(Left::Nothing, 0), (Left::Claim, 0), (Left::Result, 1)]));
    }
    let seen = kill_at_each_call(backend, Work::TransactionWithoutClaim, End::Success, Policy::Rerun).await;
    assert_eq!(seen, BTreeSet::from([(Left::Nothing, 0), (Left::Result, 1)]));
}

/// Performs the delivery of a process that [`process::start`] has started, in the only test that it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_of_these_tests() {
    if let Some(ordered) = process::given() {
        let outcomes = ordered.perform().await;
        outcomes.iter().for_each(|outcome| eprintln!("{}{}", process::OUTCOME, outcome.as_str()));
    }
}

on_each_proxied_store!(
    an_operation_of_a_killed_process_takes_effect_by_its_policy,
    an_operation_that_fails_in_a_killed_process_is_free_or_failed,
    a_killed_takeover_is_taken_over,
    an_ordered_operation_of_a_killed_process_takes_effect_in_its_order,
    each_message_of_a_killed_batch_takes_effect,
    a_killed_process_with_a_heartbeat_holds_its_claim_for_its_last_lease,
);

on_each_store!(
    transactions_on_dynamodb, DynamoDb(lambda_once::store::dynamodb::Calls::Single);
    a_transaction_of_a_killed_process_takes_effect_once
);
on_each_store!(transactions_on_postgres, Postgres; a_transaction_of_a_killed_process_takes_effect_once);
