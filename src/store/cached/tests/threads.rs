//! A cache that several threads use.

use super::*;

#[tokio::test]
async fn a_panic_under_the_lock_costs_the_entries_and_nothing_else() {
    let environment = Environment::new();
    let claim = environment.known(complete("1")).await;
    let panicked = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _entries = environment.store.lock();
            std::panic::resume_unwind(Box::new("under the lock"));
        });
        holder.join().is_err()
    });
    assert!(panicked && !environment.keeps(&claim));
    assert_eq!(environment.replayed(&claim).await.1, 1);
    assert_eq!(environment.replayed(&claim).await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_run_each_operation_once_and_keep_within_the_bound() {
    const OPERATIONS: usize = 40;
    let max_bytes = OPERATIONS / 2 * (ENTRY_BYTES + 10);
    let environment = Arc::new(Environment::new().with(|store| store.max_bytes(max_bytes)));
    let operations: Arc<Vec<ClaimRequest>> = Arc::new((0..OPERATIONS).map(|_| new_claim()).collect());
    let runs = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|worker| {
            let (environment, operations, runs) =
                (Arc::clone(&environment), Arc::clone(&operations), Arc::clone(&runs));
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(worker);
                for _ in 0..2_000 {
                    let claim = rival(random.choice(operations.iter()).unwrap());
                    let own = format!("{:010}", u32::from_be_bytes(claim.key.as_bytes()[..4].try_into().unwrap()));
                    match environment.claim(&claim).await {
                        Claimed::Granted(_) => {
                            runs.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(
                                environment.settle(&claim, complete(&own)).await.unwrap(),
                                Settled::Done { found: None }
                            );
                        }
                        Claimed::Refused(Refusal::Completed(record)) => assert_eq!(record.result, json(&own)),
                        Claimed::Refused(refusal) => assert!(matches!(refusal, Refusal::InProgress { .. })),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed) as usize, OPERATIONS);
    let entries = environment.store.lock();
    assert_eq!(entries.bytes, entries.list.iter().map(|(_, entry)| entry.bytes()).sum::<usize>());
    assert!(entries.bytes <= max_bytes && !entries.list.is_empty());
}
