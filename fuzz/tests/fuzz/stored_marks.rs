//! Stored marks of entities, as the pages describe them and with changes in any place.

use std::sync::{LazyLock, Mutex};

use lambda_once::{
    DynamoDbStore, ErrorKind, ErrorStatus,
    clock::{Clock, SystemClock},
    order::{Entity, Mark, Sequence},
    record::KeyHash,
    store::amend::Amend,
};
use lambda_once_fuzz::{input::Input, mutate, target};
use serde_json::{Map, Value, json};

use crate::{
    run,
    stored::{self, hex},
    stored_in_postgres::{self as postgres, BYTEA, BYTEA_ARRAY, Column, INT4, INT8, TEXT, TEXT_ARRAY, adjust, array},
    stored_in_redis as redis,
};

/// An operation in doubt: the 64 digits of its sequence, and the second half of its key's hash, which is empty for
/// several.
type Doubt = (String, String);

fn entity() -> Entity {
    Entity::of(&KeyHash::from_bytes([7; 32]))
}

/// Returns the whole hash of a key, in hexadecimal digits, by its second half.
fn key(half: &str) -> String {
    format!("{}{half}", "07".repeat(16))
}

/// Draws a mark: its members but for `doubt`, by the tables in the pages about Redis and DynamoDB, and its doubt.
fn mark(input: &mut Input<'_>) -> (Map<String, Value>, Vec<Doubt>) {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    put("expiration", (input.integer() >> 1).into());
    put("v", (*input.pick(&[1, 1, 1, 2, 3, 4_294_967_295_u64])).into());
    if input.one_in(2) {
        put("newest", format!("{:064}", input.integer()).into());
    }
    if input.one_in(2) {
        put("owner", hex(input, 16).into());
        put("holder", hex(input, 16).into());
        put("sequence", format!("{:064}", input.integer()).into());
        put("in_progress_expiration", (input.integer() >> 1).into());
    }
    let operation = |input: &mut Input<'_>| if input.one_in(3) { String::new() } else { hex(input, 16) };
    let doubt = (0..input.below(4)).map(|_| (format!("{:064}", input.integer()), operation(input))).collect();
    (members, doubt)
}

/// Compares a mark with the members that it was decoded from.
fn compare(mark: &Mark, members: &Map<String, Value>, doubt: &[Doubt]) {
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| members.get(name).and_then(Value::as_u64);
    let digits = |sequence: Sequence| format!("{:0>64}", sequence.to_string());
    assert_eq!((Some(mark.expiration), Some(mark.version.into())), (number("expiration"), number("v")));
    assert_eq!(mark.newest.map(digits), text("newest"));
    let holder = mark.holder.as_ref();
    assert_eq!(holder.map(|holder| holder.owner.to_hex()), text("owner"));
    assert_eq!(holder.map(|holder| holder.key.to_hex()), text("holder").map(|half| key(&half)));
    assert_eq!(holder.map(|holder| digits(holder.sequence)), text("sequence"));
    assert_eq!(holder.map(|holder| holder.lease_until.as_millis()), number("in_progress_expiration"));
    let found: Vec<_> =
        mark.doubt.iter().map(|doubt| (digits(doubt.sequence), doubt.key.map(|key| key.to_hex()))).collect();
    let drawn = doubt.iter().map(|(digits, half)| (digits.clone(), (!half.is_empty()).then(|| key(half))));
    assert_eq!(found, drawn.collect::<Vec<_>>());
}

/// Names the state of a mark.
fn state(mark: &Mark) -> String {
    format!("newest {} holder {} doubt {}", mark.newest.is_some(), mark.holder.is_some(), mark.doubt.len())
}

fn only<T>(answers: Vec<T>) -> T {
    <[_; 1]>::try_from(answers).ok().map(|[answer]| answer).unwrap()
}

static ITEM: Mutex<Value> = Mutex::new(Value::Null);
static DYNAMODB: LazyLock<DynamoDbStore> = LazyLock::new(|| stored::store(&ITEM));

target!(
    /// Items of DynamoDB. One that cannot be read is a typed error, or absent if it has expired.
    items,
    |bytes| {
        let mut input = Input::new(bytes);
        let (mut members, doubt) = mark(&mut input);
        let drawn = members.clone();
        let entries: Vec<_> = doubt.iter().map(|(digits, half)| format!("{digits} {half}")).collect();
        if !doubt.is_empty() {
            members.insert("doubt".to_owned(), entries.join(",").into());
        }
        let mut item = stored::item(&members);
        let is_changed = input.one_in(2);
        if is_changed {
            (0..=input.below(2)).for_each(|_| mutate::change(&mut item, &mut input));
        }
        // DynamoDB sends an item, whatever is in it.
        if !item.is_object() {
            item = json!({});
        }
        let expiration = item["expiration"]["N"].as_str().and_then(|digits| digits.parse::<f64>().ok());
        *ITEM.lock().unwrap() = item;
        match only(run(DYNAMODB.marks(&[entity()]))) {
            Ok(Some(mark)) => {
                if !is_changed {
                    compare(&mark, &drawn, &doubt);
                }
                format!("{} {is_changed}", state(&mark))
            }
            Ok(None) => {
                assert!(is_changed && expiration.is_some_and(|seconds| seconds <= SystemClock.now().as_millis() as f64 / 1_000.0), "{expiration:?}");
                "expired".to_owned()
            }
            Err(error) => {
                assert!(is_changed, "{error}: {members:?}");
                if error.kind() == ErrorKind::Format {
                    assert_eq!(error.status(), ErrorStatus::Temporary, "{error}");
                }
                format!("{:?}", error.kind())
            }
        }
    }
);

