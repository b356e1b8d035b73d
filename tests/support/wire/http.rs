//! Framing of HTTP/1.1 with persistent connections.

use std::{fmt::Write, io};

use bytes::Bytes;
use httparse::{EMPTY_HEADER, Header, Status, parse_chunk_size};
use tokio::net::TcpStream;

use super::connection::Side;

const MAX_HEADERS: usize = 64;

/// The headers of a request or response: their length including the first line, and their information about the body.
struct Head {
    length: usize,
    /// The status of a response.
    status: Option<u16>,
    body: Body,
}

#[derive(Clone, Copy)]
enum Body {
    None,
    OfLength(usize),
    InChunks,
}

/// Returns the length of the request at the beginning of these bytes, if it is complete.
pub(super) fn request_length(bytes: &[u8]) -> Option<usize> {
    request_head(bytes)?.end(bytes)
}

/// Returns the length of the response at the beginning of these bytes, including interim ones such as 100 Continue, if
/// it is complete.
pub(super) fn response_length(bytes: &[u8]) -> Option<usize> {
    let (start, head) = final_head(bytes)?;
    Some(start + head.end(&bytes[start..])?)
}

/// Returns the value of a header of a complete request, or an empty string without it.
pub(super) fn request_header(request: &[u8], name: &str) -> String {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    complete(parsed.parse(request)).expect("a whole request");
    value(parsed.headers, name).unwrap_or_default().to_owned()
}

pub(super) fn request_body(request: &[u8]) -> Bytes {
    let head = request_head(request).expect("a whole request");
    head.content(request)
}

/// Returns the status and the body of a complete response.
pub(super) fn read_response(answer: &[u8]) -> (u16, Bytes) {
    let (start, head) = final_head(answer).expect("a whole answer");
    (head.status.expect("of an answer"), head.content(&answer[start..]))
}

/// Returns a response in a server's encoding.
pub(super) fn answer(status: u16, body: &str) -> Bytes {
    format!("HTTP/1.1 {status} \r\nContent-Length: {}\r\n\r\n{body}", body.len()).into()
}

/// Returns the request with another body. Its signature becomes invalid.
pub(super) fn request_with_body(request: &[u8], body: &str) -> Bytes {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    complete(parsed.parse(request)).expect("a whole request");
    let (method, path) = (parsed.method.expect("it is whole"), parsed.path.expect("it is whole"));
    let mut text = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    let framing = |header: &&Header<'_>| {
        ["Content-Length", "Transfer-Encoding"].iter().any(|name| header.name.eq_ignore_ascii_case(name))
    };
    for header in parsed.headers.iter().filter(|header| !framing(header)) {
        write!(text, "{}: {}\r\n", header.name, String::from_utf8_lossy(header.value)).expect("a string takes all");
    }
    (text + "\r\n" + body).into()
}

/// Sends a request on a new connection.
pub(super) async fn exchange(stream: TcpStream, request: &[u8]) -> io::Result<Bytes> {
    let mut server = Side::new(stream);
    server.write(request).await?;
    server.expect(response_length).await
}

impl Head {
    /// Returns the end of the body in bytes that begin with the head, if it is complete.
    fn end(&self, bytes: &[u8]) -> Option<usize> {
        let body = match self.body {
            Body::None => 0,
            Body::OfLength(length) => length,
            Body::InChunks => chunks(&bytes[self.length..])?.0,
        };
        let end = self.length + body;
        (end <= bytes.len()).then_some(end)
    }

    /// Returns the content of the body in complete bytes that begin with the head.
    fn content(&self, bytes: &[u8]) -> Bytes {
        let body = &bytes[self.length..];
        match self.body {
            Body::None => Bytes::new(),
            Body::OfLength(length) => Bytes::copy_from_slice(&body[..length]),
            Body::InChunks => chunks(body).expect("a whole body").1.into(),
        }
    }
}

fn request_head(bytes: &[u8]) -> Option<Head> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = complete(request.parse(bytes))?;
    Some(Head { length, status: None, body: body(request.headers).unwrap_or(Body::None) })
}

/// Returns the head of the final response and its position after the interim ones.
fn final_head(bytes: &[u8]) -> Option<(usize, Head)> {
    let mut start = 0;
    loop {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let length = complete(answer.parse(&bytes[start..]))?;
        let body = match answer.code {
            Some(100..=199) => {
                start += length;
                continue;
            }
            Some(204 | 304) => Body::None,
            _ => body(answer.headers).expect("a response has a length"),
        };
        return Some((start, Head { length, status: answer.code, body }));
    }
}

fn body(headers: &[Header<'_>]) -> Option<Body> {
    if let Some(encoding) = value(headers, "Transfer-Encoding") {
        assert!(encoding.eq_ignore_ascii_case("chunked"), "no other encoding is known: {encoding}");
        return Some(Body::InChunks);
    }
    value(headers, "Content-Length").map(|length| Body::OfLength(length.parse().expect("a length")))
}

fn value<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a str> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(str::from_utf8(header.value).expect("a header is text").trim())
}

/// Returns the length of a chunked body with its trailers, and its content, if it is complete.
fn chunks(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (mut end, mut content) = (0, Vec::new());
    loop {
        let (line, size) = match parse_chunk_size(&bytes[end..]).expect("the size of a chunk") {
            Status::Complete(parsed) => parsed,
            Status::Partial => return None,
        };
        end += line;
        if size == 0 {
            let mut trailers = [EMPTY_HEADER; MAX_HEADERS];
            return match httparse::parse_headers(&bytes[end..], &mut trailers).expect("trailers") {
                Status::Complete((length, _)) => Some((end + length, content)),
                Status::Partial => None,
            };
        }
        let size = usize::try_from(size).expect("a chunk fits into memory");
        content.extend_from_slice(bytes.get(end..end + size)?);
        end += size + 2;
        bytes.get(..end)?;
    }
}

fn complete(parsed: httparse::Result<usize>) -> Option<usize> {
    match parsed.expect("HTTP/1.1") {
        Status::Complete(length) => Some(length),
        Status::Partial => None,
    }
}
