//! Several engines, disabled engines, and the public interface of an engine.

use std::time::Duration;

use lambda_once::{
    ErrorKind, Failure, Idempotency, Interruption, MissingKey, Outcome, Store,
    record::Status,
    store::fault::{Call, Fault},
};

use super::{CHARGE, KEY, World, assert_outcome, results::RejectingStore};

#[tokio::test(start_paused = true)]
async fn engines_of_different_names_share_a_store_without_meeting() {
    let world = World::new();
    let named = [world.once.named("charge"), world.once.named("refund")];
    for engine in named.into_iter().chain([world.once.clone(), world.another(|b| b.scope("billing"))]) {
        assert_outcome!(engine.operation(CHARGE, KEY).run(|| world.work()).await, Ok(Outcome::Executed(_)));
    }
    assert_eq!(world.runs(), 4);
}

#[tokio::test(start_paused = true)]
async fn engines_of_the_same_name_share_their_operations() {
    let world = World::new();
    let elsewhere = world.another(|builder| builder);
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_outcome!(elsewhere.operation(CHARGE, KEY).run(|| world.work()).await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn operations_of_different_names_share_a_key_without_meeting() {
    let world = World::new();
    for engine in [world.once.clone(), world.once.named("shop")] {
        for name in [CHARGE, "mail", "shop"] {
            assert_outcome!(engine.operation(name, KEY).run(|| world.work()).await, Ok(Outcome::Executed(_)));
            assert_outcome!(engine.operation(name, KEY).run(|| world.work()).await, Ok(Outcome::Replayed(_)));
            let record = world
                .records
                .read(&[engine.key_hash(name, KEY).unwrap()], lambda_once::store::ResultData::Include)
                .await
                .remove(0)
                .unwrap();
            assert_eq!(record.unwrap().status, Status::Completed);
        }
    }
    assert_eq!(world.runs(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_operation_runs_inside_one_of_another_name() {
    let world = World::new();
    for expected in ["executed", "replayed"] {
        let outer = world.once.operation("order", KEY).run(|| async {
            assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
            Ok::<_, Failure>("ordered".to_owned())
        });
        assert_eq!(outer.await.unwrap().as_str(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_a_name_is_refused() {
    let world = World::new();
    let error = world.once.operation("", KEY).run(|| world.work()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false));
    assert_eq!(world.once.key_hash("", KEY).unwrap_err().kind(), ErrorKind::Config);
    assert_eq!((world.runs(), world.calls()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_operation_inside_itself_finds_itself_in_progress() {
    let world = World::new();
    let outer = world.once.operation(CHARGE, KEY).run(|| async {
        assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
        Ok::<_, Failure>(7)
    });
    assert_outcome!(outer.await, Ok(Outcome::Executed(7)));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_engine_runs_each_time_and_never_calls_the_store() {
    let world = World::with(|builder| builder.disabled(true));
    world.store.always(Call::Claim, Fault::AccessDenied);
    world.once.warm_up().await.unwrap();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(2)));
    assert_outcome!(world.run_to(Err(Failure::permanent("no"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(
        Idempotency::disabled().operation(CHARGE, KEY).run(|| world.work()).await,
        Ok(Outcome::Executed(3))
    );
    assert_eq!(world.calls(), []);
}

#[tokio::test]
async fn a_disabled_engine_opens_no_connections() {
    for is_disabled in [true, false] {
        let builder = Idempotency::builder(RejectingStore::new(ErrorKind::Table)).disabled(is_disabled);
        assert_eq!(builder.build().unwrap().warm_up().await.is_ok(), is_disabled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_cancelled_without_protection_too() {
    let world = World::with(|builder| builder.disabled(true));
    let hanging = world.once.operation(CHARGE, KEY).run(std::future::pending::<Result<u32, Failure>>);
    assert_outcome!(hanging.await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    let panicking = world.once.operation(CHARGE, KEY).run(|| async { panic!("oh") as Result<u32, Failure> });
    assert_outcome!(panicking.await, Ok(Outcome::Interrupted(Interruption::Panicked)));
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_a_key_is_refused() {
    let world = World::new();
    for operation in [
        world.once.operation(CHARGE, ""),
        world.once.operation(CHARGE, &None::<u8>),
        world.once.operation(CHARGE, &("order", "")),
        world.once.operation::<[u8]>(CHARGE, &[]),
    ] {
        let error = operation.run(|| world.work()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyMissing);
        assert!(!error.is_retryable());
    }
    assert_eq!((world.runs(), world.calls()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_a_key_runs_unprotected_where_that_is_wanted() {
    let world = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    for run in 1..=2 {
        let outcome = world.once.operation(CHARGE, "").run_with(|claim| {
            assert!(claim.is_none());
            world.work()
        });
        assert_outcome!(outcome.await, Ok(Outcome::Executed(count)) if count == run);
    }
    assert_eq!(world.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_compared_is_refused_before_any_claim() {
    let world = World::new();
    let payload = std::collections::HashMap::from([((1, 2), 3)]);
    let error = world.once.operation(CHARGE, KEY).payload(&payload).run(|| world.work()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert_eq!((world.runs(), world.calls()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn retentions_that_let_a_record_expire_under_its_holder_are_refused() {
    let refused = World::new();
    let second = Duration::from_secs(1);
    let builder = || Idempotency::builder(refused.store.clone());
    for bad in [
        builder().retention(30 * second),
        builder().failed_retention(30 * second),
        builder().in_progress_retention(30 * second),
        builder().lease(60 * second).retention(60 * second),
        builder().skew_margin(2 * second).retention(31 * second),
    ] {
        assert_eq!(bad.build().unwrap_err().kind(), ErrorKind::Config);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_was_spawned_outlives_a_run() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let world = World::new();
    world.store.next(Call::Claim, Fault::ErrorAfter);
    world.store.next(Call::Settle, Fault::Throttled);
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    let hanging = world.once.operation(CHARGE, "hangs").run(std::future::pending::<Result<u32, Failure>>);
    assert_outcome!(hanging.await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_shared_freely_and_its_runs_cross_threads() {
    fn shared<T: Clone + Send + Sync + 'static>(value: T) -> T {
        value
    }
    let world = World::new();
    let (once, work) = (shared(world.once.clone()), world.work());
    let spawned = tokio::spawn(async move { once.operation(CHARGE, KEY).run(|| work).await });
    assert_outcome!(spawned.await.unwrap(), Ok(Outcome::Executed(1)));
    assert_eq!(world.record().await.unwrap().status, Status::Completed);
}
