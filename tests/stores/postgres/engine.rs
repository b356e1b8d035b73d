//! The engine on PostgreSQL, with the server's clock.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use lambda_once::{Failure, Idempotency, Outcome, store::postgres::PostgresStore};

use super::{proxy::Proxy, sessions::*, *};

fn engine(store: PostgresStore) -> Idempotency {
    Idempotency::builder(store).scope("tests").build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_equal_operations_at_once_one_runs_and_the_others_replay_it() {
    let once = engine(support::postgres::migrated().await);
    let runs = Arc::new(AtomicUsize::new(0));
    let tasks = (0..20).map(|_| {
        let (once, runs) = (once.clone(), Arc::clone(&runs));
        tokio::spawn(async move {
            let charge = || async {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Failure>(7_u32)
            };
            once.operation("charge", "order 7").wait_up_to(Duration::from_secs(20)).run(charge).await.unwrap()
        })
    });
    let outcomes: Vec<Outcome<u32>> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let executed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Executed(7))).count();
    let replayed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Replayed(7))).count();
    assert_eq!((executed, replayed), (1, 19), "{outcomes:?}");
}

/// The engine retries a completion that waits for a lock until the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_outlasts_a_lock() {
    let role = support::postgres::role(&["lock_timeout = '50ms'"]).await;
    let sessions = Sessions::of(&role).await;
    let once = engine(support::postgres::config(role).build().unwrap());
    let key = support::unique_name("order");
    let hash = once.key_hash("charge", &key).unwrap();
    let locked = Arc::new(tokio::sync::Mutex::new(None));
    let run = tokio::spawn({
        let (once, key, locked) = (once.clone(), key.clone(), Arc::clone(&locked));
        async move {
            let charge = || async {
                let claim = ClaimRequest { key: hash, ..claim() };
                *locked.lock().await = Some(Transaction::holding(&[&claim]).await);
                Ok::<_, Failure>(7_u32)
            };
            once.operation("charge", &key).run(charge).await
        }
    });
    sessions.until_waiting(1).await;
    locked.lock().await.take().unwrap().roll_back().await;
    assert!(matches!(run.await.unwrap().unwrap(), Outcome::Executed(7)));
    assert!(matches!(
        once.operation("charge", &key).run(|| async { Ok::<u32, Failure>(8) }).await.unwrap(),
        Outcome::Replayed(7)
    ));
}

/// A temporarily refused login, for example during a password rotation, loses no outcome.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_outlasts_logins_that_are_refused_for_a_while() {
    let role = support::postgres::role(&[]).await;
    let sessions = Sessions::of(&role).await;
    let proxy = Proxy::start(&role).await;
    let once = engine(support::postgres::config(proxy.connection()).build().unwrap());
    let key = support::unique_name("order");
    let (refused, mut opened) = tokio::sync::watch::channel(None);
    let charge = || async {
        sessions.admit_role(false).await;
        refused.send_replace(Some(proxy.opened()));
        Ok::<_, Failure>(7_u32)
    };
    let admit_again = async {
        let before = opened.wait_for(Option::is_some).await.unwrap().unwrap();
        // The completion was refused, and is retried.
        while proxy.opened() < before + 2 {
            tokio::task::yield_now().await;
        }
        sessions.admit_role(true).await;
    };
    let (outcome, ()) = futures_util::future::join(once.operation("charge", &key).run(charge), admit_again).await;
    assert!(matches!(outcome.unwrap(), Outcome::Executed(7)));
    let again = once.operation("charge", &key).run(|| async { Ok::<u32, Failure>(8) });
    assert!(matches!(again.await.unwrap(), Outcome::Replayed(7)));
}
