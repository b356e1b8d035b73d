//! One operation, given by its key: for any async function.

use std::{borrow::Cow, fmt, future::Future, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    candidate::{Rank, candidate},
    claim::Claim,
    engine::{Commit, Engine, Needs, ProbeNeed, Subject},
    handle::Idempotency,
    invoked::{Enclosing, InvocationContext, Tenant},
    names,
    operation_settings::OperationSettings,
    outcome::Outcome,
    policy::Heartbeat,
    probe::{Probe, ProbeResult, Unprobed},
    verdict::Failure,
    window::Window,
};
#[cfg(feature = "order")]
use crate::order::Sequence;
use crate::{
    clock::Deadline,
    error::Error,
    key::{
        canonical::Form,
        value::{canonical_value, of_value},
    },
    record::{Fingerprint, KeyHash, stored_text},
    store::StoreId,
    telemetry::{EntryPoint, spans},
};

/// One operation, ready to [`run`](Self::run). Made by [`Idempotency::operation`].
#[must_use = "an operation does nothing until it is run"]
pub struct Operation<'a, P = Unprobed> {
    pub(super) engine: Cow<'a, Engine>,
    pub(super) name: &'a str,
    pub(super) key: Result<Vec<u8>, Error>,
    pub(super) fingerprint: Result<Option<Fingerprint>, Error>,
    pub(super) rank: Option<Rank>,
    pub(super) label: Option<Arc<str>>,
    /// `None` if nothing was said of it.
    pub(super) deadline: Option<Deadline>,
    pub(super) tenant: Tenant,
    wait_up_to: Duration,
    pub(super) heartbeat: Heartbeat,
    probe: P,
}

/// Shows no key: it is plain until it is hashed.
impl<P> fmt::Debug for Operation<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.name)
            .field("fingerprint", &self.fingerprint)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Idempotency {
    /// The operation `name` that `key` identifies: a string, a number, or a tuple of them.
    ///
    /// The name says what is done, such as `charge`, and is the same in each call that does it. Equal keys of differently
    /// named operations do not meet: order 7 can be charged and mailed. An operation inside another one needs another name
    /// or another key, or it finds itself in progress. The names of [services](Self#names) are names like others.
    pub fn operation<'a, K: Serialize + ?Sized>(&'a self, name: &'a str, key: &K) -> Operation<'a> {
        Operation::new(&self.engine, name, key)
    }

    /// The hash under which the record of this operation is stored: for tests, and for tools that look a record up.
    ///
    /// For a record of a service, `operation` is the [name of its kind](Self#names), such as `sqs`. Records of an HTTP caller or
    /// of a tenant have other hashes; the log has those.
    ///
    /// # Errors
    ///
    /// As of [`operation`](Self::operation), where [`Operation::run`] has them: [`Config`](crate::ErrorKind::Config) for an
    /// empty name, [`KeyMissing`](crate::ErrorKind::KeyMissing) or [`Payload`](crate::ErrorKind::Payload) for a key that is none.
    pub fn key_hash<K: Serialize + ?Sized>(&self, operation: &str, key: &K) -> Result<KeyHash, Error> {
        names::check(operation)?;
        Ok(self.engine.hasher(operation, None).hash(&of_value(key)?))
    }
}

impl<'a> Operation<'a> {
    fn new<K: Serialize + ?Sized>(engine: &'a Engine, name: &'a str, key: &K) -> Self {
        Self {
            engine: Cow::Borrowed(engine),
            name,
            key: names::check(name).and_then(|()| of_value(key)),
            fingerprint: Ok(None),
            rank: None,
            label: None,
            deadline: None,
            tenant: Tenant::Unsaid,
            wait_up_to: Duration::ZERO,
            heartbeat: Heartbeat::AsEngine,
            probe: Unprobed,
        }
    }

