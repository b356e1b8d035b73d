//! Unsuitable tables and credentials, and the error of the first call.

use aws_credential_types::provider::{ProvideCredentials, error::CredentialsError, future};
use aws_sdk_dynamodb::{
    Client,
    config::Region,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use lambda_once::{
    DynamoDbStore, Error, ErrorKind, ErrorStatus, Failure, Idempotency, Store,
    store::dynamodb::{Calls, Config},
};

use crate::support::{client, dynamodb_endpoint, process::Process, unique_name};

const TABLE: &str = "IDEMPOTENCY_TABLE";
/// The test that the process runs.
const TEST: &str = "dynamodb::set_up::a_variable_without_the_name_of_the_table_is_reported";

/// Creates a table with this primary key.
async fn table(client: &Client, key: &[(&str, KeyType, ScalarAttributeType)]) -> String {
    let name = unique_name("setup");
    let mut request = client.create_table().table_name(&name).billing_mode(BillingMode::PayPerRequest);
    for (attribute, kind, scalar) in key {
        let element = KeySchemaElement::builder().attribute_name(*attribute).key_type(kind.clone());
        let definition = AttributeDefinition::builder().attribute_name(*attribute).attribute_type(scalar.clone());
        request = request.key_schema(element.build().unwrap()).attribute_definitions(definition.build().unwrap());
    }
    request.send().await.unwrap();
    name
}

#[tokio::test]
async fn a_table_with_another_key_is_reported_and_nothing_runs() {
    use KeyType::{Hash, Range};
    use ScalarAttributeType::{N, S};

    let client = client(&dynamodb_endpoint()).await;
    for (key, said) in [
        (&[("pk", Hash, S)][..], "required keys"),
        (&[("id", Hash, N)], "Type mismatch for key"),
        (&[("id", Hash, S), ("sk", Range, S)], "number of conditions on the keys"),
    ] {
        let table = table(&client, key).await;
        for calls in [Calls::Single, Calls::Batched] {
            let store = Config::new(&table).calls(calls).build(client.clone()).unwrap();
            let once = Idempotency::new(store.clone());
            let work = || async { panic!("nothing was claimed") as Result<(), Failure> };
            let errors: [Error; 3] = [
                store.warm_up().await.unwrap_err(),
                once.operation("charge", "k").run(work).await.unwrap_err(),
                once.operation("charge", "k").ordered_by("order 7", 1_u64).run(work).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Table, true), "{error}");
                assert!(error.to_string().contains(said), "{error}");
                assert!(error.to_string().contains("partition key `id` of type String"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_takes_25_keys_in_batches_and_10_one_by_one() {
    let client = client(&dynamodb_endpoint()).await;
    for (calls, keys) in [(Calls::Auto, 25), (Calls::Batched, 25), (Calls::Single, 10)] {
        let store = Config::new("t").calls(calls).build(client.clone()).unwrap();
        assert_eq!(store.limits().batch, keys, "{calls:?}");
    }
}

/// DynamoDB rejects items of more than 409,600 bytes. Without its result, an item has at most 1,966: 157 in the 19 names,
/// 256 each in the operation and its label, 76 each in 17 other values, and 5 in the prefix `once#`.
#[tokio::test]
async fn an_item_has_room_for_its_attributes_beside_the_result() {
    let client = client(&dynamodb_endpoint()).await;
    let room = |config: Config| config.build(client.clone()).unwrap().limits().max_result_bytes;
    assert_eq!(room(Config::new("t")), 407_634);
    assert_eq!(room(Config::new("t").key_prefix("charges#")), 407_631);
    assert_eq!(room(Config::new("t").sort_key("sk", "orders")), 407_626);
    // The partition of the index is a prefix and another text.
    assert_eq!(room(Config::new("t").listing_index(true)), 407_373);
}

/// A provider without credentials, with the same error as the SDK's.
#[derive(Debug)]
struct Nobody;

impl ProvideCredentials for Nobody {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded(
            "no providers in chain provided credentials",
        )))
    }
}

#[tokio::test]
async fn missing_credentials_are_reported_as_a_permanent_error() {
    let bare = aws_sdk_dynamodb::Config::builder()
        .behavior_version_latest()
        .region(Region::from_static("us-east-1"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(dynamodb_endpoint())
        .build();
    let empty = bare.to_builder().credentials_provider(Nobody).build();
    for config in [bare, empty] {
        let error = DynamoDbStore::new(Client::from_conf(config), "claims").warm_up().await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::AccessDenied, ErrorStatus::Permanent), "{error}");
        assert!(error.to_string().contains("no AWS credentials were found"), "{error}");
    }
}

/// A process does not change its own environment, so the test starts another.
#[tokio::test]
async fn a_variable_without_the_name_of_the_table_is_reported() {
    if std::env::var(TABLE).is_ok_and(|table| table.is_empty()) {
        eprintln!("{}", Config::from_env().unwrap_err());
        return;
    }
    let mut process = Process::start(TEST, &[(TABLE, "")]);
    let line = process.line().await.unwrap_or_default();
    assert!(line.contains("set the environment variable IDEMPOTENCY_TABLE"), "{line}");
    assert!(process.succeeds());
}
