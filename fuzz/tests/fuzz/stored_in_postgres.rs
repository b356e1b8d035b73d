//! Rows of PostgreSQL, as the page describes them and with changes, from a server that has only one.

use std::{
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, LazyLock, Mutex},
};

use lambda_once::{
    ErrorKind, ErrorStatus, PostgresStore, Store,
    record::{KeyHash, StoredData},
    store::{ResultData, postgres::Config},
};
use lambda_once_fuzz::{input::Input, target};
use serde_json::{Map, Value};
use tokio::runtime::{Builder, Runtime};

use crate::stored::{compare, members};

/// A type, as its object identifier, from the catalog `pg_type`.
type Oid = u32;
pub(crate) const BYTEA: Oid = 17;
pub(crate) const INT8: Oid = 20;
const INT2: Oid = 21;
pub(crate) const INT4: Oid = 23;
pub(crate) const TEXT: Oid = 25;
pub(crate) const BYTEA_ARRAY: Oid = 1001;
pub(crate) const TEXT_ARRAY: Oid = 1009;
const TYPES: [Oid; 7] = [BYTEA, INT8, INT2, INT4, TEXT, BYTEA_ARRAY, TEXT_ARRAY];

/// A column of the row. The value is in PostgreSQL's binary format, or `None` for NULL.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    oid: Oid,
    pub(crate) value: Option<Vec<u8>>,
}

impl Column {
    pub(crate) fn new(name: &'static str, oid: Oid, value: Option<impl AsRef<[u8]>>) -> Self {
        Self { name, oid, value: value.map(|bytes| bytes.as_ref().to_vec()) }
    }
}

/// Encodes a one-dimensional array, whose indexes begin with 1.
pub(crate) fn array(of: Oid, elements: &[Option<Vec<u8>>]) -> Vec<u8> {
    let has_null = elements.iter().any(Option::is_none);
    let dimensions = i32::from(!elements.is_empty());
    let mut encoded = [dimensions.to_be_bytes(), i32::from(has_null).to_be_bytes(), of.to_be_bytes()].concat();
    if !elements.is_empty() {
        encoded.extend([(elements.len() as i32).to_be_bytes(), 1_i32.to_be_bytes()].concat());
    }
    elements.iter().for_each(|element| encoded.extend(field(element.as_deref())));
    encoded
}

/// Encodes a value with its length in front, which is -1 for NULL.
fn field(value: Option<&[u8]>) -> Vec<u8> {
    value.map_or_else(|| (-1_i32).to_be_bytes().to_vec(), |bytes| [&(bytes.len() as i32).to_be_bytes(), bytes].concat())
}

/// A store whose server has only one row.
pub(crate) struct Served {
    row: Arc<Mutex<Vec<Column>>>,
    store: PostgresStore,
    /// The connection lives in it.
    runtime: Runtime,
}

impl Served {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let row = Arc::<Mutex<Vec<Column>>>::default();
        let served = Arc::clone(&row);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (connection, served) = (connection.unwrap(), Arc::clone(&served));
                // A client that goes away ends it.
                std::thread::spawn(move || serve(&connection, &served));
            }
        });
        let url = format!("postgresql://fuzz@127.0.0.1:{port}/fuzz?sslmode=disable");
        let store = Config::from_url(&url).unwrap().build().unwrap();
        Self { row, store, runtime: Builder::new_current_thread().enable_all().build().unwrap() }
    }

    /// Makes a call while the server has this row.
    pub(crate) fn answer<T>(&self, row: Vec<Column>, call: impl AsyncFnOnce(&PostgresStore) -> T) -> T {
        *self.row.lock().unwrap() = row;
        self.runtime.block_on(call(&self.store))
    }
}

