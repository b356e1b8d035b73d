//! The functions under `cargo lambda watch`.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use local_stack::{ACCESS_KEY, REGION, SECRET_KEY};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::sleep};

use crate::{
    invoke::{Invocation, invoke},
    logs::LogBook,
    process::ProcessTree,
    project::Project,
    records::{Kind, Records},
};

/// The package that holds the functions.
const PACKAGE: &str = "functions";
/// The function behind the standard queue.
pub(crate) const ORDERS: &str = "orders";
/// The function behind the FIFO queue.
pub(crate) const PAYOUTS: &str = "payouts";
/// The function behind the API.
pub(crate) const CHARGES: &str = "charges";
/// Instances of each function: enough for every event to be handled twice at the same time.
const CONCURRENCY: usize = 4;
/// How long the emulator may take to listen.
const START: Duration = Duration::from_secs(30);
/// How long the first answer of a function may take: Cargo has a look at everything first.
const COLD_START: Duration = Duration::from_secs(120);
/// How long any later answer may take.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait for the other instances once the first one answers.
const WARM_UP: Duration = Duration::from_secs(5);

/// Builds the functions with the packages, profile and features that `cargo lambda watch` will
/// ask for, so that it finds nothing left to do. Cargo's own messages are shown.
pub(crate) async fn build(project: &Project, store: Kind) -> Result<()> {
    let mut build = cargo(project);
    build.args(["build", "--package", PACKAGE]);
    build.args(features(store));
    build.args(["--bin", ORDERS, "--bin", PAYOUTS, "--bin", CHARGES]);
    ensure!(succeeds(&mut build).await?, "the functions do not build");

    let mut version = cargo(project);
    version.args(["lambda", "--version"]);
    version.stdout(Stdio::null()).stderr(Stdio::null());
    ensure!(succeeds(&mut version).await?, "cargo-lambda is not on the PATH; `pip install cargo-lambda` brings it");
    Ok(())
}

fn features(store: Kind) -> impl Iterator<Item = &'static str> {
    store.feature().into_iter().flat_map(|feature| ["--features", feature])
}

async fn succeeds(cargo: &mut Command) -> Result<bool> {
    let mut process = ProcessTree::spawn(cargo).context("cargo could not be started")?;
    Ok(process.ended().await?.success())
}

/// What the functions are to work with.
pub(crate) struct Environment<'a> {
    /// Names the log file.
    pub(crate) name: &'a str,
    /// The address of DynamoDB.
    pub(crate) dynamodb: &'a str,
    /// The store of the library's records.
    pub(crate) records: &'a Records,
    /// The table of effects.
    pub(crate) ledger_table: &'a str,
    /// The lease of a claim.
    pub(crate) lease: Duration,
    /// Whether the library protects the functions.
    pub(crate) protected: bool,
}

/// A running `cargo lambda watch`. Dropping it stops it and every instance.
#[derive(Debug)]
pub(crate) struct Emulator {
    address: SocketAddr,
    logs: Arc<LogBook>,
    process: ProcessTree,
}

