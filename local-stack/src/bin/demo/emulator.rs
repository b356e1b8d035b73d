//! The functions, behind the Lambda APIs of `cargo lambda watch`.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use local_stack::{ACCESS_KEY, REGION, SECRET_KEY};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::sleep};

use crate::{
    invoke::{Invocation, Timed, invoke},
    logs::LogBook,
    process::ProcessTree,
    project::Project,
    records::Records,
};

/// The function behind the standard queue.
pub(crate) const ORDERS: &str = "orders";
/// The function behind the FIFO queue.
pub(crate) const PAYOUTS: &str = "payouts";
/// The function behind the API.
pub(crate) const CHARGES: &str = "charges";
/// Instances of each function: enough for every event to be handled twice at the same time.
const CONCURRENCY: usize = 4;
/// The timeout for the emulator's first response.
const START: Duration = Duration::from_secs(30);
/// The timeout for each later response.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(20);
/// The functions, as Cargo has built them beside this program.
pub(crate) fn binaries() -> Result<PathBuf> {
    let this = env::current_exe().context("this program's path cannot be read")?;
    let directory = this.parent().context("this program is in no directory")?;
    for function in [ORDERS, PAYOUTS, CHARGES] {
        ensure!(
            directory.join(function).is_file(),
            "the function `{function}` is not built: run `make demo`, or `cargo build -p functions`"
        );
    }
    Ok(directory.to_owned())
}

/// The environment of the functions.
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

/// Running functions, and the Lambda APIs between them and whoever invokes them. Dropping it stops all of them.
#[derive(Debug)]
pub(crate) struct Emulator {
    address: SocketAddr,
    logs: Arc<LogBook>,
    // Dropped first: an instance without the Runtime API fails, and reports it.
    instances: Vec<ProcessTree>,
    apis: ProcessTree,
}

impl Emulator {
    /// Starts the Lambda APIs and the instances of each function, and waits until they respond.
    pub(crate) async fn start(project: &Project, environment: &Environment<'_>) -> Result<Self> {
        let directory = project.output();
        fs::create_dir_all(&directory)?;
        let logs = LogBook::create(&directory.join(format!("{}.log", environment.name)))?;
        let address = free_address()?;

        let mut watch = Command::new("cargo");
        watch
            // It reads the manifest there.
            .current_dir(project.functions())
            // It would run them by Cargo, which looks at everything once more for each instance.
            .args(["lambda", "watch", "--only-lambda-apis"])
            .args(["--invoke-address", &address.ip().to_string()])
            .args(["--invoke-port", &address.port().to_string()]);
        let apis = spawn(&mut watch, &logs).context(
            "cargo-lambda could not be started; `make demo` installs it, and so does `pip install cargo-lambda`",
        )?;
        let mut emulator = Self { address, logs, instances: Vec::new(), apis };
        match emulator.warm_up(environment).await {
            Ok(()) => Ok(emulator),
            Err(error) => Err(emulator.explain(&error)),
        }
    }

    /// Invokes a function.
    pub(crate) async fn invoke(&self, function: &str, event: &Value) -> Result<Timed> {
        invoke(self.address, function, event, FUNCTION_TIMEOUT).await
    }

    /// The error, followed by the last output of the functions.
    pub(crate) fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\nThe last output of the functions:\n{}", self.logs.tail())
    }

    /// Returns the logs of the functions.
    pub(crate) fn logs(&self) -> &LogBook {
        &self.logs
    }

    /// Starts every instance, and waits until each function responds. The other instances are then almost ready, so
    /// that events overlap. The checks do not depend on it.
    async fn warm_up(&mut self, environment: &Environment<'_>) -> Result<()> {
        let until = Instant::now() + START;
        while TcpStream::connect(self.address).await.is_err() {
            if self.apis.has_ended() {
                bail!("cargo lambda watch has ended");
            }
            ensure!(Instant::now() < until, "cargo lambda watch does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        let binaries = binaries()?;
        for function in [ORDERS, PAYOUTS, CHARGES] {
            for _ in 0..CONCURRENCY {
                let mut instance = Command::new(binaries.join(function));
                environment.apply(&mut instance);
                instance
                    // Where cargo lambda watch has the Runtime API of each function.
                    .env("AWS_LAMBDA_RUNTIME_API", format!("http://{}/.rt/{function}", self.address))
                    .env("AWS_LAMBDA_FUNCTION_NAME", function)
                    .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
                    .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128");
                self.instances.push(spawn(&mut instance, &self.logs).context("a function could not be started")?);
            }
        }
        let no_records = json!({ "Records": [] });
        let no_charge = no_charge();
        for (function, nothing) in [(ORDERS, &no_records), (PAYOUTS, &no_records), (CHARGES, &no_charge)] {
            if let Invocation::Failed(reason) = self.invoke(function, nothing).await?.invocation {
                bail!("{function} fails when it is called with nothing to do: {reason}");
            }
        }
        Ok(())
    }
}

/// Starts a process whose output goes to the log.
fn spawn(command: &mut Command, logs: &Arc<LogBook>) -> io::Result<ProcessTree> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = ProcessTree::spawn(command)?;
    if let Some(stdout) = process.child().stdout.take() {
        logs.follow(stdout);
    }
    if let Some(stderr) = process.child().stderr.take() {
        logs.follow(stderr);
    }
    Ok(process)
}

impl Environment<'_> {
    /// Gives the functions this environment, and nothing that would lead them to a real account.
    fn apply(&self, command: &mut Command) {
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("LAMBDA_ONCE_") || name.starts_with("AWS_") {
                command.env_remove(&*name);
            }
        }
        command
            // The backtrace of the simulated panic would take longer than all else.
            .env("RUST_BACKTRACE", "0")
            // What goes well is logged at debug only.
            .env("RUST_LOG", "lambda_once=debug,functions=debug")
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

/// A request without an effect: it reads a charge that does not exist.
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
