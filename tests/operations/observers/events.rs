//! Counts of operations that share calls or are nested, and misbehaving observers.

use lambda_once::{
    Interruption, Outcome,
    store::fault::{Call, Fault},
};

use super::*;

#[tokio::test(start_paused = true)]
async fn records_that_share_a_call_each_count_it_and_the_batch_counts_it_once() {
    let recorder = Recorder::default();
    let once = engine(store(), |builder| builder.observer(recorder.clone()));
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    let messages = ["a", "b", "a"].map(|id| testing::record(&json!({ "id": id })));
    testing::deliver(&service, &testing::sqs::batch(messages)).await;
    let told = recorder.told();
    let outcomes: Vec<_> = told.iter().map(|told| told.outcome.unwrap().as_str()).collect();
    assert_eq!(outcomes, ["executed", "executed", "replayed"]);
    assert!(told.iter().all(|told| told.operation == "sqs" && told.store_calls == 2), "{told:?}");
    assert_eq!(told[0].key, told[2].key);
    assert_eq!(recorder.ends(), [(EntryPoint::Batch, 3, 2, false)]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_within_a_handler_is_counted_by_itself_and_as_nested() {
    let recorder = Recorder::default();
    let once = engine(store(), |builder| builder.observer(recorder.clone()));
    let inner = once.clone();
    let service = once.sqs(Key::pointer("/id"), move |_: Value| {
        let inner = inner.clone();
        async move { inner.operation("charge", "k").run(|| act(Act::Succeed)).await.map(|_| ()) }
    });
    let batch = testing::sqs::batch([testing::record(&json!({ "id": "k" }))]);
    testing::deliver(&service, &batch).await;
    let told: Vec<_> = recorder.told().into_iter().map(|told| (told.operation, told.store_calls)).collect();
    assert_eq!(told, [("charge".to_owned(), 2), ("sqs".to_owned(), 2)]);
    assert_eq!(recorder.ends(), [(EntryPoint::Operation, 1, 2, true), (EntryPoint::Batch, 1, 2, false)]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_other_observers_is_not_nested_in_anothers_handler() {
    let (outer_recorder, inner_recorder) = (Recorder::default(), Recorder::default());
    let plain = [&outer_recorder, &inner_recorder]
        .map(|recorder| engine(store(), |builder| builder.observer(recorder.clone())));
    let in_arcs = [&outer_recorder, &inner_recorder]
        .map(|recorder| engine(store(), |builder| builder.observer(Arc::new(recorder.clone()))));
    for [outer, inner] in [plain, in_arcs] {
        let service = outer.sqs(Key::pointer("/id"), move |_: Value| {
            let inner = inner.clone();
            async move { inner.operation("charge", "k").run(|| act(Act::Succeed)).await.map(|_| ()) }
        });
        testing::deliver(&service, &testing::sqs::batch([testing::record(&json!({ "id": "k" }))])).await;
        assert_eq!(inner_recorder.ends(), [(EntryPoint::Operation, 1, 2, false)]);
        assert_eq!(outer_recorder.ends(), [(EntryPoint::Batch, 1, 2, false)]);
    }
}

#[tokio::test(start_paused = true)]
async fn engines_that_share_their_observer_are_nested() {
    let recorder = Arc::new(Recorder::default());
    let [outer, inner] = [(); 2].map(|()| engine(store(), |builder| builder.observer(Arc::clone(&recorder))));
    let service = outer.sqs(Key::pointer("/id"), move |_: Value| {
        let inner = inner.clone();
        async move { inner.operation("charge", "k").run(|| act(Act::Succeed)).await.map(|_| ()) }
    });
    testing::deliver(&service, &testing::sqs::batch([testing::record(&json!({ "id": "k" }))])).await;
    let told: Vec<_> = recorder.told().into_iter().map(|told| told.operation).collect();
    assert_eq!(told, ["charge", "sqs"]);
    assert_eq!(recorder.ends(), [(EntryPoint::Operation, 1, 2, true), (EntryPoint::Batch, 1, 2, false)]);
}

/// Its operations may contain operations of an engine that has the observers of the outermost.
#[tokio::test(start_paused = true)]
async fn an_engine_without_observers_adds_nothing_to_the_counts_of_others() {
    let recorder = Arc::new(Recorder::default());
    let [outer, inner] = [(); 2].map(|()| engine(store(), |builder| builder.observer(Arc::clone(&recorder))));
    let unobserved = engine(store(), |builder| builder);
    let service = outer.sqs(Key::pointer("/id"), move |_: Value| {
        let (unobserved, inner) = (unobserved.clone(), inner.clone());
        async move {
            let refund = || async { inner.operation("refund", "k").run(|| act(Act::Succeed)).await.map(|_| ()) };
            unobserved.operation("charge", "k").run(refund).await.map(|_| ())
        }
    });
    testing::deliver(&service, &testing::sqs::batch([testing::record(&json!({ "id": "k" }))])).await;
    let told: Vec<_> = recorder.told().into_iter().map(|told| told.operation).collect();
    assert_eq!(told, ["refund", "sqs"]);
    assert_eq!(recorder.ends(), [(EntryPoint::Operation, 1, 2, true), (EntryPoint::Batch, 1, 2, false)]);
}

/// Both engines have the same scope, and so the same keys.
#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_has_no_time_of_an_operation_inside_it() {
    let recorder = Recorder::default();
    let observed = engine(store(), |builder| builder.observer(recorder.clone()));
    let unobserved = engine(store(), |builder| builder);
    let hangs = || async {
        let _ = unobserved.operation("charge", "k").run(|| act(Act::Succeed)).await.unwrap();
        std::future::pending::<Result<(), Failure>>().await
    };
    let outcome = observed.operation("charge", "k").heartbeat(None).run(hangs).await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted(Interruption::Cancelled)), "{outcome:?}");
    assert_eq!(recorder.one().handler_time, None);
}

#[tokio::test(start_paused = true)]
async fn an_engine_on_the_store_of_another_counts_each_call_once() {
    let recorder = Recorder::default();
    let first = engine(store(), |builder| builder.observer(recorder.clone()));
    let builder =
        Idempotency::builder(Arc::clone(first.store())).clock(TokioClock::new()).scope("tests").disabled(false);
    let second = builder.observer(recorder.clone()).build().unwrap();
    send(&second, EntryPoint::Operation, Act::Succeed).await;
    assert_eq!(recorder.one().store_calls, 2);
}

#[tokio::test(start_paused = true)]
async fn store_calls_without_a_response_are_counted_and_timed() {
    let recorder = Recorder::default();
    let store = store();
    let once = engine(store.clone(), |builder| builder.observer(recorder.clone()));
    store.always(Call::Claim, Fault::Silence);
    let error = once.operation("charge", "k").run(|| act(Act::Succeed)).await.unwrap_err();
    let told = recorder.one();
    assert_eq!(told.outcome, Err(error.kind()));
    let claim_time = told.claim_time.expect("the claims have a time");
    assert!(claim_time >= Duration::from_secs(3), "{claim_time:?}");
    assert!(told.store_calls >= 2, "a claim and what follows it: {}", told.store_calls);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_runs_unprotected_has_no_key() {
    let recorder = Recorder::default();
    let once = engine(store(), |builder| {
        builder.observer(recorder.clone()).missing_key(lambda_once::MissingKey::RunUnprotected)
    });
    let _ = once.operation("charge", "").run(|| act(Act::Succeed)).await.unwrap();
    let told = recorder.one();
    assert_eq!((told.key, told.outcome, told.store_calls), (None, Ok(OutcomeKind::Executed), 0));
}

#[tokio::test(start_paused = true)]
async fn all_observers_are_notified_even_if_one_panics() {
    let (first, last) = (Recorder::default(), Recorder::default());
    let panics = |_: &OperationEvent<'_>| panic!("in an observer");
    let once = engine(store(), |builder| builder.observer(first.clone()).observer(panics).observer(last.clone()));
    send(&once, EntryPoint::Operation, Act::Succeed).await;
    assert_eq!((first.told().len(), last.told().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn renewals_of_a_lease_count_as_calls_and_not_as_the_recording() {
    let (recorder, store) = (Recorder::default(), store());
    store.always(Call::Settle, Fault::Delay(Duration::from_millis(100)));
    let once = engine(store, |builder| builder.observer(recorder.clone()).lease(Duration::from_secs(3)));
    let work = || async {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        Ok::<_, Failure>(())
    };
    let _ = once.operation("charge", "k").run(work).await.unwrap();
    let told = recorder.one();
    assert_eq!(told.store_calls, 4, "a claim, two renewals and the completion");
    let left = told.lease_remaining.unwrap();
    assert!(left > Duration::from_secs(1), "of the renewed lease: {left:?}");
    let settle_time = told.settle_time.unwrap();
    assert!(settle_time < Duration::from_millis(200), "of the completion alone: {settle_time:?}");
}

#[cfg(feature = "powertools")]
#[tokio::test]
async fn a_store_for_powertools_is_recognized_by_an_engine_with_observers() {
    use lambda_once::{
        OperationSettings,
        store::dynamodb::{Config, Powertools},
    };

    // No call is made.
    let client = crate::support::client("http://localhost:1").await;
    let store = Config::new("orders").powertools(Powertools::python("orders.app.handler")).build(client).unwrap();
    let builder = Idempotency::builder(store).scope("tests").disabled(false);
    let once = builder.observer(Recorder::default()).build().unwrap();
    // Its records keep no order, which an invocation does not need, and no responses of HTTP.
    let layer = || InvocationLayer::<Value>::new(once.clone(), Key::pointer("/id"));
    assert!(layer().validate().is_ok());
    let raised = layer().with_settings(OperationSettings::new().payload_version(2));
    let queue = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    for (refused, says) in [
        (raised.validate().err(), "`payload_version`"),
        (queue.validate().err(), "the records of `invocation`"),
        (IdempotencyKeyLayer::new(once.clone(), Caller::shared()).validate().err(), "HTTP"),
    ] {
        let error = refused.expect(says);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(says), "{error}");
    }
}