static REDIS: LazyLock<redis::Served> = LazyLock::new(redis::Served::new);

target!(
    /// Hashes of Redis. One that cannot be read is a typed error.
    hashes,
    |bytes| {
        let mut input = Input::new(bytes);
        let (mut members, doubt) = mark(&mut input);
        let drawn = members.clone();
        if !doubt.is_empty() {
            let entries: String = doubt.iter().map(|(digits, half)| format!("{digits} {half},")).collect();
            members.insert("doubt".to_owned(), entries.into());
        }
        let mut hash = redis::hash(&members);
        let is_changed = input.one_in(2);
        if is_changed {
            redis::change(&mut hash, &mut input);
        }
        let is_absent = hash.is_empty();
        match only(REDIS.answer(hash, async |store| store.marks(&[entity()]).await)) {
            Ok(None) => {
                assert!(is_absent);
                "absent".to_owned()
            }
            Ok(Some(mark)) => {
                if !is_changed {
                    compare(&mark, &drawn, &doubt);
                }
                format!("{} {is_changed}", state(&mark))
            }
            Err(error) => {
                assert!(is_changed, "{error}: {members:?}");
                assert_eq!((error.kind(), error.status()), (ErrorKind::Format, ErrorStatus::Temporary), "{error}");
                error.to_string().split('`').nth(1).unwrap_or_default().to_owned()
            }
        }
    }
);

/// Returns a mark as columns, by the table in the page about PostgreSQL.
fn columns(members: &Map<String, Value>, doubt: &[Doubt]) -> Vec<Column> {
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let int8 = |name: &str| members.get(name).and_then(Value::as_u64).map(u64::to_be_bytes);
    let keys: Vec<_> = doubt.iter().map(|(_, half)| (!half.is_empty()).then(|| postgres::bytes(&key(half)))).collect();
    let sequences: Vec<_> = doubt.iter().map(|(digits, _)| Some(digits.clone().into_bytes())).collect();
    vec![
        Column::new("newest", TEXT, text("newest")),
        Column::new("owner", BYTEA, text("owner").map(postgres::bytes)),
        Column::new("key_hash", BYTEA, text("holder").map(|half| postgres::bytes(&key(half)))),
        Column::new("sequence", TEXT, text("sequence")),
        Column::new("lease_until", INT8, int8("in_progress_expiration")),
        Column::new("doubt_keys", BYTEA_ARRAY, Some(array(BYTEA, &keys))),
        Column::new("doubt_sequences", TEXT_ARRAY, Some(array(TEXT, &sequences))),
        Column::new("expiration", INT8, int8("expiration")),
        Column::new("v", INT4, members["v"].as_u64().map(|version| (version as i32).to_be_bytes())),
        Column::new("now", INT8, Some(0_u64.to_be_bytes())),
    ]
}

static POSTGRES: LazyLock<postgres::Served> = LazyLock::new(postgres::Served::new);

target!(
    /// Rows of PostgreSQL. One that cannot be read is a typed error, or absent if it has expired.
    rows,
    |bytes| {
        let mut input = Input::new(bytes);
        let (mut members, doubt) = mark(&mut input);
        adjust(&mut members);
        let mut row = columns(&members, &doubt);
        let is_changed = input.one_in(2);
        if is_changed {
            postgres::change(&mut row, &mut input);
        }
        let expiration = row.iter().find(|column| column.name == "expiration").and_then(|column| column.value.clone());
        // The server's clock, in milliseconds, in whole seconds.
        let now = row.iter().find(|column| column.name == "now").and_then(|column| column.value.clone());
        let seconds = |bytes: Option<Vec<u8>>| Some(i64::from_be_bytes(bytes?.try_into().ok()?));
        let (expiration, now) = (seconds(expiration), seconds(now).map(|millis| millis / 1_000));
        match only(POSTGRES.answer(row, async |store| store.marks(&[entity()]).await)) {
            Ok(Some(mark)) => {
                if !is_changed {
                    compare(&mark, &members, &doubt);
                }
                format!("{} {is_changed}", state(&mark))
            }
            Ok(None) => {
                assert!(is_changed && (expiration.is_none() || expiration <= now), "{expiration:?} {now:?}");
                "absent".to_owned()
            }
            Err(error) => {
                assert!(is_changed, "{error}: {members:?}");
                postgres::check(&error)
            }
        }
    }
);
