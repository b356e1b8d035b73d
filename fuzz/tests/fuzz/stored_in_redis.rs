//! Hashes of Redis, as the page describes them and with changes, from a server that has only these.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, LazyLock, Mutex},
};

use lambda_once::{
    ErrorKind, ErrorStatus, RedisStore, Store,
    record::{KeyHash, StoredData},
    store::{ResultData, redis::Config},
};
use lambda_once_fuzz::{input::Input, mutate, target};
use serde_json::{Map, Value};
use tokio::runtime::{Builder, Runtime};

use crate::stored::{compare, members};

pub(crate) type Hash = HashMap<Vec<u8>, Vec<u8>>;

/// A store whose server has only one hash.
pub(crate) struct Served {
    hash: Arc<Mutex<Hash>>,
    store: RedisStore,
    /// The connection lives in it.
    runtime: Runtime,
}

impl Served {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hash = Arc::<Mutex<Hash>>::default();
        let served = Arc::clone(&hash);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (connection, served) = (connection.unwrap(), Arc::clone(&served));
                // A client that goes away ends it.
                std::thread::spawn(move || serve(&connection, &served));
            }
        });
        let store = Config::new(format!("redis://{address}")).build().unwrap();
        Self { hash, store, runtime: Builder::new_current_thread().enable_all().build().unwrap() }
    }

    /// Makes a call while the server has this hash.
    pub(crate) fn answer<T>(&self, hash: Hash, call: impl AsyncFnOnce(&RedisStore) -> T) -> T {
        *self.hash.lock().unwrap() = hash;
        self.runtime.block_on(call(&self.store))
    }
}

/// Responds to `HMGET` with the hash, and to everything else with `OK`.
fn serve(connection: &TcpStream, hash: &Mutex<Hash>) -> Option<()> {
    let mut reader = BufReader::new(connection);
    loop {
        let mut answer = Vec::new();
        let words = words(&mut reader)?;
        if words[0] == b"HMGET" {
            let hash = hash.lock().unwrap();
            answer.extend(format!("*{}\r\n", words.len() - 2).bytes());
            for field in &words[2..] {
                match hash.get(field) {
                    Some(value) => {
                        answer.extend(format!("${}\r\n", value.len()).bytes());
                        answer.extend(value.iter().chain(b"\r\n"));
                    }
                    None => answer.extend(b"$-1\r\n"),
                }
            }
        } else {
            answer.extend(b"+OK\r\n");
        }
        (&*connection).write_all(&answer).ok()?;
    }
}

/// Reads a command, or returns `None` at the end of the connection.
fn words(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let words = length(reader)?;
    let word = |_| {
        let mut word = vec![0; length(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    };
    (0..words).map(word).collect()
}

/// Reads a line of a mark and a number.
fn length(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim().get(1..)?.parse().ok()
}

/// Changes some fields of a hash.
pub(crate) fn change(hash: &mut Hash, input: &mut Input<'_>) {
    for _ in 0..=input.below(2) {
        let mut names: Vec<_> = hash.keys().cloned().collect();
        names.sort();
        let name = input.pick(&names);
        match input.below(4) {
            0 => drop(hash.remove(name)),
            1 => drop(hash.insert(name.clone(), input.bytes(9))),
            _ => hash.get_mut(name).into_iter().for_each(|value| mutate::bytes(value, input)),
        }
    }
}

/// Returns members as the fields of a hash.
pub(crate) fn hash(members: &Map<String, Value>) -> Hash {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).into_bytes();
    members.iter().map(|(name, value)| (name.clone().into_bytes(), text(value))).collect()
}

static SERVED: LazyLock<Served> = LazyLock::new(Served::new);

target!(
    /// Hashes of Redis. A hash that is not a record of this version causes a typed error.
    hashes,
    |bytes| {
        let mut input = Input::new(bytes);
        let members = members(&mut input);
        let mut hash = hash(&members);
        let data = match input.below(4) {
            0 if !members.contains_key("data") => Some(input.bytes(9)),
            _ => None,
        };
        hash.extend(data.clone().map(|bytes| (b"deflated".to_vec(), bytes)));
        let is_changed = input.one_in(2);
        if is_changed {
            change(&mut hash, &mut input);
        }
        let is_absent = hash.is_empty();
        let answers = SERVED.answer(hash, async |store| store.read(&[KeyHash::from_bytes([7; 32])], ResultData::Include).await);
        match <[_; 1]>::try_from(answers).unwrap() {
            [Ok(Some(record))] if is_changed => format!("{:?} changed", record.status),
            [Ok(Some(mut record))] => {
                if data.is_some() {
                    assert_eq!(record.result.data.take(), data.map(StoredData::Deflated));
                }
                compare(&record, &members);
                format!("{:?}", record.status)
            }
            [Ok(None)] => {
                assert!(is_absent);
                "absent".to_owned()
            }
            [Err(error)] => {
                assert!(is_changed, "{error}: {members:?}");
                assert_eq!((error.kind(), error.status()), (ErrorKind::Format, ErrorStatus::Temporary), "{error}");
                error.to_string().split('`').nth(1).unwrap_or_default().to_owned()
            }
        }
    }
);
