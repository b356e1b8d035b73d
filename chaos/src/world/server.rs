//! The store's server: its start, its kills and restarts, and its version.

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::atomic::Ordering,
    thread::sleep,
    time::{Duration, Instant},
};

use lambda_once::store::postgres::tokio_postgres::{self, NoTls};
use redis::{Connection, FromRedisValue};
use tokio::runtime::Handle;

use super::{
    Result, World,
    cluster::{self, Change},
    wire::{self, Protocol},
};
use crate::{
    history::{Fact, RunId},
    report::Fault,
    settings::StoreKind,
    worker,
};

// The tests' way to start a server, by `tools/servers/serve.py`.
#[path = "../../../tests/support/servers.rs"]
mod servers;

pub(super) use servers::Server;

/// The longest time that a server takes to respond to its administrator.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns host and port of a server, or of the first node of a cluster.
pub(super) fn host_and_port(url: &str) -> &str {
    wire::host_and_port(url.split(',').next().unwrap_or(url))
}

pub(super) const fn protocol(store: StoreKind) -> Protocol {
    match store {
        StoreKind::DynamoDb => Protocol::DynamoDb,
        StoreKind::Redis | StoreKind::RedisCluster => Protocol::Resp,
        StoreKind::Postgres => Protocol::Postgres,
    }
}

/// Settings of a cluster. Only an operator promotes a replica, which has all writes then.
const CLUSTER: [&str; 4] = [
    "replicas=1",
    "cluster-replica-no-failover=yes",
    "cluster-allow-replica-migration=no",
    "repl-diskless-sync-delay=0",
];

/// The table and the Region on DynamoDB.
pub(super) const TABLE: &str = "chaos";
pub(super) const REGION: &str = "us-east-1";

/// Settings of Valkey that keep acknowledged writes.
const DURABLE: [&str; 2] = ["appendonly=yes", "appendfsync=always"];

/// Starts a server that keeps acknowledged writes when it is killed.
pub(super) fn start(store: StoreKind) -> Server {
    match store {
        StoreKind::DynamoDb => Server::start("dynamodb", &["dbPath=."]),
        StoreKind::Redis => Server::start("valkey", &DURABLE),
        StoreKind::RedisCluster => Server::start("valkey-cluster", &[&DURABLE[..], &CLUSTER].concat()),
        StoreKind::Postgres => Server::start("postgres", &["full_page_writes=on"]),
    }
}

/// Returns the environment in which workers find the store at this URL.
pub(super) fn variables(store: StoreKind, url: &str) -> Vec<(&'static str, String)> {
    let own = |text: &str| text.to_owned();
    let mut variables = vec![(worker::STORE, own(store.name()))];
    match store {
        StoreKind::Redis => variables.push(("REDIS_URL", own(url))),
        StoreKind::RedisCluster => variables.push((worker::CLUSTER, own(url))),
        StoreKind::Postgres => variables.push(("POSTGRES_URL", own(url))),
        StoreKind::DynamoDb => variables.extend([
            ("AWS_ENDPOINT_URL_DYNAMODB", own(url)),
            ("AWS_REGION", own(REGION)),
            ("AWS_ACCESS_KEY_ID", own("test")),
            ("AWS_SECRET_ACCESS_KEY", own("test")),
            ("IDEMPOTENCY_TABLE", own(TABLE)),
        ]),
    }
    variables
}

/// Creates the tables, in a worker process.
pub(super) fn prepare(store: StoreKind, url: &str) -> Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.env_clear().envs(variables(store, url)).env(worker::ROLE, worker::PREPARATION);
    if command.stdin(Stdio::null()).status()?.success() { Ok(()) } else { Err("the tables were not created".into()) }
}

/// Kills and restarts the server at random times until the run is over, or makes it refuse requests for a while, and
/// then stops it.
///
/// # Errors
///
/// The server does not perform what its administrator asks for.
pub(super) fn disturb_at_times(world: &World, mut server: Server) -> Result<()> {
    let (least, most) = world.options.store.pace().restarts;
    let mut turn = 0;
    while !world.is_over.load(Ordering::SeqCst) {
        wait(world, world.pause(least, most));
        if !world.has_faults() {
            continue;
        }
        if world.options.store == StoreKind::RedisCluster {
            match turn % 3 {
                0 => Change::Slots.perform(world, server.url())?,
                1 => restart_node(world, &mut server)?,
                _ => Change::Failover.perform(world, server.url())?,
            }
            turn += 1;
            continue;
        }
        if let Some(refusal) = draw(world) {
            let _window = world.refusal();
            let control = refusal.begin(server.url())?;
            world.lock().faults.add(refusal.fault());
            wait(world, world.pause(100, 1_500));
            refusal.end(control)?;
            continue;
        }
        world.record(Fact::ServerKilled);
        server.kill();
        world.lock().faults.add(Fault::ServerKilled);
        wait(world, world.pause(0, 500));
        server.restart();
        world.record(Fact::ServerStarted);
    }
    Ok(())
}

/// Kills a node of a cluster, and restarts it. Clients do not notice it if it is a replica.
fn restart_node(world: &World, server: &mut Server) -> Result<()> {
    let urls: Vec<&str> = server.url().split(',').collect();
    let node = world.lock().random.usize(0..urls.len());
    let is_primary = cluster::is_primary(urls[node])?;
    if is_primary {
        world.record(Fact::ServerKilled);
    }
    server.kill_node(node);
    world.lock().faults.add(if is_primary { Fault::ServerKilled } else { Fault::ReplicaKilled });
    wait(world, world.pause(0, 500));
    server.restart_node(node);
    if is_primary {
        world.record(Fact::ServerStarted);
    }
    Ok(())
}

