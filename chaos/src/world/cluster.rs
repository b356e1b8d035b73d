//! The nodes of a cluster, and its changes: failovers, and slots that move between primaries while clients use them.

use std::{
    ops::RangeInclusive,
    thread::sleep,
    time::{Duration, Instant},
};

use redis::{Connection, FromRedisValue};

use super::{Result, World};
use crate::report::Fault;

/// The longest time that a node takes to respond, or to become the primary.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most slots that move at once, and the most keys of a slot in one command.
const MOST_SLOTS: u16 = 400;
const MOST_KEYS: u32 = 100;

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

/// A change of a cluster that loses no acknowledged write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A replica becomes the primary, at the request of an operator.
    Failover,
    /// Slots move from one primary to another.
    Slots,
}

impl Change {
    /// Draws a change.
    pub(super) fn draw(world: &World) -> Self {
        if world.chance(500) { Self::Failover } else { Self::Slots }
    }

    pub(super) const fn fault(self) -> Fault {
        match self {
            Self::Failover => Fault::FailedOver,
            Self::Slots => Fault::SlotsMoved,
        }
    }

    /// Performs it on the cluster of these nodes.
    pub(super) fn perform(self, world: &World, urls: &str) -> Result<()> {
        let mut nodes = Vec::new();
        for url in urls.split(',') {
            nodes.push(Node::open(url)?);
        }
        match self {
            Self::Failover => {
                let replicas = nodes.iter_mut().filter(|node| !node.is_primary);
                fail_over(draw(world, replicas.collect()).ok_or("no node is a replica")?)
            }
            Self::Slots => {
                let mut primaries: Vec<Node> = nodes.into_iter().filter(|node| node.is_primary).collect();
                let chosen = world.lock().random.usize(0..primaries.len());
                let source = primaries.swap_remove(chosen);
                move_slots(world, source, primaries)
            }
        }
    }
}

fn draw<T>(world: &World, mut from: Vec<T>) -> Option<T> {
    let place = world.lock().random.usize(0..from.len().max(1));
    (place < from.len()).then(|| from.swap_remove(place))
}

/// A node, by its own account.
struct Node {
    connection: Connection,
    id: String,
    port: u16,
    is_primary: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl Node {
    fn open(url: &str) -> Result<Self> {
        let mut connection = connect(url)?;
        let nodes: String = send(&mut connection, "CLUSTER NODES")?;
        // <id> <host>:<port>@<port of the bus> <flags> <primary> <ping> <pong> <epoch> <state> <slots ...>
        let own = nodes.lines().find(|line| line.contains("myself")).ok_or("the node does not know itself")?;
        let words: Vec<&str> = own.split_whitespace().collect();
        let [id, address, flags, _, _, _, _, _, slots @ ..] = &words[..] else {
            return Err(format!("not a node: {own}").into());
        };
        let port = address.rsplit_once('@').and_then(|(address, _)| address.rsplit_once(':')).map(|(_, port)| port);
        Ok(Self {
            id: (*id).to_owned(),
            port: port.ok_or("a node without a port")?.parse()?,
            is_primary: flags.split(',').any(|flag| flag == "master"),
            slots: slots.iter().filter_map(|slots| range(slots)).collect(),
            connection,
        })
    }

    fn send<T: FromRedisValue>(&mut self, command: &str) -> Result<T> {
        send(&mut self.connection, command)
    }
}

/// Parses a range of slots. A slot that moves is in brackets, and in a range as well.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Makes a replica the primary when it has all writes of its primary.
fn fail_over(replica: &mut Node) -> Result<()> {
    let begun = Instant::now();
    let has = |replica: &mut Node, line: &str| -> Result<bool> {
        Ok(replica.send::<String>("INFO replication")?.contains(line))
    };
    // A node that was restarted copies its primary first.
    while !has(replica, "master_link_status:up")? {
        wait(begun, "a replica has no link to its primary")?;
    }
    replica.send::<()>("CLUSTER FAILOVER")?;
    while !has(replica, "role:master")? {
        wait(begun, "a replica did not become the primary")?;
    }
    Ok(())
}

fn wait(begun: Instant, reason: &str) -> Result<()> {
    if begun.elapsed() > PATIENCE {
        return Err(reason.into());
    }
    sleep(Duration::from_millis(10));
    Ok(())
}

/// Moves a part of the slots of one primary to another, as `valkey-cli --cluster reshard` does.
fn move_slots(world: &World, mut source: Node, mut others: Vec<Node>) -> Result<()> {
    let Some(range) = draw(world, source.slots.clone()) else {
        return Ok(());
    };
    let chosen = world.lock().random.usize(0..others.len());
    let mut target = others.swap_remove(chosen);
    let last = *range.end().min(&(range.start() + MOST_SLOTS - 1));
    let slots = *range.start()..=last;
    for slot in slots.clone() {
        target.send::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id))?;
        source.send::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id))?;
    }
    for slot in slots {
        loop {
            let keys: Vec<String> = source.send(&format!("CLUSTER GETKEYSINSLOT {slot} {MOST_KEYS}"))?;
            if keys.is_empty() {
                break;
            }
            // One at a time, so that a slot is divided between two nodes for a while.
            for key in keys {
                let mut migrate = redis::cmd("MIGRATE");
                migrate.arg("127.0.0.1").arg(target.port).arg(key).arg(0).arg(5_000).arg("REPLACE");
                migrate.query::<()>(&mut source.connection)?;
            }
        }
        let command = format!("CLUSTER SETSLOT {slot} NODE {}", target.id);
        target.send::<()>(&command)?;
        source.send::<()>(&command)?;
        for other in &mut others {
            other.send::<()>(&command)?;
        }
    }
    Ok(())
}