    /// How to find out whether an earlier run took effect that has left no outcome: for an engine with
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), which needs it, and for no other.
    ///
    /// It is asked when the claim took over, before anything runs, and under that claim: nobody else probes or runs the
    /// operation meanwhile. The key's hash ([`Claim::key`]) is the same in every run, so it can be looked up at the service
    /// that it was given to.
    ///
    /// | the probe | then |
    /// |---|---|
    /// | says [`ProbeResult::Done`] | the result is recorded, and the outcome is [`Outcome::Recovered`]; nothing runs |
    /// | says [`ProbeResult::NotDone`] | the operation runs; the outcome of a success is [`Outcome::TookOver`] |
    /// | fails, whatever the error's verdict | the claim is handed back, and the next run probes again; the outcome is a transient [`Outcome::Failed`] |
    /// | panics, or is cancelled at the stop point | as when the handler does; the next run probes again |
    ///
    /// ```
    /// # use lambda_once::{AfterUnknown, Failure, Idempotency, MemoryStore, Outcome, ProbeResult};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::builder(MemoryStore::new()).after_unknown(AfterUnknown::Probe).build()?;
    /// let outcome = once
    ///     .operation("charge", "order 7")
    ///     .probe(|claim| async move {
    ///         Ok::<_, Failure>(match find_charge(&claim.key().to_hex()).await? {
    ///             Some(receipt) => ProbeResult::Done(receipt),
    ///             None => ProbeResult::NotDone,
    ///         })
    ///     })
    ///     .run(|| async { Ok::<_, Failure>("charged now".to_owned()) })
    ///     .await?;
    /// assert!(matches!(outcome, Outcome::Executed(_))); // it did not take over, so the probe was not asked
    /// # Ok(()) }
    /// # async fn find_charge(_: &str) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// ```
    pub fn probe<T, E, F, Fut>(self, probe: F) -> Operation<'a, F>
    where
        E: Into<Failure>,
        F: FnOnce(Claim) -> Fut + Send,
        Fut: Future<Output = Result<ProbeResult<T>, E>> + Send,
    {
        let Self { engine, name, key, fingerprint, rank, label, .. } = self;
        let Self { deadline, tenant, wait_up_to, heartbeat, probe: Unprobed, .. } = self;
        Operation { engine, name, key, fingerprint, rank, label, deadline, tenant, wait_up_to, heartbeat, probe }
    }
}

