//! Reads a dead-letter queue message by message, and hides the remaining messages until the end.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Result, bail};

use super::{examine::Examined, message::Message, queue::Queue};

/// The number of receives in a row with nothing new.
const MAX_REPEATS: usize = 100;

/// A pass over a queue.
pub(crate) struct Reader<'a> {
    queue: &'a Queue,
    hold: Duration,
    seen: HashSet<String>,
    /// Messages that stay in the queue, with their newest receipts.
    held: HashMap<String, String>,
    /// Groups of a FIFO queue with a message that stays: the later ones stay behind it.
    held_groups: HashSet<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(queue: &'a Queue, hold: Duration) -> Self {
        Self { queue, hold, seen: HashSet::new(), held: HashMap::new(), held_groups: HashSet::new() }
    }

    /// Receives messages that were not received before. Returns none at the end of the queue.
    ///
    /// # Errors
    ///
    /// Returns the errors of SQS, or an error if messages reappear sooner than the queue is read.
    pub(crate) async fn next(&mut self) -> Result<Vec<Message>> {
        for _ in 0..MAX_REPEATS {
            let received = self.queue.receive(self.hold).await?;
            if received.is_empty() {
                return Ok(Vec::new());
            }
            let mut new = Vec::with_capacity(received.len());
            for message in received {
                self.held.insert(message.id.clone(), message.receipt.clone());
                if self.seen.insert(message.id.clone()) {
                    new.push(message);
                }
            }
            if !new.is_empty() {
                return Ok(new);
            }
        }
        bail!("messages reappear before the queue has been read: raise --hold")
    }

    /// Keeps a message in the queue, and in a FIFO queue the later ones of its group.
    pub(crate) fn keep(&mut self, message: &Message) {
        if self.queue.is_fifo() {
            self.held_groups.extend(message.group().map(str::to_owned));
        }
    }

    /// Returns whether an earlier message of its group stays in the queue.
    pub(crate) fn is_behind(&self, examined: &Examined) -> bool {
        examined.message.group().is_some_and(|group| self.held_groups.contains(group))
    }

    /// Counts a message as gone.
    pub(crate) fn forget(&mut self, message: &Message) {
        self.held.remove(&message.id);
    }

    /// Makes all messages that stay visible again.
    pub(crate) async fn finish(self) -> Result<()> {
        let receipts: Vec<_> = self.held.into_values().collect();
        self.queue.release(&receipts).await
    }
}
