//! Leases, which start when a call begins, because DynamoDB has no clock.

use std::time::Duration;

use lambda_once::{
    DynamoDbStore, Idempotency, Outcome, Store,
    clock::ManualClock,
    store::{
        ClaimRequest, Claimed, Settled, Settlement, Takeover,
        amend::{Amend, AmendRequest, Amended, Amendment},
        dynamodb::{Calls, Config},
    },
};

use super::{CHARGE, KEY, LEASE, MARGIN, Purpose, World, assert_outcome, batches, in_both_shapes, support};
use crate::support::{
    FUTURE,
    requests::{HAND_BACK, RETENTION, claim, entity, granted, ordered, read_one, rival, settle_one},
    wire::Request,
};

async fn a_late_claim_has_the_lease_that_it_requested(calls: Calls) {
    let world = World::of(calls).await;
    let mut late = world.on(Purpose::Claim).hang();
    let claim = tokio::select! {
        outcome = world.run() => panic!("the run should still wait, but ended as {outcome:?}"),
        claim = late.arrived() => claim,
    };
    world.clock.jump(LEASE / 2);
    assert_eq!(late.deliver().await.is_applied(), Some(true));
    let item = world.item().await.unwrap();
    let lease = item["in_progress_expiration"].as_n().unwrap();
    assert!(claim.body().to_string().contains(lease), "{lease} is not in {claim:?}");
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.clock.jump(LEASE / 2 + MARGIN);
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

/// Ten requests are sent concurrently, and the eleventh waits for the first.
#[tokio::test]
async fn the_leases_of_one_call_end_together() {
    let world = World::of(Calls::Single).await;
    let client = support::client(&world.url).await;
    let store = Config::new(&world.table).calls(Calls::Single).build(client).unwrap();
    let clock = ManualClock::at(FUTURE);
    let store = store.with_clock(clock.clone());
    let claims: Vec<_> = (0..11).map(batches::claim).collect();
    let mut first = world.on(Purpose::Claim).hold();
    let delay = async {
        first.arrived().await;
        clock.advance(Duration::from_secs(5));
        first.release();
    };
    let (answers, ()) = tokio::join!(store.claim(&claims), delay);
    for answer in answers {
        let answer = answer.unwrap();
        assert!(matches!(answer, Claimed::Granted(grant) if grant.lease_until == FUTURE.after(LEASE)), "{answer:?}");
    }
}

/// The recorded lease is later than the requested one, so the renewal would be retried.
// Tests L5.
async fn a_renewal_that_arrives_after_the_lapse_revives_nothing(calls: Calls) {
    for is_ordered in [false, true] {
        let world = World::of(calls).await;
        let client = support::client(&world.url).await;
        let store = Config::new(&world.table).calls(calls).build(client).unwrap().with_clock(world.clock.clone());
        let claim = if is_ordered { ordered(&entity(), 5) } else { claim() };
        granted(&store, &claim).await;
        let renewal = |lease| Settlement::Renew { lease, skew_margin: MARGIN, retention: RETENTION };
        let renewed = settle_one(&store, &claim, renewal(LEASE * 2)).await;
        assert!(matches!(renewed, Ok(Settled::Renewed { .. })), "{renewed:?}");
        let before = read_one(&store, &claim).await;
        let asks = |request: &Request| {
            ["UpdateItem", "BatchExecuteStatement", "TransactWriteItems"].contains(&&*request.command)
        };
        let mut first = world.proxy.on(asks).hold();
        let lapse = async {
            first.arrived().await;
            world.clock.jump(LEASE * 2 + MARGIN + Duration::from_millis(1));
            first.release();
        };
        let (refused, ()) = tokio::join!(settle_one(&store, &claim, renewal(LEASE)), lapse);
        assert!(matches!(refused, Ok(Settled::LeaseLost { .. })), "ordered: {is_ordered}, {refused:?}");
        assert_eq!(read_one(&store, &claim).await, before);
        assert!(granted(&store, &rival(&claim)).await.took_over(), "ordered: {is_ordered}");
    }
}

/// One clock is ahead by more than the margin, so the second run begins while the first has its lease.
// Tests S3, S8, P8.
async fn of_two_runs_by_different_clocks_one_outcome_is_recorded(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE.after(2 * (LEASE + MARGIN)));
    let store = Config::new(&world.table).calls(calls).build(world.direct.clone()).unwrap().with_clock(clock.clone());
    let ahead = Idempotency::builder(store).clock(clock).build().unwrap();
    let first = world.once.operation(CHARGE, KEY).run(|| async {
        let second = ahead.operation(CHARGE, KEY).run(|| world.work());
        assert_outcome!(second.await, Ok(Outcome::TookOver(1)));
        world.work().await
    });
    assert_outcome!(first.await, Ok(Outcome::Replayed(1)));
    assert_eq!(world.runs(), 2);
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

/// Returns a store on which a lapsed claim was released, and the claim that has used up that release.
async fn spent_release(world: &World, calls: Calls) -> (DynamoDbStore, ClaimRequest) {
    let client = support::client(&world.url).await;
    let store = Config::new(&world.table).calls(calls).build(client).unwrap().with_clock(world.clock.clone());
    let first = claim();
    granted(&store, &first).await;
    lapse(world);
    release(&store, &first).await;
    let second = ClaimRequest { takeover: Takeover::Refused, ..rival(&first) };
    assert!(granted(&store, &second).await.took_over());
    (store, second)
}

fn lapse(world: &World) {
    world.clock.jump(LEASE + MARGIN + Duration::from_millis(1));
}

async fn release(store: &DynamoDbStore, claim: &ClaimRequest) {
    let record = read_one(store, claim).await.unwrap();
    let request = AmendRequest::new(claim.key, &record, Amendment::Release);
    assert_eq!(store.amend(&[request]).await.remove(0).unwrap(), Amended::Changed);
}

/// A hand-back of a record with a release is written twice, the second time according to the result of the first.
async fn a_hand_back_loses_no_release_that_comes_in_between(calls: Calls) {
    let world = World::of(calls).await;
    let (store, second) = spent_release(&world, calls).await;
    lapse(&world);
    let third = rival(&ClaimRequest { takeover: Takeover::Allowed, ..second.clone() });
    assert!(granted(&store, &third).await.took_over());
    lapse(&world);
    let writes = |request: &Request| ["UpdateItem", "BatchExecuteStatement"].contains(&&*request.command);
    let mut write = world.proxy.on(writes).nth(2).hold();
    let meanwhile = async {
        write.arrived().await;
        release(&store, &third).await;
        write.release();
    };
    let (answer, ()) = tokio::join!(settle_one(&store, &third, HAND_BACK), meanwhile);
    let error = answer.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(settle_one(&store, &third, HAND_BACK).await.unwrap(), Settled::Done { found: None });
    assert!(granted(&store, &rival(&second)).await.took_over(), "the release is still there");
}

#[tokio::test]
async fn a_hand_back_that_is_refused_without_the_item_passes_its_release_on() {
    let world = World::of(Calls::Single).await;
    let (store, second) = spent_release(&world, Calls::Single).await;
    world.proxy.on(|request: &Request| request.command == "UpdateItem").refuse_without_the_item();
    assert_eq!(settle_one(&store, &second, HAND_BACK).await.unwrap(), Settled::Done { found: None });
    assert!(granted(&store, &rival(&second)).await.took_over(), "the release is passed on");
}

in_both_shapes!(
    a_hand_back_loses_no_release_that_comes_in_between,
    a_late_claim_has_the_lease_that_it_requested,
    a_renewal_that_arrives_after_the_lapse_revives_nothing,
    of_two_runs_by_different_clocks_one_outcome_is_recorded,
);
