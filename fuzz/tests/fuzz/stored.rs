//! Stored records, as the pages describe them and with changes in any place.
//!
//! A record is decoded to the written values, or it is a typed error that a later deployment may resolve.

use std::sync::{LazyLock, Mutex};

use aws_sdk_dynamodb::{
    Client,
    config::{
        BehaviorVersion, Builder, Credentials, HttpClient, Region, RuntimeComponents, SharedHttpClient,
        retry::RetryConfig,
    },
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
};
use lambda_once::{
    DynamoDbStore, ErrorKind, ErrorStatus, Failure, Idempotency, Store,
    clock::Timestamp,
    record::{KeyHash, NEWEST_KNOWN_VERSION, Record, Status, StoredData},
    store::{ResultData, dynamodb::Config},
};
use lambda_once_fuzz::{
    input::Input,
    mutate,
    oracle::base64::{decoded, encoded},
    target,
};
use serde_json::{Map, Value, json};

use crate::run;

pub(crate) fn hex(input: &mut Input<'_>, bytes: usize) -> String {
    (0..bytes).map(|_| format!("{:02x}", input.byte())).collect()
}

/// Draws the members of a record, by the table in the documentation of `Record`.
pub(crate) fn members(input: &mut Input<'_>) -> Map<String, Value> {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    put("status", (*input.pick(&["INPROGRESS", "COMPLETED", "FAILED"])).into());
    put("attempt", (input.integer() >> 1).into());
    put("v", (*input.pick(&[1, 1, 1, 2, 3, 4_294_967_295_u64])).into());
    put("owner", hex(input, 16).into());
    for name in ["in_progress_expiration", "expiration", "claimed_at", "settled_at", "released"] {
        if !input.one_in(3) {
            put(name, (input.integer() >> 1).into());
        }
    }
    if input.one_in(2) {
        put("prior_status", (*input.pick(&["INPROGRESS", "COMPLETED", "FAILED"])).into());
    }
    if input.one_in(2) {
        let version = if input.one_in(2) { "v7:" } else { "" };
        put("validation", format!("{version}{}", hex(input, 32)).into());
    }
    for name in ["operation", "label"] {
        if input.one_in(2) {
            put(name, input.text(9).into());
        }
    }
    if input.one_in(3) {
        put("sequence", format!("{:064}", input.integer()).into());
    }
    match input.below(5) {
        0 => put("data", Value::from(json!({ "receipt": input.text(9) }).to_string())),
        1 => put("result_dropped", true.into()),
        2 => put("superseded", true.into()),
        _ => {}
    }
    members
}

/// Compares a record with the members that it was decoded from.
pub(crate) fn compare(record: &Record, members: &Map<String, Value>) {
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| members.get(name).and_then(Value::as_u64);
    assert_eq!(record.status.as_str(), members["status"]);
    assert_eq!((record.attempt, u64::from(record.version)), (number("attempt").unwrap(), number("v").unwrap()));
    assert_eq!(record.owner.map(|owner| owner.to_hex()), text("owner"));
    assert_eq!(record.prior_status.map(Status::as_str), text("prior_status").as_deref());
    let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    assert_eq!(millis(record.lease_until), number("in_progress_expiration"));
    assert_eq!((millis(record.claimed_at), millis(record.settled_at)), (number("claimed_at"), number("settled_at")));
    assert_eq!((record.expiration, record.released), (number("expiration"), number("released")));
    assert_eq!(record.fingerprint.as_ref().map(|fingerprint| fingerprint.to_text()), text("validation"));
    assert_eq!(
        (record.operation.as_deref(), record.label.as_deref()),
        (text("operation").as_deref(), text("label").as_deref())
    );
    assert_eq!(record.sequence.map(|sequence| format!("{:0>64}", sequence.to_string())), text("sequence"));
    assert_eq!(record.result.data.clone(), text("data").map(StoredData::Json));
    assert_eq!(
        (record.result.dropped, record.result.superseded),
        (members.contains_key("result_dropped"), members.contains_key("superseded"))
    );
}

target!(
    /// Documents of a document store. Members that are unknown are kept.
    documents,
    |bytes| {
        let mut input = Input::new(bytes);
        let mut members = members(&mut input);
        if input.one_in(2) {
            members.insert(format!("new {}", input.text(5)), input.integer().into());
        }
        let mut document = Value::Object(members.clone());
        let is_changed = input.one_in(2);
        if is_changed {
            (0..=input.below(2)).for_each(|_| mutate::change(&mut document, &mut input));
        }
        match serde_json::from_str::<Record>(&document.to_string()) {
            Ok(record) => {
                let written = serde_json::to_value(&record).unwrap();
                assert_eq!(serde_json::from_value::<Record>(written.clone()).unwrap(), record, "what is written is read");
                if !is_changed {
                    compare(&record, &members);
                    // A sequence is written without leading zeros.
                    if let Some(Value::String(digits)) = document.get_mut("sequence") {
                        *digits = digits.parse::<u64>().unwrap().to_string();
                    }
                    assert_eq!(written, document);
                }
                format!("{:?} {is_changed}", record.status)
            }
            Err(error) => {
                assert!(is_changed, "{error}: {document}");
                error.to_string().split(' ').take(2).collect()
            }
        }
    }
);

