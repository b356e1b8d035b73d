//! Transactions that commit the handler's statements and the operation's outcome together.

use std::{
    error::Error as _,
    fmt,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::OnceCell, time::sleep};
use tokio_postgres::{
    Client,
    error::{DbError, SqlState},
};

use super::{
    PostgresStore,
    connection::Connection,
    error::{self, Failure, Health, Violation},
    rollback::{is_within, roll_back},
};
use crate::{
    backoff::Backoff,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{KeyHash, Record, Status},
    store::{ClaimRequest, Claimed, Refusal, ResultData, SettleRequest, Settled, transaction::Transactional},
};

pub(super) const COMMIT: &str = "commit";

/// The maximum number of attempts to resolve a commit whose response was lost.
const MAX_ATTEMPTS: u32 = 5;

/// The isolation level of a [`Transaction`] (see [`PostgresStore::with_isolation_level`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsolationLevel {
    /// Each statement sees everything that was committed before it.
    ReadCommitted,
    /// All statements see the state that was committed before the transaction began.
    RepeatableRead,
    /// As if all transactions of this level ran one after another.
    Serializable,
}

impl IsolationLevel {
    const fn as_sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => " ISOLATION LEVEL READ COMMITTED",
            Self::RepeatableRead => " ISOLATION LEVEL REPEATABLE READ",
            Self::Serializable => " ISOLATION LEVEL SERIALIZABLE",
        }
    }
}

/// A transaction for the handler's statements. It begins at its first use, and ends with the handler. It is committed
/// together with the operation's outcome, or rolled back.
///
/// Clones share one transaction. A clone that outlives the handler is unusable.
#[derive(Clone)]
pub struct Transaction(Arc<Shared>);

struct Shared {
    store: PostgresStore,
    /// The connection's client, once the transaction has begun.
    client: OnceCell<Arc<Client>>,
    /// Taken when the transaction is ended. If it is dropped instead, its connection is closed, and the server rolls
    /// back.
    begun: Mutex<Option<Begun>>,
    /// Committed, abandoned, or about to be.
    has_ended: AtomicBool,
    /// The claim that the transaction began with.
    claim: OnceCell<ClaimRequest>,
    /// The server's id of the transaction, once it has begun.
    id: OnceCell<String>,
    /// Whether the outcome was written in this very transaction, so that the handler cannot have ended it before.
    is_settled: AtomicBool,
}

