//! The proxy in front of PostgreSQL.

use super::client::Client;
use crate::support::{
    server, unique_name,
    wire::{Protocol, Proxy, host_and_port},
};

const COUNT: &str = "SELECT nextval($1)";

/// Returns a message of this kind. One without a kind begins with its length.
fn message(kind: &str, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let length = u32::try_from(body.len() + 4).unwrap();
    [kind.as_bytes(), &length.to_be_bytes(), &body].concat()
}

fn query(sql: &str) -> Vec<u8> {
    message("Q", &[sql.as_bytes(), b"\0"])
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message("P", &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0", b"\0\0"])
}

/// Returns the messages that execute a statement with one parameter, up to the Sync.
fn execute(name: &str, parameter: &str) -> Vec<u8> {
    let length = i32::try_from(parameter.len()).unwrap().to_be_bytes();
    let bind = [b"\0", name.as_bytes(), b"\0", b"\0\0", b"\0\x01", &length[..], parameter.as_bytes(), b"\0\0"];
    [message("B", &bind), message("E", &[b"\0", b"\0\0\0\0"]), message("S", &[])].concat()
}

struct Connection {
    client: Client,
}

impl Connection {
    /// Starts up like a client that prefers TLS.
    async fn start(proxy: &Proxy) -> Self {
        let url = server("POSTGRES_URL");
        let user = url.split(['/', '@', ':']).nth(3).unwrap();
        let mut client = Client::connect(proxy).await;
        client.send(message("", &[&80_877_103_u32.to_be_bytes()])).await;
        client.expect("N").await;
        let parameters = format!("user\0{user}\0database\0postgres\0\0");
        client.send(message("", &[&196_608_u32.to_be_bytes(), parameters.as_bytes()])).await;
        let mut connection = Self { client };
        assert_eq!(connection.answer().await[0].0, 'R', "the server asks for no password");
        connection
    }

    /// Returns the kinds and bodies of all messages until the server is ready.
    async fn answer(&mut self) -> Vec<(char, String)> {
        let mut messages = Vec::new();
        while messages.last().is_none_or(|(kind, _)| *kind != 'Z') {
            let head = self.client.read(5).await;
            let length = u32::from_be_bytes(head[1..].try_into().unwrap());
            let body = self.client.read(length as usize - 4).await;
            messages.push((char::from(head[0]), String::from_utf8_lossy(&body).into_owned()));
        }
        messages
    }

    /// Returns the value of the only row.
    async fn value(&mut self) -> String {
        let answer = self.answer().await;
        let row = answer.iter().find(|(kind, _)| *kind == 'D').unwrap_or_else(|| panic!("no row: {answer:?}"));
        row.1[6..].to_owned()
    }

    async fn run(&mut self, sql: &str) {
        self.client.send(query(sql)).await;
        let answer = self.answer().await;
        assert_eq!(answer[0].0, 'C', "{answer:?}");
    }
}

/// Creates a proxy, a connection through it, and a separate sequence.
async fn connected() -> (Proxy, Connection, String) {
    let proxy = Proxy::start(Protocol::Postgres, host_and_port(&server("POSTGRES_URL"))).await;
    let mut connection = Connection::start(&proxy).await;
    let sequence = unique_name("wire").replace('-', "_");
    connection.run(&format!("CREATE SEQUENCE {sequence}")).await;
    proxy.reset();
    (proxy, connection, sequence)
}

/// Returns the number of uses of the sequence, read on a separate connection.
async fn count(proxy: &Proxy, sequence: &str) -> u32 {
    let mut connection = Connection::start(proxy).await;
    let sql = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}");
    connection.client.send(query(&sql)).await;
    connection.value().await.parse().unwrap()
}

fn counting(sequence: &str) -> Vec<u8> {
    [parse("", COUNT), execute("", sequence)].concat()
}

#[tokio::test]
async fn requests_pass_and_are_recorded() {
    let (proxy, mut connection, sequence) = connected().await;
    connection.client.send(counting(&sequence)).await;
    assert_eq!(connection.value().await, "1");
    connection.client.send(query("SELECT 2; SELECT 3")).await;
    assert_eq!(connection.answer().await.iter().filter(|(kind, _)| *kind == 'D').count(), 2);
    let requests = proxy.requests();
    let commands: Vec<&str> = requests.iter().map(|request| &request.command[..]).collect();
    assert_eq!(commands, [COUNT, "SELECT 2; SELECT 3"]);
    assert_eq!((requests[0].argument(0), requests[0].round_trip, requests[1].round_trip), (&sequence[..], 1, 2));
}

#[tokio::test]
async fn statements_sent_at_once_are_one_round_trip() {
    let (proxy, mut connection, sequence) = connected().await;
    connection.client.send(counting(&sequence).repeat(3)).await;
    for expected in ["1", "2", "3"] {
        assert_eq!(connection.value().await, expected);
    }
    assert_eq!((proxy.requests().len(), proxy.round_trips()), (3, 1));
}

