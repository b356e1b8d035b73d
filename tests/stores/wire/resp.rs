//! The proxy in front of Valkey.

use bytes::Bytes;

use super::client::Client;
use crate::support::{
    server, unique_name,
    wire::{Protocol, Proxy, Request, host_and_port},
};

async fn proxy() -> Proxy {
    Proxy::start(Protocol::Resp, host_and_port(&server("REDIS_URL"))).await
}

/// Returns a command in the encoding of clients.
fn command(words: &[&str]) -> String {
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulks}", words.len())
}

/// Creates a proxy, a client of it, and a separate key.
async fn connected() -> (Proxy, Client, String) {
    let proxy = proxy().await;
    let client = Client::connect(&proxy).await;
    (proxy, client, unique_name("wire"))
}

/// Returns the value of a counter, read on a separate connection.
async fn counter(proxy: &Proxy, key: &str) -> u32 {
    let mut client = Client::connect(proxy).await;
    client.send(command(&["INCRBY", key, "0"])).await;
    client.expect(":").await;
    let digit = client.read(1).await[0];
    u32::from(digit - b'0')
}

#[tokio::test]
async fn requests_pass_and_are_recorded() {
    let (proxy, mut client, key) = connected().await;
    client.send(command(&["set", &key, "a\r\n$b"])).await;
    client.expect("+OK\r\n").await;
    client.send(command(&["GET", &key])).await;
    client.expect("$5\r\na\r\n$b\r\n").await;
    let request = |command: &str, arguments: &[&str], round_trip| {
        let arguments = arguments.iter().map(|argument| Bytes::copy_from_slice(argument.as_bytes())).collect();
        Request { command: command.to_owned(), arguments, round_trip }
    };
    assert_eq!(proxy.requests(), [request("SET", &[&key, "a\r\n$b"], 1), request("GET", &[&key], 2)]);
}

#[tokio::test]
async fn responses_of_every_type_are_complete() {
    let (proxy, mut client, key) = connected().await;
    client.send(command(&["GET", &key])).await;
    client.expect("$-1\r\n").await;
    client.send(command(&["NONSENSE"])).await;
    client.expect("-ERR").await;
    let mut client = Client::connect(&proxy).await;
    client.send(command(&["EVAL", "return {1, {'a', false}, {}, redis.status_reply('OK')}", "0"])).await;
    client.expect("*4\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n*0\r\n+OK\r\n").await;
}

#[tokio::test]
async fn a_pipeline_is_one_round_trip_even_where_it_arrives_in_pieces() {
    let (proxy, mut client, key) = connected().await;
    let pipeline = command(&["INCR", &key]).repeat(3);
    let (first, rest) = pipeline.split_at(40 + key.len());
    client.send(first).await;
    client.expect(":1\r\n").await;
    client.send(rest).await;
    client.expect(":2\r\n:3\r\n").await;
    assert_eq!((proxy.requests().len(), proxy.round_trips()), (3, 1));
    client.send(command(&["INCR", &key])).await;
    client.expect(":4\r\n").await;
    assert_eq!(proxy.round_trips(), 2);
    proxy.reset();
    assert_eq!((proxy.requests().len(), proxy.round_trips()), (0, 0));
}

#[tokio::test]
async fn a_dropped_response_was_applied_but_later_requests_were_not() {
    let (proxy, mut client, key) = connected().await;
    proxy.on_command("INCR").nth(2).drop_response();
    client.send(command(&["INCR", &key]).repeat(3)).await;
    client.expect(":1\r\n").await;
    client.expect_end().await;
    assert_eq!((counter(&proxy, &key).await, proxy.pending_faults()), (2, 0));
}

#[tokio::test]
async fn a_dropped_request_was_not_applied() {
    let (proxy, mut client, key) = connected().await;
    proxy.on_command("INCR").nth(2).drop_request();
    client.send(command(&["INCR", &key]).repeat(3)).await;
    client.expect(":1\r\n").await;
    client.expect_end().await;
    assert_eq!(counter(&proxy, &key).await, 1);
}

