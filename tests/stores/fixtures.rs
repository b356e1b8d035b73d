//! The stored form of each store's records, as files that later versions must read, settle and replay.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use lambda_once::{
    Store,
    clock::ManualClock,
    order::Order,
    record::{Fingerprint, KeyHash, Owner, Record, StoredData, StoredResult},
    store::{
        ClaimRequest, Claimed, Refusal, ResultData, Settled, Settlement, Takeover,
        amend::{Amend, AmendRequest, Amended, Amendment},
    },
};
use serde_json::{Map, Value, json};

use crate::support::{
    self, FUTURE,
    requests::{
        HAND_BACK, LAPSE, LEASE, MARGIN, RETENTION, claim_one, complete, granted, json, read_one, settle_of, settle_one,
    },
    stores::{Backend, Records, on_each_proxied_store, on_each_store},
};

/// The recorded operations, named by their history. Each has the key of its index, and ordered ones share an entity.
const OPERATIONS: [&str; 13] = [
    "claimed",
    "claimed without a payload or a label",
    "completed",
    "completed with a compressed result",
    "completed without its result",
    "completed as superseded",
    "failed",
    "taken over",
    "handed back",
    "released by an operator",
    "completed in order",
    "lapsed in order",
    "claimed in order",
];

fn place(name: &str) -> u8 {
    let place = OPERATIONS.iter().position(|operation| *operation == name).expect("an operation");
    u8::try_from(place).unwrap()
}

/// Returns the claim of an operation by its first worker.
fn claim(name: &str) -> ClaimRequest {
    let place = place(name);
    let key = KeyHash::from_bytes([0xa0 + place; 32]);
    let sequence = name.ends_with("in order").then(|| u64::from(place));
    let order = sequence.map(|sequence| Order { sequence: sequence.into(), retention: RETENTION });
    let is_plain = name.contains("without a payload");
    ClaimRequest {
        key: order.map_or(key, |_| KeyHash::ordered(&KeyHash::from_bytes([0xee; 32]), &key)),
        fingerprint: (!is_plain).then_some(Fingerprint::from_bytes([0x10 + place; 32])),
        owner: Owner::from_bytes([place; 16]),
        lease: LEASE,
        skew_margin: MARGIN,
        retention: RETENTION,
        takeover: Takeover::Allowed,
        result_data: ResultData::Include,
        order,
        operation: "orders.sqs".into(),
        label: (!is_plain).then(|| format!("order {place}").into()),
    }
}

/// Returns the claim of its second worker.
fn second(name: &str) -> ClaimRequest {
    ClaimRequest { owner: Owner::from_bytes([0x80 + place(name); 16]), ..claim(name) }
}

/// Performs the history of each operation.
async fn happen(held: &Records, clock: &ManualClock) {
    let store = &held.store().await;
    for name in OPERATIONS {
        if !name.ends_with("in order") {
            clock.set(FUTURE);
        }
        granted(store, &claim(name)).await;
        let outcome = match name {
            "completed" | "completed in order" => complete("[1,\"é\"]"),
            "completed with a compressed result" => {
                Settlement::complete(StoredResult::of(StoredData::Deflated(vec![0, 0x7f, 0xff])), RETENTION)
            }
            "completed without its result" => Settlement::complete(StoredResult::DROPPED, RETENTION),
            "completed as superseded" => Settlement::complete(StoredResult::SUPERSEDED, RETENTION),
            "failed" => Settlement::fail(json("{\"error\":\"no such card\"}"), RETENTION),
            "taken over" | "handed back" => {
                clock.advance(LAPSE);
                assert!(granted(store, &second(name)).await.took_over());
                if name == "handed back" {
                    clock.advance(LEASE / 2);
                    assert_eq!(
                        settle_one(store, &second(name), HAND_BACK).await.unwrap(),
                        Settled::Done { found: None }
                    );
                }
                continue;
            }
            "released by an operator" => {
                clock.advance(LAPSE);
                let lapsed = read_one(store, &claim(name)).await.expect(name);
                let release = AmendRequest::new(claim(name).key, &lapsed, Amendment::Release);
                assert_eq!(store.amend(&[release]).await.remove(0).unwrap(), Amended::Changed);
                clock.set(FUTURE);
                continue;
            }
            "lapsed in order" => {
                clock.advance(LAPSE);
                continue;
            }
            _ => continue,
        };
        clock.advance(LEASE / 2);
        assert_eq!(settle_one(store, &claim(name), outcome).await.unwrap(), Settled::Done { found: None });
    }
}

