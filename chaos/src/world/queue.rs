//! A double of SQS queues with visibility timeouts, receive counts, duplicate deliveries and dead-letter queues.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use super::{World, operator};
use crate::{
    history::{Fact, InvocationId, KeyId, MessageId, Ms, Policy, WorkerId},
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

/// A queue of the function: for a policy, for ordered messages, or for transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Rerun,
    Refuse,
    Probe,
    Ordered,
    Transaction,
}

impl Source {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rerun => "rerun",
            Self::Refuse => "refuse",
            Self::Probe => "probe",
            Self::Ordered => "ordered",
            Self::Transaction => "transaction",
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
    deadline: Ms,
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
            let received = queue.take(self, source, now, is_doubled);
            if received.is_empty() {
                continue;
            }
            let invocation = queue.number;
            queue.number += 1;
            let deadline = now + Ms::try_from(INVOCATION.as_millis()).unwrap_or(Ms::MAX);
            let event = json!({ "Records": received.iter().map(|id| queue.record(*id)).collect::<Vec<_>>() });
            let mut state = self.lock();
            self.record_in(&mut state, Fact::Invoked { invocation, worker, deadline });
            for message in &received {
                self.record_in(&mut state, Fact::Delivered { message: *message, invocation });
            }
            state.invocations.insert(worker, invocation);
            queue.invocations.insert(invocation, Invocation { deadline, messages: received });
            return Some((invocation, Duration::from_millis(deadline), event));
        }
        None
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
        if now > ended.deadline + Ms::try_from(LATE.as_millis()).unwrap_or(0) {
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
    fn take(&mut self, world: &World, source: Source, now: Ms, is_doubled: bool) -> Vec<MessageId> {
        let Self { messages, waiting, dead_letters, .. } = self;
        let waiting = waiting.entry(source).or_default();
        let mut received = Vec::new();
        let visible: Vec<_> = waiting.range(..=(now, MessageId::MAX)).take(BATCH).copied().collect();
        let hidden = waiting.iter().rev().find(|(at, _)| is_doubled && *at > now).copied();
        for (at, id) in visible.into_iter().chain(hidden) {
            let message = &mut messages[id as usize];
            let most = if source == Source::Refuse { MAX_RECEIVES } else { MAX_RECEIVES_OF_ENDING };
            waiting.remove(&(at, id));
            let mut state = world.lock();
            if at > now {
                state.faults.add(Fault::DeliveredTwice);
            } else if message.receives >= most {
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
