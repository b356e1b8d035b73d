//! A double of an SQS queue, standard or FIFO, with visibility, receive counts, duplicate deliveries and a dead-letter
//! queue.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{World, handler::Order};
use crate::{
    counters::Fault,
    history::{Fact, MessageId, Ms},
    plan::QueuePlan,
};

/// The receives of a message that is sent after all faults have stopped. Older operations of its entity may have to wait
/// for newer ones.
const MAX_AUDIT_RECEIVES: u32 = 20;

#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: Mutex<Vec<Message>>,
}

#[derive(Clone, Debug)]
struct Message {
    order: Order,
    group: u32,
    receives: u32,
    visible_at: Ms,
    is_gone: bool,
    is_audit: bool,
}

/// A delivery of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) message: MessageId,
    pub(super) order: Order,
    pub(super) group: u32,
    pub(super) receives: u32,
    pub(super) is_audit: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether every message was deleted or dead-lettered.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().iter().all(|message| message.is_gone)
    }
}

impl World {
    /// Sends a message.
    pub(super) fn send(&self, order: Order, is_audit: bool) {
        let now = self.now();
        let group = if self.plan.queue.is_ordered { order.entity } else { order.key % 2 };
        let mut messages = self.queue.lock();
        let message = MessageId::try_from(messages.len()).unwrap_or(MessageId::MAX);
        // A message behind others of its group spends its receives with them, so the last one of a key is alone.
        let group = if is_audit { 1_000 + message } else { group };
        messages.push(Message { order, group, receives: 0, visible_at: now, is_gone: false, is_audit });
        drop(messages);
        self.push(Fact::Sent { message, key: order.key, payload: order.payload });
        self.arrivals.notify_one();
    }

    /// Receives a batch. Messages that were received too often go to the dead-letter queue instead.
    pub(super) fn receive(&self) -> Vec<Delivery> {
        let now = self.now();
        let QueuePlan { is_fifo, visibility, max_receives, batch, .. } = self.plan.queue;
        let mut messages = self.queue.lock();
        let (mut received, mut dead, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
        for (message, entry) in (0..).zip(messages.iter_mut()) {
            if entry.is_gone || received.len() == batch {
                continue;
            }
            if is_fifo && blocked.contains(&entry.group) {
                continue;
            }
            let is_taken = entry.visible_at > now;
            // A standard queue may deliver a message that another worker has.
            let is_doubled =
                is_taken && !is_fifo && self.strikes(self.plan.faults.delivered_twice, Fault::DeliveredTwice);
            if is_taken && !is_doubled {
                blocked.push(entry.group);
                continue;
            }
            let most = if entry.is_audit { MAX_AUDIT_RECEIVES } else { max_receives };
            if entry.receives >= most && !is_taken {
                entry.is_gone = true;
                dead.push(Fact::DeadLettered { message, is_audit: entry.is_audit });
                continue;
            }
            entry.receives += 1;
            entry.visible_at = now + visibility;
            let Message { order, group, receives, is_audit, .. } = *entry;
            received.push(Delivery { message, order, group, receives, is_audit });
        }
        drop(messages);
        for fact in dead {
            self.lock().counters.dead_letters += 1;
            self.push(fact);
        }
        received
    }

    /// Returns the time until the next message may be received, or `None` if no message is left.
    pub(super) fn next_visible(&self) -> Option<Duration> {
        let now = self.now();
        let messages = self.queue.lock();
        let next = messages.iter().filter(|message| !message.is_gone).map(|message| message.visible_at).min()?;
        // A message that is visible already is blocked by its group, or may be delivered twice.
        Some(Duration::from_millis(next.saturating_sub(now).max(500)))
    }

    /// Ends a delivery: the message is deleted, or becomes visible again.
    pub(super) fn conclude(&self, delivery: Delivery, is_acknowledged: bool) {
        let now = self.now();
        let mut messages = self.queue.lock();
        let entry = &mut messages[delivery.message as usize];
        if entry.is_gone {
            return;
        }
        if is_acknowledged {
            entry.is_gone = true;
        } else if entry.receives == delivery.receives {
            entry.visible_at = now + self.lock().random.between(100, 3_000);
        }
        drop(messages);
        self.arrivals.notify_one();
        if is_acknowledged {
            self.push(Fact::Acknowledged { message: delivery.message });
        }
    }
}