#[tokio::test]
async fn the_client_receives_the_servers_error() {
    let (proxy, mut connection, _) = connected().await;
    connection.client.send(counting("no_such_sequence")).await;
    let answer = connection.answer().await;
    assert!(answer.iter().any(|(kind, text)| *kind == 'E' && text.contains("42P01")), "{answer:?}");
    assert_eq!(proxy.requests().len(), 1);
}

#[tokio::test]
async fn a_dropped_response_was_applied_and_a_dropped_request_was_not() {
    for is_applied in [true, false] {
        let (proxy, mut connection, sequence) = connected().await;
        let fault = proxy.on_command("nextval").nth(2);
        if is_applied {
            fault.drop_response()
        } else {
            fault.drop_request()
        }
        connection.client.send(counting(&sequence).repeat(3)).await;
        assert_eq!(connection.value().await, "1");
        connection.client.expect_end().await;
        assert_eq!((count(&proxy, &sequence).await, proxy.pending_faults()), (1 + u32::from(is_applied), 0));
    }
}

#[tokio::test]
async fn a_late_request_is_applied_when_it_is_delivered() {
    for is_silent in [true, false] {
        let (proxy, mut connection, sequence) = connected().await;
        let fault = proxy.on_command("nextval");
        let mut late = if is_silent { fault.hang() } else { fault.deliver_late() };
        connection.client.send(counting(&sequence)).await;
        assert_eq!(late.arrived().await.argument(0), sequence);
        if !is_silent {
            connection.client.expect_end().await;
        }
        assert!(!is_silent || !connection.client.has_news());
        assert_eq!(count(&proxy, &sequence).await, 0);
        drop(connection);
        let response = late.deliver().await;
        assert_eq!(response.is_applied(), Some(true), "{response:?}");
        assert_eq!(count(&proxy, &sequence).await, 1);
    }
}

#[tokio::test]
async fn the_copy_of_a_prepared_statement_is_prepared_where_it_is_delivered() {
    let (proxy, mut connection, sequence) = connected().await;
    let mut copy = proxy.on_command("nextval").copy();
    connection.client.send([parse("counter", COUNT), message("S", &[])].concat()).await;
    connection.answer().await;
    assert_eq!(proxy.requests()[0].command, "", "nothing was executed yet");
    connection.client.send(execute("counter", &sequence)).await;
    assert_eq!(connection.value().await, "1");
    assert_eq!(copy.deliver().await.is_applied(), Some(true));
    assert_eq!(count(&proxy, &sequence).await, 2);
}

#[tokio::test]
async fn a_late_request_that_fails_is_an_error() {
    let (proxy, mut connection, sequence) = connected().await;
    let mut copy = proxy.on_command("nextval").copy();
    connection.client.send(counting(&sequence)).await;
    assert_eq!(connection.value().await, "1");
    connection.run(&format!("DROP SEQUENCE {sequence}")).await;
    assert!(copy.deliver().await.is_error());
}

#[tokio::test]
async fn a_repeated_request_is_applied_twice_before_its_response() {
    let (proxy, mut connection, sequence) = connected().await;
    proxy.on_command("nextval").repeat();
    connection.client.send(counting(&sequence)).await;
    assert_eq!(connection.value().await, "1");
    assert_eq!(count(&proxy, &sequence).await, 2);
}

#[tokio::test]
async fn a_held_request_waits_and_outlives_its_client() {
    for is_patient in [true, false] {
        let (proxy, mut connection, sequence) = connected().await;
        let mut held = proxy.on_command("nextval").hold();
        connection.client.send(counting(&sequence)).await;
        held.arrived().await;
        assert_eq!(count(&proxy, &sequence).await, 0);
        if is_patient {
            held.release();
            assert_eq!(connection.value().await, "1");
        } else {
            drop(connection);
            held.release();
            while count(&proxy, &sequence).await == 0 {}
        }
    }
}

#[tokio::test]
async fn the_tests_response_comes_in_its_place_and_the_request_is_not_applied() {
    let (proxy, mut connection, sequence) = connected().await;
    let error = [message("E", &[b"SERROR\0C55P03\0Mlocked\0\0"]), message("Z", &[b"I"])].concat();
    proxy.on_command("nextval").nth(2).respond(error);
    connection.client.send(counting(&sequence).repeat(3)).await;
    assert_eq!(connection.value().await, "1");
    assert!(connection.answer().await[0].1.contains("55P03"));
    assert_eq!(connection.value().await, "2");
}

#[tokio::test]
async fn the_end_of_the_server_reaches_the_client() {
    let (proxy, mut connection, _) = connected().await;
    connection.client.send(query("SELECT pg_backend_pid()")).await;
    let process = connection.value().await;
    let mut other = Connection::start(&proxy).await;
    other.client.send(query(&format!("SELECT pg_terminate_backend({process})"))).await;
    other.answer().await;
    // An error from the server, and the end.
    assert_eq!(connection.client.read(1).await, b"E");
    let length = u32::from_be_bytes(connection.client.read(4).await.try_into().unwrap());
    let reason = connection.client.read(length as usize - 4).await;
    assert!(String::from_utf8_lossy(&reason).contains("57P01"));
    connection.client.expect_end().await;
}