impl Emulator {
    /// Starts the emulator, has it start the functions and waits until they answer.
    pub(crate) async fn start(project: &Project, environment: &Environment<'_>) -> Result<Self> {
        let directory = project.target().join("demo");
        fs::create_dir_all(&directory)?;
        let logs = LogBook::create(&directory.join(format!("{}.log", environment.name)))?;
        let address = free_address()?;

        let mut watch = cargo(project);
        watch
            .args(["lambda", "watch", "--ignore-changes"])
            .args(["--package", PACKAGE])
            .args(features(environment.records.kind()))
            .args(["--concurrency", &CONCURRENCY.to_string()])
            .args(["--invoke-address", &address.ip().to_string()])
            .args(["--invoke-port", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        environment.apply(&mut watch);
        let mut process = ProcessTree::spawn(&mut watch).context("cargo could not be started")?;
        if let Some(stdout) = process.child().stdout.take() {
            logs.follow(stdout);
        }
        if let Some(stderr) = process.child().stderr.take() {
            logs.follow(stderr);
        }

        let mut emulator = Self { address, logs, process };
        match emulator.warm_up().await {
            Ok(()) => Ok(emulator),
            Err(error) => Err(emulator.explain(&error)),
        }
    }

    /// Invokes a function.
    pub(crate) async fn invoke(&self, function: &str, event: &Value) -> Result<Invocation> {
        invoke(self.address, function, event, FUNCTION_TIMEOUT).await
    }

    /// The error, followed by the last output of the functions.
    pub(crate) fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\nThe last output of the functions:\n{}", self.logs.tail())
    }

    /// What the functions log.
    pub(crate) fn logs(&self) -> &LogBook {
        &self.logs
    }

    /// Instances start when they are first needed. Starting all of them beforehand lets the first
    /// events overlap.
    async fn warm_up(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        while TcpStream::connect(self.address).await.is_err() {
            if self.process.has_ended() {
                bail!("cargo lambda watch has ended");
            }
            ensure!(Instant::now() < until, "cargo lambda watch does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        let no_records = json!({ "Records": [] });
        let no_charge = no_charge();
        let mut until = None;
        loop {
            let (orders, payouts, charges) = tokio::try_join!(
                invoke(self.address, ORDERS, &no_records, COLD_START),
                invoke(self.address, PAYOUTS, &no_records, COLD_START),
                invoke(self.address, CHARGES, &no_charge, COLD_START),
            )?;
            for (function, answer) in [(ORDERS, orders), (PAYOUTS, payouts), (CHARGES, charges)] {
                if let Invocation::Failed(reason) = answer {
                    bail!("{function} fails when it is called with nothing to do: {reason}");
                }
            }
            // With fewer instances less overlaps: no reason to give up.
            let until = *until.get_or_insert_with(|| Instant::now() + WARM_UP);
            if self.logs.instances() >= 3 * CONCURRENCY || Instant::now() > until {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Environment<'_> {
    /// Gives the functions this environment, and nothing that would lead them to a real account.
    fn apply(&self, command: &mut Command) {
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            let is_build_setting = name.starts_with("AWS_LC_");
            if name.starts_with("LAMBDA_ONCE_") || name.starts_with("AWS_") && !is_build_setting {
                command.env_remove(&*name);
            }
        }
        command
            // What goes well is logged at debug only.
            .env("RUST_LOG", "lambda_once=debug")
            .env("NO_PROXY", "127.0.0.1")
            .env("AWS_ENDPOINT_URL_DYNAMODB", self.dynamodb)
            .env("AWS_REGION", REGION)
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_CONFIG_FILE", "/dev/null")
            .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_LAMBDA_LOG_FORMAT", "JSON")
            .env("AWS_LAMBDA_LOG_LEVEL", "INFO")
            .env("LEDGER_TABLE", self.ledger_table)
            .env("LEASE_SECONDS", self.lease.as_secs().to_string())
            .env("ALLOW_SIMULATION", "1");
        self.records.apply(command);
        if !self.protected {
            command.env("LAMBDA_ONCE_DISABLED", "1");
        }
    }
}

/// Cargo, in the directory of the functions. A relative target directory stays where it was.
fn cargo(project: &Project) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(project.functions());
    if env::var_os("CARGO_TARGET_DIR").is_some() {
        cargo.env("CARGO_TARGET_DIR", project.target());
    }
    cargo
}

/// A request that has no effect: it asks for a charge that does not exist.
fn no_charge() -> Value {
    let path = "/charges/none";
    json!({
        "version": "2.0",
        "routeKey": "GET /charges/{id}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {},
        "pathParameters": { "id": "none" },
        "requestContext": {
            "http": { "method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1" },
            "routeKey": "GET /charges/{id}",
            "stage": "$default",
            "timeEpoch": 0,
        },
        "isBase64Encoded": false,
    })
}

/// A free port on 127.0.0.1. The emulator takes it a moment later.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}
