//! One operation, identified by its key, for any async function.

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

/// One operation, ready to [`run`](Self::run). Created by [`Idempotency::operation`].
#[must_use = "an operation does nothing until it is run"]
pub struct Operation<'a, P = Unprobed> {
    pub(super) engine: Cow<'a, Engine>,
    pub(super) name: &'a str,
    pub(super) key: Result<Vec<u8>, Error>,
    pub(super) fingerprint: Result<Option<Fingerprint>, Error>,
    pub(super) rank: Option<Rank>,
    pub(super) label: Option<Arc<str>>,
    /// `None` if none was set.
    pub(super) deadline: Option<Deadline>,
    pub(super) tenant: Tenant,
    wait_up_to: Duration,
    pub(super) heartbeat: Heartbeat,
    probe: P,
}

/// Omits the key, which is plain text until it is hashed.
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
    /// Creates the operation `name` that `key` identifies: a string, a number, or a tuple of them.
    ///
    /// The name identifies the action, such as `charge`, and is the same in each call for it. Operations with different
    /// names never share records, so order 7 can be charged and mailed. An operation inside another operation needs a
    /// different name or a different key, or it finds itself in progress. The names of [services](Self#names) belong to
    /// the same namespace.
    pub fn operation<'a, K: Serialize + ?Sized>(&'a self, name: &'a str, key: &K) -> Operation<'a> {
        Operation::new(&self.engine, name, key)
    }

    /// Returns the hash under which the record of this operation is stored, for tests and for tools that look up a
    /// record.
    ///
    /// For a record of a service, `operation` is the [name of its kind](Self#names), such as `sqs`. Records of an HTTP
    /// caller or of a tenant have different hashes, which are logged.
    ///
    /// # Errors
    ///
    /// As in [`operation`](Self::operation), the errors of [`Operation::run`]: [`Config`](crate::ErrorKind::Config) for
    /// an empty name, [`KeyMissing`](crate::ErrorKind::KeyMissing) or [`Payload`](crate::ErrorKind::Payload) for an
    /// invalid key.
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

    /// Sets the probe that finds out whether an earlier run without an outcome took effect. Required by an engine with
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), and refused by any other.
    ///
    /// It is called if the claim took over, before anything runs and under that claim, so nothing else probes or runs
    /// the operation meanwhile. The key's hash ([`Claim::key`]) is the same in every run, so the probe can look it up
    /// at the service that received it.
    ///
    /// | the probe | result |
    /// |---|---|
    /// | returns [`ProbeResult::Done`] | the result is recorded, and the outcome is [`Outcome::Recovered`]; nothing runs |
    /// | returns [`ProbeResult::NotDone`] | the operation runs; the outcome of a success is [`Outcome::TookOver`] |
    /// | fails, whatever the error's verdict | the claim is handed back, and the next run probes again; the outcome is a transient [`Outcome::Failed`] |
    /// | panics, or is cancelled at the handler deadline | as for the handler; the next run probes again |
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
    /// assert!(matches!(outcome, Outcome::Executed(_))); // it did not take over, so the probe was not called
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
    /// Sets the payload. The same key with a different payload is a mismatch and does not run.
    ///
    /// The value is compared as canonical JSON, so the order of a map's entries does not matter. Its `Serialize` must
    /// write the same each time. A `HashSet`, or a `Vec` made from a `HashMap`, has a different order in every process,
    /// so that a repeated operation would always be a mismatch. Use a `BTreeSet` or a sorted `Vec` instead. The same
    /// holds for the key.
    pub fn payload<V: Serialize + ?Sized>(mut self, payload: &V) -> Self {
        let json = canonical_value(payload);
        self.fingerprint = json.map(|json| Some(self.engine.fingerprint(Form::CanonicalJson, &json)));
        self
    }

    /// Sets the payload as bytes, which are compared as is.
    pub fn payload_bytes(mut self, payload: &[u8]) -> Self {
        self.fingerprint = Ok(Some(self.engine.fingerprint(Form::Bytes, payload)));
        self
    }

    /// Sets a label to find the operation's record in the store, for example the number of an order. By default a
    /// record has none, and nothing in it shows the key.
    ///
    /// The record contains it as **plain text**, readable for everybody with read access to the table. It has no effect
    /// on the operation, and the label of the last run is on record. Only the first 256 bytes of a longer text are
    /// kept.
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

    /// Makes the operation ordered: it belongs to `entity` (a string, a number, or a tuple of them) and has the
    /// position `sequence` in the order of that entity's operations. An operation never takes effect after a newer one
    /// of its entity.
    ///
    /// For operations that **set** something, such as a status or a whole document, so that only the newest counts. Not
    /// for operations that add to something, because an older debit that is left out is lost.
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
    /// * An operation whose sequence is equal to or less than the newest completed one is
    ///   [`Outcome::Superseded`], unless it is completed itself and replayed. Of two with equal sequences the first to
    ///   complete counts.
    /// * One operation works on an entity at a time. Others are [`Outcome::InProgress`] meanwhile, and may
    ///   [wait](Self::wait_up_to).
    /// * An operation whose run has left no outcome may have taken effect. Older ones are [`Outcome::InProgress`] until
    ///   it has run again, or a newer one has completed. So always retry it, because older ones would otherwise wait
    ///   until the entity's mark expires.
    /// * This holds as long as work keeps to its lease. The entity's mark, and so the order, is kept for the retention of
    ///   outcomes after the entity's last operation.
    ///
    /// An ordered operation has a different key than the same operation without an order, so make it ordered from its
    /// first use on.
    ///
    /// [`run`](Self::run) fails with [`Order`](crate::ErrorKind::Order) if the entity is missing (as a key may be), and
    /// with [`Config`](crate::ErrorKind::Config) on a store without support for orders
    /// ([`Limits::orders`](crate::store::Limits::orders)).
    ///
    /// Needs the feature `order`.
    #[cfg(feature = "order")]
    pub fn ordered_by<E: Serialize + ?Sized>(mut self, entity: &E, sequence: impl Into<Sequence>) -> Self {
        self.rank = Some(Rank { entity: of_value(entity), sequence: sequence.into() });
        self
    }

    /// Sets the end of the invocation: a [`Timestamp`](crate::clock::Timestamp) or a Lambda `Context` (with the feature
    /// of any source, `batch`, `http-lambda` or `invocation`). The claim's lease ends one second after that. A context
    /// also sets the [tenant](Self::tenant).
    ///
    /// Not needed in a handler of this library. An operation that is polled in the handler's own task inherits the
    /// deadline of the invocation, and is cancelled early enough for the handler to see that. A spawned task inherits
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

    /// Sets the tenant that the operation belongs to. Equal keys of two tenants are different operations.
    ///
    /// A multi-tenant function (Lambda's tenant isolation mode) must set it for each operation, by the context given to
    /// [`deadline`](Self::deadline), by this, or by [`all_tenants`](Self::all_tenants). Once the process had an
    /// invocation for a tenant, an operation without any of them is refused ([`Config`](crate::ErrorKind::Config)),
    /// because it would return the result of one tenant to another.
    ///
    /// Source: <https://docs.aws.amazon.com/lambda/latest/dg/tenant-isolation.html>
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Tenant::Chosen(Some(tenant.into()));
        self
    }

    /// Shares the operation among all [tenants](Self::tenant). The first call runs it, and the others return its
    /// result.
    pub fn all_tenants(mut self) -> Self {
        self.tenant = Tenant::Chosen(None);
        self
    }

    /// Sets the time to wait for the outcome of a run elsewhere, instead of returning [`Outcome::InProgress`]
    /// immediately. The default is zero. The wait never exceeds the handler deadline.
    ///
    /// An outcome is replayed as soon as it is recorded. If the other run releases the operation, or its lease and the
    /// skew margin pass, the operation is claimed again and runs in the remaining time, or under a whole lease if it is
    /// [renewed](Self::heartbeat). Otherwise the outcome is [`Outcome::InProgress`].
    ///
    /// The store is read in growing intervals of at most two seconds. An operation that runs inside itself never
    /// succeeds in waiting.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.wait_up_to = time;
        self
    }

    /// Sets the maximum duration of the operation, instead of the engine's [setting](crate::Builder::heartbeat). Its
    /// lease is renewed meanwhile.
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
    /// Refused ([`Config`](crate::ErrorKind::Config)) together with a known [deadline](Self::deadline), because the
    /// lease lasts until the deadline. An operation that inherits its deadline, inside a handler, is cancelled after
    /// `max_duration` or early enough for the handler to see that, whichever comes first. Its lease lasts until that
    /// deadline and needs no renewal.
    ///
    /// With `None` the lease is not renewed. Without a known deadline the work is then cancelled shortly before the
    /// lease ends.
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.heartbeat = Heartbeat::of(max_duration.into());
        self
    }

    /// Overrides settings of the engine for this operation, for example its retention. Later settings replace earlier
    /// ones.
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.engine = Cow::Owned(self.engine.with(settings));
        self
    }

    /// Runs `work`, unless the operation is completed, running, or must not run.
    ///
    /// Its result is stored as JSON, which does not represent every value: `NaN` and infinities become `null`, and
    /// `Some(None)` and `Some(())` are read back as `None`. A test can check that (`testing::assert_round_trip`).
    ///
    /// `work` is dropped at the handler deadline, shortly before the invocation's deadline. Tasks that it has spawned
    /// and blocking calls continue and are not protected. Without a known deadline the lease is renewed while `work`
    /// runs, for 15 minutes by default ([`heartbeat`](Self::heartbeat)).
    ///
    /// # Errors
    ///
    /// An [`Error`] means that nothing ran, unless its kind is [`StoredResult`](crate::ErrorKind::StoredResult): the
    /// operation was completed before, and its result cannot be decoded. [`Config`](crate::ErrorKind::Config) means
    /// that the operation's name is empty, that its [settings](Self::with_settings) contradict each other, that its
    /// [tenant](Self::tenant) must be set, that the engine's policy is
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe) and there is no [`probe`](Operation::probe), or the other
    /// way round, or that its [`heartbeat`](Self::heartbeat) is zero or is combined with a known deadline. Errors of
    /// `work` are in [`Outcome::Failed`].
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
        // Boxed, because the surrounding future would hold it several times, and nested operations use up a stack.
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
            log_outcome(engine, &operation, key, ran)
        });
        engine.observed(EntryPoint::Operation, &operation, spans::operation(&operation), served).await
    }
}

