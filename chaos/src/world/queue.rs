//! A double of SQS queues with visibility timeouts, receive counts, duplicate deliveries and dead-letter queues.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use super::{Receipt, World, operator};
use crate::{
    history::{Fact, InvocationId, Key, KeyId, MessageId, Ms, Policy, WorkerId},
    report::Fault,
    settings::INVOCATION,
};

/// Longer than an invocation.
const VISIBILITY: Ms = 1_800;
/// The largest batch of a function.
const BATCH: usize = 8;
/// The receives of a message after which it is dead-lettered. With a policy under which every message ends by itself there
/// are more than any message needs.
const MAX_RECEIVES: u32 = 8;
const MAX_RECEIVES_OF_ENDING: u32 = 150;
/// The time after its deadline in which a response still counts.
const LATE: Duration = Duration::from_millis(300);

/// A queue: of the function for a policy, for ordered messages, or for transactions, or of the consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Rerun,
    Refuse,
    Probe,
    Ordered,
    Transaction,
    Consumer,
}

impl Source {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rerun => "rerun",
            Self::Refuse => "refuse",
            Self::Probe => "probe",
            Self::Ordered => "ordered",
            Self::Transaction => "transaction",
            Self::Consumer => "consumer",
        }
    }

    pub(super) const fn of(policy: Policy) -> Self {
        match policy {
            Policy::Rerun => Self::Rerun,
            Policy::Refuse => Self::Refuse,
            Policy::Probe => Self::Probe,
        }
    }
}

#[derive(Default)]
pub(super) struct Queue {
    messages: Vec<Message>,
    /// By queue: the time at which each message is visible.
    waiting: HashMap<Source, BTreeSet<(Ms, MessageId)>>,
    invocations: HashMap<InvocationId, Invocation>,
    /// The keys of dead-lettered messages that the operator handles.
    dead_letters: Vec<KeyId>,
    number: InvocationId,
}

struct Message {
    key: KeyId,
    source: Source,
    body: String,
    receives: u32,
    visible_at: Ms,
    is_gone: bool,
}

struct Invocation {
    /// `None` for a receipt of a consumer.
    deadline: Option<Ms>,
    messages: Vec<MessageId>,
}

impl World {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message.
    pub(super) fn send(&self, key: KeyId, source: Source) {
        let of = self.key(key);
        let (entity, sequence) = of.order.unwrap_or_default();
        let body = json!({ "key": key, "poison": of.is_poison, "entity": entity, "sequence": sequence }).to_string();
        let mut queue = self.queue();
        let message = MessageId::try_from(queue.messages.len()).unwrap_or(MessageId::MAX);
        let visible_at = self.now();
        queue.messages.push(Message { key, source, body, receives: 0, visible_at, is_gone: false });
        queue.waiting.entry(source).or_default().insert((visible_at, message));
        let mut state = self.lock();
        state.open += 1;
        self.record_in(&mut state, Fact::Sent { message, key });
        drop((state, queue));
        self.sent.notify_waiters();
    }

    /// Takes the key of a message that the operator handles.
    pub(super) fn next_dead_letter(&self) -> Option<KeyId> {
        self.queue().dead_letters.pop()
    }

    /// Receives a batch of one of these queues for a worker: the request id of the invocation, its deadline, and the event.
    pub(super) fn receive(&self, worker: WorkerId, sources: &[Source]) -> Option<(InvocationId, Duration, Value)> {
        let now = self.now();
        let mut queue = self.queue();
        let is_doubled = self.has_faults() && self.chance(15);
        let first = self.lock().random.usize(0..sources.len());
        let source = (0..sources.len()).map(|place| sources[(first + place) % sources.len()]);
        for source in source {
            let received = queue.take(self, source, now, is_doubled, BATCH);
            if received.is_empty() {
                continue;
            }
            let deadline = now + Ms::try_from(INVOCATION.as_millis()).unwrap_or(Ms::MAX);
            let event = json!({ "Records": received.iter().map(|id| queue.record(*id)).collect::<Vec<_>>() });
            let invocation = queue.hand_out(self, worker, received, Some(deadline));
            self.lock().invocations.insert(worker, invocation);
            return Some((invocation, Duration::from_millis(deadline), event));
        }
        None
    }

    /// Receives a message for a consumer.
    pub(super) fn receive_one(&self, worker: WorkerId, source: Source) -> Option<Receipt> {
        let mut queue = self.queue();
        let is_doubled = self.has_faults() && self.chance(15);
        let id = queue.take(self, source, self.now(), is_doubled, 1).pop()?;
        let key = queue.messages[id as usize].key;
        let Key { policy, is_poison, .. } = self.key(key);
        Some(Receipt { id: queue.hand_out(self, worker, vec![id], None), key, policy, is_poison })
    }

