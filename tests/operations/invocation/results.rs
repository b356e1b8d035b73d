//! First runs and replays.

use std::collections::HashMap;

use lambda_once::{BoxError, Failure, Results, invocation::claim, store::fault::Call};
use serde_json::{Value, json};

use crate::invocation::setup::{Function, LAPSE, order, refusal};

#[tokio::test]
async fn a_repeated_event_gets_the_first_ones_result_and_does_not_run() {
    let function = Function::of(|run, event| async move { Ok::<_, BoxError>(json!({"run": run, "of": event})) });
    let first = function.invoke(order()).await.unwrap();
    assert_eq!(first, json!({"run": 1, "of": order()}));
    assert_eq!(function.invoke(order()).await.unwrap(), first);
    assert_eq!(function.runs(), 1);
}

#[tokio::test]
async fn a_first_run_takes_two_calls_and_a_replay_one() {
    let function = Function::new();
    function.invoke(order()).await.unwrap();
    assert_eq!(function.calls(), [Call::Claim, Call::Settle]);
    function.invoke(order()).await.unwrap();
    assert_eq!(function.calls(), [Call::Claim, Call::Settle, Call::Claim]);
}

#[tokio::test]
async fn results_of_any_type_come_back_equal() {
    async fn twice<R>(result: R)
    where
        R: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug + Clone + Send + Sync + 'static,
    {
        let given = result.clone();
        let function = Function::of(move |_, _| {
            let given = given.clone();
            async move { Ok::<_, BoxError>(given) }
        });
        assert_eq!(function.invoke(order()).await.unwrap(), result);
        assert_eq!(function.invoke(order()).await.unwrap(), result);
        assert_eq!(function.runs(), 1);
    }
    twice(()).await;
    twice(None::<u32>).await;
    twice(false).await;
    twice(String::new()).await;
    twice(Value::Null).await;
    twice(u64::MAX).await;
    twice(vec![("a".to_owned(), 1.5)]).await;
}

