//! The limit of the entries' size.

use super::*;

#[tokio::test]
async fn the_least_recently_used_make_room() {
    let of_one = ENTRY_BYTES + 100;
    let environment = Environment::new().with(|store| store.max_bytes(3 * of_one));
    let result = "x".repeat(100);
    let mut claims = Vec::new();
    for _ in 0..3 {
        claims.push(environment.known(complete(&result)).await);
    }
    assert_eq!(environment.store.lock().bytes, 3 * of_one);
    assert_eq!(environment.replayed(&claims[0]).await.1, 0);
    claims.push(environment.known(complete(&result)).await);
    assert_eq!(claims.iter().map(|claim| environment.keeps(claim)).collect::<Vec<_>>(), [true, false, true, true]);
    // A larger entry takes the room of two.
    claims.push(environment.known(complete(&"x".repeat(101))).await);
    assert_eq!(
        claims.iter().map(|claim| environment.keeps(claim)).collect::<Vec<_>>(),
        [false, false, false, true, true]
    );
    assert_eq!(environment.store.lock().bytes, 2 * of_one + 1);
}

#[tokio::test]
async fn an_oversized_record_is_not_cached_and_evicts_nothing() {
    let environment = Environment::new().with(|store| store.max_bytes(ENTRY_BYTES + 100));
    let small = environment.known(complete("1")).await;
    let large = environment.known(complete(&"x".repeat(101))).await;
    assert_eq!((environment.keeps(&small), environment.keeps(&large)), (true, false));
    assert_eq!(environment.replayed(&large).await.1, 1);
    assert_eq!(environment.replayed(&large).await.1, 1);
    assert!(environment.keeps(&small));
    let largest = environment.known(complete(&"x".repeat(100))).await;
    assert_eq!((environment.keeps(&small), environment.keeps(&largest)), (false, true));
}
