//! Duplicates that cost no call.

use super::*;
use crate::record::Status;

#[tokio::test]
async fn only_the_first_duplicate_of_this_environments_outcome_costs_a_call() {
    let environment = Environment::new();
    let dropped = Settlement::complete(StoredResult::DROPPED, RETENTION);
    for (settlement, status, result) in [
        (complete("[1]"), Status::Completed, json("[1]")),
        (fail("{}"), Status::Failed, json("{}")),
        (dropped, Status::Completed, StoredResult::DROPPED),
    ] {
        let claim = environment.run(settlement).await;
        for expected in [1, 0, 0] {
            let (record, calls) = environment.replayed(&claim).await;
            assert_eq!((record.status, &record.result, calls), (status, &result, expected));
            assert_eq!(record.fingerprint, claim.fingerprint);
        }
    }
}

#[tokio::test]
async fn an_outcome_that_the_store_showed_is_replayed_without_a_second_call() {
    let environment = Environment::new();
    let other = environment.another();
    for settlement in [complete("1"), fail("1")] {
        let claim = other.run(settlement).await;
        let (shown, calls) = environment.replayed(&claim).await;
        assert_eq!(calls, 1);
        assert_eq!(environment.replayed(&claim).await, (shown.clone(), 0));
        assert_eq!(environment.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap(), Some(shown));
    }
}

#[tokio::test]
async fn an_entry_without_data_is_not_served_to_a_caller_who_needs_it() {
    let environment = Environment::new();
    let claim = environment.another().run(complete("1")).await;
    let without = ClaimRequest { result_data: ResultData::Omit, ..claim.clone() };
    assert_eq!(environment.replayed(&without).await.0.result, StoredResult::default());
    let (record, calls) = environment.replayed(&without).await;
    assert_eq!((record.result, calls), (StoredResult::default(), 0), "who needs none is served");
    let (record, calls) = environment.replayed(&claim).await;
    assert_eq!((record.result, calls), (json("1"), 1));
    for (request, result) in [(&claim, json("1")), (&without, StoredResult::default())] {
        let (record, calls) = environment.replayed(request).await;
        assert_eq!((record.result, calls), (result, 0), "the data serves both");
    }
}

#[tokio::test]
async fn the_rest_of_a_batch_goes_to_the_store_in_one_call() {
    let environment = Environment::new();
    let (first, last) = (environment.known(complete("1")).await, environment.known(fail("2")).await);
    let shown = environment.another().run(complete("3")).await;
    let claims = [rival(&first), new_claim(), rival(&shown), rival(&last)];
    let before = environment.calls(Call::Claim).len();
    let answers: Vec<Claimed> = environment.store.claim(&claims).await.into_iter().map(Result::unwrap).collect();
    assert!(matches!(&answers[0], Claimed::Refused(Refusal::Completed(record)) if record.result == json("1")));
    assert!(matches!(answers[1], Claimed::Granted(_)));
    assert!(matches!(&answers[2], Claimed::Refused(Refusal::Completed(record)) if record.result == json("3")));
    assert!(matches!(&answers[3], Claimed::Refused(Refusal::Failed(record)) if record.result == json("2")));
    assert_eq!(environment.calls(Call::Claim)[before..], [2]);

    let known = [rival(&first), rival(&shown), rival(&last)];
    assert_eq!(environment.store.claim(&known).await.len(), 3);
    assert_eq!(environment.calls(Call::Claim).len(), before + 1, "nothing is left to ask");
}

#[tokio::test]
async fn another_payload_is_a_mismatch_without_a_call() {
    let environment = Environment::new();
    let claim = environment.known(complete("1")).await;
    let calls = environment.calls(Call::Claim).len();
    let misuse = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(&claim) };
    assert_eq!(environment.claim(&misuse).await, Claimed::Refused(Refusal::Mismatch(mismatch(MismatchState::Final))));
    let unnamed = ClaimRequest { fingerprint: None, ..rival(&claim) };
    assert!(matches!(environment.claim(&unnamed).await, Claimed::Refused(Refusal::Completed(_))));
    assert_eq!(environment.calls(Call::Claim).len(), calls);
}
