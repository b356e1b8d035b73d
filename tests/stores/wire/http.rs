//! The proxy in front of an HTTP/1.1 server that sends given bytes.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::client::Client;
use crate::support::wire::{Protocol, Proxy, Request};

/// Sends one of these responses, byte by byte, after each request, which ends with `}`.
async fn serve(mut client: TcpStream, answers: Vec<&'static str>) {
    client.set_nodelay(true).unwrap();
    for answer in answers {
        let mut last = 0;
        while last != b'}' {
            let Ok(byte) = client.read_u8().await else { return };
            last = byte;
        }
        for byte in answer.bytes() {
            client.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
    }
    // A connection that is closed before everything has been read may lose written data.
    let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
}

/// Returns a client of a proxy in front of a server that sends these responses on each connection.
async fn connected(answers: Vec<&'static str>) -> (Proxy, Client, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(Protocol::DynamoDb, &listener.local_addr().unwrap().to_string()).await;
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(serve(client, answers.clone()));
        }
    });
    let client = Client::connect(&proxy).await;
    (proxy, client, server)
}

fn request(operation: &str, body: &str) -> String {
    let target = format!("x-amz-target: DynamoDB_20120810.{operation}");
    format!("POST / HTTP/1.1\r\nhost: here\r\n{target}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
const OTHER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

/// Sends a request after another request, in two parts that are split at this place, and returns it.
async fn cut(text: &str, place: usize) -> Request {
    let (proxy, mut client, _server) = connected(vec![OK, OTHER]).await;
    client.send([&request("GetItem", r#"{"n":1}"#), &text[..place]].concat()).await;
    client.expect(OK).await;
    assert_eq!(proxy.requests().len(), 1, "the second one is not whole: {place}");
    client.send(&text[place..]).await;
    client.expect(OTHER).await;
    assert_eq!(proxy.round_trips(), 1);
    let [first, second] = proxy.requests().try_into().unwrap();
    assert_eq!((&*first.command, first.argument(0)), ("GetItem", r#"{"n":1}"#));
    second
}

#[tokio::test]
async fn requests_are_whole_wherever_they_are_cut() {
    let text = request("PutItem", r#"{"n":2}"#);
    for place in 1..text.len() {
        let request = cut(&text, place).await;
        assert_eq!((&*request.command, request.arguments.len(), request.argument(0)), ("PutItem", 1, r#"{"n":2}"#));
        assert_eq!(request.body()["n"], 2);
    }
}

#[tokio::test]
async fn requests_in_chunks_are_whole_wherever_they_are_cut() {
    let text = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX-Amz-Target: A.PutItem\r\n\r\n\
                3\r\n{\"n\r\n4;name=value\r\n\":2}\r\n0\r\nTrailer: a\r\n\r\n";
    for place in 1..text.len() {
        let request = cut(text, place).await;
        assert_eq!((&*request.command, request.argument(0)), ("PutItem", r#"{"n":2}"#));
    }
}

/// The response to the second request is dropped, and all bytes of the first one pass.
#[tokio::test]
async fn responses_of_every_framing_are_complete() {
    for answer in [
        OK,
        OTHER,
        "HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked\r\n\r\n1\r\n{\r\na\r\n0123456789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n\r\n\r\n0\r\nChecksum: 1\r\nMore: 2\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let (proxy, mut client, _server) = connected(vec![answer, OK]).await;
        proxy.on_command("PutItem").nth(2).drop_response();
        client.send(request("PutItem", "{}").repeat(3)).await;
        client.expect(answer).await;
        client.expect_end().await;
        assert_eq!((proxy.requests().len(), proxy.round_trips(), proxy.pending_faults()), (2, 1, 0));
    }
}

#[tokio::test]
async fn the_response_to_a_late_request_is_parsed_in_every_framing() {
    for (answer, is_applied) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Some(true)),
        ("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}", None),
        (
            "HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n\
             12\r\n{\"__type\":\"com.ama\r\n21\r\nzon#ConditionalCheckFailedExcepti\r\n4\r\non\"}\r\n0\r\n\r\n",
            Some(false),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 62\r\n\r\n{\"Responses\":[{},{\"Error\":{\"Code\":\"ConditionalCheckFailed\"}}]}",
            Some(true),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 58\r\n\r\n{\"Responses\":[{\"Error\":{\"Code\":\"ThrottlingError\"}},{},{}]}",
            None,
        ),
    ] {
        let (proxy, mut client, _server) = connected(vec![answer]).await;
        let mut late = proxy.on_command("PutItem").deliver_late();
        client.send(request("PutItem", "{}")).await;
        client.expect_end().await;
        let response = late.deliver().await;
        assert_eq!(response.is_applied(), is_applied, "{response:?}");
        assert_eq!(response.bytes(), answer);
    }
}
