//! Atomicity of a commit.

use std::future::pending;

use lambda_once::{AfterUnknown, ErrorKind, Failure, Interruption, Outcome, Verdict, record::Status};
use tracing::Level;

use super::{DEBIT, Database, KEY, MODES, Mode, World, build, engine, on_each_database};
use crate::support::{assert_outcome, collector::Collector};

// Tests P19.
async fn writes_and_outcome_are_committed_together<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let outcome = world.debit(mode).await.unwrap();
        let rows = world.rows().await;
        assert_outcome!(outcome, Outcome::Executed(id) if rows == [id.clone()]);
        assert_eq!(world.record().await.unwrap().status, Status::Completed);
        for again in MODES {
            assert_outcome!(world.debit(again).await, Ok(Outcome::Replayed(id)) if rows == [id.clone()]);
        }
        assert_eq!(world.rows().await, rows, "{mode:?}");
    }
}

// Tests P19.
async fn a_failure_leaves_no_writes_and_frees_the_key<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let outcome = world.debit_to(mode, Failure::transient("closed")).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
        assert_eq!(world.rows().await, [""; 0]);
        assert_eq!(world.record().await, None);
        assert_outcome!(world.debit(mode).await, Ok(Outcome::Executed(_)));
        assert_eq!(world.rows().await.len(), 1);
    }
}

async fn a_permanent_failure_is_recorded_without_the_writes<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let outcome = world.debit_to(mode, Failure::permanent("no such account")).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Permanent);
        assert_outcome!(
            world.debit(mode).await,
            Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such account")
        );
        assert_eq!(world.rows().await, [""; 0]);
    }
}

async fn an_unknown_failure_keeps_the_claim_and_leaves_no_writes<D: Database>() {
    let world = World::<D>::new().await;
    assert_outcome!(world.debit_to(Mode::Claimed, Failure::unknown("timed out")).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::TookOver(_)));
    assert_eq!(world.rows().await.len(), 1);
}

async fn a_run_that_is_dropped_leaves_no_writes<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        {
            let entered = tokio::sync::Notify::new();
            let work = async |transaction: D::Transaction| {
                world.ledger.enter(&transaction, KEY).await?;
                entered.notify_one();
                pending::<Result<String, Failure>>().await
            };
            let operation = world.once.operation(DEBIT, KEY).in_transaction(&world.store);
            match mode {
                Mode::Claimed => tokio::select! {
                    outcome = operation.run(work) => panic!("{outcome:?}"),
                    () = entered.notified() => {}
                },
                Mode::WithoutClaim => tokio::select! {
                    outcome = operation.without_claim().run(work) => panic!("{outcome:?}"),
                    () = entered.notified() => {}
                },
            }
        }
        world.lapse();
        let outcome = world.debit(mode).await.unwrap();
        let took_over = matches!(outcome, Outcome::TookOver(_));
        assert!(outcome.is_done());
        assert_eq!(took_over, mode == Mode::Claimed, "a crash leaves a claim, and nothing where there is none");
        assert_eq!(world.rows().await.len(), 1);
    }
}

async fn a_cancelled_handler_leaves_no_writes<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let once = build(engine(&world.store, &world.clock).lease(std::time::Duration::from_secs(2)).heartbeat(None));
        let work = async |transaction: D::Transaction| {
            world.ledger.enter(&transaction, KEY).await?;
            pending::<Result<String, Failure>>().await
        };
        let operation = once.operation(DEBIT, KEY).in_transaction(&world.store);
        let outcome = match mode {
            Mode::Claimed => operation.run(work).await,
            Mode::WithoutClaim => operation.without_claim().run(work).await,
        };
        assert_outcome!(outcome, Ok(Outcome::Interrupted(Interruption::Cancelled)));
        world.lapse();
        assert!(world.debit(mode).await.unwrap().is_done());
        assert_eq!(world.rows().await.len(), 1);
    }
}

