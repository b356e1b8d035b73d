//! Operations without a claim. The commit decides which run takes effect.

use futures_util::future::join_all;
use lambda_once::{Error, Failure, Mismatch, MismatchState, Outcome, OutcomeKind};

use super::{DEBIT, Database, KEY, Mode, World, on_each_database};
use crate::support::assert_outcome;

// Tests P20.
async fn of_many_runs_at_once_one_takes_effect<D: Database>() {
    let world = World::<D>::new().await;
    let outcomes = join_all((0..16).map(|_| world.debit_elsewhere(Mode::WithoutClaim))).await;
    let kinds: Vec<OutcomeKind> = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().kind()).collect();
    let executed = kinds.iter().filter(|kind| **kind == OutcomeKind::Executed).count();
    assert_eq!(executed, 1, "{kinds:?}");
    assert!(kinds.iter().all(|kind| matches!(kind, OutcomeKind::Executed | OutcomeKind::Replayed)), "{kinds:?}");
    assert_eq!(world.rows().await.len(), 1);
}

async fn a_live_claim_is_respected_and_a_lapsed_one_taken_over<D: Database>() {
    let world = World::<D>::new().await;
    let unknown = world.once.operation(DEBIT, KEY).run(async || Err::<String, _>(Failure::unknown("timed out")));
    assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.debit(Mode::WithoutClaim).await, Ok(Outcome::InProgress { .. }));
    assert_eq!(world.rows().await, [""; 0]);
    world.lapse();
    assert!(world.debit(Mode::WithoutClaim).await.unwrap().is_done());
    assert_eq!(world.rows().await.len(), 1);
}

/// Debits the order by this amount, which is its payload.
async fn debit<D: Database>(world: &World<D>, cents: u32) -> Result<Outcome<String>, Error> {
    let work = async |transaction: D::Transaction| world.ledger.enter(&transaction, KEY).await;
    world.once.operation(DEBIT, KEY).payload(&cents).in_transaction(&world.store).without_claim().run(work).await
}

async fn another_payload_is_a_mismatch<D: Database>() {
    let world = World::<D>::new().await;
    assert_outcome!(debit(&world, 995).await, Ok(Outcome::Executed(_)));
    assert_outcome!(debit(&world, 996).await, Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Final, .. })));
    assert_outcome!(debit(&world, 995).await, Ok(Outcome::Replayed(_)));
    assert_eq!(world.rows().await.len(), 1);

    // It does not take over the claim of another payload either.
    let world = World::<D>::new().await;
    let unknown = world.once.operation(DEBIT, KEY).payload(&995_u32);
    let unknown = unknown.run(async || Err::<String, _>(Failure::unknown("timed out")));
    assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    world.lapse();
    assert_outcome!(
        debit(&world, 996).await,
        Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Abandoned { attempt: 1 }, .. }))
    );
    assert_eq!(world.rows().await, [""; 0]);
    assert!(debit(&world, 995).await.unwrap().is_done());
}

async fn an_expired_outcome_is_replaced<D: Database>() {
    let world = World::<D>::new().await;
    assert_outcome!(world.debit(Mode::WithoutClaim).await, Ok(Outcome::Executed(_)));
    world.clock.jump(std::time::Duration::from_secs(16 * 24 * 3_600));
    assert_outcome!(world.debit(Mode::WithoutClaim).await, Ok(Outcome::Executed(_)));
    assert_eq!(world.rows().await.len(), 2);
}

async fn the_record_is_one_that_a_claim_would_have_left<D: Database>() {
    let (claimed, claimless) = (World::<D>::new().await, World::<D>::new().await);
    assert_outcome!(claimed.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
    assert_outcome!(claimless.debit(Mode::WithoutClaim).await, Ok(Outcome::Executed(_)));
    let records = (claimed.record().await.unwrap(), claimless.record().await.unwrap());
    assert_eq!(
        (records.0.status, records.0.attempt, records.0.prior_status, records.0.fingerprint, records.0.version),
        (records.1.status, records.1.attempt, records.1.prior_status, records.1.fingerprint, records.1.version)
    );
    let expirations = (records.0.expiration.unwrap(), records.1.expiration.unwrap());
    assert!(expirations.0.abs_diff(expirations.1) < 60, "{expirations:?}");
    assert!(records.1.owner.is_some());
}

on_each_database!(
    of_many_runs_at_once_one_takes_effect,
    a_live_claim_is_respected_and_a_lapsed_one_taken_over,
    another_payload_is_a_mismatch,
    an_expired_outcome_is_replaced,
    the_record_is_one_that_a_claim_would_have_left,
);
