//! One operation, given by its key: for any async function.

use std::{fmt, future::Future, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Claim, Failure, Idempotency, Outcome, Probe, Probed, Unprobed,
    engine::{Candidate, Standing, Success, probed},
    names, result,
    window::Window,
};
use crate::{
    clock::Deadline,
    error::Error,
    key::{
        self, MissingKey,
        hash::{self, Form},
    },
    record::Fingerprint,
    store::Refusal,
    telemetry,
};

/// One operation, ready to [`run`](Self::run). Made by [`Idempotency::operation`].
#[must_use = "an operation does nothing until it is run"]
pub struct Operation<'a, P = Unprobed> {
    engine: &'a Idempotency,
    name: &'a str,
    key: Result<Vec<u8>, Error>,
    fingerprint: Result<Option<Fingerprint>, Error>,
    deadline: Deadline,
    patience: Duration,
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

impl<'a> Operation<'a> {
    pub(super) fn new<K: Serialize + ?Sized>(engine: &'a Idempotency, name: &'a str, key: &K) -> Self {
        Self {
            engine,
            name,
            key: names::check(name).and_then(|()| key::of_value(key)),
            fingerprint: Ok(None),
            deadline: Deadline::UNKNOWN,
            patience: Duration::ZERO,
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
    /// | says [`Probed::Done`] | the result is recorded, and the outcome is [`Outcome::Recovered`]; nothing runs |
    /// | says [`Probed::NotDone`] | the operation runs; the outcome of a success is [`Outcome::TookOver`] |
    /// | fails, whatever the error's verdict | the claim is handed back, and the next run probes again; the outcome is a transient [`Outcome::Failed`] |
    /// | panics, or is cut off at the stop point | as when the handler does; the next run probes again |
    ///
    /// ```
    /// # use lambda_once::{AfterUnknown, Failure, Idempotency, MemoryStore, Outcome, Probed};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// let once = Idempotency::builder(MemoryStore::new()).after_unknown(AfterUnknown::Probe).build()?;
    /// let outcome = once
    ///     .operation("charge", "order 7")
    ///     .probe(|claim| async move {
    ///         Ok::<_, Failure>(match find_charge(&claim.key().to_hex()).await? {
    ///             Some(receipt) => Probed::Done(receipt),
    ///             None => Probed::NotDone,
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
        Fut: Future<Output = Result<Probed<T>, E>> + Send,
    {
        let Self { engine, name, key, fingerprint, deadline, patience, probe: Unprobed } = self;
        Operation { engine, name, key, fingerprint, deadline, patience, probe }
    }
}

impl<P> Operation<'_, P> {
    /// What the operation works on. The same key with another payload is a mismatch and does not run.
    ///
    /// The value is compared in canonical JSON, so the order of a map's entries does not matter. Its `Serialize` must write the
    /// same each time: a `HashSet`, or a `Vec` made from a `HashMap`, has another order in every process, and a repeated
    /// operation would be a mismatch for good. Give a `BTreeSet` or a sorted `Vec` instead. The same holds for the key.
    pub fn payload<V: Serialize + ?Sized>(mut self, payload: &V) -> Self {
        let json = key::canonical_value(payload);
        self.fingerprint = json.map(|json| Some(hash::fingerprint(Form::CanonicalJson, &[&json])));
        self
    }

    /// What the operation works on, as bytes that are compared as they are.
    pub fn payload_bytes(mut self, payload: &[u8]) -> Self {
        self.fingerprint = Ok(Some(hash::fingerprint(Form::Bytes, &[payload])));
        self
    }

    /// When the invocation ends: a [`Timestamp`](crate::clock::Timestamp), or a Lambda `Context` (with the feature of any
    /// source, `batch`, `http` or `invocation`). Without it, and where it is [unknown](Deadline), the configured lease is used.
    pub fn deadline(mut self, deadline: impl Into<Deadline>) -> Self {
        self.deadline = deadline.into();
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
        self.patience = time;
        self
    }

    /// Runs `work`, unless the operation is done, running, or not to be run.
    ///
    /// Its result is stored as JSON, which does not hold every value: `NaN` and infinities become `null`, and `Some(None)` and
    /// `Some(())` come back as `None`. A test can find that out (`testing::assert_round_trip`).
    ///
    /// `work` is dropped at the stop point, shortly before the deadline. What it has spawned by then, and blocking calls,
    /// go on by themselves and are not protected.
    ///
    /// # Errors
    ///
    /// An [`Error`] means that nothing ran, unless its kind is
    /// [`StoredResult`](crate::ErrorKind::StoredResult): the operation was done before, and its result cannot be decoded.
    /// [`Config`](crate::ErrorKind::Config) means that the operation's name is empty, or that the engine's policy is
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe) and there is no [`probe`](Operation::probe), or the other way
    /// round. Errors of `work` are in [`Outcome::Failed`].
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
        let engine = self.engine;
        let window = Window::new(engine.clock.now(), self.deadline, &engine.settings);
        if engine.settings.disabled {
            return Ok(engine.run_unprotected(window, unprotected(work)).await);
        }
        engine.check_probe(P::IS_GIVEN)?;
        let key = match self.key {
            Ok(key) => engine.scope(self.name, None).hash(&key),
            Err(error) if error.kind() == crate::ErrorKind::KeyMissing && engine.runs_without_key() => {
                return Ok(engine.run_unprotected(window, unprotected(work)).await);
            }
            Err(error) => return Err(error),
        };
        let candidate = Candidate { key, fingerprint: self.fingerprint? };
        let operation = engine.log_name(self.name);
        match engine.run_protected(candidate, window, self.patience, self.probe, work).await {
            Ok((outcome, attempt)) => {
                telemetry::outcome(&outcome, &operation, key, attempt);
                Ok(outcome)
            }
            Err(error) => {
                telemetry::error(&error, &operation, key);
                Err(error)
            }
        }
    }
}

