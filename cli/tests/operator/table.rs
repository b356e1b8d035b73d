//! The table in DynamoDB.

use crate::support::{Backend, Records, ended, tool};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_the_library_has_no_fault() {
    let records = Records::new(Backend::DynamoDb).await;
    let checked = records.run(&["table", "check"]).await.assert_code(0);
    assert!(checked.out.contains("no findings"), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_check_refuses_postgres_and_reports_a_missing_table() {
    let records = Records::new(Backend::Postgres).await;
    let refused = records.run(&["table", "check"]).await.assert_code(2);
    assert!(refused.errors.contains("is not in DynamoDB"), "{refused:?}");
    let endpoint = std::env::var("DYNAMODB_ENDPOINT").unwrap();
    let mut command = tool();
    command.args([&records.table_at(&endpoint), "table", "check"]);
    let absent = ended(command).await.assert_code(5);
    assert!(absent.out.contains("table-missing"), "{absent:?}");
}

#[tokio::test]
async fn a_policy_needs_no_access() {
    let mut command = tool();
    command.args([
        "--store=dynamodb://orders?region=eu-central-1",
        "table",
        "policy",
        "operator",
        "--account",
        "123456789012",
    ]);
    let printed = ended(command).await.assert_code(0);
    let policy: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    let index = "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/index/open";
    assert_eq!(policy["Statement"][1]["Resource"], index);
}
