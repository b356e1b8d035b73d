//! Results in each direction: those that are replayed unchanged, and those that are not stored.

use lambda_once::{Failure, Idempotency, Outcome, Results, Store};
use serde_json::{Value, json};

use crate::{
    support::assert_outcome,
    worker::Language,
    world::{PLACE, World, gives, with_each},
};

with_each!(
    their_results_come_back_here,
    results_from_here_come_back_there,
    python_replays_falsy_results_as_none,
    the_largest_result_fits,
    a_result_that_is_not_kept_is_not_run_again,
);

/// Returns a Powertools call with one of several keys.
fn call(world: &World, id: usize, result: &str) -> Value {
    let key = world.option("event_key_jmespath", "eventKeyJmesPath");
    let data = json!({ "id": id }).to_string();
    world.call(&json!({ "data": data, "options": { key: "id" }, "result": result }))
}

async fn run<T>(once: &Idempotency, id: usize, result: T) -> Outcome<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send,
{
    once.operation(PLACE, &id).run(|| async { Ok::<_, Failure>(result) }).await.unwrap()
}

fn results() -> Vec<Value> {
    let mut deep = json!("bottom");
    for depth in 0..30 {
        deep = if depth % 2 == 0 { json!([deep]) } else { json!({ "deeper": deep }) };
    }
    vec![
        json!({ "statusCode": 200, "body": "{\"id\": 7}", "isBase64Encoded": false }),
        json!([null, true, false, "", "é\u{7f}😀\u{2028}\"\\\n", [], {}, { " ": 1 }]),
        json!([0, -1, 9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64, 0.1, -2.5e-7, 123_456.789]),
        json!("text"),
        json!(7),
        json!(true),
        json!(null),
        deep,
    ]
}

async fn their_results_come_back_here(world: World) {
    for (id, result) in results().into_iter().enumerate() {
        gives(&call(&world, id, &result.to_string()), &result, true);
        assert_outcome!(run(&world.once, id, json!("ours")).await, Outcome::Replayed(replayed) if replayed == result);
    }
    if world.language == Language::TypeScript {
        let answer = call(&world, 100, "undefined");
        assert_eq!(answer, json!({ "ran": true, "result": "undefined" }));
        assert_outcome!(run(&world.once, 100, ()).await, Outcome::Replayed(()));
    }
}

async fn results_from_here_come_back_there(world: World) {
    for (id, result) in results().into_iter().enumerate() {
        assert_outcome!(run(&world.once, id, result.clone()).await, Outcome::Executed(_));
        gives(&call(&world, id, "9"), &result, false);
        assert_outcome!(run(&world.once, id, json!("other")).await, Outcome::Replayed(replayed) if replayed == result);
    }
    // Python's integers have no bounds. JavaScript's SDK makes a `BigInt` of this, which is not JSON.
    assert_outcome!(run(&world.once, 100, u64::MAX).await, Outcome::Executed(_));
    match world.language {
        Language::Python => gives(&call(&world, 100, "0"), &json!(u64::MAX), false),
        Language::TypeScript => assert_eq!(call(&world, 100, "0"), json!({ "error": "TypeError", "ran": false })),
    }
    assert_outcome!(run(&world.once, 100, 0_u64).await, Outcome::Replayed(u64::MAX));
}

/// This is a bug of the package, which the library does not repeat.
async fn python_replays_falsy_results_as_none(world: World) {
    for (id, result) in [json!(0), json!(false), json!(""), json!([]), json!({})].into_iter().enumerate() {
        gives(&call(&world, id, &result.to_string()), &result, true);
        let replayed = if world.language == Language::Python { json!(null) } else { result.clone() };
        gives(&call(&world, id, "1"), &replayed, false);
        assert_outcome!(run(&world.once, id, json!(1)).await, Outcome::Replayed(replayed) if replayed == result);
    }
}

async fn the_largest_result_fits(world: World) {
    let limit = world.store().limits().max_result_bytes;
    let text = "x".repeat(limit - 2);
    assert_outcome!(run(&world.once, 0, text.clone()).await, Outcome::Executed(_));
    assert_outcome!(run(&world.once, 0, String::new()).await, Outcome::Replayed(replayed) if replayed == text);
    gives(&call(&world, 0, "9"), &json!(text), false);
    assert_outcome!(run(&world.once, 1, "x".repeat(limit - 1)).await, Outcome::Executed(_));
    assert_outcome!(run(&world.once, 1, String::new()).await, Outcome::ReplayedWithoutResult);
}

async fn a_result_that_is_not_kept_is_not_run_again(world: World) {
    let mut dropping = vec![Idempotency::builder(world.store()).results(Results::Discard).build().unwrap()];
    let mut results = vec![json!("not wanted")];
    if world.language == Language::TypeScript {
        // Not a DynamoDB number, not a valid name, nested too deeply, and more bytes in lists than in JSON.
        let deep = (0..40).fold(json!(0), |inner, _| json!([inner]));
        let large = json!(vec![json!([[]]); 60_000]);
        results.extend([json!([1.5e300]), json!({ "small": 2.5e-200 }), json!({ "": 1 }), deep, large]);
        dropping.extend(vec![world.once.clone(); 5]);
    }
    for (id, (once, result)) in dropping.iter().zip(results).enumerate() {
        assert_outcome!(run(once, id, result).await, Outcome::Executed(_));
        assert_outcome!(run(once, id, json!(0)).await, Outcome::ReplayedWithoutResult);
        let nothing = world.option("null", "undefined");
        assert_eq!(call(&world, id, "9"), json!({ "ran": false, "result": nothing }));
    }
}