impl Transaction {
    /// Returns the client to send statements with. The first call takes a connection and begins the transaction. Calls
    /// that are awaited together are sent together.
    ///
    /// * Statements must not end the transaction (`COMMIT`, `ROLLBACK`, a script with its own `BEGIN`), because writes
    ///   and outcome would be committed separately. That is detected when the handler has returned. The outcome is then
    ///   [`Outcome::Failed`](crate::Outcome), unknown, whatever the handler has returned. The claim is kept, and an
    ///   error is logged. The same happens if the server does not report in time whether the transaction was rolled
    ///   back.
    /// * They must leave nothing behind in the session, because other calls use its connection afterwards: `SET LOCAL`
    ///   instead of `SET`, and no session-level advisory locks. The outcome is recorded under the last settings: after
    ///   `SET LOCAL ROLE` send `RESET ROLE`, and reset shortened timeouts.
    /// * Set the isolation level by [`PostgresStore::with_isolation_level`]. `SET TRANSACTION ISOLATION LEVEL` fails
    ///   (25001, "must be called before any query"), because the transaction begins with a query.
    /// * Behind a pooler such as PgBouncer use [`query_typed`](Client::query_typed) and its siblings, which use no
    ///   named statements.
    ///
    /// # Errors
    ///
    /// The errors of a connection that cannot be opened, and [`Config`](ErrorKind::Config) once the handler has
    /// returned.
    pub async fn client(&self) -> Result<&Client, Error> {
        self.check_open()?;
        let client = self.0.client.get_or_try_init(async || {
            // Boxed, because opening a connection is so deep a future that work with it could exceed the recursion
            // limit of its crate.
            let begun = Box::pin(self.0.store.begin()).await?;
            let client = begun.connection.client();
            let _ = self.0.id.set(begun.id.clone());
            *self.0.lock() = Some(begun);
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

    /// Ends the transaction for its handles. Returns the begun transaction, if any, or an error if it had ended
    /// already.
    fn end(&self) -> Result<Option<Begun>, Error> {
        if self.0.has_ended.swap(true, Ordering::SeqCst) {
            return Err(Error::config("the transaction has already ended"));
        }
        Ok(self.0.lock().take())
    }

    /// Returns whether the handler has kept no clone, which could send statements on a connection that is in use
    /// elsewhere.
    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A transaction that the store has begun.
pub(super) struct Begun {
    pub(super) connection: Connection,
    pub(super) id: String,
    /// With the statements for this transaction.
    pub(super) store: PostgresStore,
}

impl Transactional for PostgresStore {
    type Transaction = Transaction;

    fn open(&self) -> Transaction {
        Transaction(Arc::new(Shared {
            store: self.clone(),
            client: OnceCell::new(),
            begun: Mutex::default(),
            has_ended: AtomicBool::new(false),
            claim: OnceCell::new(),
            id: OnceCell::new(),
            is_settled: AtomicBool::new(false),
        }))
    }

    fn claim_within<'a>(
        &'a self,
        transaction: &'a Transaction,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>> {
        Box::pin(async move {
            transaction.client().await?;
            let begun = transaction.0.lock().take();
            let begun = begun.ok_or_else(|| Error::config("the transaction has already ended"))?;
            let claimed = PostgresStore::claim_within(self, &begun.connection, request).await;
            if matches!(claimed, Ok(Claimed::Granted(_))) {
                // It is the only claim of this transaction.
                let _ = transaction.0.claim.set(request.clone());
                *transaction.0.lock() = Some(begun);
            } else {
                transaction.0.has_ended.store(true, Ordering::SeqCst);
                roll_back(begun.connection).await;
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
            let begun = transaction.end()?;
            if !transaction.is_unshared() {
                if let Some(begun) = begun {
                    begun.roll_back(false).await?;
                }
                // Its later writes would be missing.
                return Err(Error::config(
                    "a clone of the transaction is still alive after the handler returned: do not move it into a task",
                ));
            }
            match (begun, request) {
                (Some(begun), request) => self.commit_on(begun, &transaction.0, request).await,
                // The handler wrote nothing.
                (None, Some(request)) => {
                    let mut answers = self.settle_all(std::slice::from_ref(request)).await;
                    answers.pop().unwrap_or(Ok(Settled::LeaseLost { current: None }))
                }
                (None, None) => Ok(Settled::Done { found: None }),
            }
        })
    }

    fn check_unanswered<'a>(&'a self, transaction: &'a Transaction) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            match transaction.0.id.get() {
                // The commit has sent no `COMMIT`.
                Some(id) if !transaction.0.is_settled.load(Ordering::SeqCst) => {
                    self.await_rollback(id, Duration::MAX).await
                }
                _ => Ok(()),
            }
        })
    }

    fn abandon(&self, transaction: &Transaction) -> BoxFuture<'static, Result<(), Error>> {
        match transaction.end() {
            // A clone could still send statements.
            Ok(Some(begun)) => Box::pin(begun.roll_back(transaction.is_unshared())),
            // Nothing to roll back.
            Ok(None) | Err(_) => Box::pin(ready(Ok(()))),
        }
    }
}

