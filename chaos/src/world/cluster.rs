//! The nodes of a cluster, and its changes: failovers, and slots that move between primaries while clients use them.

use std::{
    ops::RangeInclusive,
    thread::sleep,
    time::{Duration, Instant},
};

use redis::{Connection, FromRedisValue};

use super::{
    Result, World,
    server::{connect, send},
};
use crate::report::Fault;

/// The longest time that a step takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time after which a node gives up a failover.
const FAILOVER: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(10);
/// The slots that move at once, the least that their primary has, and the most keys of a slot in one command.
const MOST_SLOTS: usize = 400;
const LEAST_SLOTS: usize = 2 * MOST_SLOTS;
const MOST_KEYS: u32 = 100;

/// A change of a cluster that loses no acknowledged write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A replica becomes the primary, at the request of an operator.
    Failover,
    /// Slots move from one primary to another.
    Slots,
}

impl Change {
    /// Performs it on the cluster of these nodes.
    pub(super) fn perform(self, world: &World, urls: &str) -> Result<()> {
        let mut nodes = Vec::new();
        for url in urls.split(',') {
            nodes.push(Node::open(url)?);
        }
        let (mut primaries, replicas): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|node| node.is_primary);
        match self {
            Self::Failover => {
                fail_over(world, draw(world, replicas).ok_or("no node is a replica")?)?;
                world.lock().faults.add(Fault::FailedOver);
            }
            Self::Slots => {
                let source = primaries.iter().position(|node| node.slots().count() > LEAST_SLOTS);
                let source = primaries.swap_remove(source.ok_or("no primary has slots")?);
                let target = draw(world, primaries).ok_or("there is one primary only")?;
                let keys = move_slots(world, source, target)?;
                let mut state = world.lock();
                state.faults.add(Fault::SlotsMoved);
                state.faults.add_all(Fault::KeyMoved, keys);
            }
        }
        Ok(())
    }
}

/// Returns whether the node is a primary, by its own account.
pub(super) fn is_primary(url: &str) -> Result<bool> {
    Ok(Node::open(url)?.is_primary)
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

    fn slots(&self) -> impl Iterator<Item = u16> {
        self.slots.iter().cloned().flatten()
    }

    fn send<T: FromRedisValue>(&mut self, command: &str) -> Result<T> {
        send(&mut self.connection, command)
    }

    /// Sends a command until it succeeds. One that replicas have to acknowledge fails if they are late.
    fn insist(&mut self, command: &str) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) = self.send::<()>(command) {
            wait(begun, &error.to_string())?;
        }
        Ok(())
    }

    /// Returns whether the node's account of itself has all of these lines.
    fn has(&mut self, lines: &[&str]) -> Result<bool> {
        let account = self.send::<String>("INFO replication")? + &self.send::<String>("INFO persistence")?;
        Ok(lines.iter().all(|line| account.lines().any(|other| other == *line)))
    }
}

/// Parses a range of slots. A slot that moves is in brackets, and in a range as well.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Makes a replica the primary when it has all writes of its primary, in its memory and in its log.
fn fail_over(world: &World, mut replica: Node) -> Result<()> {
    let begun = Instant::now();
    let ready = ["role:slave", "master_link_status:up", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
    // A node that was restarted copies its primary first.
    while !replica.has(&ready)? {
        wait(begun, "a replica has no link to its primary")?;
    }
    let _window = world.refusal();
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    while !replica.has(&["role:master"])? {
        // It is refused while the cluster takes the primary for failed, and given up after five seconds.
        if asked.is_none_or(|since| since.elapsed() > FAILOVER) {
            asked = replica.send::<()>("CLUSTER FAILOVER").is_ok().then(Instant::now);
        }
        wait(begun, "a replica did not become the primary")?;
    }
    Ok(())
}

fn wait(begun: Instant, reason: &str) -> Result<()> {
    if begun.elapsed() > PATIENCE {
        return Err(reason.into());
    }
    sleep(PAUSE);
    Ok(())
}

/// Moves slots of one primary to another, as `valkey-cli --cluster reshard` does. Returns the number of keys in them.
fn move_slots(world: &World, mut source: Node, mut target: Node) -> Result<u64> {
    let first = world.lock().random.usize(0..LEAST_SLOTS - MOST_SLOTS);
    let slots: Vec<u16> = source.slots().skip(first).take(MOST_SLOTS).collect();
    for slot in &slots {
        target.insist(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id))?;
        source.insist(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id))?;
    }
    let mut moved = 0;
    for slot in slots {
        loop {
            let keys: Vec<String> = source.send(&format!("CLUSTER GETKEYSINSLOT {slot} {MOST_KEYS}"))?;
            if keys.is_empty() {
                break;
            }
            // One at a time, so that a slot is divided between two nodes for a while.
            for key in keys {
                source.insist(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000 REPLACE", target.port))?;
                moved += 1;
            }
        }
        // The other nodes learn it from the target.
        let command = format!("CLUSTER SETSLOT {slot} NODE {}", target.id);
        target.insist(&command)?;
        source.insist(&command)?;
    }
    Ok(moved)
}
