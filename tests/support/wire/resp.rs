//! Framing of RESP2, the protocol of Redis and Valkey.

use std::io;

use bytes::Bytes;
use tokio::net::TcpStream;

use super::{Request, connection::Side};

/// Returns the length of the request at the beginning of these bytes, if it is complete.
pub(super) fn request_length(bytes: &[u8]) -> Option<usize> {
    assert!(bytes.first().is_none_or(|first| *first == b'*'), "a command is an array");
    response_length(bytes)
}

/// Returns the length of the response at the beginning of these bytes, if it is complete.
pub(super) fn response_length(bytes: &[u8]) -> Option<usize> {
    let (line, mut end) = line(bytes)?;
    match bytes[0] {
        b'+' | b'-' | b':' => {}
        b'$' => {
            if let Ok(length) = usize::try_from(number(line)) {
                end += length + 2;
            }
        }
        b'*' => {
            for _ in 0..number(line) {
                end += response_length(&bytes[end..])?;
            }
        }
        other => panic!("not version 2 of the protocol: {:?}", char::from(other)),
    }
    (end <= bytes.len()).then_some(end)
}

/// Parses a request.
pub(super) fn request(mut bytes: &[u8]) -> Request {
    let (count, after) = line(bytes).expect("a whole request");
    bytes = &bytes[after..];
    let mut words = Vec::new();
    for _ in 0..number(count) {
        let (length, start) = line(bytes).expect("a whole request");
        let end = start + usize::try_from(number(length)).expect("an argument is not null");
        words.push(Bytes::copy_from_slice(&bytes[start..end]));
        bytes = &bytes[end + 2..];
    }
    let command = String::from_utf8_lossy(&words.remove(0)).to_ascii_uppercase();
    Request { command, arguments: words, round_trip: 0 }
}

/// Returns whether another connection needs the same request for an identical setup.
pub(super) fn sets_up(request: &Request) -> bool {
    matches!(request.command.as_str(), "AUTH" | "HELLO" | "SELECT")
}

pub(super) fn is_error(answer: &[u8]) -> bool {
    answer.first() == Some(&b'-')
}

/// Returns whether the response is an array, which scripts return if they refuse.
pub(super) fn is_array(answer: &[u8]) -> bool {
    answer.first() == Some(&b'*')
}

/// Sends a request on a new connection that these requests set up.
pub(super) async fn exchange(stream: TcpStream, set_up: &[u8], request: &[u8]) -> io::Result<Bytes> {
    let mut server = Side::new(stream);
    let mut rest = set_up;
    while let Some(length) = request_length(rest).filter(|_| !rest.is_empty()) {
        server.write(&rest[..length]).await?;
        server.expect(response_length).await?;
        rest = &rest[length..];
    }
    server.write(request).await?;
    server.expect(response_length).await
}

/// Returns the first line without its first byte, and the position of the next one.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[1..end], end + 2))
}

fn number(text: &[u8]) -> i64 {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("a number")
}