#[tokio::test]
async fn a_late_request_is_applied_when_it_is_delivered() {
    let (proxy, mut client, key) = connected().await;
    let mut late = proxy.on_command("INCR").deliver_late();
    client.send(command(&["INCR", &key])).await;
    assert_eq!(late.arrived().await.argument(0), key);
    client.expect_end().await;
    assert_eq!(counter(&proxy, &key).await, 0);
    let response = late.deliver().await;
    assert_eq!((response.is_applied(), &response.bytes()[..]), (Some(true), &b":1\r\n"[..]));
}

#[tokio::test]
async fn a_hanging_request_leaves_its_client_waiting_and_survives_it() {
    let (proxy, mut client, key) = connected().await;
    let mut late = proxy.on_command("INCR").hang();
    client.send(command(&["INCR", &key]).repeat(2)).await;
    late.arrived().await;
    assert_eq!(counter(&proxy, &key).await, 0);
    assert!(!client.has_news());
    drop(client);
    late.deliver().await;
    assert_eq!(counter(&proxy, &key).await, 1, "what was sent behind it is lost");
}

#[tokio::test]
async fn a_late_request_goes_to_the_database_of_its_connection() {
    let (proxy, mut client, key) = connected().await;
    let mut late = proxy.on_command("INCR").hang();
    client.send(command(&["SELECT", "3"])).await;
    client.expect("+OK\r\n").await;
    client.send(command(&["INCR", &key])).await;
    late.arrived().await;
    late.deliver().await;
    assert_eq!(counter(&proxy, &key).await, 0);
    let mut client = Client::connect(&proxy).await;
    client.send([command(&["SELECT", "3"]), command(&["GET", &key])].concat()).await;
    client.expect("+OK\r\n$1\r\n1\r\n").await;
}

#[tokio::test]
async fn a_repeated_request_is_applied_twice_before_its_response() {
    let (proxy, mut client, key) = connected().await;
    proxy.on_command("INCR").repeat();
    client.send(command(&["INCR", &key]).repeat(2)).await;
    client.expect(":1\r\n").await;
    assert!(counter(&proxy, &key).await >= 2);
    client.expect(":").await;
}

#[tokio::test]
async fn the_copy_of_a_request_is_applied_when_it_is_delivered() {
    let (proxy, mut client, key) = connected().await;
    let mut copy = proxy.on_command("INCR").copy();
    client.send(command(&["INCR", &key])).await;
    client.expect(":1\r\n").await;
    assert_eq!(counter(&proxy, &key).await, 1);
    assert_eq!(&copy.deliver().await.bytes()[..], b":2\r\n");
}

#[tokio::test]
async fn a_held_request_waits_and_outlives_its_client() {
    for is_patient in [true, false] {
        let (proxy, mut client, key) = connected().await;
        let mut held = proxy.on_command("INCR").hold();
        client.send(command(&["INCR", &key])).await;
        held.arrived().await;
        assert_eq!(counter(&proxy, &key).await, 0);
        if is_patient {
            held.release();
            client.expect(":1\r\n").await;
        } else {
            drop(client);
            held.release();
            while counter(&proxy, &key).await == 0 {}
        }
    }
}

#[tokio::test]
async fn the_tests_response_comes_in_its_place_and_the_request_is_not_applied() {
    let (proxy, mut client, key) = connected().await;
    proxy.on_command("INCR").nth(2).respond("-OOM command not allowed\r\n");
    client.send(command(&["INCR", &key]).repeat(3)).await;
    client.expect(":1\r\n-OOM command not allowed\r\n:2\r\n").await;
}

#[tokio::test]
async fn faults_apply_as_often_and_in_the_order_requested() {
    let (proxy, mut client, key) = connected().await;
    proxy.on_command("INCR").times(2).respond("+first\r\n");
    proxy.on(|request| request.arguments.len() == 1).respond("+second\r\n");
    client.send(command(&["INCR", &key]).repeat(4)).await;
    client.expect("+first\r\n+first\r\n+second\r\n:1\r\n").await;
    assert_eq!(proxy.pending_faults(), 0);
}