// Tests S5, P3.
#[tokio::test]
async fn a_result_that_lambda_does_not_take_is_not_replayed() {
    // Lambda's documented limit, minus the quotes.
    for (bytes, fits) in [(6_291_554, true), (6_291_555, false)] {
        let function = Function::of(move |_, _| async move { Ok::<_, BoxError>("a".repeat(bytes)) });
        assert_eq!(function.invoke(order()).await.unwrap().len(), bytes, "the first caller gets it");
        match function.invoke(order()).await {
            Ok(result) => assert!(fits && result.len() == bytes),
            error => assert!(!fits && refusal(error).0 == "replayed_without_result"),
        }
        assert_eq!(function.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_takeover_gives_its_result() {
    let function =
        Function::of(|run, _| async move { if run == 1 { Err(Failure::unknown("timed out")) } else { Ok(run) } });
    function.invoke(order()).await.unwrap_err();
    tokio::time::advance(LAPSE).await;
    assert_eq!(function.invoke(order()).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_handler_finds_its_claim_and_nobody_else_does() {
    let function = Function::of(|run, _| {
        let at_the_call = claim().map(|claim| claim.took_over());
        async move {
            tokio::task::yield_now().await;
            let mine = claim().unwrap();
            assert_eq!((mine.took_over(), at_the_call), (run == 2, Some(run == 2)));
            assert!(tokio::spawn(async { claim().is_none() }).await.unwrap());
            if run == 1 { Err(Failure::unknown("timed out")) } else { Ok(mine.key().to_hex()) }
        }
    });
    function.invoke(order()).await.unwrap_err();
    tokio::time::advance(LAPSE).await;
    let key = function.invoke(order()).await.unwrap();
    assert_eq!(key, function.once.key_hash("invocation", "A").unwrap().to_hex());
    assert!(claim().is_none());

    let unclaimed = |_, _| async { Ok::<_, BoxError>(claim().is_none()) };
    assert!(Function::with(|engine| engine.disabled(true), |layer| layer, unclaimed).invoke(order()).await.unwrap());
}

#[tokio::test]
async fn a_result_that_was_not_kept_is_a_permanent_error() {
    let function =
        Function::with(|engine| engine.results(Results::Discard), |layer| layer, crate::invocation::setup::numbered);
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    assert_eq!(function.refusal().await, ("replayed_without_result", false));
    let error = function.invoke(order()).await.unwrap_err().to_string();
    assert!(error.contains("is done") && error.contains("do not repeat"), "{error}");
    assert_eq!(function.runs(), 1);
}

#[tokio::test]
async fn a_result_with_one_value_needs_no_keeping() {
    let nothing = |_, _| async { Ok::<_, BoxError>(()) };
    let function = Function::with(|engine| engine.results(Results::Discard), |layer| layer, nothing);
    function.invoke(order()).await.unwrap();
    function.invoke(order()).await.unwrap();
    assert_eq!(function.runs(), 1);
    // `null` would be one of several values here.
    let nothing = |_, _| async { Ok::<_, BoxError>(None::<u8>) };
    let function = Function::with(|engine| engine.results(Results::Discard), |layer| layer, nothing);
    function.invoke(order()).await.unwrap();
    assert_eq!(function.refusal().await, ("replayed_without_result", false));
}

#[tokio::test]
async fn a_result_that_cannot_be_serialized_is_given_and_not_kept() {
    #[derive(Debug, serde::Deserialize)]
    struct Odd(HashMap<(u8, u8), u8>);
    impl serde::Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.0.serialize(serializer)
        }
    }
    let function = Function::of(|_, _| async { Ok::<_, BoxError>(Odd(HashMap::from([((1, 2), 3)]))) });
    assert_eq!(function.invoke(order()).await.unwrap().0.len(), 1);
    assert_eq!(function.refusal().await, ("replayed_without_result", false));
}

#[tokio::test]
async fn nothing_is_remembered_between_invocations_but_by_the_store() {
    let function = Function::new();
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    function.records.remove(&function.once.key_hash("invocation", "A").unwrap()).unwrap();
    assert_eq!(function.invoke(order()).await.unwrap(), 2);
}

#[tokio::test]
async fn a_disabled_engine_runs_every_event_and_calls_no_store() {
    let function = Function::with(|engine| engine.disabled(true), |layer| layer, crate::invocation::setup::numbered);
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    assert_eq!(function.invoke(json!("no key at all")).await.unwrap(), 2);
    assert!(function.calls().is_empty());
}

#[tokio::test]
async fn a_hook_changes_a_result_that_is_given_again_and_no_other() {
    let handler = |run: u32, _| async move { Ok::<_, BoxError>(serde_json::json!({ "run": run })) };
    let mark = |result: &mut serde_json::Value| result["replayed"] = true.into();
    let function = Function::with(|engine| engine, |layer| layer.before_replay(mark), handler);
    assert_eq!(function.invoke(order()).await.unwrap(), serde_json::json!({ "run": 1 }));
    for _ in 0..2 {
        let again = function.invoke(order()).await.unwrap();
        assert_eq!(again, serde_json::json!({ "run": 1, "replayed": true }), "the stored result stays as it is");
    }
}

#[tokio::test]
async fn a_hook_that_panics_or_makes_another_type_is_an_error_and_nothing_runs() {
    let hooks: [fn(&mut serde_json::Value); 2] = [|result| *result = "text".into(), |_| panic!("in a hook")];
    for hook in hooks {
        let function =
            Function::with(|engine| engine, |layer| layer.before_replay(hook), crate::invocation::setup::numbered);
        assert_eq!(function.invoke(order()).await.unwrap(), 1);
        assert_eq!(function.refusal().await, ("stored_result", false));
        assert_eq!(function.runs(), 1);
    }
}
