//! The number of requests per operation, counted by a proxy.

use lambda_once::{Failure, Mismatch, MismatchState, Outcome, store::dynamodb::Calls};

use super::{CHARGE, KEY, LEASE, MARGIN, Purpose, World, assert_outcome};

#[tokio::test]
async fn a_new_operation_takes_two_requests() {
    let world = World::new().await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem"]);
}

#[tokio::test]
async fn a_repeated_operation_takes_one_request() {
    let world = World::new().await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.proxy.reset();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    assert_eq!(world.requests(), ["UpdateItem"]);
}

/// The first attempt assumes the likeliest case. Its refusal shows an in-doubt or completed operation.
#[tokio::test]
async fn an_ordered_operation_takes_two_requests_and_a_refused_one_takes_one() {
    let world = World::new().await;
    let set = async |version: u64| {
        let operation = world.once.operation(CHARGE, &version).ordered_by(KEY, version);
        let outcome = operation.run(|| world.work()).await.unwrap();
        let requests = world.requests().len();
        world.proxy.reset();
        (outcome.as_str(), requests)
    };
    assert_eq!(set(5).await, ("executed", 2), "a new entity");
    assert_eq!(set(6).await, ("executed", 2), "one that has a mark");
    assert_eq!(set(4).await, ("superseded", 1));
    assert_eq!(set(6).await, ("replayed", 1));
    let lost = world.once.operation(CHARGE, &8).ordered_by(KEY, 8_u64);
    assert_outcome!(lost.run(|| async { Err::<u32, _>(Failure::unknown("timed out")) }).await, Ok(Outcome::Failed(_)));
    world.clock.jump(LEASE + MARGIN + MARGIN);
    world.proxy.reset();
    assert_eq!(set(9).await, ("executed", 4), "what is in doubt is shown by a refusal of the claim, and of the settle");
    assert_eq!(set(10).await, ("executed", 2), "the doubt has ended");
}

#[tokio::test]
async fn a_failed_operation_takes_two_requests() {
    let world = World::new().await;
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.requests(), ["UpdateItem", "DeleteItem"]);
    world.proxy.reset();
    assert_outcome!(world.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem"]);
    world.proxy.reset();
    assert_outcome!(world.run().await, Ok(Outcome::ReplayedFailure(_)));
    assert_eq!(world.requests(), ["UpdateItem"]);
}

#[tokio::test]
async fn a_conflict_takes_one_request() {
    let world = World::new().await;
    world.abandon().await;
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    let mismatch = world.once.operation(CHARGE, KEY).payload("another").run(|| world.work()).await;
    assert_outcome!(mismatch, Ok(Outcome::InProgress { .. }));
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem"]);
}

#[tokio::test]
async fn a_wait_takes_one_request_for_each_look() {
    let world = World::new().await;
    let looks = || world.requests().iter().filter(|operation| *operation == "GetItem").count();
    let held = world.elsewhere.operation(CHARGE, KEY).run(|| async {
        while looks() < 2 {
            tokio::task::yield_now().await;
        }
        Ok::<_, Failure>(7)
    });
    let waited = world.once.operation(CHARGE, KEY).wait_up_to(LEASE).run(|| world.work());
    let (held, waited) = tokio::join!(held, async {
        // The other operation is first.
        while world.item().await.is_none() {}
        waited.await
    });
    assert_outcome!(held, Ok(Outcome::Executed(7)));
    assert_outcome!(waited, Ok(Outcome::Replayed(7)));
    let requests = world.requests();
    assert_eq!((&*requests[0], requests.len(), world.runs()), ("UpdateItem", 1 + looks(), 0), "{requests:?}");
}

#[tokio::test]
async fn a_takeover_takes_two_requests() {
    let world = World::new().await;
    world.abandon().await;
    world.clock.jump(LEASE + MARGIN / 2);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.clock.jump(MARGIN / 2);
    world.proxy.reset();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem"]);
}

#[tokio::test]
async fn a_lost_response_to_a_claim_costs_a_request_and_in_batches_a_read_too() {
    use Purpose::{Claim, Complete, Read};
    for (calls, expected) in
        [(Calls::Single, vec![Claim, Claim, Complete]), (Calls::Batched, vec![Claim, Claim, Read, Complete])]
    {
        let world = World::of(calls).await;
        world.on(Claim).drop_response();
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        assert_eq!(world.purposes(), expected);
    }
}

#[tokio::test]
async fn another_payload_takes_one_request_and_never_takes_over() {
    let world = World::new().await;
    let on = |payload: &'static str| world.once.operation(CHARGE, KEY).payload(payload);
    let unknown = on("a").run(|| async { Err::<u32, _>(Failure::unknown("timed out")) });
    assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    world.lapse();
    world.proxy.reset();
    assert_outcome!(
        on("b").run(|| world.work()).await,
        Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Abandoned { attempt: 1 }, .. }))
    );
    assert_eq!(world.requests(), ["UpdateItem"]);
    assert_outcome!(on("a").run(|| world.work()).await, Ok(Outcome::TookOver(1)));
    assert_outcome!(
        on("b").run(|| world.work()).await,
        Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Final, .. }))
    );
}