/// A table that has only this item. Every request gets it in the response: a read finds it, and a write is refused
/// because of it.
#[derive(Clone, Copy, Debug)]
struct Table(&'static Mutex<Value>);

impl HttpConnector for Table {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let item = self.0.lock().unwrap().clone();
        let is_read = request.headers().get("x-amz-target").is_some_and(|target| target.ends_with("GetItem"));
        let refused = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException";
        let (status, body) =
            if is_read { (200, json!({ "Item": item })) } else { (400, json!({ "__type": refused, "Item": item })) };
        let status = http::StatusCode::from_u16(status).unwrap();
        let mut response = HttpResponse::new(status.into(), body.to_string().into());
        response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl HttpClient for Table {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(*self)
    }
}

/// Returns a store whose table has only this item.
pub(crate) fn store(item: &'static Mutex<Value>) -> DynamoDbStore {
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .retry_config(RetryConfig::disabled())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("access", "secret", None, None, "fuzz"))
        .http_client(SharedHttpClient::new(Table(item)));
    Config::new("records").build(Client::from_conf(config.build())).unwrap()
}

static ITEM: Mutex<Value> = Mutex::new(Value::Null);
static STORE: LazyLock<DynamoDbStore> = LazyLock::new(|| store(&ITEM));

/// Returns members as the attributes of an item, by the table in the page about DynamoDB.
pub(crate) fn item(members: &Map<String, Value>) -> Value {
    let attribute = |value: &Value| match value {
        Value::Number(number) => json!({ "N": number.to_string() }),
        Value::Bool(value) => json!({ "BOOL": value }),
        value => json!({ "S": value }),
    };
    members.iter().map(|(name, value)| (name.clone(), attribute(value))).collect::<Map<_, _>>().into()
}

target!(
    /// Items of DynamoDB, read and in the refusal of a claim. A later version is refused.
    items,
    |bytes| {
        let mut input = Input::new(bytes);
        let members = members(&mut input);
        let mut stored = item(&members);
        match input.below(4) {
            0 => stored["data"] = json!({ "B": encoded(&input.bytes(9)) }),
            1 => stored["data"] = json!({ "M": { "codec": { "S": input.text(4) }, "bytes": { "B": encoded(&input.bytes(9)) } } }),
            _ => {}
        }
        let is_other_data = stored["data"].get("S").is_none() && stored.get("data").is_some_and(|data| !data.is_null());
        let is_changed = input.one_in(2);
        if is_changed {
            (0..=input.below(2)).for_each(|_| mutate::change(&mut stored, &mut input));
        }
        // DynamoDB sends an item, whatever is in it.
        if !stored.is_object() {
            stored = json!({});
        }
        stored["id"] = json!({ "S": format!("once#{}", KeyHash::from_bytes([7; 32])) });
        *ITEM.lock().unwrap() = stored.clone();
        run(async {
            let answers = STORE.read(&[KeyHash::from_bytes([7; 32])], ResultData::Include).await;
            let read = match <[_; 1]>::try_from(answers).unwrap() {
                [Ok(record)] => {
                    let record = record.expect("an item is a record");
                    if !is_changed && !is_other_data {
                        compare(&record, &members);
                    }
                    if let (false, Some(StoredData::Deflated(bytes))) = (is_changed, &record.result.data) {
                        assert_eq!(Some(bytes), stored["data"]["B"].as_str().and_then(decoded).as_ref());
                    }
                    format!("{:?}", record.status)
                }
                [Err(error)] => {
                    assert!(is_changed, "{error}: {stored}");
                    if error.kind() == ErrorKind::Format {
                        assert_eq!(error.status(), ErrorStatus::Temporary, "{error}");
                    }
                    format!("{:?}", error.kind())
                }
            };
            let once = Idempotency::builder(STORE.clone()).scope("fuzz").disabled(false).build().unwrap();
            let outcome = once.operation("charge", "key").run(|| async { Ok::<_, Failure>(json!(1)) }).await;
            let version = members["v"].as_u64().unwrap();
            // DynamoDB would have granted the claim of an expired one.
            let is_live = members.get("expiration").is_none_or(|seconds| seconds.as_u64() > Some(1 << 40));
            if !is_changed && is_live && version > u64::from(NEWEST_KNOWN_VERSION) {
                assert_eq!(outcome.as_ref().map_err(lambda_once::Error::kind).err(), Some(ErrorKind::Format), "{stored}");
            }
            let outcome = outcome.map(|outcome| outcome.kind()).map_err(|error| error.kind());
            format!("{read} {outcome:?}")
        })
    }
);
