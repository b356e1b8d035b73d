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

/// A table behind a proxy that records the requests.
struct Table {
    records: Records,
    proxy: Proxy,
    /// The option `--store`.
    store: String,
}

impl Table {
    async fn new(index: &str) -> Self {
        let records = Records::new(Backend::DynamoDb).await;
        let endpoint = server("DYNAMODB_ENDPOINT");
        let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&endpoint)).await;
        let store = format!("{}{index}", records.table_at(&proxy.in_place_of(&endpoint)));
        Self { records, proxy, store }
    }

    /// Runs a command.
    async fn run(&self, command: &[&str], code: i32) {
        let mut tool = tool();
        tool.args([&self.store, "--scope", SCOPE]).args(command);
        ended(tool).await.assert_code(code);
    }

    /// Runs an ordered operation, after which there is a mark.
    async fn run_in_order(&self) {
        let once = self.records.engine(AfterUnknown::Rerun).await;
        let outcome = once.operation("apply", "event 3").ordered_by("account 1", 3_u64).run(receipt).await;
        assert!(matches!(outcome, Ok(Outcome::Executed(_))), "{outcome:?}");
    }
}

fn order(what: &'static str) -> Vec<&'static str> {
    [&["order", what][..], &ENTITY].concat()
}

/// Runs every command that reads or writes records, and returns their requests.
async fn requests_of_an_operator(index: &str) -> Vec<Request> {
    let table = Table::new(index).await;
    let records = &table.records;
    let (released, settled) = (records.abandon("order 1").await, records.abandon("order 2").await);
    let (forgotten, done) = (records.fail("order 3").await, records.complete("order 4").await);
    table.run_in_order().await;
    let lost = [records.lose(8).await, records.lose(9).await];
    let [released, settled, forgotten, done] = [released, settled, forgotten, done].map(|key| key.to_hex());

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
    for (command, code) in commands {
        table.run(command, code).await;
    }
    // Then there is no mark to write.
    records.delete_mark(&lost[1]).await;
    table.run(&["settle", &lost[1], "--failed", "refunded by hand", "--yes"], 0).await;
    table.proxy.requests()
}

/// Runs the commands that only read, and returns their requests.
async fn requests_of_a_reader(index: &str) -> Vec<Request> {
    let table = Table::new(index).await;
    let abandoned = table.records.abandon("order 1").await.to_hex();
    table.run_in_order().await;
    for sequence in [8, 9] {
        table.records.lose(sequence).await;
    }
    let commands: [&[&str]; 6] = [
        &["show", "--operation", "charge", "--key", "order 1"],
        &["show", "--id", &abandoned],
        &["list"],
        &["list", "--operation", "charge"],
        &order("show"),
        &["table", "check"],
    ];
    for command in commands {
        table.run(command, 0).await;
    }
    table.proxy.requests()
}

/// Returns the actions of a statement of the policy that the tool prints.
fn allowed(policy: &Value, statement: usize) -> BTreeSet<String> {
    let actions = policy["Statement"][statement]["Action"].as_array().unwrap().iter();
    actions.map(|action| action.as_str().unwrap().to_owned()).collect()
}

/// Compares the requests of a role with the policy that the tool prints for it.
async fn assert_policy(role: &str, requests: &[Request]) {
    let mut printing = tool();
    printing.args(["--store=dynamodb://orders?region=eu-central-1", "table", "policy", role, "--ordered"]);
    let policy = ended(printing).await.assert_code(0).out;
    let policy = serde_json::from_str(&policy).unwrap();
    assert_eq!(actions_on_the_table(requests), allowed(&policy, 0));
    assert_eq!(actions_on_an_index(requests), allowed(&policy, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_needs_the_actions_of_the_policy_and_no_others() {
    let requests = [requests_of_an_operator("").await, requests_of_an_operator("&index=true").await].concat();
    assert_policy("operator", &requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_needs_the_actions_of_the_policy_and_no_others() {
    let requests = [requests_of_a_reader("").await, requests_of_a_reader("&index=true").await].concat();
    assert_policy("reader", &requests).await;
}
