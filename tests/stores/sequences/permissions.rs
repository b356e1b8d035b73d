//! Compares the IAM actions that random sequences of requests need with the policies.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck};
use futures_util::future;
use lambda_once::{
    Failure, Idempotency, Outcome,
    order::Order,
    store::{
        ClaimRequest, Settled,
        amend::Amend,
        dynamodb::{Calls, Writes},
    },
};
use serde_json::Value;

use super::{performance::Pair, sequence::Sequence};
use crate::support::{
    assert_outcome, future_clock,
    requests::{LAPSE, RELEASE, entity, granted, ordered, settle_one},
    stores::{Backend, Records},
    wire::{Proxy, host_and_port, iam::actions_on_the_table},
};

const FUNCTION: &str = include_str!("../../../iac/policies/function.json");
/// With half as many, every kind of request but one occurs. That one is made below.
const SEQUENCES: u64 = 24;

/// Performs sequences, and returns the actions that they need on the table.
async fn needed(calls: Calls, is_ordered: bool) -> BTreeSet<String> {
    let clock = future_clock();
    let records = Records::new(Backend::DynamoDb(calls), clock.clone()).await;
    let (protocol, url) = records.backend().wire();
    let proxy = Proxy::start(protocol, host_and_port(&url)).await;
    let store = records.store_at(&proxy.in_place_of(&url)).await;
    let same: Arc<dyn Amend> = Arc::clone(&store);
    let pair = Pair::new(records, same, clock.clone());
    for number in 0..SEQUENCES {
        let sequence = Sequence::random(0, 2 * number + u64::from(is_ordered));
        assert!(pair.difference(&sequence).await.is_none(), "{sequence}");
    }
    if is_ordered {
        // The mark expires before the release.
        let order = Order { sequence: 5_u64.into(), retention: Duration::ZERO };
        let claim = ClaimRequest { order: Some(order), ..ordered(&entity(), 5) };
        granted(&store, &claim).await;
        clock.advance(LAPSE + LAPSE);
        assert_eq!(settle_one(&store, &claim, RELEASE).await.unwrap(), Settled::Done { found: None });
    }
    actions_on_the_table(&proxy.requests())
}

async fn needed_in_all_shapes(is_ordered: bool) -> BTreeSet<String> {
    let shapes = [Calls::Single, Calls::Auto, Calls::Batched];
    future::join_all(shapes.map(|calls| needed(calls, is_ordered))).await.into_iter().flatten().collect()
}

fn allowed(policy: &str) -> BTreeSet<String> {
    let policy: Value = serde_json::from_str(policy).unwrap();
    let actions = policy["Statement"][0]["Action"].as_array().unwrap().iter();
    actions.map(|action| action.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_function_needs_the_actions_of_its_policy_and_no_others() {
    assert_eq!(needed_in_all_shapes(false).await, allowed(FUNCTION));
}

#[tokio::test]
async fn single_keys_need_the_actions_on_items_alone() {
    let items = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:UpdateItem"].map(str::to_owned);
    assert_eq!(needed(Calls::Single, false).await, BTreeSet::from(items));
}

#[tokio::test]
async fn order_needs_one_action_more() {
    let mut actions = allowed(FUNCTION);
    actions.insert("dynamodb:ConditionCheckItem".to_owned());
    let single = ["ConditionCheckItem", "DeleteItem", "GetItem", "UpdateItem"].map(|name| format!("dynamodb:{name}"));
    assert_eq!(needed(Calls::Single, true).await, BTreeSet::from(single));
    assert_eq!(needed_in_all_shapes(true).await.union(&allowed(FUNCTION)).cloned().collect::<BTreeSet<_>>(), actions);
}

#[tokio::test]
async fn a_transaction_without_a_claim_needs_only_to_update_its_record() {
    let records = Records::on_its_own_clock(Backend::DynamoDb(Calls::Auto)).await;
    let (protocol, url) = records.backend().wire();
    let proxy = Proxy::start(protocol, host_and_port(&url)).await;
    let store = records.dynamodb(Calls::Auto, &proxy.in_place_of(&url)).await;
    let once = Idempotency::builder(store.clone()).build().unwrap();
    let work = async |writes: Writes| {
        let id = AttributeValue::S("once#none".to_owned());
        let condition = "attribute_not_exists(id)";
        let check = ConditionCheck::builder().table_name(records.name()).key("id", id).condition_expression(condition);
        writes.check(check.build().unwrap())?;
        Ok::<_, Failure>(1)
    };
    let debit = || once.operation("debit", "order 7").in_transaction(&store);
    assert_outcome!(debit().without_claim().run(work).await, Ok(Outcome::Executed(1)));
    let actions = ["dynamodb:ConditionCheckItem", "dynamodb:UpdateItem"].map(str::to_owned);
    assert_eq!(actions_on_the_table(&proxy.requests()), BTreeSet::from(actions));
}