/// Accepts every log-in, and responds to each statement with the row.
fn serve(connection: &TcpStream, row: &Mutex<Vec<Column>>) -> Option<()> {
    let mut reader = BufReader::new(connection);
    // The first message has no type.
    body(&mut reader)?;
    let authenticated = message(b'R', &0_i32.to_be_bytes());
    (&*connection).write_all(&[authenticated, message(b'Z', b"I")].concat()).ok()?;
    let mut answers = Vec::new();
    loop {
        let mut kind = [0];
        reader.read_exact(&mut kind).ok()?;
        body(&mut reader)?;
        answers.extend(match kind[0] {
            b'P' => message(b'1', b""),
            b'B' => message(b'2', b""),
            b'D' => message(b'T', &description(&row.lock().unwrap())),
            b'E' => [message(b'D', &values(&row.lock().unwrap())), message(b'C', b"SELECT 1\0")].concat(),
            b'S' => message(b'Z', b"I"),
            // The check of an idle connection, which is an empty statement.
            b'Q' => [message(b'I', b""), message(b'Z', b"I")].concat(),
            _ => return None,
        });
        // Together, because the system delays small packets.
        if matches!(kind[0], b'S' | b'Q') {
            (&*connection).write_all(&std::mem::take(&mut answers)).ok()?;
        }
    }
}

/// Reads a message's length, which counts itself, and the rest of it.
fn body(reader: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).ok()?;
    let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).ok()?.checked_sub(4)?];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], (body.len() as i32 + 4).to_be_bytes().as_slice(), body].concat()
}

fn description(row: &[Column]) -> Vec<u8> {
    let mut body = (row.len() as i16).to_be_bytes().to_vec();
    for Column { name, oid, .. } in row {
        body.extend(name.bytes().chain([0]));
        // No table, and the sizes are not used. The format is binary.
        body.extend([&[0; 6], oid.to_be_bytes().as_slice(), &[0xff; 6], &1_i16.to_be_bytes()].concat());
    }
    body
}

fn values(row: &[Column]) -> Vec<u8> {
    let mut body = (row.len() as i16).to_be_bytes().to_vec();
    row.iter().for_each(|column| body.extend(field(column.value.as_deref())));
    body
}

/// Changes some columns of a row, as another version or another table could have them.
pub(crate) fn change(row: &mut Vec<Column>, input: &mut Input<'_>) {
    for _ in 0..=input.below(2) {
        let at = input.below(row.len());
        match input.below(8) {
            0 if row.len() > 1 => drop(row.remove(at)),
            1 => row[at].value = None,
            2 => {
                row[at].oid = *input.pick(&TYPES);
                row[at].value = Some(any(row[at].oid, input));
            }
            _ => row[at].value = Some(any(row[at].oid, input)),
        }
    }
}

/// Draws a value of a type.
fn any(oid: Oid, input: &mut Input<'_>) -> Vec<u8> {
    match oid {
        INT2 => ((input.integer() >> 48) as i16).to_be_bytes().to_vec(),
        INT4 => (input.integer() as i32).to_be_bytes().to_vec(),
        INT8 => input.integer().to_be_bytes().to_vec(),
        TEXT if input.one_in(2) => (0..input.below(66)).map(|_| b'0' + input.byte() % 10).collect(),
        TEXT => input.text(9).into_bytes(),
        BYTEA => {
            let most = *input.pick(&[9, 16, 32, 40]);
            input.bytes(most)
        }
        _ => {
            let element = if oid == TEXT_ARRAY { TEXT } else { BYTEA };
            let elements: Vec<_> =
                (0..input.below(4)).map(|_| (!input.one_in(4)).then(|| any(element, input))).collect();
            array(element, &elements)
        }
    }
}

