//! One run: every event through the functions, repeated as SQS and HTTP clients repeat.

use std::time::{Duration, Instant as Time, SystemTime};

use anyhow::Result;
use futures_util::future::try_join_all;
use local_stack::{EmbeddedDynamoDb, client, create_table};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{
    api::{self, Exchange},
    emulator::{Emulator, Environment},
    events::{Batch, Events},
    invoke::{Invocation, Timed},
    ledger::Ledger,
    logs::Activity,
    project::Project,
    records::{Kind, Records},
    sqs::{Queue, Received},
};

/// The lease of a claim. It is short, so that a panic's claim lapses within the demo.
const LEASE: Duration = Duration::from_secs(2);
/// The visibility timeout: longer than the lease and the library's margin for clocks (1 s), so
/// that a message of a lapsed claim does not come back too early.
const VISIBILITY: Duration = Duration::from_millis(3500);
/// The maximum wait for the first claim of a batch's first copy, before the second copy is sent.
const FIRST_CLAIM: Duration = Duration::from_millis(500);
/// Without claims the second copy is sent this much later than the first.
const HEAD_START: Duration = Duration::from_millis(20);
/// The visibility timeout of the first receive of a FIFO queue: a group is delivered a second time only when it has ended.
/// It is too short for the batch, so that the two deliveries overlap; the template's outlasts every invocation.
const VISIBILITY_TOO_SHORT: Duration = Duration::from_millis(250);
/// The maximum lag of a delivery's log behind the response.
const LOG_LAG: Duration = Duration::from_secs(2);

/// Whether the functions run with or without the library's protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As deployed.
    Protected,
    /// With `LAMBDA_ONCE_DISABLED=1`.
    Unprotected,
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The queues, one for each batch, in the same order.
    pub(crate) queues: Vec<Queue>,
    /// The responses, one for each request, in the same order.
    pub(crate) exchanges: Vec<Exchange>,
    /// The effects.
    pub(crate) ledger: Ledger,
    /// Runs and claims, as the functions logged them.
    pub(crate) activity: Activity,
    /// One moment on the clocks of the deliveries and of the ledger.
    pub(crate) clock: (Time, SystemTime),
}

/// Starts the functions with fresh tables, sends them everything and counts the effects.
pub(crate) async fn run(
    project: &Project,
    dynamodb: &EmbeddedDynamoDb,
    store: Kind,
    events: &Events,
    mode: Mode,
) -> Result<Run> {
    let name = match mode {
        Mode::Protected => "protected",
        Mode::Unprotected => "unprotected",
    };
    let ledger_table = format!("{name}-ledger");
    let client = client(dynamodb.endpoint());
    // Without protection the functions open a store and do not use it.
    let store = if mode == Mode::Protected { store } else { Kind::DynamoDb };
    let records = Records::create(store, name, &client).await?;
    create_table(&client, &ledger_table, "entry_id").await?;

    let environment = Environment {
        name,
        dynamodb: dynamodb.endpoint(),
        records: &records,
        ledger_table: &ledger_table,
        lease: LEASE,
        protected: mode == Mode::Protected,
    };
    let stage =
        Stage { emulator: Emulator::start(project, &environment).await?, records, mode, overlapping: Mutex::new(()) };
    let (queues, exchanges) = match stage.send(events).await {
        Ok(sent) => sent,
        Err(error) => return Err(stage.emulator.explain(&error)),
    };
    let ledger = Ledger::read(&client, &ledger_table).await?;
    let activity = stage.emulator.logs().activity(Instant::now() + LOG_LAG).await;
    Ok(Run { queues, exchanges, ledger, activity, clock: (Time::now(), SystemTime::now()) })
}

/// The running functions and the store of their claims.
struct Stage {
    emulator: Emulator,
    records: Records,
    mode: Mode,
    /// Held while a batch is under way twice: a new claim is then one of that batch.
    overlapping: Mutex<()>,
}

impl Stage {
    async fn send(&self, events: &Events) -> Result<(Vec<Queue>, Vec<Exchange>)> {
        let batches = events.batches.iter().map(|batch| self.deliver(batch));
        let queues = try_join_all(batches).await?;
        let requests = events.requests.iter();
        let requests = requests.map(|request| api::send(&self.emulator, &request.event));
        Ok((queues, try_join_all(requests).await?))
    }

    /// Delivers a batch twice at once, then the messages that SQS would redeliver, then the deleted ones.
    async fn deliver(&self, batch: &Batch) -> Result<Queue> {
        let function = batch.function.name();
        let mut queue = Queue::new(&batch.messages, batch.function.is_fifo());
        self.deliver_twice_at_once(batch, &mut queue).await?;
        while let Some(visible) = self.receive_visible(&mut queue).await {
            let answer = self.emulator.invoke(function, &visible.event).await?;
            self.settle(&mut queue, visible, &answer).await;
        }
        if let Some(deleted) = queue.receive_deleted() {
            let answer = self.emulator.invoke(function, &deleted.event).await?;
            self.settle(&mut queue, deleted, &answer).await;
        }
        Ok(queue)
    }

    async fn deliver_twice_at_once(&self, batch: &Batch, queue: &mut Queue) -> Result<()> {
        let _overlapping = self.overlapping.lock().await;
        let (Some(first), Some(second)) = (queue.receive(), queue.receive()) else {
            return Ok(());
        };
        let function = batch.function.name();
        let claims = self.records.count().await?;
        let overlapping = async {
            self.wait_for_a_claim(claims).await?;
            if batch.function.is_fifo() {
                sleep(VISIBILITY_TOO_SHORT).await;
            }
            self.emulator.invoke(function, &second.event).await
        };
        let (first_answer, second_answer) =
            tokio::try_join!(self.emulator.invoke(function, &first.event), overlapping)?;
        self.settle(queue, first, &first_answer).await;
        self.settle(queue, second, &second_answer).await;
        Ok(())
    }

    /// Waits until the first copy of a batch has begun to claim. The second then overlaps it, and
    /// failures on the first receive occur in the copy that is received first.
    async fn wait_for_a_claim(&self, before: i64) -> Result<()> {
        if self.mode == Mode::Unprotected {
            sleep(HEAD_START).await;
            return Ok(());
        }
        let until = Instant::now() + FIRST_CLAIM;
        while self.records.count().await? <= before && Instant::now() < until {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Waits for the visibility timeout and receives the messages that have become visible, if any.
    async fn receive_visible(&self, queue: &mut Queue) -> Option<Received> {
        if queue.is_done() {
            return None;
        }
        sleep(VISIBILITY).await;
        queue.receive()
    }

    /// Notes the response to a delivery, with the function's log of each record.
    /// Unprotected functions need not log: there the effects alone count.
    async fn settle(&self, queue: &mut Queue, received: Received, answer: &Timed) {
        let until = match (self.mode, &answer.invocation) {
            (Mode::Protected, Invocation::Returned(_)) => Instant::now() + LOG_LAG,
            _ => Instant::now(),
        };
        let mut logged = Vec::new();
        for (place, receive) in &received.records {
            let id = &queue.messages[*place].message.id;
            logged.push(self.emulator.logs().delivery(id, *receive, until).await);
        }
        queue.settle(received, answer, logged);
    }
}
