//! The records that are kept, and those that are not.

use futures_util::FutureExt;

use super::{
    doubles::{Scripted, Slow},
    *,
};
use crate::{
    record::{NEWEST_KNOWN_VERSION, Status},
    store::{amend::Amendment, fault::Fault},
};

#[tokio::test]
async fn a_live_claim_is_never_cached() {
    let environment = Environment::new();
    let claim = new_claim();
    environment.granted(&claim).await;
    let mut lease = None;
    for asked in 2..5 {
        let refused = environment.claim(&rival(&claim)).await;
        let Claimed::Refused(Refusal::InProgress { lease_until, .. }) = refused else { panic!("{refused:?}") };
        lease = lease_until;
        assert_eq!(environment.calls(Call::Claim).len(), asked);
    }
    let misuse = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(&claim) };
    let standing = Refusal::Mismatch(mismatch(MismatchState::InProgress { lease_until: lease, attempt: 1 }));
    assert_eq!(environment.claim(&misuse).await, Claimed::Refused(standing));
    let renew = Settlement::Renew { lease: LEASE, skew_margin: Duration::ZERO, retention: RETENTION };
    assert!(matches!(environment.settle(&claim, renew).await.unwrap(), Settled::Renewed { .. }));
    assert_eq!(environment.settle(&claim, Settlement::Release).await.unwrap(), Settled::Done { found: None });
    assert!(!environment.keeps(&claim));
    assert_eq!(environment.calls(Call::Settle), [1, 1]);
    environment.granted(&rival(&claim)).await;
}

#[tokio::test]
async fn a_lost_lease_keeps_nothing_and_the_successors_outcome_is_replayed() {
    let environment = Environment::new();
    let claim = new_claim();
    environment.granted(&claim).await;
    environment.clock.advance(LEASE * 2);
    let (other, taker) = (environment.another(), rival(&claim));
    other.granted(&taker).await;
    for outcome in [complete("\"late\""), fail("\"late\"")] {
        assert!(matches!(environment.settle(&claim, outcome).await.unwrap(), Settled::LeaseLost { .. }));
        assert!(!environment.keeps(&claim));
    }
    other.settle(&taker, complete("\"successor\"")).await.unwrap();
    for (environment, calls) in [(&other, 1), (&other, 0), (&environment, 1), (&environment, 0)] {
        let (record, asked) = environment.replayed(&claim).await;
        assert_eq!((record.result, asked), (json("\"successor\""), calls));
    }
}

#[tokio::test]
async fn a_record_of_an_unknown_version_is_not_kept() {
    let environment = Environment::new();
    let claim = environment.run(complete("1")).await;
    for (version, kept) in [(NEWEST_KNOWN_VERSION, 1), (NEWEST_KNOWN_VERSION + 1, 0)] {
        let record = Record { version, ..environment.replayed(&claim).await.0 };
        let store = CachedStore::new(Scripted(vec![Claimed::Refused(Refusal::Completed(Box::new(record)))]));
        store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap();
        assert_eq!(store.lock().list.len(), kept);
    }
}

#[tokio::test]
async fn a_store_that_miscounts_teaches_nothing_about_other_keys() {
    let environment = Environment::new();
    let claim = environment.run(complete("1")).await;
    let refusal = environment.claim(&rival(&claim)).await;
    let store = CachedStore::new(Scripted(vec![refusal])).with_clock(environment.clock.clone());
    assert_eq!(store.claim(&[new_claim(), claim.clone()]).await.len(), 1, "the engine finds it");
    assert_eq!(store.lock().list.len(), 0);
    store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap();
    let answers = store.claim(&[new_claim(), claim.clone(), new_claim()]).await;
    assert!(answers[0].is_err() && answers[1].is_ok() && answers[2].is_err());
    assert_eq!(store.lock().list.len(), 1);
}

#[test]
fn the_record_of_the_later_call_is_kept() {
    let mut entries = Entries::new();
    let claim = new_claim();
    let asked = Timestamp::from_seconds(2_000_000_000);
    let record = |text: &str| Record { attempt: 1, result: json(text), ..Record::new(Status::Completed) };
    for (text, asked) in [("1", asked), ("22", asked.after(A_MILLISECOND)), ("333", asked)] {
        entries.keep(&claim, &record(text), asked, MAX_BYTES);
    }
    assert_eq!(entries.list.peek(&claim.key).unwrap().record.result, json("22"));
    assert_eq!(entries.bytes, ENTRY_BYTES + 2);
}

#[tokio::test]
async fn an_amendment_without_a_response_leaves_nothing_in_the_cache() {
    let clock = ManualClock::at(Timestamp::from_millis(2_000_000_000_700));
    let memory = MemoryStore::with_clock(clock.clone());
    let store = CachedStore::new(Slow(memory.clone(), clock.clone())).with_clock(clock);
    let claim = new_claim();
    assert!(matches!(store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap(), Claimed::Granted(_)));
    store.settle(&[settle(&claim, complete("1"))]).await.remove(0).unwrap();
    let replay = async || store.claim(&[rival(&claim)]).await.remove(0).unwrap();
    replay().await;
    let record = memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
    let redact = [AmendRequest::new(claim.key, &record, Amendment::Redact)];
    let is_redacted = |claimed: &Claimed| matches!(claimed, Claimed::Refused(Refusal::Completed(record)) if record.result == StoredResult::DROPPED);
    let mut amend = store.amend(&redact);
    assert!((&mut amend).now_or_never().is_none());
    // The store judges it before the amendment, whose caller is gone when it returns.
    let again = [rival(&claim)];
    let mut overtaken = store.claim(&again);
    assert!((&mut overtaken).now_or_never().is_none());
    memory.amend(&redact).await.remove(0).unwrap();
    drop(amend);
    assert!(!is_redacted(&overtaken.await.remove(0).unwrap()));
    let shown = replay().await;
    assert!(is_redacted(&shown), "{shown:?}");
}

/// The store applies the claim before the amendment, and returns its result afterwards.
#[tokio::test(start_paused = true)]
async fn a_claim_that_an_amendment_overtakes_is_not_kept() {
    let environment = Environment::new();
    let cached = environment.known(complete("2")).await;
    for is_rest_of_batch in [false, true] {
        let claim = environment.run(complete("1")).await;
        let record = environment.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
        let redact = [AmendRequest::new(claim.key, &record, Amendment::Redact)];
        let mut claims = vec![rival(&claim)];
        if is_rest_of_batch {
            claims.insert(0, rival(&cached));
        }
        environment.inner.next(Call::Claim, Fault::Delay(A_MILLISECOND));
        let (mut claimed, amended) = tokio::join!(environment.store.claim(&claims), environment.store.amend(&redact));
        let overtaken = claimed.pop().unwrap().unwrap();
        assert_eq!(overtaken, Claimed::Refused(Refusal::Completed(Box::new(record))));
        assert!(matches!(amended[..], [Ok(Amended::Changed)]), "{amended:?}");
        assert_eq!(environment.replayed(&claim).await.0.result, StoredResult::DROPPED);
    }
}
