//! Records of a test, the engine that makes them, and the tool.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Credentials, Region, timeout::TimeoutConfig},
    types::{AttributeValue, ReturnValue},
};
use lambda_once::{
    AfterUnknown, Failure, Idempotency, Outcome,
    clock::{ManualClock, Timestamp},
    record::{KeyHash, Record},
    store::{ResultData, amend::Amend, dynamodb, postgres, redis},
};
use serde_json::Value;
use tokio::sync::OnceCell;

/// A busy machine must not look like a lost response.
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const SCOPE: &str = "orders";

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    DynamoDb,
    Redis,
    Postgres,
}

/// Makes of each function, which takes a [`Backend`], one test for each store.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        $crate::support::on_each_store!(dynamodb, DynamoDb; $($test),+);
        $crate::support::on_each_store!(redis, Redis; $($test),+);
        $crate::support::on_each_store!(postgres, Postgres; $($test),+);
    };
    ($module:ident, $backend:ident; $($test:ident),+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::support::Backend::$backend).await;
                }
            )+
        }
    };
}
pub(crate) use on_each_store;

pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the tests by `make test`"))
}

pub(crate) fn unique_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!("cli-{started}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Records that no other test sees.
#[derive(Debug)]
pub(crate) struct Records {
    backend: Backend,
    name: String,
}

impl Records {
    pub(crate) async fn new(backend: Backend) -> Self {
        let records = Self { backend, name: unique_name() };
        match backend {
            Backend::DynamoDb => {
                let config = dynamodb::Config::new(&records.name).listing_index(true);
                config.build(client().await).unwrap().create_table().await.expect("the table is created");
            }
            Backend::Redis => {}
            Backend::Postgres => {
                static MIGRATED: OnceCell<()> = OnceCell::const_new();
                MIGRATED
                    .get_or_init(async || {
                        records.postgres().build().unwrap().migrate().await.expect("the tables are created")
                    })
                    .await;
            }
        }
        records
    }

    fn postgres(&self) -> postgres::Config {
        let config = postgres::Config::from_url(&server("POSTGRES_URL")).unwrap();
        config.scope(&self.name).listing_index(true).connect_timeout(PATIENCE)
    }

    /// The store, on this clock, or its own.
    pub(crate) async fn store(&self, clock: Option<ManualClock>) -> Arc<dyn Amend> {
        match self.backend {
            Backend::DynamoDb => {
                let config = dynamodb::Config::new(&self.name).listing_index(true);
                let store = config.build(client().await).unwrap();
                Arc::new(match clock {
                    Some(clock) => store.with_clock(clock),
                    None => store,
                })
            }
            Backend::Redis => {
                let config = redis::Config::new(server("REDIS_URL")).key_prefix(format!("{}:", self.name));
                let store =
                    config.listing_index(true).connect_timeout(PATIENCE).response_timeout(PATIENCE).build().unwrap();
                Arc::new(match clock {
                    Some(clock) => store.with_clock(clock),
                    None => store,
                })
            }
            Backend::Postgres => {
                let store = self.postgres().build().unwrap();
                Arc::new(match clock {
                    Some(clock) => store.with_clock(clock),
                    None => store,
                })
            }
        }
    }

    /// An engine that works now.
    pub(crate) async fn engine(&self, policy: AfterUnknown) -> Idempotency {
        Idempotency::builder(self.store(None).await).scope(SCOPE).after_unknown(policy).build().unwrap()
    }

    /// An engine that worked an hour ago: the leases of its claims have ended.
    pub(crate) async fn earlier(&self) -> Idempotency {
        self.ago(Duration::from_secs(3_600)).await
    }

    /// An engine that worked this long ago.
    pub(crate) async fn ago(&self, time: Duration) -> Idempotency {
        let clock = ManualClock::at(Timestamp::from(SystemTime::now()).before(time));
        let store = self.store(Some(clock.clone())).await;
        Idempotency::builder(store).scope(SCOPE).clock(clock).after_unknown(AfterUnknown::Refuse).build().unwrap()
    }

    /// Abandons the operation `charge` of this key, an hour ago.
    pub(crate) async fn abandon(&self, key: &str) -> KeyHash {
        self.charge(key, Err(Failure::unknown("the connection was lost"))).await
    }

    /// Has the operation `charge` of this key fail permanently.
    pub(crate) async fn fail(&self, key: &str) -> KeyHash {
        self.charge(key, Err(Failure::permanent("the card is declined"))).await
    }

    /// Completes the operation `charge` of this key.
    pub(crate) async fn complete(&self, key: &str) -> KeyHash {
        self.charge(key, receipt().await).await
    }

    /// Runs the operation `charge` of this key with this result, an hour ago.
    async fn charge(&self, key: &str, result: Result<String, Failure>) -> KeyHash {
        let once = self.earlier().await;
        let is_success = result.is_ok();
        let charge = once.operation("charge", key).label(format!("label of {key}"));
        let outcome = charge.run(|| async { result }).await.unwrap();
        assert!(
            if is_success { matches!(outcome, Outcome::Executed(_)) } else { matches!(outcome, Outcome::Failed(_)) },
            "{outcome:?}"
        );
        once.key_hash("charge", key).unwrap()
    }

    pub(crate) async fn read(&self, key: KeyHash) -> Option<Record> {
        self.store(None).await.read(&[key], ResultData::Include).await.remove(0).unwrap()
    }

    /// The tool on these records, with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tool();
        match self.backend {
            Backend::DynamoDb => {
                command.arg(format!("{}&index=true", self.table_at(&server("DYNAMODB_ENDPOINT"))));
            }
            Backend::Redis => {
                command.arg(format!("--store={}?index=true", server("REDIS_URL")));
                command.arg(format!("--prefix={}:", self.name));
            }
            Backend::Postgres => {
                let url = server("POSTGRES_URL");
                let separator = if url.contains('?') { '&' } else { '?' };
                command.arg(format!("--store={url}{separator}index=true")).arg(format!("--prefix={}", self.name));
            }
        }
        command.arg("--scope").arg(SCOPE).args(arguments);
        command
    }

    /// Deletes the mark of an ordered operation's entity in DynamoDB, as a TTL does.
    pub(crate) async fn delete_mark(&self, key: &str) {
        let id = AttributeValue::S(format!("once#{}mark", &key[..32]));
        let deletion = client().await.delete_item().table_name(&self.name).key("id", id);
        let deleted = deletion.return_values(ReturnValue::AllOld).send().await.unwrap();
        assert!(deleted.attributes.is_some(), "there was no mark");
    }

    /// The argument that names the table at this endpoint.
    pub(crate) fn table_at(&self, endpoint: &str) -> String {
        format!("--store=dynamodb://{}?region=us-east-1&endpoint={endpoint}", self.name)
    }

    /// Runs the tool.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments)).await
    }
}

