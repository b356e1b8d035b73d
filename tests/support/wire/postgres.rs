//! Framing of PostgreSQL's protocol 3, without COPY and Flush.

use std::{collections::HashMap, io};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;

use super::{Request, connection::Side};

const SSL: u32 = 80_877_103;
const GSS_ENCRYPTION: u32 = 80_877_104;
const CANCEL: u32 = 80_877_102;

/// Returns the server's response that refuses a request with this severity and SQLSTATE, and the status of the session after it:
/// `I` outside a transaction, `T` in one, `E` in a failed one, and none if the session ends.
pub fn refusal(severity: &str, code: &str, status: Option<char>) -> Vec<u8> {
    let fields = format!("S{severity}\0V{severity}\0C{code}\0Minjected by the test\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    let ready = status.map_or_else(String::new, |status| format!("Z\0\0\0\x05{status}"));
    [b"E".as_slice(), &length, fields.as_bytes(), ready.as_bytes()].concat()
}

/// The prepared statements of a connection, with the messages that prepared them.
#[derive(Default)]
pub(super) struct Statements(HashMap<Bytes, (String, Bytes)>);

impl Statements {
    /// Returns the parsed request, with the messages that prepare its statements on another connection.
    pub(super) fn request(&mut self, bytes: &Bytes) -> (Request, Bytes) {
        let (mut commands, mut arguments, mut preparation) = (Vec::new(), Vec::new(), BytesMut::new());
        let mut parsed_here = Vec::new();
        let mut rest = bytes.clone();
        while let Some(length) = message_length(&rest) {
            let message = rest.split_to(length);
            let mut body = message.slice(5..);
            match message[0] {
                b'Q' => commands.push(text(&mut body)),
                b'P' => {
                    let name = c_string(&mut body);
                    self.0.insert(name.clone(), (text(&mut body), message));
                    parsed_here.push(name);
                }
                b'B' => {
                    c_string(&mut body); // the portal
                    let name = c_string(&mut body);
                    let (statement, message) = self.0.get(&name).expect("the statement was prepared");
                    commands.push(statement.clone());
                    if !parsed_here.contains(&name) {
                        preparation.extend_from_slice(message);
                    }
                    arguments.extend(parameters(&mut body));
                }
                _ => {}
            }
        }
        (Request { command: commands.join("\n"), arguments, round_trip: 0 }, preparation.freeze())
    }
}

/// Returns the length of the request at the beginning of these bytes, if it is complete.
pub(super) fn request_length(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let kind = *bytes.get(end)?;
        end += message_length(&bytes[end..])?;
        match kind {
            b'S' | b'Q' | b'X' => return Some(end),
            b'P' | b'B' | b'D' | b'E' | b'C' => {}
            other => panic!("not a message of a query: {:?}", char::from(other)),
        }
    }
}

/// Returns the length of the response at the beginning of these bytes, if it is complete.
pub(super) fn response_length(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let is_last = *bytes.get(end)? == b'Z';
        end += message_length(&bytes[end..])?;
        if is_last {
            return Some(end);
        }
    }
}

/// Returns whether the request is a Terminate message, which closes the connection without a response.
pub(super) fn is_termination(request: &[u8]) -> bool {
    request.first() == Some(&b'X')
}

pub(super) fn is_error(answer: &Bytes) -> bool {
    messages(answer).any(|message| message[0] == b'E')
}

/// Returns the number of rows that the statements returned or changed.
pub(super) fn count(answer: &Bytes) -> Option<u64> {
    let tags = messages(answer).filter(|message| message[0] == b'C');
    tags.map(|message| text(&mut message.slice(5..)).rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Lets the client start up and authenticate. Returns its startup message, or `None` if it made another request or was
/// refused.
pub(super) async fn start_up(client: &mut Side, server: &mut Side) -> io::Result<Option<Bytes>> {
    let message = loop {
        let message = client.expect(|bytes| message_length_at(bytes, 0)).await?;
        match (&message[4..]).get_u32() {
            SSL | GSS_ENCRYPTION => client.write(b"N").await?,
            CANCEL => {
                server.write(&message).await?;
                while server.fill().await? > 0 {}
                return Ok(None);
            }
            _ => break message,
        }
    };
    server.write(&message).await?;
    loop {
        tokio::select! {
            answer = server.expect(message_length) => {
                let answer = answer?;
                client.write(&answer).await?;
                if answer[0] == b'Z' {
                    return Ok(Some(message));
                }
            }
            password = client.expect(message_length) => server.write(&password?).await?,
        }
    }
}

/// Sends a request on a new connection with this startup message, to a server without passwords.
pub(super) async fn exchange(stream: TcpStream, start_up: &[u8], request: &[u8]) -> io::Result<Bytes> {
    let mut server = Side::new(stream);
    server.write(start_up).await?;
    let started = server.expect(response_length_or_challenge).await?;
    if !started.ends_with(b"Z\0\0\0\x05I") {
        return Err(io::Error::other(format!("the server wants a password, or refuses: {started:?}")));
    }
    server.write(request).await?;
    server.expect(response_length).await
}

/// Returns the length of a response that ends when the server is ready, waits for a password, or has refused.
fn response_length_or_challenge(bytes: &[u8]) -> Option<usize> {
    let length = message_length(bytes)?;
    let is_authenticated = bytes[0] == b'R' && bytes[5..length] == [0; 4];
    if is_authenticated { response_length(bytes) } else { Some(length) }
}

fn messages(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = bytes.clone();
    std::iter::from_fn(move || message_length(&rest).map(|length| rest.split_to(length)))
}

/// Returns the length of a message that begins with its kind.
fn message_length(bytes: &[u8]) -> Option<usize> {
    message_length_at(bytes, 1)
}

/// Returns the length of a message, which contains it at this place, counted from there.
fn message_length_at(bytes: &[u8], place: usize) -> Option<usize> {
    let mut length = bytes.get(place..place + 4)?;
    let end = place + length.get_u32() as usize;
    (end <= bytes.len()).then_some(end)
}

/// Returns the values of a Bind message, which follow its names.
fn parameters(body: &mut Bytes) -> Vec<Bytes> {
    let formats = usize::from(body.get_u16());
    body.advance(2 * formats);
    let count = body.get_u16();
    let value = |_| usize::try_from(body.get_i32()).map(|length| body.split_to(length)).unwrap_or_default();
    (0..count).map(value).collect()
}

/// Returns the bytes up to the next NUL, which is skipped.
fn c_string(body: &mut Bytes) -> Bytes {
    let end = body.iter().position(|byte| *byte == 0).expect("a NUL ends a string");
    let bytes = body.split_to(end);
    body.advance(1);
    bytes
}

fn text(body: &mut Bytes) -> String {
    String::from_utf8_lossy(&c_string(body)).into_owned()
}
