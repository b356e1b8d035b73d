//! A table, a function of Powertools on it, and an engine of the library.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use lambda_once::{
    DynamoDbStore, Error, Failure, Idempotency, Outcome,
    clock::{ManualClock, Timestamp},
    store::dynamodb::{Calls, Config, Powertools},
};
use serde_json::{Value, json};

use crate::{
    support,
    worker::{Language, ask},
};

/// The name of the operation.
pub(crate) const PLACE: &str = "place";

/// Returns the identity of a test's operation. Each language serializes it differently before hashing.
pub(crate) fn order() -> Value {
    json!({ "order": { "id": 7, "Note": "é\u{7f}😀" }, "amounts": [1.5, 1e16, -0.0, 12_345_678_901_234_567_u64] })
}

/// Returns the results of the function with Powertools and of the library's operation.
pub(crate) fn their_result() -> Value {
    json!({ "by": "Powertools", "lines": [1, 2.5, null, { "é": "" }] })
}

pub(crate) fn our_result() -> Value {
    json!({ "by": "lambda-once", "lines": [-1, 0.25, true, {}] })
}

/// Runs each of these tests with each language of Powertools, with one request per key and with PartiQL batches.
macro_rules! with_each {
    ($($test:ident),* $(,)?) => {
        crate::world::with_each!(python_single, Python, Single: $($test),*);
        crate::world::with_each!(python_batched, Python, Batched: $($test),*);
        crate::world::with_each!(typescript_single, TypeScript, Single: $($test),*);
        crate::world::with_each!(typescript_batched, TypeScript, Batched: $($test),*);
    };
    ($module:ident, $language:ident, $calls:ident: $($test:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    use lambda_once::store::dynamodb::Calls;

                    let language = crate::worker::Language::$language;
                    super::$test(crate::world::World::new(language, Calls::$calls).await).await;
                }
            )*
        }
    };
}
pub(crate) use with_each;

pub(crate) struct World {
    pub(crate) language: Language,
    calls: Calls,
    pub(crate) client: Client,
    pub(crate) table: String,
    pub(crate) sort_key: Option<(&'static str, &'static str)>,
    pub(crate) prefix: String,
    pub(crate) once: Idempotency,
    runs: AtomicU32,
}

impl World {
    pub(crate) async fn new(language: Language, calls: Calls) -> Self {
        Self::build(language, calls, None).await
    }

    /// Creates a world with a sort key of this name, and this constant in the partition key.
    pub(crate) async fn build(
        language: Language,
        calls: Calls,
        sort_key: Option<(&'static str, &'static str)>,
    ) -> Self {
        let client = support::client(&support::dynamodb_endpoint()).await;
        let (table, prefix) = (support::unique_name("powertools"), "orders.app.handler".to_owned());
        let store = store(language, calls, &client, &table, &prefix, sort_key);
        store.create_table().await.unwrap();
        let once = Idempotency::new(store);
        Self { language, calls, client, table, sort_key, prefix, once, runs: AtomicU32::new(0) }
    }

    /// Returns the library's store on the table.
    pub(crate) fn store(&self) -> DynamoDbStore {
        store(self.language, self.calls, &self.client, &self.table, &self.prefix, self.sort_key)
    }

    /// Returns an engine whose clock is this much behind.
    pub(crate) fn earlier(&self, by: Duration) -> Idempotency {
        let clock = ManualClock::at(now().before(by));
        let store = self.store().with_clock(clock.clone());
        Idempotency::builder(store).clock(clock).build().unwrap()
    }

    /// Runs the operation on the order with this engine.
    pub(crate) async fn operate(&self, once: &Idempotency) -> Result<Outcome<Value>, Error> {
        let work = || async {
            self.runs.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>(our_result())
        };
        once.operation(PLACE, &order()).payload(&order()).run(work).await
    }

    pub(crate) async fn run(&self) -> Outcome<Value> {
        self.operate(&self.once).await.unwrap()
    }

    /// Returns the number of runs of the library's operation.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Calls the function with Powertools on the order, with 30 s left. `more` replaces members of the request.
    pub(crate) fn call(&self, more: &Value) -> Value {
        let mut request = json!({
            "do": "run",
            "endpoint": support::dynamodb_endpoint(),
            "table": self.table,
            "prefix": self.prefix,
            "data": order().to_string(),
            "result": their_result().to_string(),
            "remaining": 30_000,
        });
        for (name, value) in more.as_object().unwrap() {
            request[name] = value.clone();
        }
        self.ask(&request)
    }

    pub(crate) fn ask(&self, request: &Value) -> Value {
        ask(self.language, request)
    }

    /// Returns the name of an option in each language.
    pub(crate) fn option(&self, python: &'static str, typescript: &'static str) -> &'static str {
        match self.language {
            Language::Python => python,
            Language::TypeScript => typescript,
        }
    }

    /// Calls the function, and lets it wait within until [`resume`](Self::resume).
    pub(crate) fn hold(&self, remaining: Option<i64>) {
        let answer = self.call(&json!({ "hold": self.table, "remaining": remaining }));
        assert_eq!(answer, json!({ "ran": true }));
    }

    pub(crate) fn resume(&self) -> Value {
        self.ask(&json!({ "do": "resume", "held": self.table }))
    }

    /// Returns the only item of the table, if there is one.
    pub(crate) async fn item(&self) -> Option<HashMap<String, AttributeValue>> {
        let items = self.client.scan().table_name(&self.table).consistent_read(true).send().await.unwrap();
        let mut items = items.items.unwrap_or_default();
        assert!(items.len() <= 1, "{items:?}");
        items.pop()
    }

    pub(crate) async fn status(&self) -> Option<String> {
        self.item().await.map(|item| item["status"].as_s().unwrap().clone())
    }
}

fn store(
    language: Language,
    calls: Calls,
    client: &Client,
    table: &str,
    prefix: &str,
    sort_key: Option<(&str, &str)>,
) -> DynamoDbStore {
    let function = match language {
        Language::Python => Powertools::python(prefix),
        Language::TypeScript => Powertools::typescript(prefix),
    };
    let mut config = Config::new(table).powertools(function).calls(calls);
    if let Some((name, constant)) = sort_key {
        config = config.sort_key(name, constant);
    }
    config.build(client.clone()).unwrap()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// Asserts the worker's response: this result, and whether the function has run.
pub(crate) fn gives(answer: &Value, result: &Value, ran: bool) {
    assert_eq!(answer["ran"], json!(ran), "{answer}");
    let text = answer["result"].as_str().unwrap_or_else(|| panic!("no result: {answer}"));
    let found: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text} in place of {result}"));
    assert_eq!(found, *result);
}
