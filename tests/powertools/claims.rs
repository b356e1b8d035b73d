//! Claims of both sides: completed, running and abandoned operations of one side, and their effect on the other.

use std::time::Duration;

use lambda_once::{Classify, Failure, Outcome};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    support::assert_outcome,
    worker::Language,
    world::{PLACE, World, gives, now, order, our_result, their_result, with_each},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

with_each!(
    an_outcome_from_there_is_replayed_here,
    an_outcome_from_here_is_replayed_there,
    an_operation_running_there_is_in_progress_here,
    an_operation_running_here_is_refused_there,
    without_a_context_their_claim_has_no_lease,
    a_claim_of_theirs_that_has_lapsed_is_taken_over,
    a_claim_from_here_that_has_lapsed_they_take_over,
    an_expired_outcome_from_there_is_absent_here,
    an_expired_outcome_from_here_is_absent_there,
    an_operation_that_failed_there_runs_here,
    an_operation_that_failed_here_runs_there,
    a_claim_that_was_handed_back_is_free_for_them,
    their_late_end_is_not_fenced,
);

async fn an_outcome_from_there_is_replayed_here(world: World) {
    gives(&world.call(&json!({})), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Replayed(result) if result == their_result());
    assert_eq!(world.runs(), 0);
}

async fn an_outcome_from_here_is_replayed_there(world: World) {
    assert_outcome!(world.run().await, Outcome::Executed(_));
    gives(&world.call(&json!({})), &our_result(), false);
    assert_outcome!(world.run().await, Outcome::Replayed(result) if result == our_result());
    assert_eq!(world.runs(), 1);
}

async fn an_operation_running_there_is_in_progress_here(world: World) {
    world.hold(Some(30_000));
    assert_outcome!(
        world.run().await,
        Outcome::InProgress { lease_until: Some(until), .. }
            if until > now().after(Duration::from_secs(20)) && until < now().after(Duration::from_secs(40))
    );
    gives(&world.resume(), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Replayed(result) if result == their_result());
    assert_eq!(world.runs(), 0);
}

/// Begins the operation, and waits until its work is in progress.
async fn begin(world: &World, once: &lambda_once::Idempotency, end: oneshot::Receiver<()>) -> impl Future<Output = ()> {
    let (entered, begun) = oneshot::channel();
    let (once, order) = (once.clone(), order());
    let mut run = Box::pin(async move {
        let work = || async move {
            entered.send(()).unwrap();
            let _ = end.await;
            Ok::<_, Failure>(our_result())
        };
        let outcome = once.operation(PLACE, &order).payload(&order).run(work).await;
        assert_outcome!(outcome, Ok(Outcome::Executed(_)));
    });
    tokio::select! {
        () = &mut run => panic!("it ended before its work had begun"),
        begun = begun => begun.unwrap(),
    }
    assert_eq!(world.status().await.as_deref(), Some("INPROGRESS"));
    run
}

async fn an_operation_running_here_is_refused_there(world: World) {
    let (end, ended) = oneshot::channel();
    let run = begin(&world, &world.once, ended).await;
    let answer = world.call(&json!({}));
    assert_eq!(answer, json!({ "error": "IdempotencyAlreadyInProgressError", "ran": false }));
    end.send(()).unwrap();
    run.await;
    gives(&world.call(&json!({})), &our_result(), false);
}

async fn without_a_context_their_claim_has_no_lease(world: World) {
    world.hold(None);
    assert!(!world.item().await.unwrap().contains_key("in_progress_expiration"));
    assert_outcome!(world.run().await, Outcome::InProgress { lease_until: None, .. });
    world.resume();
    assert_outcome!(world.run().await, Outcome::Replayed(_));
}

async fn a_claim_of_theirs_that_has_lapsed_is_taken_over(world: World) {
    world.hold(Some(-60_000));
    assert_outcome!(world.run().await, Outcome::TookOver(result) if result == our_result());
    gives(&world.call(&json!({})), &our_result(), false);
}

async fn a_claim_from_here_that_has_lapsed_they_take_over(world: World) {
    let (_end, ended) = oneshot::channel();
    // The lease is 30 s. A dropped run leaves its claim.
    drop(begin(&world, &world.earlier(Duration::from_secs(60)), ended).await);
    gives(&world.call(&json!({})), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Replayed(result) if result == their_result());
}

async fn an_expired_outcome_from_there_is_absent_here(world: World) {
    let expires = world.option("expires_after_seconds", "expiresAfterSeconds");
    gives(&world.call(&json!({ "options": { expires: -60 } })), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Executed(_));
    gives(&world.call(&json!({})), &our_result(), false);
}

async fn an_expired_outcome_from_here_is_absent_there(world: World) {
    // Outcomes are kept for 15 days.
    assert_outcome!(world.operate(&world.earlier(20 * DAY)).await, Ok(Outcome::Executed(_)));
    gives(&world.call(&json!({})), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Replayed(result) if result == their_result());
}

async fn an_operation_that_failed_there_runs_here(world: World) {
    let answer = world.call(&json!({ "fails": true }));
    assert_eq!(answer["ran"], json!(true));
    assert!(answer["error"].is_string());
    assert_outcome!(world.run().await, Outcome::Executed(_));
}

async fn an_operation_that_failed_here_runs_there(world: World) {
    for permanent in [false, true] {
        let work = || async {
            let failed = Err::<Value, _>(std::io::Error::other("declined"));
            if permanent { failed.permanent() } else { failed.transient() }
        };
        let outcome = world.once.operation(PLACE, &order()).payload(&order()).run(work).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(_)));
        assert_eq!(world.item().await, None, "permanent: {permanent}");
    }
    gives(&world.call(&json!({})), &their_result(), true);
}

async fn a_claim_that_was_handed_back_is_free_for_them(world: World) {
    world.hold(Some(-60_000));
    let work = || async { Err::<Value, _>(std::io::Error::other("declined")).permanent() };
    let outcome = world.once.operation(PLACE, &order()).run(work).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(_)));
    // The record still shows that the first run left no outcome.
    assert_eq!(world.status().await.as_deref(), Some("INPROGRESS"));
    gives(&world.call(&json!({})), &their_result(), true);
}

/// The documentation lists this limitation: Powertools completes and deletes unconditionally.
async fn their_late_end_is_not_fenced(world: World) {
    world.hold(Some(-60_000));
    assert_outcome!(world.run().await, Outcome::TookOver(_));
    gives(&world.resume(), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Replayed(result) if result == their_result());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_two_do_not_recognize_each_other() {
    let mut world = World::new(Language::Python, lambda_once::store::dynamodb::Calls::Auto).await;
    gives(&world.call(&json!({})), &their_result(), true);
    world.language = Language::TypeScript;
    gives(&world.call(&json!({})), &their_result(), true);
}
