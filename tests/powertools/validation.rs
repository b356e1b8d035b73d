//! Payload validation: the same key with another payload.

use lambda_once::{Difference, Failure, Mismatch, MismatchState, Outcome};
use serde_json::{Value, json};

use crate::{
    support::assert_outcome,
    world::{PLACE, World, gives, our_result, their_result, with_each},
};

with_each!(
    a_payload_validated_there_is_compared_here,
    a_payload_stored_here_is_validated_there,
    where_they_do_not_validate_nothing_is_compared
);

fn data(cents: u32) -> Value {
    json!({ "id": "order 7", "amount": { "cents": cents, "currency": "CHF" } })
}

/// Returns a Powertools call with the id as the key, and the amount as the payload.
fn call(world: &World, cents: u32) -> Value {
    let key = world.option("event_key_jmespath", "eventKeyJmesPath");
    let payload = world.option("payload_validation_jmespath", "payloadValidationJmesPath");
    world.call(&json!({ "data": data(cents).to_string(), "options": { key: "id", payload: "amount" } }))
}

async fn run(world: &World, cents: u32) -> Outcome<Value> {
    let data = data(cents);
    let operation = world.once.operation(PLACE, &data["id"]).payload(&data["amount"]);
    operation.run(|| async { Ok::<_, Failure>(our_result()) }).await.unwrap()
}

/// Powertools hashes the payload as a whole, so no parts are named.
fn final_of_unknown_parts() -> Mismatch {
    Mismatch::new(MismatchState::Final, Difference::UNKNOWN)
}

async fn a_payload_validated_there_is_compared_here(world: World) {
    gives(&call(&world, 995), &their_result(), true);
    assert_outcome!(run(&world, 995).await, Outcome::Replayed(_));
    assert_outcome!(run(&world, 996).await, Outcome::Mismatch(mismatch) if mismatch == final_of_unknown_parts());
}

async fn a_payload_stored_here_is_validated_there(world: World) {
    assert_outcome!(run(&world, 995).await, Outcome::Executed(_));
    gives(&call(&world, 995), &our_result(), false);
    assert_eq!(call(&world, 996), json!({ "error": "IdempotencyValidationError", "ran": false }));
}

async fn where_they_do_not_validate_nothing_is_compared(world: World) {
    let key = world.option("event_key_jmespath", "eventKeyJmesPath");
    gives(&world.call(&json!({ "data": data(995).to_string(), "options": { key: "id" } })), &their_result(), true);
    assert_outcome!(run(&world, 996).await, Outcome::Replayed(_));
}