impl PostgresStore {
    /// Sets the isolation level of the [transactions](Transaction) of this clone and of its clones. The default is the
    /// session's `default_transaction_isolation`, which the store's other statements keep.
    ///
    /// ```no_run
    /// # use lambda_once::{Error, Failure, Idempotency, Outcome, PostgresStore};
    /// # async fn book(once: &Idempotency, store: &PostgresStore) -> Result<Outcome<()>, Error> {
    /// use lambda_once::store::postgres::IsolationLevel;
    ///
    /// let serializable = store.clone().with_isolation_level(IsolationLevel::Serializable);
    /// once.operation("book", "room 7").in_transaction(&serializable).run(|_| async { Ok::<_, Failure>(()) }).await
    /// # }
    /// ```
    ///
    /// It is sent with `BEGIN`. Above READ COMMITTED the commit fails (40001) if the lease was renewed after the
    /// transaction began. Disable the [heartbeat](crate::Operation::heartbeat), or finish within a third of the lease.
    #[must_use]
    pub fn with_isolation_level(mut self, level: IsolationLevel) -> Self {
        self.isolation_level = Some(level);
        self
    }

    async fn begin(&self) -> Result<Begun, Error> {
        let connection = self.connections.get().await?;
        self.begin_on(connection).await.map_err(|failure| failure.error)
    }

    /// Begins a transaction and reads its id, in one message.
    async fn begin_on(&self, connection: Connection) -> Result<Begun, Failure> {
        const OPERATION: &str = "begin";
        let level = self.isolation_level.map_or("", IsolationLevel::as_sql);
        let sql = format!("BEGIN{level}; {}", self.statements.of_transaction);
        let row = connection.query_all(OPERATION, &sql).await?.ok_or_else(|| error::no_row(OPERATION))?;
        let id = row.try_get("id").map_err(|error| error::of_shape(error, OPERATION))?;
        let id = id.ok_or_else(|| error::no_row(OPERATION))?.to_owned();
        let store = Self { statements: self.statements.within(&row), ..self.clone() };
        Ok(Begun { connection, id, store })
    }

