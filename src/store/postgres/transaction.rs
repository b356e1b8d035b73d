//! Transactions: the handler's statements and the operation's outcome, committed together.

use std::{
    error::Error as _,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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
    error::{Failure, Verdict, Violation},
};
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{KeyHash, Record, Status},
    store::{ClaimRequest, Claimed, Refusal, ResultData, SettleRequest, Settled, transaction::Transactional},
};

const COMMIT: &str = "commit";

/// How long a connection may take to roll back before it is closed instead.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(250);

/// The most attempts to resolve a commit whose answer was lost.
const MAX_ATTEMPTS: u32 = 5;

/// A transaction for the handler's statements. It begins at its first use, and ends with the handler: committed together with
/// the operation's outcome, or rolled back.
///
/// Clones share one transaction. A clone that outlives the handler is unusable.
#[derive(Clone)]
pub struct Transaction(Arc<Shared>);

struct Shared {
    connections: Connections,
    /// That of the connection, once the transaction has begun.
    client: OnceCell<Arc<Client>>,
    /// Taken out by what ends the transaction. Dropped without that it is closed, and the server rolls back.
    connection: Mutex<Option<Connection>>,
    /// Committed, abandoned, or about to be.
    has_ended: AtomicBool,
    /// The claim that the transaction began with.
    claim: OnceCell<ClaimRequest>,
}

impl Transaction {
    /// The client to send statements with; the first call takes a connection and begins the transaction. Calls that are
    /// awaited together are sent together.
    ///
    /// * Statements must not end the transaction (`COMMIT`, `ROLLBACK`): writes and outcome would be committed apart.
    /// * They must leave nothing behind in the session, since other calls use its connection afterwards: `SET LOCAL` instead of
    ///   `SET`, and no session-level advisory locks.
    /// * To choose another isolation level, send `SET TRANSACTION ISOLATION LEVEL …` first. At a level above READ COMMITTED the
    ///   commit fails (40001) if the lease was renewed since the first statement: switch the
    ///   [heartbeat](crate::Operation::without_heartbeat) off, or be faster than a third of the lease. A
    ///   [claimless](crate::InTransaction::claimless) transaction has begun before the handler, and keeps its level.
    /// * Behind a pooler such as PgBouncer use [`query_typed`](Client::query_typed) and its siblings, which prepare nothing by
    ///   name.
    ///
    /// # Errors
    ///
    /// Those of a connection that cannot be opened; [`Config`](ErrorKind::Config) once the handler has returned.
    pub async fn client(&self) -> Result<&Client, Error> {
        self.check_open()?;
        let client = self.0.client.get_or_try_init(async || {
            // Boxed: opening a connection is so deep a future that work with it could exceed the recursion limit of its crate.
            let connection = Box::pin(begin(&self.0.connections)).await?;
            let client = connection.client();
            *self.0.lock() = Some(connection);
            Ok::<_, Error>(client)
        });
        let client = client.await?;
        // It may have ended meanwhile, without this connection.
        if let Err(ended) = self.check_open() {
            drop(self.0.lock().take());
            return Err(ended);
        }
        Ok(client)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.0.has_ended.load(Ordering::SeqCst) {
            return Err(Error::config("the transaction ended with its handler; clones of it cannot be used any more"));
        }
        Ok(())
    }

    /// Ends the transaction for its handles. Returns its connection, if it has begun; an error if it had ended already.
    fn end(&self) -> Result<Option<Connection>, Error> {
        if self.0.has_ended.swap(true, Ordering::SeqCst) {
            return Err(Error::config("the transaction has already ended"));
        }
        Ok(self.0.lock().take())
    }

    /// Whether the handler has kept no clone, through which statements could be sent on a connection that is in other use.
    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("has_begun", &self.0.client.initialized())
            .field("has_ended", &self.0.has_ended)
            .finish_non_exhaustive()
    }
}

async fn begin(connections: &Connections) -> Result<Connection, Error> {
    let connection = connections.get().await?;
    connection.execute_all("begin", "BEGIN").await.map_err(|failure| failure.error)?;
    Ok(connection)
}

/// Rolls back, and returns the connection to the pool. If that takes long or fails, the connection is closed.
pub(super) async fn roll_back(connection: Connection) {
    if matches!(timeout(ROLLBACK_TIMEOUT, connection.execute_all(COMMIT, "ROLLBACK")).await, Ok(Ok(()))) {
        connection.give_back();
    }
}

impl Transactional for PostgresStore {
    type Transaction = Transaction;

