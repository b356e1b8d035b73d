//! A stream and a schema for each test, and consumers as processes.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use lambda_once::store::postgres::tokio_postgres::{self, NoTls};
use redis::{
    AsyncCommands as _, Script,
    aio::MultiplexedConnection,
    streams::{StreamInfoGroupsReply, StreamRangeReply, StreamReadOptions, StreamReadReply},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

const GROUP: &str = "debits";

/// The lease of a test's orders. The entries of a killed consumer are claimed after the lease and twice the margin, 4 s.
const LEASE_MS: &str = "2000";

/// The longest time until a condition must hold.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream, and the tables in PostgreSQL.
pub struct World {
    name: String,
    redis: MultiplexedConnection,
    postgres: tokio_postgres::Client,
}

/// The state of the consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Entries that have been delivered to a consumer.
    pub read: usize,
    /// Delivered entries that are not acknowledged.
    pub pending: usize,
    /// Entries that have not been delivered yet.
    pub lag: usize,
}

impl World {
    pub async fn new() -> Self {
        let name = format!("consumer_{:016x}", fastrand::u64(..));
        let (postgres, connection) = tokio_postgres::connect(&server("POSTGRES_URL"), NoTls).await.unwrap();
        tokio::spawn(connection);
        postgres.batch_execute(&format!("CREATE SCHEMA {name}; SET search_path = {name}")).await.unwrap();
        let redis = redis::Client::open(server("REDIS_URL")).unwrap().get_multiplexed_async_connection().await.unwrap();
        let world = Self { name, redis, postgres };
        assert!(world.command(&[]).arg("migrate").status().unwrap().success());
        world
    }

    fn command(&self, environment: &[(&str, &str)]) -> Command {
        let url = server("POSTGRES_URL");
        let separator = if url.contains('?') { '&' } else { '?' };
        let mut command = Command::new(env!("CARGO_BIN_EXE_consumer"));
        command
            .env("POSTGRES_URL", format!("{url}{separator}options=-csearch_path%3D{}", self.name))
            .env("STREAM", &self.name)
            .env("GROUP", GROUP)
            .env("CONSUMER", format!("c-{:08x}", fastrand::u32(..)))
            .env("DEAD_LETTERS", self.dead_letter_stream())
            .env("LEASE_MS", LEASE_MS)
            .envs(environment.iter().copied());
        command
    }

    fn dead_letter_stream(&self) -> String {
        format!("{}-dead-letters", self.name)
    }

    /// Starts a consumer.
    pub fn start(&self, environment: &[(&str, &str)]) -> Consumer {
        let mut process = self.command(environment).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let log = thread::spawn(move || log.lines().map_while(Result::ok).map(|line| line + "\n").collect());
        Consumer { process, log: Some(log) }
    }

    /// Adds an entry with these bytes as its order.
    pub async fn add(&self, order: &str) {
        self.add_field("order", order.as_bytes()).await;
    }

    pub async fn add_field(&self, name: &str, value: &[u8]) {
        let () = self.redis.clone().xadd(&self.name, "*", &[(name, value)]).await.unwrap();
    }

    /// Creates the group, and reads the first entry without a consumer. Returns its id.
    pub async fn read_entry(&self) -> String {
        let mut redis = self.redis.clone();
        let () = redis.xgroup_create(&self.name, GROUP, 0).await.unwrap();
        let options = StreamReadOptions::default().group(GROUP, "test").count(1);
        let read: StreamReadReply = redis.xread_options(&[&self.name], &[">"], &options).await.unwrap();
        read.keys[0].ids[0].id.clone()
    }

    /// Runs the consumer's script.
    pub async fn dead_letter(&self, entry: &str, reason: &str) {
        let script = Script::new(include_str!("../../src/dead_letter.lua"));
        let mut call = script.key(&self.name);
        call.key(self.dead_letter_stream()).arg(GROUP).arg(entry).arg(reason);
        let () = call.invoke_async(&mut self.redis.clone()).await.unwrap();
    }

    /// Returns the state of the group. Before it has been created, nothing has been read.
    pub async fn group(&self) -> Group {
        let info: StreamInfoGroupsReply = self.redis.clone().xinfo_groups(&self.name).await.unwrap();
        let group = info.groups.first();
        group.map_or(Group { read: 0, pending: 0, lag: usize::MAX }, |group| Group {
            read: group.entries_read.unwrap_or_default(),
            pending: group.pending,
            lag: group.lag.expect("no entry has been deleted"),
        })
    }

    /// Deletes the stream, and the group with it.
    pub async fn lose_stream(&self) {
        let () = self.redis.clone().del(&self.name).await.unwrap();
    }

    /// Waits until the group is in this state.
    pub async fn until(&self, holds: impl Fn(Group) -> bool + Send + Sync) -> Group {
        let reached = async {
            loop {
                let group = self.group().await;
                if holds(group) {
                    return group;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        match timeout(PATIENCE, reached).await {
            Ok(group) => group,
            Err(_) => panic!("still {:?}", self.group().await),
        }
    }

    /// Waits until every entry is acknowledged.
    pub async fn until_done(&self) {
        self.until(|group| group.pending == 0 && group.lag == 0).await;
    }

    /// Returns the ids of the orders that were debited, one for each debit, sorted.
    pub async fn debited(&self) -> Vec<String> {
        let rows = self.postgres.query("SELECT order_id FROM ledger ORDER BY order_id", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the reasons of the dead letters, sorted.
    pub async fn dead_letters(&self) -> Vec<String> {
        let found: StreamRangeReply = self.redis.clone().xrange_all(self.dead_letter_stream()).await.unwrap();
        let mut reasons: Vec<String> = found.ids.iter().map(|letter| letter.get("reason").unwrap()).collect();
        reasons.sort();
        reasons
    }
}

/// A running consumer. When dropped, it is killed, and prints its log if the test fails.
pub struct Consumer {
    process: Child,
    log: Option<JoinHandle<String>>,
}

impl Consumer {
    /// Kills it with `kill -9`.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
    }

    pub fn terminate(&self) {
        let id = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    }

    /// Waits for the process to end by itself. Returns its exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        let exits = async {
            loop {
                if let Some(status) = self.process.try_wait().unwrap() {
                    return status.code();
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, exits).await.expect("the consumer ends")
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log.take().map(JoinHandle::join);
        if thread::panicking()
            && let Some(Ok(log)) = log
        {
            eprintln!("the consumer's log:\n{log}");
        }
    }
}

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the tests by `make test`"))
}