    /// Commits a transaction. An early return drops the connection, which closes it, and the server rolls back.
    async fn commit_on(
        &self,
        mut begun: Begun,
        shared: &Shared,
        request: Option<&SettleRequest>,
    ) -> Result<Settled, Error> {
        let claim = shared.claim.get();
        if let (Some(claim), Some(request)) = (claim, request)
            && !request.settlement.took_effect()
        {
            // Without the writes.
            let (again, claimed) = self.begin_again(begun, claim).await?;
            if matches!(claimed, Claimed::Refused(_)) {
                // Another claim got in between, and decides. If this one has waited for its lock, the transaction is
                // aborted, and cannot record anything.
                return self.lost(again, Some(request)).await;
            }
            begun = again;
        }
        let settled = match request {
            Some(request) => begun.store.settle_within(&begun.connection, request, &begun.id).await,
            // Fails if a statement of the handler failed. `COMMIT` alone would roll back and still report success.
            None => is_within(&begun.connection, &begun.id, COMMIT).await,
        };
        match settled {
            Ok(true) => shared.is_settled.store(true, Ordering::SeqCst),
            Ok(false) => return self.lost(begun, request).await,
            Err(failure) => {
                if let Some(connection) = begun.end_in_commit().await? {
                    connection.give_back();
                }
                return Err(undone(failure.error));
            }
        }
        let connection = begun.connection;
        // Not pipelined with the settle, because if that changes no row, `COMMIT` would commit the writes without their
        // outcome.
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

    /// Starts over with the claim alone, and returns its result.
    async fn begin_again(&self, begun: Begun, claim: &ClaimRequest) -> Result<(Begun, Claimed), Error> {
        let connection = self.ended(begun).await?;
        let begun = self.begin_on(connection).await.map_err(|failure| undone(failure.error))?;
        let claimed = PostgresStore::claim_within(self, &begun.connection, claim).await.map_err(undone)?;
        Ok((begun, claimed))
    }

    /// Returns the result of a commit that was blocked, with the blocking record.
    async fn lost(&self, begun: Begun, request: Option<&SettleRequest>) -> Result<Settled, Error> {
        // Before the read, because others may wait for the locked rows.
        let connection = self.ended(begun).await?;
        let keys: Vec<KeyHash> = request.iter().map(|request| request.key).collect();
        let found = self.read_on(&connection, &keys, ResultData::Include, COMMIT).await.pop();
        connection.give_back();
        let current = match found.unwrap_or(Ok(None)) {
            Err(error) if error.kind() == ErrorKind::Format => None,
            found => found.map_err(undone)?,
        };
        Ok(Settled::LeaseLost { current: current.map(Box::new) })
    }

    /// Rolls back, and returns a connection for the next steps.
    async fn ended(&self, begun: Begun) -> Result<Connection, Error> {
        match begun.end_in_commit().await? {
            Some(connection) => Ok(connection),
            None => self.connections.get().await.map_err(undone),
        }
    }

    /// Resolves a claimless commit whose response was lost. A release would not see the uncommitted record and would
    /// not wait for it. A claim does wait: the same owner claims again, in a transaction that is rolled back.
    async fn resolve(&self, claim: &ClaimRequest, error: Error) -> Result<Settled, Error> {
        let mut backoff = Backoff::default();
        for _ in 0..MAX_ATTEMPTS {
            match self.claim_and_roll_back(claim).await {
                Ok(Claimed::Granted(_)) => return Err(undone(error)),
                // The record belongs to another claim.
                Ok(Claimed::Refused(
                    Refusal::InProgress { lease_until: Some(_), .. }
                    | Refusal::Abandoned { .. }
                    | Refusal::Mismatch(_)
                    | Refusal::Superseded { .. },
                )) => return Err(undone(error)),
                Ok(Claimed::Refused(Refusal::Completed(record) | Refusal::Failed(record))) => {
                    return Ok(match is_of(&record, claim) {
                        true => Settled::Done { found: Some(record) },
                        false => Settled::LeaseLost { current: Some(record) },
                    });
                }
                // The commit is still undecided, or this attempt failed.
                Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, .. })) | Err(_) => {
                    sleep(backoff.next_poll()).await;
                }
            }
        }
        Err(unanswered(error, COMMIT))
    }

    async fn claim_and_roll_back(&self, claim: &ClaimRequest) -> Result<Claimed, Error> {
        let Begun { connection, .. } = self.begin().await?;
        let claimed = PostgresStore::claim_within(self, &connection, claim).await;
        connection.execute_all(COMMIT, "ROLLBACK").await.map_err(|failure| failure.error)?;
        connection.give_back();
        claimed
    }
}

/// Returns whether the record was committed by this claim.
fn is_of(record: &Record, claim: &ClaimRequest) -> bool {
    record.owner == Some(claim.owner) && matches!(record.status, Status::Completed | Status::Failed)
}

/// Returns whether an error of `COMMIT` proves that nothing was committed. An error that ends the session may follow a
/// commit that waits for a standby.
pub(super) fn is_rolled_back(failure: &Failure) -> bool {
    failure.error.status() != ErrorStatus::Ambiguous && failure.connection == Health::Usable
}

/// Returns the error of a transaction that was certainly not committed.
fn undone(error: Error) -> Error {
    let kind = if is_of_the_handler(&error) { ErrorKind::Transaction } else { error.kind() };
    let hint = match error.source().and_then(|source| source.downcast_ref()).map(DbError::code) {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => "; a handler that changes its role sends `RESET ROLE` last",
        Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {
            "; the handler has ignored an error of one of its statements; if that was `SET TRANSACTION ISOLATION LEVEL` (25001), \
             use `PostgresStore::with_isolation_level`"
        }
        _ => "",
    };
    let message = format!("the transaction was rolled back: {}{hint}", error.message());
    Error::new(kind, ErrorStatus::Temporary, COMMIT, message).with_source(error)
}

/// Returns whether a constraint, or a trigger's `RAISE`, has rejected the handler's writes.
fn is_of_the_handler(error: &Error) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(Violation::is_refusal)
}

pub(super) fn unanswered(error: Error, operation: &'static str) -> Error {
    let message = "the commit got no response";
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message).with_source(error)
}