impl Idempotency {
    /// Claims an operation, runs its work and settles it. The outcome, and how often the key has been granted.
    pub(crate) async fn run_protected<T, P, E, W, F>(
        &self,
        candidate: Candidate,
        window: Window,
        patience: Duration,
        probe: P,
        work: W,
    ) -> Result<(Outcome<T>, u64), Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(Option<Claim>) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let claim = match self.claim_or_wait(candidate, window, patience).await? {
            Standing::Claimed(claim) => claim,
            Standing::Refused(refusal) => return replay(refusal).map(|outcome| (outcome, 0)),
            Standing::NotStarted => return Ok((Outcome::NotStarted, 0)),
        };
        let given = claim.clone();
        let work = async move {
            if let Probed::Done(found) = probed(&given, |claim| probe.probe(claim)).await? {
                return Ok(Success::Recover(found));
            }
            work(Some(given)).await.map(Success::Remember).map_err(Into::into)
        };
        let outcome = self.conclude(&claim, work).await.into_outcome(&claim, |value| value, replay)?;
        Ok((outcome, claim.attempt()))
    }

    /// Claims a single operation. Past the stop point nothing is claimed.
    pub(crate) async fn claim_one(&self, candidate: Candidate, window: Window) -> Result<Standing, Error> {
        if self.clock.now() >= window.stop {
            return Ok(Standing::NotStarted);
        }
        self.claim(&[candidate], window).await.pop().unwrap_or(Ok(Standing::NotStarted))
    }

    pub(crate) fn runs_without_key(&self) -> bool {
        self.settings.missing_key == MissingKey::RunUnprotected
    }
}

/// Work that runs without a claim. It is called inside, so that a panic in the call is caught too.
async fn unprotected<T, E: Into<Failure>, F>(work: impl FnOnce(Option<Claim>) -> F + Send) -> Result<T, Failure>
where
    F: Future<Output = Result<T, E>> + Send,
{
    work(None).await.map_err(Into::into)
}

/// The outcome of an operation that did not run.
fn replay<T: DeserializeOwned>(refusal: Refusal) -> Result<Outcome<T>, Error> {
    Ok(match refusal {
        Refusal::Completed(record) => match result::decode(&record.result)? {
            Some(value) => Outcome::Replayed(value),
            None => Outcome::ReplayedWithoutResult,
        },
        Refusal::Failed(record) => Outcome::ReplayedFailure(result::decode_failure(&record.result)?),
        Refusal::InProgress { lease_until, attempt } => Outcome::InProgress { lease_until, attempt },
        Refusal::Abandoned { attempt } => Outcome::Abandoned { attempt },
        Refusal::Mismatch => Outcome::Mismatch,
    })
}
