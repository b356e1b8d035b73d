//! The work of a process, and its repetition by the test.

use std::{path::Path, time::Duration};

use lambda_once::{
    AfterUnknown, DynamoDbStore, Failure, Idempotency, Key, OutcomeKind, PostgresStore, ProbeResult, Store,
    Transactional, Verdict,
    clock::Clock,
    record::KeyHash,
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    effects::{self, enter},
    remains::Left,
};
use crate::{
    support::stores::{Backend, Records},
    transactions::databases::Database,
};

const CHARGE: &str = "charge";
const ACCOUNT: &str = "account 1";
const KEYS: [&str; 3] = ["order 7", "order 8", "order 9"];
/// The lease of an operation with a heartbeat, which is renewed at each third.
const SHORT_LEASE: Duration = Duration::from_secs(3);

/// The work of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    Operation,
    /// An operation whose last run left no outcome, and whose lease has ended.
    TakingOver,
    Ordered,
    /// Three messages of an SQS queue.
    Batch,
    /// An operation that is renewed once while it runs.
    Renewed,
    Transaction,
    TransactionWithoutClaim,
}

/// The end of each handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    /// An effect, and success.
    Success,
    Transient,
    Permanent,
    Unknown,
}

/// The policy after an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Policy {
    Rerun,
    Refuse,
    Probe,
}

impl Work {
    pub(super) const fn is_transaction(self) -> bool {
        matches!(self, Self::Transaction | Self::TransactionWithoutClaim)
    }

    /// Whether each call can arrive alone. The statements of a PostgreSQL transaction end with its connection.
    pub(super) fn has_separate_calls(self, backend: Backend) -> bool {
        backend != Backend::Postgres || !(self.is_transaction() || self == Self::Ordered)
    }

    /// Returns the keys of its operations.
    pub(super) fn keys(self) -> &'static [&'static str] {
        if self == Self::Batch { &KEYS } else { &KEYS[..1] }
    }

    pub(super) fn key_hash(self, once: &Idempotency, key: &str) -> KeyHash {
        let hash = |operation: &str, key: &str| once.key_hash(operation, key).unwrap();
        match self {
            Self::Batch => hash("sqs", key),
            Self::Ordered => KeyHash::ordered(&hash(CHARGE, ACCOUNT), &hash(CHARGE, key)),
            _ => hash(CHARGE, key),
        }
    }

    /// Returns the outcome of each operation in a process that is not killed.
    pub(super) const fn outcome_if_it_lives(self, end: End) -> OutcomeKind {
        match end {
            End::Success => OutcomeKind::Executed,
            End::Transient => OutcomeKind::Failed(Verdict::Transient),
            End::Permanent => OutcomeKind::Failed(Verdict::Permanent),
            End::Unknown => OutcomeKind::Failed(Verdict::Unknown),
        }
    }

    /// Returns the record that such a process leaves.
    pub(super) const fn leaves_if_it_lives(self, end: End) -> Left {
        match (end, self) {
            (End::Success, _) => Left::Result,
            (End::Transient, Self::TakingOver) => Left::LapsedClaim,
            (End::Transient, _) => Left::Nothing,
            (End::Permanent, _) => Left::Failure,
            (End::Unknown, _) => Left::Claim,
        }
    }
}

/// Returns the engine of the process or of the test.
pub(super) fn engine(store: impl Store, clock: impl Clock, work: Work, policy: Policy) -> Idempotency {
    let policy = match policy {
        Policy::Rerun => AfterUnknown::Rerun,
        Policy::Refuse => AfterUnknown::Refuse,
        Policy::Probe => AfterUnknown::Probe,
    };
    let builder = Idempotency::builder(store).clock(clock).scope("tests").disabled(false).after_unknown(policy);
    let builder = if work == Work::Renewed { builder.lease(SHORT_LEASE) } else { builder };
    builder.build().unwrap()
}

/// A delivery of the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub(super) work: Work,
    pub(super) end: End,
    pub(super) policy: Policy,
    /// The name of the effects.
    pub(super) effects: String,
}

impl Delivery {
    /// Performs it, and returns the outcome of each operation.
    pub(super) async fn perform(&self, records: &Records, url: &str, clock: impl Clock) -> Vec<OutcomeKind> {
        match (self.work.is_transaction(), records.backend()) {
            (true, Backend::DynamoDb(_)) => vec![self.transaction::<DynamoDbStore>(records, url, clock).await],
            (true, _) => vec![self.transaction::<PostgresStore>(records, url, clock).await],
            (false, _) => {
                let once = engine(records.store_at(url).await, clock, self.work, self.policy);
                if self.work == Work::Batch { self.batch(&once).await } else { vec![self.operation(&once).await] }
            }
        }
    }

    /// Runs another operation.
    pub(super) async fn warm(&self, once: &Idempotency) -> OutcomeKind {
        let operation = once.operation("warm", "up");
        let succeed = || async { Ok::<_, Failure>(()) };
        let outcome = if self.policy == Policy::Probe {
            operation.probe(|_| async { Ok::<_, Failure>(ProbeResult::NotDone) }).run(succeed).await
        } else {
            operation.run(succeed).await
        };
        outcome.unwrap().kind()
    }

    async fn operation(&self, once: &Idempotency) -> OutcomeKind {
        let [key, ..] = KEYS;
        let operation = once.operation(CHARGE, key);
        let operation = if self.work == Work::Ordered { operation.ordered_by(ACCOUNT, 7_u64) } else { operation };
        let work = || self.handle(key);
        let probe = |_| async {
            let is_done = effects::count(Path::new(&self.effects), key) > 0;
            Ok::<_, Failure>(if is_done { ProbeResult::Done(()) } else { ProbeResult::NotDone })
        };
        let outcome = if self.policy == Policy::Probe {
            operation.probe(probe).run(work).await
        } else {
            operation.run(work).await
        };
        outcome.unwrap().kind()
    }

    async fn batch(&self, once: &Idempotency) -> Vec<OutcomeKind> {
        let delivery = self.clone();
        let handle = move |order: Value| {
            let delivery = delivery.clone();
            async move { delivery.handle(order["id"].as_str().unwrap()).await }
        };
        let service = once.sqs(Key::pointer("/id"), handle);
        let batch = sqs::batch(KEYS.map(|key| testing::record(&json!({ "id": key })).id(key)));
        // The deadline is unknown, so the claims have the default lease.
        let processed = service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
        processed.outcomes().into_iter().map(Result::unwrap).collect()
    }

    async fn transaction<D: Database + Transactional>(
        &self,
        records: &Records,
        url: &str,
        clock: impl Clock,
    ) -> OutcomeKind {
        let [key, ..] = KEYS;
        let store = D::connect(records, url).await;
        let once = engine(store.clone(), clock, self.work, self.policy);
        let operation = once.operation(CHARGE, key).in_transaction(&store);
        let work = |transaction| enter::<D>(transaction, &self.effects, key);
        let outcome = match self.work {
            Work::TransactionWithoutClaim => Box::pin(operation.without_claim().run(work)).await,
            _ => Box::pin(operation.run(work)).await,
        };
        outcome.unwrap().kind()
    }

    /// Handles one operation.
    async fn handle(&self, key: &str) -> Result<(), Failure> {
        match self.end {
            End::Success => effects::append(Path::new(&self.effects), key),
            End::Transient => return Err(Failure::transient("busy")),
            End::Permanent => return Err(Failure::permanent("no such card")),
            End::Unknown => return Err(Failure::unknown("no response")),
        }
        if self.work == Work::Renewed {
            sleep(SHORT_LEASE / 2).await;
        }
        Ok(())
    }
}