/// Returns the members of a record as columns, by the table in the page about PostgreSQL.
fn columns(members: &Map<String, Value>) -> Vec<Column> {
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let int8 = |column: &'static str, name: &str| {
        let number = members.get(name).and_then(Value::as_u64);
        Column::new(column, INT8, number.map(u64::to_be_bytes))
    };
    let status = |name: &'static str| {
        let number = text(name).map(|word| ["INPROGRESS", "COMPLETED", "FAILED"].iter().position(|each| *each == word));
        Column::new(name, INT2, number.map(|number| (number.unwrap() as i16).to_be_bytes()))
    };
    let fingerprint = text("validation").map(|text| match text.split_once(':') {
        // The text has the version in front, and the column at the end.
        Some((version, digits)) => {
            [bytes(digits), version[1..].parse::<u32>().unwrap().to_be_bytes().to_vec()].concat()
        }
        None => bytes(text),
    });
    let encoding: Option<i16> = match members {
        _ if members.contains_key("data") => Some(0),
        _ if members.contains_key("result_dropped") => Some(2),
        _ => members.contains_key("superseded").then_some(3),
    };
    vec![
        Column::new("key_hash", BYTEA, Some([7; 32])),
        status("status"),
        Column::new("owner", BYTEA, text("owner").map(bytes)),
        int8("attempt", "attempt"),
        status("prior_status"),
        int8("lease_until", "in_progress_expiration"),
        int8("expiration", "expiration"),
        Column::new("validation", BYTEA, fingerprint),
        Column::new("data", BYTEA, text("data")),
        Column::new("encoding", INT2, encoding.map(i16::to_be_bytes)),
        Column::new("v", INT4, members["v"].as_u64().map(|version| (version as i32).to_be_bytes())),
        Column::new("operation", TEXT, text("operation")),
        Column::new("label", TEXT, text("label")),
        Column::new("sequence", TEXT, text("sequence")),
        int8("claimed_at", "claimed_at"),
        int8("settled_at", "settled_at"),
        int8("released", "released"),
        Column::new("now", INT8, Some(0_u64.to_be_bytes())),
    ]
}

/// Returns the bytes of hexadecimal digits.
pub(crate) fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Adjusts members to columns that are never NULL, and to a version that is a positive integer of 4 bytes.
pub(crate) fn adjust(members: &mut Map<String, Value>) {
    members.entry("expiration").or_insert_with(|| 0.into());
    if members["v"].as_u64() > Some(i32::MAX as u64) {
        members.insert("v".to_owned(), i32::MAX.into());
    }
}

/// Checks the error of a row that was changed, and returns its kind.
pub(crate) fn check(error: &lambda_once::Error) -> String {
    match error.kind() {
        ErrorKind::Format => {
            assert_eq!(error.status(), ErrorStatus::Temporary, "{error}");
            error.to_string().split('`').nth(1).unwrap_or_default().to_owned()
        }
        // A column is missing, or has another type.
        kind => {
            assert_eq!((kind, error.status()), (ErrorKind::Table, ErrorStatus::Ambiguous), "{error}");
            format!("{kind:?}")
        }
    }
}

static SERVED: LazyLock<Served> = LazyLock::new(Served::new);

target!(
    /// Rows of PostgreSQL. A row that is not a record of this version causes a typed error.
    rows,
    |bytes| {
        let mut input = Input::new(bytes);
        let mut members = members(&mut input);
        adjust(&mut members);
        let mut row = columns(&members);
        let deflated = (input.one_in(4) && !members.contains_key("data")).then(|| input.bytes(9));
        if let Some(data) = &deflated {
            for (name, value) in [("data", data.clone()), ("encoding", 1_i16.to_be_bytes().to_vec())] {
                row.iter_mut().filter(|column| column.name == name).for_each(|column| column.value = Some(value.clone()));
            }
            members.remove("result_dropped");
            members.remove("superseded");
        }
        let is_changed = input.one_in(2);
        if is_changed {
            change(&mut row, &mut input);
        }
        let key = row.iter().find(|column| column.name == "key_hash").and_then(|column| column.value.clone());
        let answers =
            SERVED.answer(row, async |store| store.read(&[KeyHash::from_bytes([7; 32])], ResultData::Include).await);
        match <[_; 1]>::try_from(answers).unwrap() {
            [Ok(Some(record))] if is_changed => format!("{:?} changed", record.status),
            [Ok(Some(mut record))] => {
                if deflated.is_some() {
                    assert_eq!(record.result.data.take(), deflated.map(StoredData::Deflated));
                }
                compare(&record, &members);
                format!("{:?}", record.status)
            }
            [Ok(None)] => {
                assert!(key.is_some_and(|key| key != [7; 32]), "the record is there");
                "another key".to_owned()
            }
            [Err(error)] => {
                assert!(is_changed, "{error}: {members:?}");
                check(&error)
            }
        }
    }
);
