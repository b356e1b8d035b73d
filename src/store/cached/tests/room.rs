//! The limit of the entries' size.

use super::*;

/// Size of an entry without its result.
const WITHOUT_RESULT: usize = ENTRY_BYTES + "orders".len();

#[tokio::test]
async fn the_least_recently_used_make_room() {
    let of_one = WITHOUT_RESULT + 100;
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
    let environment = Environment::new().with(|store| store.max_bytes(WITHOUT_RESULT + 100));
    let small = environment.known(complete("1")).await;
    let large = environment.known(complete(&"x".repeat(101))).await;
    assert_eq!((environment.keeps(&small), environment.keeps(&large)), (true, false));
    assert_eq!(environment.replayed(&large).await.1, 1);
    assert_eq!(environment.replayed(&large).await.1, 1);
    assert!(environment.keeps(&small));
    let largest = environment.known(complete(&"x".repeat(100))).await;
    assert_eq!((environment.keeps(&small), environment.keeps(&largest)), (false, true));
}

#[tokio::test]
async fn unknown_attributes_count_with_their_names() {
    let environment = Environment::new().with(|store| store.max_bytes(WITHOUT_RESULT + 100));
    // `{"note":""}` has eleven bytes, and the result has one.
    for (note, is_kept) in [("x".repeat(88), true), ("x".repeat(89), false)] {
        let claim = environment.run(complete("1")).await;
        let mut record = environment.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
        record.unknown.insert("note".to_owned(), note.into());
        environment.memory.insert(claim.key, record);
        environment.replayed(&claim).await;
        assert_eq!(environment.keeps(&claim), is_kept);
    }
}

#[tokio::test]
async fn labels_do_not_exceed_the_caches_limit() {
    let environment = Environment::new().with(|store| store.max_bytes(WITHOUT_RESULT + 100));
    for (label, is_kept) in [("x".repeat(99), true), ("x".repeat(100), false)] {
        let claim = ClaimRequest { label: Some(label.into()), ..new_claim() };
        environment.granted(&claim).await;
        environment.settle(&claim, complete("1")).await.unwrap();
        environment.replayed(&claim).await;
        assert_eq!(environment.keeps(&claim), is_kept);
    }
}