/// The tool, with credentials and nothing else that it reads.
pub(crate) fn tool() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lambda-once"));
    for variable in
        ["IDEMPOTENCY_TABLE", "REDIS_URL", "POSTGRES_URL", "AWS_LAMBDA_FUNCTION_NAME", "LAMBDA_ONCE_READ_ONLY"]
    {
        command.env_remove(variable);
    }
    command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("USER", "ana")]);
    command.env_remove("SUDO_USER").stdin(Stdio::null());
    command
}

/// The output of the tool, and its exit code.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().expect("it exits"), out: text(output.stdout), errors: text(output.stderr) }
    }

    /// The objects that it printed, one a line.
    pub(crate) fn objects(&self) -> Vec<Value> {
        objects(&self.out)
    }

    /// Its audit lines.
    pub(crate) fn audit(&self) -> Vec<Value> {
        objects(&self.errors)
    }

    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

pub(crate) fn objects(lines: &str) -> Vec<Value> {
    lines.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) async fn ended(mut command: Command) -> Ended {
    tokio::task::spawn_blocking(move || Ended::of(command.output().expect("the tool is built"))).await.unwrap()
}

pub(crate) async fn receipt() -> Result<String, Failure> {
    Ok("receipt 7".to_owned())
}

/// A file for this test.
pub(crate) fn file() -> PathBuf {
    std::env::temp_dir().join(unique_name())
}

pub(crate) async fn client() -> Client {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(PATIENCE).operation_timeout(3 * PATIENCE).build();
    let config = Builder::from(&dynamodb::Config::sdk_config().await)
        .endpoint_url(server("DYNAMODB_ENDPOINT"))
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .timeout_config(timeouts);
    Client::from_conf(config.build())
}

/// The configuration of clients of MiniStack.
pub(crate) async fn on_ministack() -> aws_config::SdkConfig {
    let config = dynamodb::Config::sdk_config().await.into_builder();
    config
        .endpoint_url(server("MINISTACK_ENDPOINT"))
        .region(Region::from_static("us-east-1"))
        .credentials_provider(aws_sdk_dynamodb::config::SharedCredentialsProvider::new(Credentials::new(
            "test", "test", None, None, "test",
        )))
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(PATIENCE).build())
        .build()
}