async fn a_condition_of_the_handlers_own_that_fails_is_its_failure<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        assert_outcome!(world.enter_twice(mode, "row", "another order", None).await, Ok(Outcome::Executed(())));
        let (collector, guard) = Collector::install();
        let refused = world.enter_twice(mode, "row", KEY, None).await;
        drop(guard);
        assert_outcome!(refused, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
        assert_eq!((world.rows().await, world.record().await), (vec![], None), "{mode:?}");
        let lines = collector.lines();
        assert!(lines.iter().all(|line| line.level > Level::ERROR), "{mode:?}: there is no doubt: {lines:?}");
        assert_outcome!(world.debit(mode).await, Ok(Outcome::Executed(_)));
    }
}

async fn a_refused_commit_can_be_classified<D: Database>() {
    let world = World::<D>::new().await;
    let mode = Mode::Claimed;
    assert_outcome!(world.enter_twice(mode, "row", "another order", None).await, Ok(Outcome::Executed(())));
    let refused = world.enter_twice(mode, "row", KEY, Some(Verdict::Permanent)).await;
    assert_outcome!(refused, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Permanent);
    assert_outcome!(world.debit(mode).await, Ok(Outcome::ReplayedFailure(_)));
    assert_eq!(world.rows().await, [""; 0]);
}

// Tests P19.
async fn a_lost_lease_commits_nothing<D: Database>() {
    let world = World::<D>::new().await;
    let mut commit = world.proxy.on(D::settles).hold();
    let rival = async {
        commit.arrived().await;
        world.lapse();
        assert_outcome!(world.debit_elsewhere(Mode::Claimed).await, Ok(Outcome::TookOver(_)));
        commit.release();
    };
    let (outcome, ()) = tokio::join!(world.debit(Mode::Claimed), rival);
    let rows = world.rows().await;
    assert_outcome!(outcome, Ok(Outcome::Replayed(id)) if rows == [id.clone()]);
}

// Tests P20.
async fn nothing_is_committed_twice_under_refuse<D: Database>() {
    let world = World::<D>::new().await;
    let once = build(engine(&world.store, &world.clock).after_unknown(AfterUnknown::Refuse));
    let outcome = world.debit_by(&once, &world.store, Mode::Claimed, || Err(Failure::unknown("timed out"))).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(_)));
    world.lapse();
    for mode in MODES {
        let outcome = world.debit_by(&once, &world.store, mode, || Ok(())).await;
        assert_outcome!(outcome, Ok(Outcome::Abandoned { .. }));
    }
    assert_eq!(world.rows().await, [""; 0]);
}

async fn without_protection_the_writes_are_committed_alone<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let once = build(engine(&world.store, &world.clock).disabled(true));
        let outcome = world.debit_by(&once, &world.store, mode, || Ok(())).await;
        assert_outcome!(outcome, Ok(Outcome::Executed(_)));
        assert_eq!((world.rows().await.len(), world.record().await), (1, None));
        let outcome = world.debit_by(&once, &world.store, mode, || Err(Failure::transient("closed"))).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(_)));
        assert_eq!(world.rows().await.len(), 1);
    }
}

impl<D: Database> World<D> {
    /// Enters a row under an id that may already exist.
    async fn enter_twice(
        &self,
        mode: Mode,
        id: &str,
        key: &str,
        verdict: Option<Verdict>,
    ) -> Result<Outcome<()>, lambda_once::Error> {
        let mut operation = self.once.operation(DEBIT, key).in_transaction(&self.store);
        if let Some(verdict) = verdict {
            operation = operation.classify(move |error| {
                assert_eq!(error.kind(), ErrorKind::Transaction);
                verdict
            });
        }
        let work = async |transaction: D::Transaction| self.ledger.enter_as(&transaction, id, key).await;
        match mode {
            Mode::Claimed => operation.run(work).await,
            Mode::WithoutClaim => operation.without_claim().run(work).await,
        }
    }
}

on_each_database!(
    writes_and_outcome_are_committed_together,
    a_failure_leaves_no_writes_and_frees_the_key,
    a_permanent_failure_is_recorded_without_the_writes,
    an_unknown_failure_keeps_the_claim_and_leaves_no_writes,
    a_run_that_is_dropped_leaves_no_writes,
    a_cancelled_handler_leaves_no_writes,
    a_condition_of_the_handlers_own_that_fails_is_its_failure,
    a_refused_commit_can_be_classified,
    a_lost_lease_commits_nothing,
    nothing_is_committed_twice_under_refuse,
    without_protection_the_writes_are_committed_alone,
);
