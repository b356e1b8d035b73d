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

/// Reads a request up to the end of its body, a flat object. Returns `None` for a connection that the client opened, but did
/// not use.
async fn read_request(connection: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        if connection.read_buf(&mut request).await.unwrap() == 0 {
            assert!(request.is_empty(), "the client sends a body");
            return None;
        }
    }
    Some(String::from_utf8(request).unwrap())
}

/// Accepts connections until one has a request.
async fn accept_request(listener: &TcpListener) -> (TcpStream, String) {
    loop {
        let (mut connection, _) = listener.accept().await.unwrap();
        if let Some(request) = read_request(&mut connection).await {
            return (connection, request);
        }
    }
}

fn key(request: &str) -> &str {
    request.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap()
}

/// Runs the client against these responses, one per connection. An empty response closes the connection. Asserts that all
/// requests have the same key. Returns the client's output and the number of its requests.
async fn run(answers: &[&str], environment: &[(&str, &str)]) -> (Output, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let arguments = [url.as_str()];
    let mut keys = Vec::new();
    let serving = async {
        for answer in answers {
            let (mut connection, request) = accept_request(&listener).await;
            keys.push(key(&request).to_owned());
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

const MADE: &str = "the charge was made";
const NOT_MADE: &str = "the charge was not made";
const MAY_BE_MADE: &str = "the charge may have been made: run again with the same key, ";

#[tokio::test]
async fn a_retryable_failure_is_retried_with_the_same_key() {
    let answers = [
        "",
        &answer("409 Conflict", "", r#"{"code":"in_progress","retryable":true,"retry_after_ms":1}"#),
        &answer("429 Too Many Requests", "", ""),
        &answer("503 Service Unavailable", "", r#"{"code":"unavailable","retryable":true}"#),
        &answer("500 Internal Server Error", "", r#"{"code":"handler_failed","retryable":true}"#),
        "HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\n{",
        DONE,
    ];
    let (output, tries) = run(&answers, &[]).await;
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(tries, answers.len());
}

#[tokio::test]
async fn a_gateway_error_without_a_problem_document_is_retried_by_its_status() {
    let statuses = [
        "408 Request Timeout",
        "425 Too Early",
        "429 Too Many Requests",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Gateway Timeout",
    ];
    for status in statuses {
        for body in ["", r#"{"message":"Endpoint request timed out"}"#] {
            let (output, tries) = run(&[&answer(status, "", body), DONE], &[]).await;
            let text = printed(&output);
            assert!(output.status.success() && text.contains(MADE), "{status}: {text}");
            assert_eq!(tries, 2, "{status}: {text}");
        }
    }
}

#[tokio::test]
async fn a_final_error_is_not_retried() {
    for (status, known) in [
        ("400 Bad Request", NOT_MADE),
        ("403 Forbidden", NOT_MADE),
        ("413 Content Too Large", NOT_MADE),
        ("422 Unprocessable Content", NOT_MADE),
        ("500 Internal Server Error", MAY_BE_MADE),
    ] {
        let (output, tries) = run(&[&answer(status, "", "{}"), DONE], &[]).await;
        let text = printed(&output);
        assert_eq!((tries, output.status.code()), (1, Some(1)), "{status}: {text}");
        assert!(text.contains(known), "{status}: {text}");
    }
    for (status, code, known) in [
        ("409 Conflict", "outcome_unknown", MAY_BE_MADE),
        ("410 Gone", "response_not_stored", MAY_BE_MADE),
        ("500 Internal Server Error", "hook_failed", MAY_BE_MADE),
        ("500 Internal Server Error", "misconfigured", NOT_MADE),
        ("500 Internal Server Error", "response_too_large", MAY_BE_MADE),
        ("500 Internal Server Error", "response_unreadable", MAY_BE_MADE),
        ("503 Service Unavailable", "not_recorded", MADE),
        ("503 Service Unavailable", "of_a_later_version", MAY_BE_MADE),
        ("503 Service Unavailable", "replay_unchecked", MAY_BE_MADE),
    ] {
        let body = format!(r#"{{"code":"{code}","retryable":false}}"#);
        let (output, tries) = run(&[&answer(status, "", &body), DONE], &[]).await;
        let text = printed(&output);
        assert_eq!((tries, output.status.code()), (1, Some(1)), "{code}: {text}");
        assert!(text.contains(known), "{code}: {text}");
    }
}

/// The service may have stored only the status of a response.
#[tokio::test]
async fn the_stored_status_of_a_response_reveals_whether_it_charged() {
    for code in ["response_not_stored", "response_too_large", "response_unreadable", "replay_unchecked"] {
        for (status, known) in [(201, MADE), (402, NOT_MADE), (303, MAY_BE_MADE), (502, MAY_BE_MADE)] {
            let body = format!(r#"{{"code":"{code}","retryable":false,"response_status":{status}}}"#);
            let (output, tries) = run(&[&answer("410 Gone", "", &body), DONE], &[]).await;
            let text = printed(&output);
            assert_eq!((tries, output.status.code()), (1, Some(1)), "{code} {status}: {text}");
            assert!(text.contains(known), "{code} {status}: {text}");
        }
    }
}

/// The last response of each row ends the client, and does not reveal the result of the attempt before.
#[tokio::test]
async fn a_refusal_does_not_hide_that_an_earlier_attempt_may_have_charged() {
    let unavailable = answer("503 Service Unavailable", "", r#"{"code":"unavailable","retryable":true}"#);
    let forbidden = answer("403 Forbidden", "", "");
    let declined = answer("402 Payment Required", "idempotency-replayed: true\r\n", "");
    let timed_out = answer("504 Gateway Timeout", "", "");
    for (answers, known) in [
        (["", &*forbidden], MAY_BE_MADE),
        ([&*timed_out, &*forbidden], MAY_BE_MADE),
        ([&*unavailable, &*forbidden], NOT_MADE),
        (["", &*declined], NOT_MADE),
    ] {
        let (output, tries) = run(&answers, &[]).await;
        let text = printed(&output);
        assert_eq!((tries, output.status.code()), (2, Some(1)), "{text}");
        assert!(text.contains(known), "{answers:?}: {text}");
    }
}

#[tokio::test]
async fn without_a_connection_no_charge_is_made_unless_an_earlier_run_made_it() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    let output = client(&[&url], &[("DEADLINE_MS", "300")]).await;
    assert!(!output.status.success() && printed(&output).contains(NOT_MADE), "{}", printed(&output));
    let output = client(&[&url, "1", "1999", "k-1"], &[("DEADLINE_MS", "300")]).await;
    assert!(printed(&output).contains(&format!("{MAY_BE_MADE}k-1")), "{}", printed(&output));
}

#[tokio::test]
async fn for_a_key_of_another_charge_it_warns_against_a_new_key() {
    let reused = answer("422 Unprocessable Content", "", r#"{"code":"key_reused","retryable":false}"#);
    let (output, tries) = run(&[&reused, DONE], &[]).await;
    assert_eq!((tries, output.status.code()), (1, Some(1)), "{}", printed(&output));
    assert!(printed(&output).contains("do not repeat that charge with a new key"), "{}", printed(&output));
}

#[tokio::test]
async fn the_pause_is_as_long_as_retry_after_requests() {
    let busy = answer("409 Conflict", "retry-after: 1\r\n", r#"{"retryable":true,"retry_after_ms":60000}"#);
    let (output, tries) = run(&[&busy, DONE], &[]).await;
    assert_eq!(tries, 2);
    let text = printed(&output);
    let pause: u64 = text.split("again in ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1_000..=1_100).contains(&pause), "{text}");
}

#[tokio::test]
async fn after_its_deadline_it_gives_up_and_prints_how_to_resume() {
    let (output, tries) = run(&["", "", "", "", "", "", "", ""], &[("DEADLINE_MS", "400")]).await;
    assert!(!output.status.success() && tries < 8, "{}", printed(&output));
    assert!(printed(&output).contains(MAY_BE_MADE) && printed(&output).contains("out of time"), "{}", printed(&output));
}