impl<P> Operation<'_, P> {
    /// What the operation works on. The same key with another payload is a mismatch and does not run.
    ///
    /// The value is compared in canonical JSON, so the order of a map's entries does not matter. Its `Serialize` must write the
    /// same each time: a `HashSet`, or a `Vec` made from a `HashMap`, has another order in every process, and a repeated
    /// operation would be a mismatch for good. Give a `BTreeSet` or a sorted `Vec` instead. The same holds for the key.
    pub fn payload<V: Serialize + ?Sized>(mut self, payload: &V) -> Self {
        let json = canonical_value(payload);
        self.fingerprint = json.map(|json| Some(self.engine.fingerprint(Form::CanonicalJson, &json)));
        self
    }

    /// What the operation works on, as bytes that are compared as they are.
    pub fn payload_bytes(mut self, payload: &[u8]) -> Self {
        self.fingerprint = Ok(Some(self.engine.fingerprint(Form::Bytes, payload)));
        self
    }

    /// Sets a label, so that people find the operation's record in the store: the number of an order, for example. By default a
    /// record has none, and nothing in it shows the key.
    ///
    /// The record holds it as **plain text**, which everybody can read who may read the table. It decides nothing: the last run's
    /// label is on record. Of a longer text the first 256 bytes are kept.
    ///
    /// ```
    /// # use lambda_once::{Failure, Idempotency, MemoryStore, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::new(MemoryStore::new());
    /// let outcome = once.operation("charge", &7).label("order 7").run(|| async { Ok::<_, Failure>(()) }).await?;
    /// assert!(matches!(outcome, Outcome::Executed(())));
    /// # Ok(()) }
    /// ```
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(stored_text(label.as_ref())).filter(|label| !label.is_empty());
        self
    }

    /// Puts the operation in order: it belongs to `entity` (a string, a number, or a tuple of them) and stands at `sequence` in
    /// the order of that entity's operations. An operation never takes effect after a newer one of its entity.
    ///
    /// For operations that **set** something, such as a status or a whole document, of which only the newest counts. Not for
    /// those that add to something: an older debit that is left out is lost.
    ///
    /// ```
    /// # use lambda_once::{Failure, Idempotency, MemoryStore, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::new(MemoryStore::new());
    /// let ship = once.operation("status", "event 2").ordered_by("order 7", 2_u64).run(|| set_status("shipped"));
    /// assert!(matches!(ship.await?, Outcome::Executed(())));
    /// let pay = once.operation("status", "event 1").ordered_by("order 7", 1_u64).run(|| set_status("paid"));
    /// assert!(matches!(pay.await?, Outcome::Superseded { newest: Some(newest) } if newest == 2_u64.into()));
    /// # Ok(()) }
    /// # async fn set_status(_: &str) -> Result<(), Failure> { Ok(()) }
    /// ```
    ///
    /// * An operation whose sequence is that of the newest one that has completed, or before it, is [`Outcome::Superseded`],
    ///   unless it is done itself: that is replayed. Of two with equal sequences the first to complete counts.
    /// * One operation works on an entity at a time. Others are [`Outcome::InProgress`] meanwhile, and may
    ///   [wait](Self::wait_up_to).
    /// * An operation whose run has left no outcome may have taken effect. Older ones are [`Outcome::InProgress`] until it was
    ///   run again, or a newer one has completed. So do not give it up: older ones would wait until the entity's mark expires.
    /// * This holds as long as work keeps to its lease. The entity's mark, and so the order, is kept for the retention of
    ///   outcomes after the entity's last operation.
    ///
    /// An operation with an order has another key than the same one without: put it in order from its first use on.
    ///
    /// [`run`](Self::run) fails with [`Order`](crate::ErrorKind::Order) if the entity is missing (as a key may be), and with
    /// [`Config`](crate::ErrorKind::Config) on a store that keeps no order
    /// ([`Limits::orders`](crate::store::Limits::orders)).
    ///
    /// Needs the feature `order`.
    #[cfg(feature = "order")]
    pub fn ordered_by<E: Serialize + ?Sized>(mut self, entity: &E, sequence: impl Into<Sequence>) -> Self {
        self.rank = Some(Rank { entity: of_value(entity), sequence: sequence.into() });
        self
    }

    /// Sets when the invocation ends: a [`Timestamp`](crate::clock::Timestamp) or a Lambda `Context` (with the feature
    /// of any source, `batch`, `http-lambda` or `invocation`). The claim's lease ends a second after that. A context
    /// also sets the [tenant](Self::tenant).
    ///
    /// In a handler of this library it need not be set: an operation that is polled in the handler's own task inherits
    /// the deadline of the invocation, and is cancelled in time for the handler to see that. A spawned task inherits
    /// nothing.
    ///
    /// Elsewhere, and if the deadline is [unknown](Deadline), the configured lease is used. In Lambda that lease may
    /// outlive the invocation and block its retry, which is logged once as a warning.
    pub fn deadline(mut self, invocation: impl Into<InvocationContext>) -> Self {
        let InvocationContext { deadline, tenant } = invocation.into();
        self.deadline = Some(deadline);
        if let (Some(tenant), Tenant::Unsaid | Tenant::OfContext(_)) = (tenant, &self.tenant) {
            self.tenant = Tenant::OfContext(tenant);
        }
        self
    }

    /// Sets the tenant that the operation belongs to: equal keys of two tenants do not meet.
    ///
    /// A multi-tenant function (Lambda's tenant isolation mode) must set it for each operation: by the context given to
    /// [`deadline`](Self::deadline), by this, or by [`all_tenants`](Self::all_tenants). An operation without any of
    /// them is refused ([`Config`](crate::ErrorKind::Config)) as soon as an invocation of the process was for a tenant:
    /// it would answer one tenant with the result of another.
    ///
    /// Source: <https://docs.aws.amazon.com/lambda/latest/dg/tenant-isolation.html>
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Tenant::Chosen(Some(tenant.into()));
        self
    }

    /// Shares the operation among all [tenants](Self::tenant): the first to ask runs it, and the others get its result.
    pub fn all_tenants(mut self) -> Self {
        self.tenant = Tenant::Chosen(None);
        self
    }

    /// How long to wait for the outcome of a run that is under way elsewhere, instead of answering
    /// [`Outcome::InProgress`] at once. By default not at all; never beyond the stop point.
    ///
    /// An outcome is replayed when it is there. If the other run releases the operation, or its lease and the skew margin
    /// pass, the operation is claimed once more and runs in the time that is left. If nothing of it happens in time, the
    /// outcome is [`Outcome::InProgress`].
    ///
    /// The store is read in growing pauses of at most two seconds. An operation that runs inside itself waits in vain.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.wait_up_to = time;
        self
    }

    /// Sets how long the operation may run, where the engine's [setting](crate::Builder::heartbeat) does not suit it.
    /// Its lease is renewed meanwhile.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lambda_once::{Failure, Idempotency, MemoryStore, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::new(MemoryStore::new());
    /// let hour = Duration::from_secs(3_600);
    /// let outcome = once.operation("export", "2026-11").heartbeat(hour).run(export).await?;
    /// assert!(matches!(outcome, Outcome::Executed(())));
    /// # Ok(()) }
    /// # async fn export() -> Result<(), Failure> { Ok(()) }
    /// ```
    ///
    /// An operation that is given a known [deadline](Self::deadline) is refused with it ([`Config`](crate::ErrorKind::Config)): its
    /// lease lasts until then. One that inherits its deadline, inside a handler, is cancelled after `max_duration` or in time for the
    /// handler to see that, whichever comes first. Its lease lasts until that deadline and needs no renewal.
    ///
    /// With `None` the lease is not renewed: without a known deadline the work is cancelled shortly before it ends.
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.heartbeat = Heartbeat::of(max_duration.into());
        self
    }

    /// Settings of this operation where they differ from the engine's: its retention, say. Later ones replace earlier ones.
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.engine = Cow::Owned(self.engine.with(settings));
        self
    }

    /// Runs `work`, unless the operation is done, running, or not to be run.
    ///
    /// Its result is stored as JSON, which does not hold every value: `NaN` and infinities become `null`, and `Some(None)` and
    /// `Some(())` come back as `None`. A test can find that out (`testing::assert_round_trip`).
    ///
    /// `work` is dropped at the stop point, shortly before the deadline. What it has spawned by then, and blocking calls,
    /// go on by themselves and are not protected. Without a known deadline the lease is renewed while `work` runs, for 15 minutes
    /// by default ([`heartbeat`](Self::heartbeat)).
    ///
    /// # Errors
    ///
    /// An [`Error`] means that nothing ran, unless its kind is [`StoredResult`](crate::ErrorKind::StoredResult): the
    /// operation was done before, and its result cannot be decoded. [`Config`](crate::ErrorKind::Config) means that the
    /// operation's name is empty, that its [settings](Self::with_settings) contradict each other, that its
    /// [tenant](Self::tenant) must be set, that the engine's policy is
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe) and there is no [`probe`](Operation::probe), or the other
    /// way round, or that its [`heartbeat`](Self::heartbeat) is zero or meets a known deadline that it is given. Errors
    /// of `work` are in [`Outcome::Failed`].
    pub async fn run<T, E, W, F>(self, work: W) -> Result<Outcome<T>, Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce() -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        self.run_with(|_| work()).await
    }

    /// Like [`run`](Self::run), for work that wants to know its [`Claim`]; `None` where it runs unprotected.
    ///
    /// # Errors
    ///
    /// As of [`run`](Self::run).
    pub async fn run_with<T, E, W, F>(self, work: W) -> Result<Outcome<T>, Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(Option<Claim>) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        self.run_in(None, work).await
    }

    /// Runs `work`, and commits writes to a store with its outcome.
    pub(super) async fn run_in<T, E, W, F>(
        self,
        writes: Option<(StoreId, Box<dyn Commit>)>,
        work: W,
    ) -> Result<Outcome<T>, Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(Option<Claim>) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let (engine, name) = (&*self.engine, self.name);
        let (store, writes) = writes.unzip();
        engine.check(&Needs {
            probe: ProbeNeed::new(P::IS_GIVEN, "Operation::probe"),
            scope: false,
            transactions: store,
            order: self.rank.is_some(),
            heartbeat: self.heartbeat,
        })?;
        let window = window(engine, self.deadline, self.heartbeat)?;
        let operation = engine.log_name(name);
        let subject = Subject::new(EntryPoint::Operation, &operation, None);
        // Boxed: what is around it would hold it several times over, and operations within operations use up a stack.
        let served = Box::pin(async {
            let found = candidate(engine, name, &self.tenant, self.key, self.fingerprint, self.rank, self.label);
            let Some(candidate) = found.inspect_err(|error| engine.tell_error(subject, error))? else {
                let outcome = engine.run_unprotected(window, writes, unprotected(work)).await;
                engine.tell(subject, &outcome, 0);
                return Ok(outcome);
            };
            let key = candidate.key;
            let named = engine.for_operation(&operation);
            let ran = named.run_protected(candidate, window, self.wait_up_to, self.probe, writes, work).await;
            told(engine, &operation, key, ran)
        });
        engine.observed(EntryPoint::Operation, &operation, spans::operation(&operation), served).await
    }
}

