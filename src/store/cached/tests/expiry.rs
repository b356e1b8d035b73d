//! The end of an entry.

use super::{doubles::Slow, *};

#[tokio::test]
async fn an_entry_expires_no_later_than_the_record() {
    let retention = Duration::from_secs(20);
    let environment = Environment::new();
    let claim = environment.known(Settlement::complete(json("1"), retention)).await;
    let stored = environment.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
    assert_eq!(stored.expiration, Some(2_000_000_021));

    environment.clock.set(Timestamp::from_millis(2_000_000_020_999));
    assert_eq!(environment.replayed(&claim).await, (stored, 0));
    environment.clock.set(Timestamp::from_millis(2_000_000_021_000));
    environment.granted(&rival(&claim)).await;
    assert!(!environment.keeps(&claim), "expired entries are removed when they are met");
}

#[tokio::test]
async fn the_time_that_a_call_takes_lengthens_no_entry() {
    let environment = Environment::new();
    let store = CachedStore::new(Slow(environment.memory.clone(), environment.clock.clone()))
        .with_clock(environment.clock.clone());
    let shown = environment.run(complete("2")).await;
    let asked = environment.clock.now();
    store.claim(&[rival(&shown)]).await.remove(0).unwrap();
    assert_eq!(store.lock().list.peek(&shown.key).unwrap().asked, asked);
}

// Tests P4.
#[tokio::test]
async fn a_record_that_was_deleted_is_served_for_max_age_and_no_longer() {
    let age = Duration::from_secs(30);
    let environment = Environment::new().with(|store| store.max_age(age));
    let of_this = environment.known(complete("1")).await;
    let of_another = environment.another().run(complete("1")).await;
    environment.replayed(&of_another).await;
    for claim in [&of_this, &of_another] {
        environment.memory.remove(&claim.key);
    }
    environment.clock.advance(age);
    for claim in [&of_this, &of_another] {
        assert_eq!(environment.replayed(claim).await.1, 0, "a replay makes no entry younger");
    }
    environment.clock.advance(A_MILLISECOND);
    for claim in [&of_this, &of_another] {
        environment.granted(&rival(claim)).await;
        assert!(!environment.keeps(claim));
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_entry_last_longer() {
    let environment = Environment::new();
    let claim = environment.known(complete("1")).await;
    environment.clock.set(environment.clock.now().before(A_MILLISECOND));
    assert_eq!(environment.replayed(&claim).await.1, 1);
}
