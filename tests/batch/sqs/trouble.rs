//! Store errors: throttling, lost responses, and unavailability.

use lambda_once::{
    ErrorKind, OutcomeKind,
    batch::{FullBatchFailure, OnFailure},
    record::Status,
    store::fault::{Call, Fault},
};

use crate::world::{World, batch, fifo, ids, invoke, millis, order, orders, seconds, work};

// Tests S4, B8.
#[tokio::test(start_paused = true)]
async fn done_work_that_cannot_be_recorded_is_acknowledged_and_never_released() {
    for fault in [Fault::Throttled, Fault::ErrorBefore, Fault::AccessDenied, Fault::TableMissing, Fault::Silence] {
        let world = World::new();
        world.store.always(Call::Settle, fault);
        assert!(world.deliver([order("A"), order("B")]).await.is_empty(), "{fault:?}");
        world.store.heal();
        assert_eq!(world.journal.releases(), 0, "{fault:?}");
        if fault != Fault::Silence {
            assert_eq!(world.status("A").await, Some(Status::InProgress), "{fault:?}");
            assert_eq!(world.deliver([order("A")]).await, ["m0"], "{fault:?}");
        }
        assert_eq!(world.journal.keys(), ["A", "B"], "{fault:?}");
    }
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_dead_store_fails_the_invocation_and_failed_work_does_not() {
    let world = World::new();
    let service = world.service().on_full_batch_failure(FullBatchFailure::StoreError);
    let deliver = |bodies| async { invoke(&service, batch(bodies), world.left(seconds(30))).await.map(drop) };
    world.store.always(Call::Claim, Fault::TableMissing);
    let error = deliver(vec![order("A"), order("B")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Batch);
    assert!(error.message().starts_with("the store decided none of the batch's 2 records: claim (table): "), "{error}");
    world.store.heal();
    deliver(vec![work("A", "transient", 0), work("B", "permanent", 0)]).await.unwrap();
    deliver(vec![order("A"), order("B")]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_store_fails_the_invocation_of_a_fifo_queue_as_well() {
    let world = World::new();
    let service = world.service().on_full_batch_failure(FullBatchFailure::StoreError);
    let deliver = |event| async { invoke(&service, event, world.left(seconds(30))).await.map(drop) };
    world.store.always(Call::Claim, Fault::TableMissing);
    let error = deliver(fifo(["A", "B", "C"].map(|key| ("group", order(key))))).await.unwrap_err();
    assert!(error.message().starts_with("the store decided none of the batch's 3 records: claim (table): "), "{error}");
    world.store.heal();
    // Messages behind one that failed itself.
    deliver(fifo([("group", work("D", "transient", 0)), ("group", order("E"))])).await.unwrap();
}

/// The message whose claim failed is itself skipped.
#[tokio::test(start_paused = true)]
async fn a_store_error_that_only_a_duplicate_reports_fails_the_invocation() {
    let world = World::new();
    let service = world.service().on_full_batch_failure(FullBatchFailure::StoreError);
    let service = service.on_failure(OnFailure::StopBatch);
    world.store.next(Call::Claim, Fault::Delay(millis(1)));
    world.store.next(Call::Claim, Fault::TableMissing);
    let event = fifo([("a", order("A")), ("a", order("B")), ("b", order("B"))]);
    let processed = world.process(&service, event).await;
    assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Skipped), Ok(OutcomeKind::Skipped), Err(ErrorKind::Table)]);
    let error = processed.response.unwrap_err();
    assert!(error.message().starts_with("the store decided none of the batch's 3 records: claim (table): "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_tried_again_until_it_is_recorded() {
    for fault in [Fault::Throttled, Fault::ErrorBefore, Fault::ErrorAfter, Fault::AccessDenied] {
        let world = World::new();
        (0..4).for_each(|_| world.store.next(Call::Settle, fault));
        assert!(world.deliver([order("A")]).await.is_empty(), "{fault:?}");
        assert_eq!(world.status("A").await, Some(Status::Completed), "{fault:?}");
        assert_eq!(world.calls(Call::Settle), [1; 5], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_response_does_not_wait_for_the_store_past_the_deadline() {
    for (call, fault) in [
        (Call::Settle, Fault::Throttled),
        (Call::Settle, Fault::Silence),
        (Call::Claim, Fault::Silence),
        (Call::Claim, Fault::Delay(seconds(600))),
    ] {
        let world = World::new();
        world.store.always(call, fault);
        let context = world.left(seconds(10));
        let deadline = context.deadline;
        invoke(&world.service(), batch(orders(3, "succeed", 0)), context).await.unwrap();
        assert!(lambda_once::clock::Clock::now(&world.clock).as_millis() < deadline, "{call:?} {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_store_down_every_record_is_reported_and_none_runs() {
    for (fault, calls) in
        [(Fault::ErrorBefore, 3), (Fault::Throttled, 3), (Fault::AccessDenied, 1), (Fault::Silence, 3)]
    {
        let world = World::new();
        world.store.always(Call::Claim, fault);
        assert_eq!(world.deliver(orders(8, "succeed", 0)).await, ids(0..8), "{fault:?}");
        assert!(world.journal.keys().is_empty(), "{fault:?}");
        assert_eq!(world.calls(Call::Claim), vec![8; calls], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_throttled_is_sent_again_alone() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::Throttled);
    assert!(world.deliver(orders(8, "succeed", 0)).await.is_empty());
    assert_eq!(world.calls(Call::Claim), [8, 1]);
    assert_eq!(world.journal.keys().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_claim_result_was_lost_runs_once() {
    let world = World::new();
    (0..3).for_each(|_| world.store.next(Call::Claim, Fault::ErrorAfter));
    assert!(world.deliver(orders(3, "succeed", 0)).await.is_empty());
    assert_eq!(world.calls(Call::Claim), [3, 3]);
    assert!(world.journal.times_run().values().all(|times| *times == 1));
    assert!(world.deliver(orders(3, "succeed", 0)).await.is_empty());
    assert_eq!(world.journal.keys().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_error_for_one_record_affects_no_other() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::AccessDenied);
    assert_eq!(world.deliver(orders(4, "succeed", 0)).await, ["m0"]);
    assert_eq!(world.journal.keys(), ["order-1", "order-2", "order-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_leaves_a_claim_that_ends_with_its_lease() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Throttled);
    assert_eq!(world.deliver([work("A", "transient once", 0)]).await, ["m0"]);
    world.store.heal();
    assert_eq!(world.status("A").await, Some(Status::InProgress));
    tokio::time::advance(seconds(63)).await;
    assert!(world.deliver([work("A", "transient once", 0)]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_that_cannot_be_recorded_is_reported() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Throttled);
    assert_eq!(world.deliver([work("A", "permanent", 0)]).await, ["m0"]);
    assert_eq!(world.status("A").await, Some(Status::InProgress));
    assert_eq!(world.journal.releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_behind_a_hung_settle_call_is_sent_when_the_call_times_out() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Silence);
    let service = world.service().concurrency(2);
    let began = tokio::time::Instant::now();
    let event = batch([work("A", "succeed", 10), work("B", "succeed", 20)]);
    assert!(invoke(&service, event, world.left(seconds(10))).await.unwrap().is_empty());
    assert!(began.elapsed() < seconds(10), "{:?}", began.elapsed());
    // B waits behind A for three seconds, the timeout of a call. Then both are repeated until the end.
    assert_eq!(world.calls(Call::Settle)[..3], [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn settles_that_are_sent_again_end_in_time() {
    for _ in 0..50 {
        let world = World::with(|builder| builder.reserve(millis(500)));
        world.store.always(Call::Settle, Fault::Throttled);
        let began = tokio::time::Instant::now();
        // Settling ends at 9.75 s, and the invocation at 10 s.
        let service = world.service();
        let invocation = invoke(&service, batch([work("A", "succeed", 9_490)]), world.left(seconds(10)));
        let silence = async {
            tokio::time::sleep(millis(9_660)).await;
            world.store.heal();
            world.store.always(Call::Settle, Fault::Silence);
        };
        let (reported, ()) = tokio::join!(invocation, silence);
        assert!(reported.unwrap().is_empty());
        assert!(began.elapsed() <= millis(9_760), "{:?}", began.elapsed());
    }
}
