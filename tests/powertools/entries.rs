//! Entry points: queue messages, whole invocations, transactions, tables with a sort key, and the default function
//! names.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use lambda_once::{
    BoxError, Failure, Idempotency, Key, Outcome, OutcomeKind,
    invocation::InvocationLayer,
    store::dynamodb::{Calls, Config, Powertools, Writes},
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    support::assert_outcome,
    worker::{FUNCTION, Language},
    world::{PLACE, World, gives, our_result, their_result, with_each},
};

with_each!(messages_of_a_queue, whole_invocations, a_transaction, their_own_names);

fn by_id(world: &World, id: u32) -> Value {
    let key = world.option("event_key_jmespath", "eventKeyJmesPath");
    world.call(&json!({ "data": json!({ "id": id }).to_string(), "options": { key: "id" } }))
}

async fn messages_of_a_queue(world: World) {
    for id in 0..3 {
        gives(&by_id(&world, id), &their_result(), true);
    }
    let ran = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&ran);
    let handle = move |order: Value| {
        seen.lock().unwrap().insert(order["id"].as_u64().unwrap());
        async move {
            match order["id"].as_u64().unwrap() {
                29 => Err(Failure::permanent("declined")),
                _ => Ok(our_result()),
            }
        }
    };
    let queue = world.once.sqs(Key::pointer("/id"), handle);
    let batch = sqs::batch((0..30).map(|id| testing::record(&json!({ "id": id }))));
    let processed = queue.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
    let outcomes: Vec<OutcomeKind> = processed.outcomes().into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes[..3], [OutcomeKind::Replayed; 3]);
    assert_eq!(outcomes[3..29], [OutcomeKind::Executed; 26]);
    assert_outcome!(outcomes[29], OutcomeKind::Failed(_));
    assert_eq!(*ran.lock().unwrap(), (3..30).collect());
    for id in [3, 17, 28] {
        gives(&by_id(&world, id), &our_result(), false);
    }
    gives(&by_id(&world, 29), &their_result(), true);
}

async fn whole_invocations(world: World) {
    let layer = InvocationLayer::new(world.once.clone(), Key::jmespath("[user, to_string(id)]"));
    let handler = service_fn(|_: LambdaEvent<Value>| async { Ok::<_, BoxError>(our_result()) });
    let service = layer.validate().unwrap().layer(handler);
    let key = world.option("event_key_jmespath", "eventKeyJmesPath");
    let event = |id: u32| json!({ "user": "bob", "id": id, "at": 1.0 });
    let call = |id| {
        let options = json!({ key: "[user, to_string(id)]" });
        world.call(&json!({ "data": event(id).to_string(), "options": options }))
    };
    gives(&call(1), &their_result(), true);
    assert_eq!(service.clone().oneshot(testing::event(&event(1))).await.unwrap(), their_result());
    assert_eq!(service.oneshot(testing::event(&event(2))).await.unwrap(), our_result());
    gives(&call(2), &our_result(), false);
}

async fn a_transaction(world: World) {
    let store = world.store();
    let once = Idempotency::new(store.clone());
    let pay = |id: u32, claimless: bool| {
        let table = world.table.clone();
        let work = move |writes: Writes| async move {
            let effect = AttributeValue::S(format!("effect {id}"));
            writes.put(Put::builder().table_name(table).item("id", effect).build()?)?;
            Ok::<_, Failure>(our_result())
        };
        let operation = once.operation(PLACE, &id).payload(&id).in_transaction(&store);
        let store = store.clone();
        async move {
            let _store = store;
            if claimless { operation.without_claim().run(work).await } else { operation.run(work).await }
        }
    };
    for (id, claimless) in [(1, false), (2, true)] {
        assert_outcome!(pay(id, claimless).await, Ok(Outcome::Executed(_)));
        gives(&by_id(&world, id), &our_result(), false);
        gives(&by_id(&world, id + 10), &their_result(), true);
        assert_outcome!(pay(id + 10, claimless).await, Ok(Outcome::Replayed(result)) if result == their_result());
    }
}

/// Without a prefix, each language derives one from the function's name.
async fn their_own_names(world: World) {
    let function = match world.language {
        Language::Python => Powertools::python_function(FUNCTION, "__main__", "Run.call.<locals>.handler"),
        Language::TypeScript => Powertools::typescript(FUNCTION),
    };
    let store = Config::new(&world.table).powertools(function).build(world.client.clone()).unwrap();
    let once = Idempotency::new(store);
    gives(&world.call(&json!({ "prefix": null })), &their_result(), true);
    assert_outcome!(world.operate(&once).await, Ok(Outcome::Replayed(_)));
    assert_eq!(world.runs(), 0);
}

async fn a_sort_key(language: Language, calls: Calls) {
    let (name, constant) = ("sort_key", "idempotency#orders");
    let world = World::build(language, calls, Some((name, constant))).await;
    let layer = match language {
        Language::Python => json!({ "sort_key_attr": name, "static_pk_value": constant }),
        Language::TypeScript => json!({ "sortKeyAttr": name, "staticPkValue": constant }),
    };
    gives(&world.call(&json!({ "layer": layer })), &their_result(), true);
    assert_outcome!(world.run().await, Outcome::Replayed(_));
    let once = Idempotency::new(world.store());
    assert_outcome!(
        once.operation(PLACE, &1).run(async || Ok::<_, Failure>(our_result())).await,
        Ok(Outcome::Executed(_))
    );
    gives(&world.call(&json!({ "layer": layer, "data": "1" })), &our_result(), false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_a_sort_key() {
    for language in [Language::Python, Language::TypeScript] {
        for calls in [Calls::Single, Calls::Batched] {
            a_sort_key(language, calls).await;
        }
    }
}