    /// Ends an invocation with these reported messages, or with an error.
    pub(super) fn conclude(&self, worker: WorkerId, invocation: InvocationId, reported: Option<&[String]>) {
        let now = self.now();
        let mut queue = self.queue();
        let Some(ended) = queue.invocations.remove(&invocation) else { return };
        let mut state = self.lock();
        if state.invocations.get(&worker) == Some(&invocation) {
            state.invocations.remove(&worker);
        }
        let last = ended.deadline.map(|deadline| deadline + Ms::try_from(LATE.as_millis()).unwrap_or(0));
        if last.is_some_and(|last| now > last) {
            // Lambda has ended the invocation. Its messages become visible by themselves.
            state.faults.add(Fault::TimedOut);
            return;
        }
        self.record_in(&mut state, Fact::Responded { invocation });
        for id in ended.messages {
            let is_reported = reported.is_none_or(|reported| reported.contains(&id.to_string()));
            let message = &mut queue.messages[id as usize];
            if message.is_gone {
                continue;
            }
            let (source, before) = (message.source, message.visible_at);
            if is_reported {
                message.visible_at = now + state.random.u64(80..500);
            } else {
                message.is_gone = true;
                state.open -= 1;
                self.record_in(&mut state, Fact::Acknowledged { message: id, invocation });
            }
            let (visible_at, is_gone) = (message.visible_at, message.is_gone);
            let waiting = queue.waiting.entry(source).or_default();
            waiting.remove(&(before, id));
            if !is_gone {
                waiting.insert((visible_at, id));
            }
        }
    }
}

impl Queue {
    /// Takes visible messages, or one that another worker has, and dead-letters those that were received too often.
    fn take(&mut self, world: &World, source: Source, now: Ms, is_doubled: bool, most: usize) -> Vec<MessageId> {
        let Self { messages, waiting, dead_letters, .. } = self;
        let waiting = waiting.entry(source).or_default();
        let mut received = Vec::new();
        let hidden = waiting.iter().rev().find(|(at, _)| is_doubled && *at > now);
        let visible = waiting.range(..=(now, MessageId::MAX));
        let taken: Vec<_> = hidden.into_iter().chain(visible).take(most).copied().collect();
        for (at, id) in taken {
            let message = &mut messages[id as usize];
            waiting.remove(&(at, id));
            let mut state = world.lock();
            let is_refused = state.history.keys[message.key as usize].policy == Policy::Refuse;
            let most_receives = if is_refused { MAX_RECEIVES } else { MAX_RECEIVES_OF_ENDING };
            if at > now {
                state.faults.add(Fault::DeliveredTwice);
            } else if message.receives >= most_receives {
                message.is_gone = true;
                world.record_in(&mut state, Fact::DeadLettered { message: id });
                let is_poison = state.history.keys[message.key as usize].is_poison;
                if source == Source::Refuse && !is_poison && operator::handles(world, &mut state) {
                    dead_letters.push(message.key);
                } else {
                    state.open -= 1;
                }
                continue;
            }
            message.receives += 1;
            message.visible_at = now + VISIBILITY;
            waiting.insert((message.visible_at, id));
            received.push(id);
        }
        received
    }

    /// Records that a worker receives these messages.
    fn hand_out(
        &mut self,
        world: &World,
        worker: WorkerId,
        messages: Vec<MessageId>,
        deadline: Option<Ms>,
    ) -> InvocationId {
        let invocation = self.number;
        self.number += 1;
        let mut state = world.lock();
        world.record_in(&mut state, Fact::Invoked { invocation, worker, deadline });
        for message in &messages {
            world.record_in(&mut state, Fact::Delivered { message: *message, invocation });
        }
        self.invocations.insert(invocation, Invocation { deadline, messages });
        invocation
    }

    fn record(&self, id: MessageId) -> Value {
        let Message { source, body, receives, .. } = &self.messages[id as usize];
        json!({
            "messageId": id.to_string(),
            "receiptHandle": format!("receipt-{id}-{receives}"),
            "body": body,
            "attributes": {
                "ApproximateReceiveCount": receives.to_string(),
                "SentTimestamp": "1795255200000",
                "SenderId": "AROAEXAMPLEEXAMPLE123:chaos",
                "ApproximateFirstReceiveTimestamp": "1795255201620",
            },
            "messageAttributes": {},
            "md5OfBody": "",
            "eventSource": "aws:sqs",
            "eventSourceARN": format!("arn:aws:sqs:us-east-1:123456789012:{}", source.name()),
            "awsRegion": "us-east-1",
        })
    }
}
