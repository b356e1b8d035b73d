//! Transactions: the handler's statements and the operation's outcome, committed together.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};
use tokio_postgres::Client;

use super::{
    PostgresStore,
    connection::{Connection, Connections},
    error::{Failure, Verdict},
};
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{Record, Status},
    store::{
        ClaimRequest, Claimed, Refusal, ResultData, SettleRequest, Settled, Settlement, transaction::Transactional,
    },
};

const COMMIT: &str = "commit";

/// How long a connection may take to roll back before it is closed instead.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(250);

/// How often the outcome of a commit that was not answered is asked for.
const MAX_QUESTIONS: u32 = 5;

/// A transaction for the handler's statements. It begins at its first use, and ends with the handler: committed together with
/// the operation's outcome, or rolled back.
///
/// Clones are the same transaction. What is left of them when the handler has returned can do nothing more.
#[derive(Clone)]
pub struct Transaction(Arc<Shared>);

struct Shared {
    connections: Connections,
    /// With a transaction that has begun.
    connection: OnceCell<Connection>,
    /// Committed, abandoned, or about to be.
    has_ended: AtomicBool,
    /// The claim that the transaction began with.
    claim: OnceCell<ClaimRequest>,
}

impl Transaction {
    /// The client to send statements with; the first call takes a connection and begins the transaction. Calls that are
    /// awaited together are sent together.
    ///
    /// Statements must not end the transaction (`COMMIT`, `ROLLBACK`): the outcome would be recorded without the writes.
    /// To choose another isolation level, send `SET TRANSACTION ISOLATION LEVEL …` first. Behind a pooler such as PgBouncer
    /// use [`query_typed`](Client::query_typed) and its siblings, which prepare nothing by name.
    ///
    /// # Errors
    ///
    /// Those of a connection that cannot be opened; [`Config`](ErrorKind::Config) once the handler has returned.
    pub async fn client(&self) -> Result<&Client, Error> {
        Ok(self.connection().await?.client())
    }

    async fn connection(&self) -> Result<&Connection, Error> {
        if self.0.has_ended.load(Ordering::Acquire) {
            return Err(Error::config("the transaction ended with its handler; clones of it cannot be used any more"));
        }
        // Boxed: opening a connection is so deep a future that work with it could exceed the recursion limit of its crate.
        self.0.connection.get_or_try_init(|| Box::pin(begin(&self.0.connections))).await
    }

    /// Whether the handler has kept no clone, through which statements could be sent on a connection that is in other use.
    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Rolls back what was begun, and keeps the connection if it is `reusable`.
    async fn roll_back(self, reusable: bool) {
        let Some(connection) = self.0.connection.get() else { return };
        let open = Open(connection);
        if reusable && matches!(timeout(ROLLBACK_TIMEOUT, connection.execute_all(COMMIT, "ROLLBACK")).await, Ok(Ok(())))
        {
            open.end();
        }
    }
}

/// A connection in the middle of a transaction. Dropped, it is closed, and the server rolls back.
struct Open<'a>(&'a Connection);

impl Open<'_> {
    /// The transaction has ended.
    fn end(self) {
        self.0.is_at_rest();
        std::mem::forget(self);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("has_begun", &self.0.connection.initialized())
            .field("has_ended", &self.0.has_ended)
            .finish_non_exhaustive()
    }
}

async fn begin(connections: &Connections) -> Result<Connection, Error> {
    let connection = connections.get().await?;
    connection.execute_all("begin", "BEGIN").await.map_err(|failure| failure.error)?;
    Ok(connection)
}

impl Transactional for PostgresStore {
    type Transaction = Transaction;

    fn open(&self) -> Transaction {
        Transaction(Arc::new(Shared {
            connections: self.connections.clone(),
            connection: OnceCell::new(),
            has_ended: AtomicBool::new(false),
            claim: OnceCell::new(),
        }))
    }

    fn claim_within<'a>(
        &'a self,
        transaction: &'a Transaction,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>> {
        Box::pin(async move {
            let connection = transaction.connection().await?;
            let claimed = PostgresStore::claim_within(self, connection, request).await;
            match &claimed {
                Ok(Claimed::Granted(_)) => {
                    // It is the only claim of this transaction.
                    let _ = transaction.0.claim.set(request.clone());
                }
                // Nothing runs, so nothing else uses the connection.
                Ok(Claimed::Refused(_)) | Err(_) => {
                    transaction.0.has_ended.store(true, Ordering::Release);
                    transaction.clone().roll_back(true).await;
                }
            }
            claimed
        })
    }

    fn commit<'a>(
        &'a self,
        transaction: &'a Transaction,
        request: Option<&'a SettleRequest>,
    ) -> BoxFuture<'a, Result<Settled, Error>> {
        Box::pin(async move {
            if transaction.0.has_ended.swap(true, Ordering::AcqRel) {
                return Err(Error::config("the transaction has ended before"));
            }
            match (transaction.0.connection.get(), request) {
                (Some(connection), request) => self.commit_on(transaction, connection, request).await,
                // The handler wrote nothing.
                (None, Some(request)) => {
                    let mut answers = self.settle_all(std::slice::from_ref(request)).await;
                    answers.pop().unwrap_or(Ok(Settled::LeaseLost { current: None }))
                }
                (None, None) => Ok(Settled::Done { found: None }),
            }
        })
    }

    fn abandon(&self, transaction: &Transaction) -> BoxFuture<'static, ()> {
        if transaction.0.has_ended.swap(true, Ordering::AcqRel) {
            return Box::pin(async {});
        }
        let reusable = transaction.is_unshared();
        if !reusable {
            transaction.0.connection.get().into_iter().for_each(Connection::close);
        }
        Box::pin(transaction.clone().roll_back(reusable))
    }
}

