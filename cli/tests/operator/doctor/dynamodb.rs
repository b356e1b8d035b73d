//! A table in DynamoDB Local, which has no point-in-time recovery.

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
    },
};

use super::{Report, doctor};
use crate::support::{client, server, unique_name};

const RECOVERY: &str = "point-in-time recovery";

async fn create(client: &Client, key: &str, is_protected: bool) -> String {
    let name = unique_name();
    let definition = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S);
    let element = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
    let request = client.create_table().table_name(&name).billing_mode(BillingMode::PayPerRequest);
    let request = request.attribute_definitions(definition.build().unwrap()).key_schema(element.build().unwrap());
    request.deletion_protection_enabled(is_protected).send().await.unwrap();
    name
}

async fn enable_ttl(client: &Client, table: &str, attribute: &str) {
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build().unwrap();
    client.update_time_to_live().table_name(table).time_to_live_specification(ttl).send().await.unwrap();
}

async fn check(table: &str, more: &[&str]) -> Report {
    let store = format!("dynamodb://{table}?region=us-east-1&endpoint={}", server("DYNAMODB_ENDPOINT"));
    doctor(&[&["--store", &store], more].concat()).await
}

#[tokio::test]
async fn a_good_table_has_no_findings() {
    let client = client().await;
    let table = create(&client, "id", true).await;
    enable_ttl(&client, &table, "expiration").await;
    check(&table, &[]).await.assert(&[], &[RECOVERY]);
}

#[tokio::test]
async fn each_fault_of_a_table_is_found() {
    let client = client().await;
    check(&unique_name(), &[]).await.assert(&["table-missing"], &[]);
    let table = create(&client, "id", false).await;
    check(&table, &[]).await.assert(&["ttl-off", "deletion-protection-off"], &[RECOVERY]);
    check(&table, &["--severity", "warning"]).await.assert(&["ttl-off"], &[RECOVERY]);
    enable_ttl(&client, &table, "ttl").await;
    check(&table, &["--severity", "warning"]).await.assert(&["ttl-attribute"], &[RECOVERY]);
    let table = create(&client, "pk", true).await;
    enable_ttl(&client, &table, "expiration").await;
    check(&table, &[]).await.assert(&["table-key-schema"], &[RECOVERY]);
}