/// Waits, or until the run is over.
fn wait(world: &World, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time && !world.is_over.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(20));
    }
}

/// A reason for which a server that runs refuses requests.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// New log-ins are rejected, and connections are closed, as during a rotation of credentials.
    Logins,
    /// No memory is left for writes.
    Memory,
}

/// Draws a refusal in two of five cases, if the server has one.
fn draw(world: &World) -> Option<Refusal> {
    match (world.options.store, world.lock().random.u32(0..5)) {
        (StoreKind::Redis | StoreKind::Postgres, 0) => Some(Refusal::Logins),
        (StoreKind::Postgres, 1) => Some(Refusal::Logins),
        (StoreKind::Redis, 1) => Some(Refusal::Memory),
        _ => None,
    }
}

/// Sends a command, and returns the response.
pub(super) fn send<T: FromRedisValue>(connection: &mut Connection, command: &str) -> Result<T> {
    let mut words = command.split_whitespace();
    let mut message = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| _ = message.arg(word));
    message.query(connection).map_err(|error| format!("{command}: {error}").into())
}

/// Connects to the server at this URL.
pub(super) fn connect(url: &str) -> Result<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// The connection of an administrator, which outlives a refusal.
enum Control {
    Redis(Connection),
    Postgres(tokio_postgres::Client),
}

impl Control {
    fn open(url: &str) -> Result<Self> {
        if url.starts_with("redis") {
            return Ok(Self::Redis(connect(url)?));
        }
        Handle::current().block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok(Self::Postgres(client))
        })
    }

    fn send(&mut self, command: &str) -> Result<()> {
        match self {
            Self::Redis(server) => send(server, command),
            Self::Postgres(client) => Ok(Handle::current().block_on(client.batch_execute(command))?),
        }
    }
}

impl Refusal {
    const fn fault(self) -> Fault {
        match self {
            Self::Logins => Fault::LoginsRefused,
            Self::Memory => Fault::MemoryFull,
        }
    }

    fn begin(self, url: &str) -> Result<Control> {
        let mut control = Control::open(url)?;
        match (self, &control) {
            (Self::Memory, _) => control.send("CONFIG SET maxmemory 1")?,
            (Self::Logins, Control::Redis(_)) => {
                control.send("ACL SETUSER default off")?;
                control.send("CLIENT KILL TYPE normal SKIPME yes")?;
            }
            (Self::Logins, Control::Postgres(_)) => {
                control.send("ALTER ROLE CURRENT_USER NOLOGIN")?;
                control.send(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE usename = current_user AND pid <> pg_backend_pid()",
                )?;
            }
        }
        Ok(control)
    }

    fn end(self, mut control: Control) -> Result<()> {
        match (self, &control) {
            (Self::Memory, _) => control.send("CONFIG SET maxmemory 0"),
            (Self::Logins, Control::Redis(_)) => control.send("ACL SETUSER default on"),
            (Self::Logins, Control::Postgres(_)) => control.send("ALTER ROLE CURRENT_USER LOGIN"),
        }
    }
}

/// Returns the runs of the rows that transactions have committed.
pub(super) async fn rows(url: &str) -> Result<Vec<RunId>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let rows = client.query(&format!("SELECT run FROM {}", worker::ROWS), &[]).await?;
    Ok(rows.iter().map(|row| row.get::<_, i64>(0)).filter_map(|run| RunId::try_from(run).ok()).collect())
}

/// Returns the server's name and version, by its own account.
pub(super) fn version(store: StoreKind, url: &str) -> String {
    let version = match store {
        StoreKind::Redis => valkey(url).map(|version| format!("Valkey {version}")),
        StoreKind::RedisCluster => valkey(url).map(|version| format!("Valkey {version}, a cluster")),
        StoreKind::Postgres => {
            let body = b"user\0once\0database\0postgres\0\0";
            let length = u32::try_from(body.len() + 8).unwrap_or_default();
            let message = [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), body].concat();
            ask(url, &message, "server_version\0", '\0').map(|version| format!("PostgreSQL {version}"))
        }
        // It does not tell. Its directory does.
        StoreKind::DynamoDb => fs::read_dir("target/tools").ok().and_then(|files| {
            let mut names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
            let version = names.find_map(|name| name.strip_prefix("dynamodb-local-").map(str::to_owned))?;
            Some(format!("DynamoDB Local {version}"))
        }),
    };
    version.unwrap_or_else(|| store.name().to_owned())
}

fn valkey(url: &str) -> Option<String> {
    ask(url, b"INFO server\r\n", "valkey_version:", '\r')
}

/// Sends a message, and returns the text between two marks of the response.
fn ask(url: &str, message: &[u8], before: &str, after: char) -> Option<String> {
    let mut server = TcpStream::connect(host_and_port(url)).ok()?;
    server.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    server.write_all(message).ok()?;
    let mut bytes = [0; 16_384];
    let mut length = 0;
    while let Ok(1..) = server.read(&mut bytes[length..]).inspect(|read| length += read) {
        let text = String::from_utf8_lossy(&bytes[..length]);
        if let Some((_, rest)) = text.split_once(before)
            && let Some((found, _)) = rest.split_once(after)
        {
            return Some(found.to_owned());
        }
    }
    None
}