impl PostgresStore {
    async fn commit_on(
        &self,
        transaction: &Transaction,
        connection: &Connection,
        request: Option<&SettleRequest>,
    ) -> Result<Settled, Error> {
        let open = Open(connection);
        if !transaction.is_unshared() {
            let message =
                "the handler has kept its transaction beyond its end: it must not be moved into a task of its own";
            return Err(Error::config(message));
        }
        let claim = transaction.0.claim.get();
        if let (Some(claim), Some(request)) = (claim, request)
            && matches!(request.settlement, Settlement::Fail { .. })
        {
            // Without the writes.
            self.begin_again(connection, claim).await?;
        }
        if let Some(request) = request {
            let settled = self.settle_within(connection, request).await;
            if !matches!(settled, Ok(true)) {
                // First, as others may wait for the rows.
                if connection.execute_all(COMMIT, "ROLLBACK").await.is_ok() {
                    open.end();
                }
                return match settled {
                    Ok(_) => self.lost(request).await,
                    Err(failure) => Err(undone(failure.error)),
                };
            }
        }
        // Only now: behind a settle that has found nothing it would commit the writes alone.
        match connection.execute_all(COMMIT, "COMMIT").await {
            Ok(()) => {
                open.end();
                Ok(Settled::Done { found: None })
            }
            Err(failure) if is_rolled_back(&failure) => {
                open.end();
                Err(undone(failure.error))
            }
            Err(failure) => {
                drop(open);
                match claim {
                    Some(claim) => self.ask(claim, failure.error).await,
                    None => Err(unanswered(failure.error)),
                }
            }
        }
    }

    /// Starts over with the claim alone.
    async fn begin_again(&self, connection: &Connection, claim: &ClaimRequest) -> Result<(), Error> {
        connection.execute_all(COMMIT, "ROLLBACK; BEGIN").await.map_err(|failure| undone(failure.error))?;
        // Whoever has got in between decides: the settle then finds another owner.
        PostgresStore::claim_within(self, connection, claim).await.map(drop).map_err(undone)
    }

    /// The record that stood in the way of a commit.
    async fn lost(&self, request: &SettleRequest) -> Result<Settled, Error> {
        let mut found = self.read_all(&[request.key], ResultData::Include, COMMIT).await;
        let current = match found.pop().unwrap_or(Ok(None)) {
            Err(error) if error.kind() == ErrorKind::Format => None,
            found => found.map_err(undone)?,
        };
        Ok(Settled::LeaseLost { current: current.map(Box::new) })
    }

    /// Finds out about a commit without an answer, of a transaction that began with its claim. Others do not see that, so a
    /// release would not wait for it. A claim does: it is made again by the same owner, and never committed.
    async fn ask(&self, claim: &ClaimRequest, error: Error) -> Result<Settled, Error> {
        let mut pause = Duration::from_millis(25);
        for _ in 0..MAX_QUESTIONS {
            match self.claim_and_roll_back(claim).await {
                Ok(Claimed::Granted(_)) => return Err(undone(error)),
                // The record is another claim's.
                Ok(Claimed::Refused(
                    Refusal::InProgress { lease_until: Some(_), .. } | Refusal::Abandoned { .. } | Refusal::Mismatch,
                )) => return Err(undone(error)),
                Ok(Claimed::Refused(Refusal::Completed(record) | Refusal::Failed(record))) => {
                    return Ok(match is_of(&record, claim) {
                        true => Settled::Done { found: Some(record) },
                        false => Settled::LeaseLost { current: Some(record) },
                    });
                }
                // It is not decided, or the question was not answered.
                Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, .. })) | Err(_) => sleep(pause).await,
            }
            pause *= 2;
        }
        Err(unanswered(error))
    }

    async fn claim_and_roll_back(&self, claim: &ClaimRequest) -> Result<Claimed, Error> {
        let connection = begin(&self.connections).await?;
        let claimed = PostgresStore::claim_within(self, &connection, claim).await;
        connection.execute_all(COMMIT, "ROLLBACK").await.map_err(|failure| failure.error)?;
        connection.give_back();
        claimed
    }
}

/// Whether the record is that of a commit of the claim.
fn is_of(record: &Record, claim: &ClaimRequest) -> bool {
    record.owner == Some(claim.owner) && matches!(record.status, Status::Completed | Status::Failed)
}

/// Whether an error of `COMMIT` says that nothing was committed. One that ends the session may follow a commit that waits for
/// a standby.
fn is_rolled_back(failure: &Failure) -> bool {
    failure.error.status() != ErrorStatus::Ambiguous && failure.connection == Verdict::Usable
}

/// The error of a transaction that was certainly not committed.
fn undone(error: Error) -> Error {
    let message = format!("the transaction was rolled back: {}", error.message());
    Error::new(ErrorKind::Transaction, ErrorStatus::Temporary, COMMIT, message).with_source(error)
}

fn unanswered(error: Error) -> Error {
    let message = "the commit was not answered";
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, COMMIT, message).with_source(error)
}