async fn records(store: &Arc<dyn Amend>) -> BTreeMap<String, Record> {
    let mut records = BTreeMap::new();
    for name in OPERATIONS {
        records.insert(name.to_owned(), read_one(store, &claim(name)).await.expect(name));
    }
    records
}

fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "stores", "fixtures", file].iter().collect()
}

fn fixture(file: &str) -> String {
    std::fs::read_to_string(path(file)).expect(file)
}

/// Compares the text with a file, or writes the file.
fn assert_is_fixture(file: &str, text: &str) {
    if std::env::var("FIXTURES").as_deref() == Ok("write") {
        std::fs::write(path(file), text).unwrap();
    }
    assert!(fixture(file) == text, "{file} holds something else than this version writes:\n{text}");
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

/// Returns the names of an operation's hash and of its order marker, without the prefix.
fn redis_names(claim: &ClaimRequest) -> [String; 2] {
    let hex = claim.key.to_hex();
    let (entity, operation) = hex.split_at(32);
    [format!("{{{entity}}}{operation}"), format!("{{{entity}}}mark")]
}

fn dynamodb_ids() -> Vec<String> {
    let entity = claim("claimed in order").key.to_hex();
    let records = OPERATIONS.iter().map(|name| format!("once#{}", claim(name).key));
    records.chain([format!("once#{}mark", &entity[..32])]).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

impl Backend {
    const fn file(self) -> &'static str {
        match self {
            Self::Memory => "records.json",
            Self::DynamoDb(_) => "dynamodb.json",
            Self::Redis | Self::RedisCluster => "redis.json",
            Self::Postgres => "postgres.sql",
        }
    }
}

/// Returns the contents of the store's server, as a file.
async fn dump(backend: Backend, held: &Records) -> String {
    match backend {
        Backend::Memory => pretty(&records(&held.store().await).await),
        Backend::DynamoDb(_) => {
            let client = support::client(&support::dynamodb_endpoint()).await;
            let mut items = Vec::new();
            for id in dynamodb_ids() {
                let get =
                    client.get_item().table_name(held.name()).key("id", AttributeValue::S(id)).consistent_read(true);
                let item = get.send().await.unwrap().item.expect("an item");
                let json = item.iter().map(|(name, value)| {
                    let value = match value {
                        AttributeValue::S(text) => json!({ "S": text }),
                        AttributeValue::N(digits) => json!({ "N": digits }),
                        AttributeValue::Bool(flag) => json!({ "BOOL": flag }),
                        AttributeValue::B(blob) => json!({ "B": hex(blob.as_ref()) }),
                        other => panic!("{other:?}"),
                    };
                    (name.clone(), value)
                });
                items.push(json.collect::<BTreeMap<_, _>>());
            }
            pretty(&items)
        }
        Backend::Redis | Backend::RedisCluster => {
            let mut hashes = BTreeMap::new();
            let mut connection = redis_connection().await;
            for name in OPERATIONS.iter().flat_map(|name| redis_names(&claim(name))) {
                let key = format!("{}:{name}", held.name());
                let fields: BTreeMap<String, Vec<u8>> =
                    ::redis::Cmd::hgetall(key).query_async(&mut connection).await.unwrap();
                let fields = fields.into_iter().map(|(field, value)| {
                    let value = String::from_utf8(value).unwrap_or_else(|error| format!("0x{}", hex(error.as_bytes())));
                    (field, value)
                });
                let fields: BTreeMap<_, _> = fields.collect();
                if !fields.is_empty() {
                    hashes.insert(name, fields);
                }
            }
            pretty(&hashes)
        }
        Backend::Postgres => {
            let client = support::postgres::client(&support::postgres::connection().await).await;
            let mut sql = String::new();
            for (table, key) in [("once_records", "key_hash"), ("once_marks", "entity")] {
                let select = format!("SELECT to_jsonb(t)::text FROM {table} t WHERE scope = $1 ORDER BY {key}");
                for row in client.query(&select, &[&held.name()]).await.unwrap() {
                    let mut row: Map<String, Value> = serde_json::from_str(row.get(0)).unwrap();
                    row.remove("purge_day");
                    row.retain(|_, value| !value.is_null());
                    row.insert("scope".to_owned(), json!(":scope"));
                    let (names, values): (Vec<_>, Vec<_>) =
                        row.iter().map(|(name, value)| (name.as_str(), literal(value))).unzip();
                    sql += &format!("INSERT INTO {table} ({}) VALUES ({});\n", names.join(", "), values.join(", "));
                }
            }
            sql
        }
    }
}

/// Returns a value as an SQL literal.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| element.to_string());
            format!("'{{{}}}'", elements.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

async fn redis_connection() -> ::redis::aio::MultiplexedConnection {
    let client = ::redis::Client::open(support::server("REDIS_URL")).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Loads a file into the store's server. For records in memory, the file is their serialized form.
async fn load(backend: Backend, held: &Records) {
    let file = fixture(backend.file());
    match backend {
        Backend::Memory => held.insert(
            serde_json::from_str::<BTreeMap<String, Record>>(&file)
                .unwrap()
                .into_iter()
                .map(|(name, record)| (claim(&name).key, record)),
        ),
        Backend::DynamoDb(_) => {
            let client = support::client(&support::dynamodb_endpoint()).await;
            for item in serde_json::from_str::<Vec<BTreeMap<String, BTreeMap<String, Value>>>>(&file).unwrap() {
                let mut put = client.put_item().table_name(held.name());
                for (name, value) in item {
                    let (kind, value) = value.first_key_value().unwrap();
                    let text = || value.as_str().unwrap().to_owned();
                    let value = match &**kind {
                        "S" => AttributeValue::S(text()),
                        "N" => AttributeValue::N(text()),
                        "BOOL" => AttributeValue::Bool(value.as_bool().unwrap()),
                        _ => AttributeValue::B(Blob::new(bytes(&text()))),
                    };
                    put = put.item(name, value);
                }
                put.send().await.unwrap();
            }
        }
        Backend::Redis | Backend::RedisCluster => {
            let mut connection = redis_connection().await;
            for (name, fields) in serde_json::from_str::<BTreeMap<String, BTreeMap<String, String>>>(&file).unwrap() {
                let mut set = ::redis::cmd("HSET");
                set.arg(format!("{}:{name}", held.name()));
                for (field, value) in fields {
                    set.arg(field).arg(value.strip_prefix("0x").map_or(value.as_bytes().to_vec(), bytes));
                }
                set.exec_async(&mut connection).await.unwrap();
            }
        }
        Backend::Postgres => {
            let client = support::postgres::client(&support::postgres::connection().await).await;
            client.batch_execute(&file.replace(":scope", held.name())).await.unwrap();
        }
    }
}

async fn this_version_writes_records_equal_to_the_fixtures(backend: Backend) {
    let clock = support::future_clock();
    let held = Records::new(backend, clock.clone()).await;
    happen(&held, &clock).await;
    assert_is_fixture(backend.file(), &dump(backend, &held).await);
}

async fn stored_records_are_read_settled_and_replayed(backend: Backend) {
    let clock = support::future_clock();
    let held = Records::new(backend, clock.clone()).await;
    let store = held.store().await;
    load(backend, &held).await;
    let on_file: BTreeMap<String, Record> = serde_json::from_str(&fixture("records.json")).unwrap();
    assert_eq!(records(&store).await, on_file);

    let refused = async |claim: &ClaimRequest| match claim_one(&store, claim).await.unwrap() {
        Claimed::Refused(refusal) => refusal,
        granted => panic!("{granted:?}"),
    };
    for name in OPERATIONS {
        let claim = ClaimRequest { owner: Owner::from_bytes([0x70; 16]), ..claim(name) };
        match name {
            "claimed" | "claimed without a payload or a label" | "taken over" | "released by an operator" => {
                assert!(matches!(refused(&claim).await, Refusal::InProgress { lease_until: Some(_), .. }), "{name}");
            }
            "failed" => assert!(matches!(refused(&claim).await, Refusal::Failed(_)), "{name}"),
            "handed back" => {
                let grant = granted(&store, &claim).await;
                assert!(grant.took_over() && grant.attempt == 3, "{grant:?}");
            }
            "lapsed in order" | "claimed in order" => {
                assert!(matches!(refused(&claim).await, Refusal::InProgress { .. }), "{name}");
            }
            _ => {
                let Refusal::Completed(record) = refused(&claim).await else { panic!("{name}: not completed") };
                assert_eq!(record.result, on_file[name].result, "{name}");
            }
        }
        if on_file[name].fingerprint.is_some() && name != "handed back" {
            let other = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([0x71; 32])), ..claim };
            assert!(matches!(refused(&other).await, Refusal::Mismatch(_)), "{name}");
        }
    }
    // The recorded owners settle their claims.
    for claim in [claim("claimed"), claim("claimed without a payload or a label"), second("taken over")] {
        let settle = settle_of(&claim, complete("2"));
        assert_eq!(store.settle(&[settle]).await.remove(0).unwrap(), Settled::Done { found: None });
        let Refusal::Completed(record) = refused(&claim).await else { panic!("not completed") };
        assert_eq!((record.result, record.settled_at), (json("2"), Some(FUTURE)));
    }
    clock.advance(LAPSE);
    let strict =
        |name| ClaimRequest { owner: Owner::from_bytes([0x74; 16]), takeover: Takeover::Refused, ..claim(name) };
    assert!(granted(&store, &strict("released by an operator")).await.took_over());
}

/// Operations older than an in-doubt one wait, and so do those that the holder excludes.
async fn the_order_in_a_stored_marker_is_kept(backend: Backend) {
    let clock = support::future_clock();
    let held = Records::new(backend, clock.clone()).await;
    let store = held.store().await;
    load(backend, &held).await;
    let at = |sequence: u64| {
        let other = KeyHash::ordered(&KeyHash::from_bytes([0xee; 32]), &KeyHash::from_bytes([0x72; 32]));
        let order = Order { sequence: sequence.into(), retention: RETENTION };
        ClaimRequest { key: other, owner: Owner::from_bytes([0x73; 16]), order: Some(order), ..claim("claimed") }
    };
    let newest = u64::from(place("completed in order"));
    assert_eq!(
        claim_one(&store, &at(newest)).await.unwrap(),
        Claimed::Refused(Refusal::Superseded { newest: newest.into() })
    );
    let lease_until = read_one(&store, &claim("claimed in order")).await.unwrap().lease_until;
    assert_eq!(
        claim_one(&store, &at(99)).await.unwrap(),
        Claimed::Refused(Refusal::InProgress { lease_until, attempt: 0 }),
        "the holder's lease"
    );
    assert_eq!(
        settle_one(&store, &claim("claimed in order"), complete("2")).await.unwrap(),
        Settled::Done { found: None }
    );
    granted(&store, &at(99)).await;
}

on_each_store!(memory, Memory; this_version_writes_records_equal_to_the_fixtures, stored_records_are_read_settled_and_replayed);
on_each_proxied_store!(
    this_version_writes_records_equal_to_the_fixtures,
    stored_records_are_read_settled_and_replayed,
    the_order_in_a_stored_marker_is_kept,
);
