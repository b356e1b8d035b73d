//! Operations whose effect and outcome are recorded in one transaction.

use std::{fmt, future::Future, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    candidate::candidate,
    claim::Claim,
    engine::{Classifier, Needs, OpenTransaction, ProbeNeed, Subject},
    operation::{self, Operation},
    outcome::Outcome,
    probe::{Probe, Unprobed},
    verdict::{Failure, Verdict},
};
use crate::{
    error::Error,
    store::transaction::Transactional,
    telemetry::{EntryPoint, spans},
};

/// An operation that commits its writes together with its outcome. Created by [`Operation::in_transaction`].
#[must_use = "an operation does nothing until it is run"]
pub struct InTransaction<'a, S, P = Unprobed> {
    operation: Operation<'a, P>,
    store: S,
    classifier: Option<Classifier>,
}

/// An operation without a claim, decided by its transaction alone. Created by [`InTransaction::without_claim`].
#[must_use = "an operation does nothing until it is run"]
pub struct WithoutClaim<'a, S>(InTransaction<'a, S>);

impl<'a, P> Operation<'a, P> {
    /// Lets the work write through a transaction of `store`, which is a clone of the engine's store. Its writes and the
    /// operation's outcome are committed together, or not at all.
    ///
    /// This closes the gap between an effect and its record. Elsewhere a crash between the two leaves a claim without
    /// an outcome, and the next run after its lease may repeat the effect. Here such a crash leaves neither, and
    /// [`Outcome::Unrecorded`] does not occur, except for the result of a [probe](Operation::probe), because effects
    /// that are not recorded did not happen. That holds only for writes through the transaction.
    ///
    /// The key is claimed first, as usual, so that one run at a time works on it. The transaction begins at its first
    /// use. Call other services before that, with the [claim](Claim::key) as their idempotency key, so that no
    /// transaction is open meanwhile.
    ///
    /// | the work | result |
    /// |---|---|
    /// | succeeds | writes and result are committed |
    /// | fails, panics, or is cancelled | the writes are abandoned; the claim ends as without a transaction |
    ///
    /// | the commit | the outcome |
    /// |---|---|
    /// | was refused: one of the work's own conditions failed | [`Outcome::Failed`], transient unless [classified](InTransaction::classify) |
    /// | conflicted with another transaction | [`Outcome::Failed`], transient |
    /// | was refused because the lease was lost | the outcome of the run that took over, else [`Outcome::LeaseLost`] |
    /// | was not sent, because the work has ended the transaction itself, or may have | [`Outcome::Failed`], unknown; the claim is kept |
    /// | got no response, and a release then found it applied | as if it had |
    /// | got no response, and the release was applied | [`Outcome::Failed`], transient: nothing was committed |
    /// | got no response, nor did the release | [`Outcome::Failed`], unknown: the claim is kept until its lease ends; then [`AfterUnknown`](crate::AfterUnknown) decides |
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")] mod example {
    /// # use lambda_once::{Error, Failure, Idempotency, Outcome, PostgresStore, store::postgres::Transaction};
    /// async fn debit(once: &Idempotency, store: &PostgresStore, order_id: &str) -> Result<Outcome<()>, Error> {
    ///     once.operation("debit", order_id)
    ///         .in_transaction(store)
    ///         .run(|transaction: Transaction| async move {
    ///             let client = transaction.client().await?;
    ///             client.execute("UPDATE accounts SET balance = balance - 1 WHERE id = 7", &[]).await?;
    ///             Ok::<_, Failure>(())
    ///         })
    ///         .await
    /// }
    /// # }
    /// ```
    pub fn in_transaction<S: Transactional>(self, store: &S) -> InTransaction<'a, S, P> {
        InTransaction { operation: self, store: store.clone(), classifier: None }
    }
}

impl<'a, S: Transactional, P> InTransaction<'a, S, P> {
    /// Classifies a commit that was refused because of the work's own writes
    /// ([`ErrorKind::Transaction`](crate::ErrorKind)), by its error. The store's error is in its sources. By default
    /// another try may succeed ([`Verdict::Transient`]). Conflicts with other transactions, and outages, are always
    /// transient.
    ///
    /// [`Verdict::Permanent`] and [`Verdict::Superseded`] are recorded, except for a [claimless](Self::without_claim)
    /// operation. With the latter the outcome is [`Outcome::Superseded`].
    pub fn classify(mut self, verdict: impl Fn(&Error) -> Verdict + Send + Sync + 'static) -> Self {
        self.classifier = Some(Arc::new(verdict));
        self
    }

