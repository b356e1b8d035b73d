//! The IAM actions that DynamoDB checks for a request.
//!
//! PartiQL has separate actions, [by statement](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html).
//! Transactions have none: [each member](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html)
//! needs the action of the single request.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Request;

/// Returns the actions of these requests on the table.
pub fn actions_on_the_table(requests: &[Request]) -> BTreeSet<String> {
    actions(requests.iter().filter(|request| request.body()["IndexName"].is_null()))
}

/// Returns the actions of these requests on an index.
pub fn actions_on_an_index(requests: &[Request]) -> BTreeSet<String> {
    actions(requests.iter().filter(|request| !request.body()["IndexName"].is_null()))
}

fn actions<'a>(requests: impl Iterator<Item = &'a Request>) -> BTreeSet<String> {
    requests.flat_map(of).map(|action| format!("dynamodb:{action}")).collect()
}

fn of(request: &Request) -> Vec<String> {
    let body = request.body();
    match request.command.as_str() {
        "BatchExecuteStatement" => members(&body["Statements"]).map(of_statement).collect(),
        "ExecuteStatement" => vec![of_statement(&body)],
        "TransactWriteItems" => members(&body["TransactItems"]).map(of_member).collect(),
        "TransactGetItems" => members(&body["TransactItems"]).map(of_member).collect(),
        single => vec![single.to_owned()],
    }
}

fn members(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().expect("a list").iter()
}

fn of_statement(statement: &Value) -> String {
    let text = statement["Statement"].as_str().expect("a statement");
    match text.split_whitespace().next() {
        Some("INSERT") => "PartiQLInsert",
        Some("SELECT") => "PartiQLSelect",
        Some("UPDATE") => "PartiQLUpdate",
        Some("DELETE") => "PartiQLDelete",
        _ => panic!("{text}"),
    }
    .to_owned()
}

fn of_member(member: &Value) -> String {
    let name = member.as_object().and_then(|member| member.keys().next()).expect("an action");
    if name == "ConditionCheck" { "ConditionCheckItem".to_owned() } else { format!("{name}Item") }
}