/// Returns the time of an operation that begins now.
///
/// # Errors
///
/// As of [`Window::check_heartbeat`] for a deadline that is given.
pub(super) fn window(engine: &Engine, deadline: Option<Deadline>, heartbeat: Heartbeat) -> Result<Window, Error> {
    let enclosing = Enclosing::current();
    let is_unsaid = deadline.is_none() && enclosing.is_none();
    if is_unsaid && engine.settings.is_in_lambda && engine.warnings.deadline.is_first() {
        tracing::warn!(target: "lambda_once", "an operation in Lambda has no deadline, so its lease may outlive the invocation and hold up a retry: give it the context, as in `.deadline(&context)`");
    }
    let (now, deadline) = (engine.clock.now(), deadline.unwrap_or(Deadline::UNKNOWN));
    let window = Window::within(enclosing, now, deadline, &engine.settings);
    // With an inherited deadline it bounds the run as well, so that the same code works in Lambda and elsewhere.
    if deadline.ahead_of(now).is_some() {
        window.check_heartbeat(heartbeat)?;
    }
    Ok(window.with_heartbeat(heartbeat, &engine.settings))
}

/// Logs the outcome of an operation and the attempt it took, or its error, and returns the outcome.
pub(super) fn told<T>(
    engine: &Engine,
    operation: &str,
    key: KeyHash,
    ran: Result<(Outcome<T>, u64), Error>,
) -> Result<Outcome<T>, Error> {
    let subject = Subject::new(EntryPoint::Operation, operation, Some(key));
    match ran {
        Ok((outcome, attempt)) => {
            engine.tell(subject, &outcome, attempt);
            Ok(outcome)
        }
        Err(error) => {
            engine.tell_error(subject, &error);
            Err(error)
        }
    }
}

/// Work that runs without a claim. It is called inside, so that a panic in the call is caught too.
pub(super) async fn unprotected<T, E: Into<Failure>, F>(
    work: impl FnOnce(Option<Claim>) -> F + Send,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, E>> + Send,
{
    work(None).await.map_err(Into::into)
}