/// Returns the window of an operation that begins now.
///
/// # Errors
///
/// The errors of [`Window::check_heartbeat`] for a deadline that is set.
pub(super) fn window(engine: &Engine, deadline: Option<Deadline>, heartbeat: Heartbeat) -> Result<Window, Error> {
    let enclosing = Enclosing::current();
    let is_unsaid = deadline.is_none() && enclosing.is_none();
    if is_unsaid && engine.settings.is_in_lambda && engine.warnings.deadline.is_first() {
        tracing::warn!(target: "lambda_once", "an operation in Lambda has no deadline, so its lease may outlive the invocation and hold up a retry: give it the context, as in `.deadline(&context)`");
    }
    let (now, deadline) = (engine.clock.now(), deadline.unwrap_or(Deadline::UNKNOWN));
    let window = Window::within(enclosing, now, deadline, &engine.settings);
    // With an inherited deadline it also bounds the run, so that the same code works in Lambda and elsewhere.
    if deadline.ahead_of(now).is_some() {
        window.check_heartbeat(heartbeat)?;
    }
    Ok(window.with_heartbeat(heartbeat, &engine.settings))
}

/// Logs the outcome of an operation and its attempt, or its error, and returns the outcome.
pub(super) fn log_outcome<T>(
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

/// Runs work without a claim. It is called inside, so that a panic in the call is caught too.
pub(super) async fn unprotected<T, E: Into<Failure>, F>(
    work: impl FnOnce(Option<Claim>) -> F + Send,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, E>> + Send,
{
    work(None).await.map_err(Into::into)
}
