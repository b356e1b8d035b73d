//! The embedded DynamoDB keeps the promises that a conditional claim rests on, and goes away.

use std::net::TcpStream;

use aws_sdk_dynamodb::operation::put_item::PutItemError::ConditionalCheckFailedException;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use local_stack::{EmbeddedDynamoDb, client, create_table};

#[tokio::test]
async fn a_conditional_put_is_granted_once_and_the_loser_sees_the_item() {
    let dynamodb = EmbeddedDynamoDb::start().unwrap();
    let client = client(dynamodb.endpoint());
    create_table(&client, "claims", "id").await.unwrap();

    let claims = (0..16).map(|owner: u32| {
        client
            .put_item()
            .table_name("claims")
            .item("id", AttributeValue::S("key".into()))
            .item("owner", AttributeValue::N(owner.to_string()))
            .condition_expression("attribute_not_exists(id)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
    });
    let claims: Vec<_> = claims.map(tokio::spawn).collect();
    let mut granted = 0;
    for claim in claims {
        match claim.await.unwrap() {
            Ok(_) => granted += 1,
            Err(error) => {
                let error = error.into_service_error();
                let ConditionalCheckFailedException(refusal) = error else {
                    panic!("refused for another reason than the condition: {error:?}");
                };
                assert!(refusal.item().unwrap().contains_key("owner"));
            }
        }
    }
    assert_eq!(granted, 1);
}

#[tokio::test]
async fn it_listens_on_loopback_and_stops_when_dropped() {
    let dynamodb = EmbeddedDynamoDb::start().unwrap();
    let address = dynamodb.endpoint().trim_start_matches("http://").to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    TcpStream::connect(&address).unwrap();

    drop(dynamodb);
    let stopped = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        TcpStream::connect(&address).is_err()
    });
    assert!(stopped, "{address} still answers");
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_that_names_it() {
    let first = EmbeddedDynamoDb::start().unwrap();
    let port = first.endpoint().rsplit(':').next().unwrap().parse().unwrap();
    let error = EmbeddedDynamoDb::start_on(port).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on 127.0.0.1:{port}"));
    first.shutdown().await;
    EmbeddedDynamoDb::start_on(port).unwrap();
}