    fn open(&self) -> Transaction {
        Transaction(Arc::new(Shared {
            connections: self.connections.clone(),
            client: OnceCell::new(),
            connection: Mutex::default(),
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
            transaction.client().await?;
            let connection = transaction.0.lock().take();
            let connection = connection.ok_or_else(|| Error::config("the transaction has already ended"))?;
            let claimed = PostgresStore::claim_within(self, &connection, request).await;
            if matches!(claimed, Ok(Claimed::Granted(_))) {
                // It is the only claim of this transaction.
                let _ = transaction.0.claim.set(request.clone());
                *transaction.0.lock() = Some(connection);
            } else {
                transaction.0.has_ended.store(true, Ordering::SeqCst);
                roll_back(connection).await;
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
            let connection = transaction.end()?;
            if !transaction.is_unshared() {
                // What it may write yet would be missing.
                return Err(Error::config(
                    "a clone of the transaction is still alive after the handler returned: do not move it into a task",
                ));
            }
            match (connection, request) {
                (Some(connection), request) => self.commit_on(connection, transaction.0.claim.get(), request).await,
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
        match transaction.end() {
            Ok(Some(connection)) if transaction.is_unshared() => Box::pin(roll_back(connection)),
            // Nothing to roll back; or a clone could still send statements, so the connection is dropped, which closes it.
            _ => Box::pin(async {}),
        }
    }
}

impl PostgresStore {
    /// An early return drops the connection, which closes it, and the server rolls back.
    async fn commit_on(
        &self,
        connection: Connection,
        claim: Option<&ClaimRequest>,
        request: Option<&SettleRequest>,
    ) -> Result<Settled, Error> {
        if let (Some(claim), Some(request)) = (claim, request)
            && !request.settlement.took_effect()
        {
            // Without the writes.
            self.begin_again(&connection, claim).await?;
        }
        let settled = match request {
            Some(request) => self.settle_within(&connection, request).await,
            // Fails if a statement of the handler failed. `COMMIT` alone would roll back and still report success.
            None => connection.execute_all(COMMIT, "SELECT 1").await.map(|()| true),
        };
        match settled {
            Ok(true) => {}
            Ok(false) => return self.lost(connection, request).await,
            Err(failure) => {
                roll_back(connection).await;
                return Err(undone(failure.error));
            }
        }
        // Not pipelined with the settle: if that changes no row, `COMMIT` would commit the writes without their outcome.
        match connection.execute_all(COMMIT, "COMMIT").await {
            Ok(()) => {
                connection.give_back();
                Ok(Settled::Done { found: None })
            }
            Err(failure) if is_rolled_back(&failure) => {
                roll_back(connection).await;
                Err(undone(failure.error))
            }
            Err(failure) => {
                drop(connection);
                match claim {
                    Some(claim) => self.resolve(claim, failure.error).await,
                    None => Err(unanswered(failure.error, COMMIT)),
                }
            }
        }
    }

    /// Starts over with the claim alone.
    async fn begin_again(&self, connection: &Connection, claim: &ClaimRequest) -> Result<(), Error> {
        connection.execute_all(COMMIT, "ROLLBACK; BEGIN").await.map_err(|failure| undone(failure.error))?;
        // If another claim got in between, the settle changes no row, and that claim decides.
        PostgresStore::claim_within(self, connection, claim).await.map(drop).map_err(undone)
    }

    /// The record that stood in the way of a commit.
    async fn lost(&self, connection: Connection, request: Option<&SettleRequest>) -> Result<Settled, Error> {
        // Before the read: others may wait for the locked rows.
        connection.execute_all(COMMIT, "ROLLBACK").await.map_err(|failure| undone(failure.error))?;
        let keys: Vec<KeyHash> = request.iter().map(|request| request.key).collect();
        let found = self.read_on(&connection, &keys, ResultData::Include, COMMIT).await.pop();
        connection.give_back();
        let current = match found.unwrap_or(Ok(None)) {
            Err(error) if error.kind() == ErrorKind::Format => None,
            found => found.map_err(undone)?,
        };
        Ok(Settled::LeaseLost { current: current.map(Box::new) })
    }

    /// Resolves a claimless commit whose answer was lost. A release would not see the uncommitted record and would not wait for
    /// it. A claim does wait: the same owner claims again, in a transaction that is rolled back.
    async fn resolve(&self, claim: &ClaimRequest, error: Error) -> Result<Settled, Error> {
        let mut pause = Duration::from_millis(25);
        for _ in 0..MAX_ATTEMPTS {
            match self.claim_and_roll_back(claim).await {
                Ok(Claimed::Granted(_)) => return Err(undone(error)),
                // The record is another claim's.
                Ok(Claimed::Refused(
                    Refusal::InProgress { lease_until: Some(_), .. }
                    | Refusal::Abandoned { .. }
                    | Refusal::Mismatch
                    | Refusal::Superseded { .. },
                )) => return Err(undone(error)),
                Ok(Claimed::Refused(Refusal::Completed(record) | Refusal::Failed(record))) => {
                    return Ok(match is_of(&record, claim) {
                        true => Settled::Done { found: Some(record) },
                        false => Settled::LeaseLost { current: Some(record) },
                    });
                }
                // The commit is still undecided, or this attempt failed.
                Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, .. })) | Err(_) => sleep(pause).await,
            }
            pause *= 2;
        }
        Err(unanswered(error, COMMIT))
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
pub(super) fn is_rolled_back(failure: &Failure) -> bool {
    failure.error.status() != ErrorStatus::Ambiguous && failure.connection == Verdict::Usable
}

/// The error of a transaction that was certainly not committed.
fn undone(error: Error) -> Error {
    let kind = if is_of_the_handler(&error) { ErrorKind::Transaction } else { error.kind() };
    let message = format!("the transaction was rolled back: {}", error.message());
    Error::new(kind, ErrorStatus::Temporary, COMMIT, message).with_source(error)
}

/// Whether a constraint, or a trigger's `RAISE`, has refused what the handler wrote.
fn is_of_the_handler(error: &Error) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(Violation::is_refusal)
}

pub(super) fn unanswered(error: Error, operation: &'static str) -> Error {
    let message = "the commit was not answered";
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message).with_source(error)
}