    /// Runs `work`, unless the operation is completed, running, or must not run, like [`Operation::run`].
    ///
    /// # Errors
    ///
    /// The errors of [`Operation::run`], and [`Config`](crate::ErrorKind::Config) if the store is not the engine's.
    pub async fn run<T, E, W, F>(self, work: W) -> Result<Outcome<T>, Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(S::Transaction) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        self.run_with(|_, transaction| work(transaction)).await
    }

    /// Runs `work` like [`run`](Self::run), and passes it the [`Claim`], or `None` if it runs unprotected.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run).
    pub async fn run_with<T, E, W, F>(self, work: W) -> Result<Outcome<T>, Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(Option<Claim>, S::Transaction) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let (id, transaction) = (self.store.id(), self.store.open());
        let writes =
            OpenTransaction { store: self.store, transaction: transaction.clone(), classifier: self.classifier };
        self.operation.run_in(Some((id, Box::new(writes))), |claim| work(claim, transaction)).await
    }
}

impl<'a, S: Transactional> InTransaction<'a, S> {
    /// Omits the claim before the run, so that the commit itself decides which of several runs takes effect. Saves the
    /// claim's call.
    ///
    /// For work whose whole effect goes through the transaction. On DynamoDB, runs of one key proceed simultaneously,
    /// duplicates of a completed operation run too, and all but one of them are refused at the commit, which is the
    /// operation's only call. On PostgreSQL the transaction begins with a claim. The others wait for its end, for up to
    /// `lock_timeout`, and replay its outcome.
    ///
    /// A crash leaves nothing, and so nothing to take over. There is no lease: [`Operation::wait_up_to`] does not
    /// apply, and the maximum duration of the heartbeat limits a run. The lapsed claim of another run is replaced,
    /// on DynamoDB without a notice ([`Outcome::Executed`] instead of [`Outcome::TookOver`]).
    pub fn without_claim(self) -> WithoutClaim<'a, S> {
        WithoutClaim(self)
    }
}

impl<S: Transactional> WithoutClaim<'_, S> {
    /// Runs `work`, unless the operation is known to be completed or must not run.
    ///
    /// # Errors
    ///
    /// The errors of [`InTransaction::run`], and [`Config`](crate::ErrorKind::Config) under
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe).
    pub async fn run<T, E, W, F>(self, work: W) -> Result<Outcome<T>, Error>
    where
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(S::Transaction) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let InTransaction { operation, store, classifier } = self.0;
        let Operation { engine, name, key, fingerprint, rank, label, deadline, tenant, heartbeat, .. } = operation;
        engine.check(&Needs {
            probe: ProbeNeed::Unsupported("a transaction without a claim"),
            scope: false,
            transactions: Some(store.id()),
            order: rank.is_some(),
            heartbeat,
        })?;
        let window = operation::window(&engine, deadline, heartbeat)?;
        let transaction = store.open();
        let writes = OpenTransaction { store, transaction: transaction.clone(), classifier };
        let work = operation::unprotected(|_| work(transaction));
        let name_in_logs = engine.log_name(name);
        let subject = Subject::new(EntryPoint::Operation, &name_in_logs, None);
        let served = async {
            let found = candidate(&engine, name, &tenant, key, fingerprint, rank, label);
            let Some(candidate) = found.inspect_err(|error| engine.tell_error(subject, error))? else {
                let outcome = engine.run_unprotected(window, Some(Box::new(writes)), work).await;
                engine.tell(subject, &outcome, 0);
                return Ok(outcome);
            };
            let key = candidate.key;
            let ran = engine.for_operation(&name_in_logs).run_claimless(candidate, window, &writes, work).await;
            operation::log_outcome(&engine, &name_in_logs, key, ran)
        };
        engine.observed(EntryPoint::Operation, &name_in_logs, spans::operation(&name_in_logs), served).await
    }
}

impl<S: fmt::Debug, P> fmt::Debug for InTransaction<'_, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction")
            .field("operation", &self.operation)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for WithoutClaim<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WithoutClaim").field(&self.0).finish()
    }
}
