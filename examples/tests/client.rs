//! The client's retries, against a server with scripted responses.

use std::process::Output;

use crate::support::{client, printed};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const DONE: &str = "HTTP/1.1 201 Created\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Reads a request up to the end of its body, a flat object.
async fn read_request(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0, "the client sends a body");
    }
    String::from_utf8(request).unwrap()
}

fn key(request: &str) -> &str {
    request.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap()
}

/// Runs the client against these responses, one per connection; an empty one closes the connection. Asserts that all requests
/// have the same key. Returns the client's output and the number of its requests.
async fn run(answers: &[&str], environment: &[(&str, &str)]) -> (Output, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let arguments = [url.as_str()];
    let mut keys = Vec::new();
    let serving = async {
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            keys.push(key(&read_request(&mut connection).await).to_owned());
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
        std::future::pending().await
    };
    let output = tokio::select! {
        output = client(&arguments, environment) => output,
        () = serving => unreachable!("the server is there until the client has ended"),
    };
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
    (output, keys.len())
}

#[tokio::test]
async fn what_may_change_is_asked_again_with_the_same_key() {
    let answers = [
        "",
        &answer("409 Conflict", "", r#"{"code":"in_progress","retryable":true,"retry_after_ms":1}"#),
        &answer("429 Too Many Requests", "", ""),
        &answer("503 Service Unavailable", "", r#"{"code":"unavailable","retryable":true}"#),
        "HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\n{",
        DONE,
    ];
    let (output, tries) = run(&answers, &[]).await;
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(tries, answers.len());
}

#[tokio::test]
async fn what_stays_as_it_is_is_not_asked_again() {
    for status in ["400 Bad Request", "403 Forbidden", "410 Gone", "413 Content Too Large", "422 Unprocessable Content"]
    {
        let (output, tries) = run(&[&answer(status, "", "{}"), DONE], &[]).await;
        assert_eq!((tries, output.status.code()), (1, Some(1)), "{status}: {}", printed(&output));
    }
    for status in ["409 Conflict", "500 Internal Server Error"] {
        let (output, tries) = run(&[&answer(status, "", r#"{"retryable":false}"#), DONE], &[]).await;
        assert_eq!((tries, output.status.code()), (1, Some(1)), "{status}: {}", printed(&output));
    }
}

#[tokio::test]
async fn for_a_key_of_another_charge_it_warns_against_a_new_key() {
    let reused = answer("422 Unprocessable Content", "", r#"{"code":"key_reused","retryable":false}"#);
    let (output, tries) = run(&[&reused, DONE], &[]).await;
    assert_eq!((tries, output.status.code()), (1, Some(1)), "{}", printed(&output));
    assert!(printed(&output).contains("do not repeat that charge with a new key"), "{}", printed(&output));
}

#[tokio::test]
async fn the_pause_is_as_long_as_the_service_asks_for() {
    let busy = answer("409 Conflict", "retry-after: 1\r\n", r#"{"retryable":true,"retry_after_ms":60000}"#);
    let (output, tries) = run(&[&busy, DONE], &[]).await;
    assert_eq!(tries, 2);
    let text = printed(&output);
    let pause: u64 = text.split("again in ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1_000..=1_100).contains(&pause), "{text}");
}

#[tokio::test]
async fn it_gives_up_when_its_time_is_over_and_tells_the_key() {
    let (output, tries) = run(&["", "", "", "", "", "", "", ""], &[("DEADLINE_MS", "400")]).await;
    assert!(!output.status.success() && tries < 8, "{}", printed(&output));
    assert!(printed(&output).contains("key ") && printed(&output).contains("out of time"), "{}", printed(&output));
}
