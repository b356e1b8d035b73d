//! Compares the IAM actions that the tool needs on a DynamoDB table with the policy that it prints.

use std::collections::BTreeSet;

use lambda_once::{AfterUnknown, Outcome};
use serde_json::Value;

use crate::{
    order::ENTITY,
    support::{Backend, Records, SCOPE, ended, receipt, server, tool},
    wire::{
        Protocol, Proxy, Request, host_and_port,
        iam::{actions_on_an_index, actions_on_the_table},
    },
};

/// Runs every command that reads or writes records, and returns their requests.
async fn requests_of_an_operator(index: &str) -> Vec<Request> {
    let records = Records::new(Backend::DynamoDb).await;
    let (released, settled) = (records.abandon("order 1").await, records.abandon("order 2").await);
    let (forgotten, done) = (records.fail("order 3").await, records.complete("order 4").await);
    let once = records.engine(AfterUnknown::Rerun).await;
    let outcome = once.operation("apply", "event 3").ordered_by("account 1", 3_u64).run(receipt).await;
    assert!(matches!(outcome, Ok(Outcome::Executed(_))), "{outcome:?}");
    let lost = [records.lose(8).await, records.lose(9).await];
    let [released, settled, forgotten, done] = [released, settled, forgotten, done].map(|key| key.to_hex());

    let endpoint = server("DYNAMODB_ENDPOINT");
    let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&endpoint)).await;
    let table = format!("{}{index}", records.table_at(&proxy.in_place_of(&endpoint)));
    let order = |what: &'static str| [&["order", what][..], &ENTITY].concat();
    let commands: [(&[&str], i32); 13] = [
        (&["show", "--operation", "charge", "--key", "order 1"], 0),
        (&["show", "--id", &released], 0),
        (&["list"], 0),
        (&["list", "--operation", "charge"], 0),
        (&["release", &released, "--yes"], 0),
        (&["settle", &settled, "--no-result", "--yes"], 0),
        (&["settle", &lost[0], "--no-result", "--yes"], 0),
        (&["forget", &forgotten, "--yes"], 0),
        (&["redact", &done, "--yes"], 0),
        (&order("show"), 0),
        (&[&order("clear")[..], &["--no-effect", "--yes"]].concat(), 0),
        (&["table", "check"], 0),
        (&["doctor"], 5),
    ];
    let run = async |command: &[&str], code: i32| {
        let mut tool = tool();
        tool.args([&table, "--scope", SCOPE]).args(command);
        ended(tool).await.assert_code(code);
    };
    for (command, code) in commands {
        run(command, code).await;
    }
    // Then there is no mark to write.
    records.delete_mark(&lost[1]).await;
    run(&["settle", &lost[1], "--failed", "refunded by hand", "--yes"], 0).await;
    proxy.requests()
}

/// Returns the actions of a statement of the policy that the tool prints.
fn allowed(policy: &Value, statement: usize) -> BTreeSet<String> {
    let actions = policy["Statement"][statement]["Action"].as_array().unwrap().iter();
    actions.map(|action| action.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_needs_the_actions_of_the_policy_and_no_others() {
    let mut printing = tool();
    printing.args(["--store=dynamodb://orders?region=eu-central-1", "table", "policy", "operator", "--ordered"]);
    let policy = ended(printing).await.assert_code(0).out;
    let policy = serde_json::from_str(&policy).unwrap();
    let requests = [requests_of_an_operator("").await, requests_of_an_operator("&index=true").await].concat();
    assert_eq!(actions_on_the_table(&requests), allowed(&policy, 0));
    assert_eq!(actions_on_an_index(&requests), allowed(&policy, 1));
}
