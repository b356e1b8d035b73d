//! Faults between a client and the service, and between the service and its store.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// A request, and the service's response to it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The head of the request, with names in lower case.
    request: Vec<(String, String)>,
    pub status: u16,
    /// The head of the response.
    response: Vec<(String, String)>,
    pub body: String,
}

impl Exchange {
    pub fn sent(&self, name: &str) -> Option<&str> {
        value(&self.request, name)
    }

    pub fn is_replay(&self) -> bool {
        value(&self.response, "idempotency-replayed") == Some("true")
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// An HTTP proxy that records the forwarded requests, one request for each connection.
pub struct Proxy {
    pub url: String,
    attempts: Arc<AtomicUsize>,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Forwards to this address. `deliver` is called with the number of each response from 0 and with the response, and returns
    /// whether the client receives it. If it does not, its connection is closed.
    pub async fn start(target: &str, deliver: impl Fn(usize, &Exchange) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let attempts = Arc::new(AtomicUsize::new(0));
        let exchanges = Arc::new(Mutex::new(Vec::new()));
        let counted = Arc::clone(&attempts);
        let (target, recorded, deliver) = (target.to_owned(), Arc::clone(&exchanges), Arc::new(deliver));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (target, recorded, deliver) = (target.clone(), Arc::clone(&recorded), Arc::clone(&deliver));
                let counted = Arc::clone(&counted);
                connections.spawn(async move {
                    let Some((head, body)) = read_message(&mut client).await else { return };
                    counted.fetch_add(1, Ordering::Relaxed);
                    let mut service = TcpStream::connect(&target).await.unwrap();
                    let (first, headers) = parsed(&head);
                    let mut text = format!("{first}\r\nconnection: close\r\n");
                    for (name, value) in headers.iter().filter(|(name, _)| name != "connection") {
                        text += &format!("{name}: {value}\r\n");
                    }
                    service.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
                    service.write_all(&body).await.unwrap();
                    let (head, body) = tokio::select! {
                        response = read_message(&mut service) => response.expect("the service responds"),
                        // The client has left, and so does the proxy.
                        _ = client.read_u8() => return,
                    };
                    let (first, response) = parsed(&head);
                    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
                    let text = String::from_utf8(body.clone()).unwrap();
                    let exchange = Exchange { request: headers, status, response, body: text };
                    let number = {
                        let mut recorded = recorded.lock().unwrap();
                        recorded.push(exchange.clone());
                        recorded.len() - 1
                    };
                    if deliver(number, &exchange) {
                        let _ = client.write_all(&[head.as_bytes(), &body[..]].concat()).await;
                    }
                });
            }
        });
        Self { url, attempts, exchanges, _tasks: tasks }
    }

    /// Returns how many requests were received.
    pub fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Returns the requests with a response. All of them have one value of this header.
    pub fn exchanges(&self, key: &str) -> Vec<Exchange> {
        let exchanges = self.exchanges.lock().unwrap().clone();
        let keys: HashSet<_> = exchanges.iter().map(|exchange| exchange.sent(key)).collect();
        assert!(keys.len() == 1 && !keys.contains(&None), "{exchanges:?}");
        exchanges
    }
}

/// Reads a message with `Content-Length`. `None` if the peer leaves before its end.
async fn read_message(peer: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end + 4].to_vec()).unwrap();
            let length = value(&parsed(&head).1, "content-length").map_or(0, |length| length.parse().unwrap());
            if read.len() >= end + 4 + length {
                return Some((head, read[end + 4..].to_vec()));
            }
        }
        if peer.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

/// The first line, and the headers.
fn parsed(head: &str) -> (&str, Vec<(String, String)>) {
    let (first, rest) = head.split_once("\r\n").unwrap();
    let headers = rest.lines().filter_map(|line| line.split_once(':'));
    (first, headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect())
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A connection to a server that can be cut.
pub struct Cable {
    pub url: String,
    plugged: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Cable {
    /// Creates a connection to this server, which is not cut.
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = server.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let (plugged, is_plugged) = watch::channel(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (mut is_plugged, target) = (is_plugged.clone(), target.clone());
                connections.spawn(async move {
                    if !*is_plugged.borrow_and_update() {
                        return;
                    }
                    let mut server = TcpStream::connect(&target).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = is_plugged.wait_for(|plugged| !plugged) => {}
                    }
                });
            }
        });
        Self { url, plugged, _tasks: tasks }
    }

    /// Cuts all current and new connections until the returned function is called, which returns true.
    pub fn cut(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        self.plugged.send_replace(false);
        let plugged = self.plugged.clone();
        move || {
            plugged.send_replace(true);
            true
        }
    }
}
