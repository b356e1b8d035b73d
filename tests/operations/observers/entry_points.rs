//! All entry points report the same events.

use super::*;

fn world() -> (Recorder, Idempotency) {
    let recorder = Recorder::default();
    let once = engine(store(), |builder| builder.observer(recorder.clone()));
    (recorder, once)
}

#[tokio::test(start_paused = true)]
async fn a_first_run_has_its_times_and_calls_and_a_duplicate_no_handler_time() {
    for entry_point in ALL {
        let (recorder, once) = world();
        send(&once, entry_point, Act::Succeed).await;
        let first = recorder.one();
        assert_eq!((first.entry_point, first.outcome), (entry_point, Ok(OutcomeKind::Executed)));
        assert!(first.key.is_some(), "{entry_point:?}");
        assert_eq!((first.attempt, first.took_over, first.store_calls), (1, false, 2), "{entry_point:?}");
        assert_eq!(first.handler_time, Some(HANDLER), "{entry_point:?}");
        assert!(first.claim_time.is_some() && first.settle_time.is_some(), "{first:?}");
        let left = first.lease_remaining.unwrap();
        assert!(left > Duration::from_secs(25) && left < Duration::from_secs(62), "{left:?}");
        assert_eq!(recorder.ends(), [(entry_point, 1, 2, false)]);

        send(&once, entry_point, Act::Succeed).await;
        let second = recorder.one();
        assert_eq!((second.outcome, second.key), (Ok(OutcomeKind::Replayed), first.key));
        assert_eq!((second.attempt, second.store_calls), (0, 1), "{entry_point:?}");
        assert_eq!((second.handler_time, second.settle_time, second.lease_remaining), (None, None, None));
        assert_eq!(recorder.ends(), [(entry_point, 1, 1, false)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_takeover_is_reported_however_the_run_ends() {
    for entry_point in ALL {
        for (does, outcome) in
            [(Act::Succeed, OutcomeKind::TookOver), (Act::Fail, OutcomeKind::Failed(lambda_once::Verdict::Transient))]
        {
            let (recorder, once) = world();
            send(&once, entry_point, Act::Doubt).await;
            let doubt = recorder.one();
            assert_eq!(doubt.outcome, Ok(OutcomeKind::Failed(lambda_once::Verdict::Unknown)), "{entry_point:?}");
            tokio::time::advance(LAPSE).await;
            send(&once, entry_point, does).await;
            let told = recorder.one();
            assert_eq!((told.outcome, told.took_over, told.attempt), (Ok(outcome), true, 2), "{entry_point:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn store_errors_are_reported_by_their_kind() {
    use lambda_once::store::fault::{Call, Fault};

    for entry_point in ALL {
        let (recorder, store) = (Recorder::default(), store());
        store.always(Call::Claim, Fault::AccessDenied);
        let once = engine(store, |builder| builder.observer(recorder.clone()));
        match entry_point {
            EntryPoint::Operation => {
                assert!(once.operation("charge", "k").run(|| act(Act::Succeed)).await.is_err());
            }
            _ => send(&once, entry_point, Act::Succeed).await,
        }
        assert_eq!(recorder.one().outcome, Err(ErrorKind::AccessDenied), "{entry_point:?}");
    }
}
