//! A stream that is read by a consumer group.

use std::time::Duration;

use redis::{
    Client, RedisResult, Script,
    aio::{ConnectionManager, ConnectionManagerConfig},
    cmd,
};
use tokio::time::Instant;

use crate::config::Config;

/// The time that a read waits for entries, and so the longest delay of a shutdown.
const BLOCK: Duration = Duration::from_secs(1);

/// The longest time that Redis may take to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The field that has the order.
const FIELD: &[u8] = b"order";

/// The position before the first pending entry.
const START: &str = "0-0";

/// An entry of the stream.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// Names and values alternate.
    fields: Vec<Vec<u8>>,
}

impl Entry {
    /// The order, as the producer wrote it.
    pub(crate) fn order(&self) -> Option<&[u8]> {
        self.fields.chunks_exact(2).find(|field| field[0] == FIELD).map(|field| &*field[1])
    }
}

/// The group's side of a stream, which acknowledges entries or moves them to the dead-letter stream.
#[derive(Clone)]
pub(crate) struct Group {
    connection: ConnectionManager,
    stream: String,
    group: String,
    dead_letters: String,
    dead_letter: Script,
}

impl Group {
    pub(crate) async fn connect(config: &Config) -> RedisResult<Self> {
        Ok(Self {
            connection: connect(config, RESPONSE_TIMEOUT).await?,
            stream: config.stream.clone(),
            group: config.group.clone(),
            dead_letters: config.dead_letters.clone(),
            dead_letter: Script::new(include_str!("dead_letter.lua")),
        })
    }

    /// Creates the group, and the stream, unless they exist. A new group starts with the stream's first entry.
    pub(crate) async fn create(&self) -> RedisResult<()> {
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(&self.stream).arg(&self.group).arg(0).arg("MKSTREAM");
        match create.exec_async(&mut self.connection.clone()).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            created => created,
        }
    }

    pub(crate) async fn acknowledge(&self, entry: &Entry) -> RedisResult<()> {
        let mut acknowledge = cmd("XACK");
        acknowledge.arg(&self.stream).arg(&self.group).arg(&entry.id);
        acknowledge.exec_async(&mut self.connection.clone()).await
    }

    /// Acknowledges an entry, and appends it to the dead-letter stream together with its id and a reason.
    pub(crate) async fn dead_letter(&self, entry: &Entry, reason: &str) -> RedisResult<()> {
        let mut call = self.dead_letter.key(&self.stream);
        call.key(&self.dead_letters).arg(&self.group).arg(&entry.id).arg(reason);
        call.invoke_async(&mut self.connection.clone()).await
    }
}

/// Reads entries for one consumer of a group.
pub(crate) struct Reader {
    /// Blocked by reads, and so not shared.
    connection: ConnectionManager,
    stream: String,
    group: String,
    consumer: String,
    min_idle: Duration,
    /// The position at which the scan of the pending entries continues.
    cursor: String,
    /// The time at which the next scan is due, unless one is in progress.
    next_scan: Instant,
    has_scanned: bool,
}

impl Reader {
    pub(crate) async fn connect(config: &Config) -> RedisResult<Self> {
        Ok(Self {
            connection: connect(config, BLOCK + RESPONSE_TIMEOUT).await?,
            stream: config.stream.clone(),
            group: config.group.clone(),
            consumer: config.consumer.clone(),
            min_idle: config.min_idle(),
            cursor: START.to_owned(),
            next_scan: Instant::now(),
            has_scanned: false,
        })
    }

    /// Returns up to `count` entries: new ones, or ones that have been pending for too long. The two take turns, so that
    /// neither waits for the end of the other. Returns no entries if there are none for [`BLOCK`].
    pub(crate) async fn next(&mut self, count: usize) -> RedisResult<Vec<Entry>> {
        let scans = self.cursor != START || self.next_scan <= Instant::now();
        self.has_scanned = scans && !self.has_scanned;
        if self.has_scanned { self.claim(count).await } else { self.read(count, !scans).await }
    }

    /// Takes over entries that their consumers have left pending.
    async fn claim(&mut self, count: usize) -> RedisResult<Vec<Entry>> {
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(millis(self.min_idle));
        claim.arg(&self.cursor).arg("COUNT").arg(count);
        // The third part contains the entries that have been deleted from the stream.
        let (cursor, found, _): (String, Entries, Vec<String>) = claim.query_async(&mut self.connection).await?;
        if cursor == START {
            self.next_scan = Instant::now() + self.min_idle / 4;
        }
        self.cursor = cursor;
        Ok(entries(found))
    }

    /// Reads entries that no consumer has got.
    async fn read(&mut self, count: usize, waits: bool) -> RedisResult<Vec<Entry>> {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(count);
        if waits {
            read.arg("BLOCK").arg(millis(BLOCK));
        }
        read.arg("STREAMS").arg(&self.stream).arg(">");
        let streams: Option<Vec<(String, Entries)>> = read.query_async(&mut self.connection).await?;
        Ok(streams.into_iter().flatten().flat_map(|(_, found)| entries(found)).collect())
    }
}

/// The raw form from Redis, because names and values may not be text.
type Entries = Vec<(String, Vec<Vec<u8>>)>;

fn entries(found: Entries) -> Vec<Entry> {
    found.into_iter().map(|(id, fields)| Entry { id, fields }).collect()
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

/// A connection that is reopened when it breaks. It does not repeat commands.
async fn connect(config: &Config, response_timeout: Duration) -> RedisResult<ConnectionManager> {
    let settings = ConnectionManagerConfig::new().set_number_of_retries(0).set_response_timeout(Some(response_timeout));
    ConnectionManager::new_with_config(Client::open(&*config.redis_url)?, settings).await
}
