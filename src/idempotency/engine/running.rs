//! Runs: a handler within the bounds of its invocation, and what its end asks of the store.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use serde::Serialize;

use super::{
    Conclusion, Success,
    settling::{Due, End},
};
#[cfg(feature = "batch")]
use crate::idempotency::guard::contain;
use crate::{
    Claim, Failure, Idempotency, Interruption, OnPanic, Outcome, Verdict,
    idempotency::{
        guard::{Ended, Guarded, discard},
        result,
        window::Window,
    },
    store::Settlement,
};

/// How the run of a claimed operation ended.
#[derive(Debug)]
pub(crate) enum Finished<T> {
    /// The claim is to be settled.
    Due(Due<T>),
    /// The claim stands until its lease ends.
    Concluded(Conclusion<T>),
}

impl Idempotency {
    /// Runs a claimed operation. Of its value, `keep` makes what is to be kept besides the stored result.
    pub(crate) async fn run<T, U, F>(&self, claim: &Claim, work: F, keep: impl FnOnce(T) -> U + Send) -> Finished<U>
    where
        T: Serialize + Send,
        U: Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let finished = self.guarded(work, claim.window, |ended| self.ended(claim, ended, keep)).await;
        finished.unwrap_or(Finished::Concluded(Conclusion::Interrupted(Interruption::Panicked)))
    }

    /// What the end of a claimed operation's run asks of the store. The value is encoded by code of the user's, which may
    /// panic.
    fn ended<T: Serialize, U>(
        &self,
        claim: &Claim,
        ended: Ended<Result<Success<T>, Failure>>,
        keep: impl FnOnce(T) -> U,
    ) -> Finished<U> {
        match ended {
            Ended::Returned(Ok(Success::Remember(value))) => {
                let settlement = self.completion(&value);
                Finished::Due(Due::new(settlement, End::Completed(keep(value))))
            }
            Ended::Returned(Ok(Success::Recover(value))) => {
                let settlement = self.completion(&value);
                Finished::Due(Due::new(settlement, End::Recovered(keep(value))))
            }
            Ended::Returned(Ok(Success::Forget(value))) => {
                Finished::Due(Due::release(claim, End::Forgotten(keep(value))))
            }
            Ended::Returned(Ok(Success::Doubt(value))) => Finished::Concluded(Conclusion::Doubted(keep(value))),
            Ended::Returned(Err(failure)) => self.failed(claim, failure),
            Ended::CutOff => Finished::Concluded(Conclusion::Interrupted(Interruption::CutOff)),
            Ended::NotStarted => Finished::Due(Due::release(claim, End::NotStarted)),
            Ended::Panicked(message) => {
                tracing::error!(target: "lambda_once", key = %claim.key(), panic = message, "a panic ended the run");
                match self.settings.on_panic {
                    OnPanic::Transient => Finished::Due(Due::release(claim, End::Panicked)),
                    _ => Finished::Concluded(Conclusion::Interrupted(Interruption::Panicked)),
                }
            }
        }
    }

    fn completion<T: Serialize>(&self, value: &T) -> Settlement {
        let result = result::encode(value, &self.settings, self.store.limits());
        Settlement::Complete { result, retention: self.settings.retention() }
    }

    fn failed<T>(&self, claim: &Claim, failure: Failure) -> Finished<T> {
        match failure.verdict() {
            Verdict::Unknown => Finished::Concluded(Conclusion::Failed(failure)),
            Verdict::Transient => Finished::Due(Due::release(claim, End::Failed(failure))),
            Verdict::Permanent => {
                let result = result::encode_failure(&failure, &self.settings, self.store.limits());
                let settlement = Settlement::Fail { result, retention: self.settings.failed_retention() };
                Finished::Due(Due::new(settlement, End::Failed(failure)))
            }
        }
    }

    /// Runs work without a claim, still within the bounds of an invocation.
    pub(crate) async fn run_unprotected<T, F>(&self, window: Window, work: F) -> Outcome<T>
    where
        T: Send,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let outcome = self.guarded(work, window, |ended| ended_unprotected(ended, |value| value)).await;
        outcome.unwrap_or_else(|| ended_unprotected(Ended::Panicked(None), |value| value))
    }

    /// Runs an operation of a batch, with a claim or without.
    ///
    /// No `async fn`: that would hold its work twice, as an argument and as a future that it awaits.
    #[cfg(feature = "batch")]
    pub(crate) fn run_record<T, F>(
        &self,
        claim: Option<Claim>,
        window: Window,
        work: F,
    ) -> impl Future<Output = Ran<()>> + Send
    where
        T: Serialize + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let ended = {
            let claim = claim.clone();
            move |ended| match claim {
                Some(claim) => {
                    let finished = self.ended(&claim, ended, forget);
                    Ran::Protected(claim, finished)
                }
                None => Ran::Unprotected(ended_unprotected(ended, forget)),
            }
        };
        self.guarded(work, window, ended).map(|ran| ran.unwrap_or_else(|| Ran::panicked(claim)))
    }

    /// Runs several operations of one invocation, with claims or without, by one piece of work that gives a verdict for
    /// each, in their order. How each ended, in the same order.
    #[cfg(feature = "batch")]
    pub(crate) async fn run_together<T, F>(
        &self,
        claims: Vec<Option<Claim>>,
        window: Window,
        work: F,
        miscounted: impl Fn(usize) -> Failure + Send,
    ) -> Vec<Ran<()>>
    where
        T: Serialize + Send,
        F: Future<Output = Vec<Result<T, Failure>>> + Send,
    {
        let mut ended = self.guarded(work, window, |ended| ended).await.unwrap_or(Ended::Panicked(None));
        if let Ended::Returned(verdicts) = &mut ended
            && verdicts.len() != claims.len()
        {
            let given = verdicts.len();
            // What is the user's may panic when it is dropped.
            let _ = contain(|| drop(std::mem::take(verdicts)));
            verdicts.extend(claims.iter().map(|_| Err(miscounted(given))));
        }
        let ends: Vec<Ended<Result<T, Failure>>> = match ended {
            Ended::Returned(verdicts) => verdicts.into_iter().map(Ended::Returned).collect(),
            Ended::Panicked(message) => claims.iter().map(|_| Ended::Panicked(message.clone())).collect(),
            Ended::CutOff => claims.iter().map(|_| Ended::CutOff).collect(),
            Ended::NotStarted => claims.iter().map(|_| Ended::NotStarted).collect(),
        };
        let run = |(claim, ended): (Option<Claim>, Ended<Result<T, Failure>>)| match claim {
            None => Ran::Unprotected(ended_unprotected(ended, forget)),
            Some(claim) => {
                let finished = contain(|| {
                    let ended = ended.map(|verdict| verdict.map(Success::Remember));
                    self.ended(&claim, ended, forget)
                });
                let panicked = Finished::Concluded(Conclusion::Interrupted(Interruption::Panicked));
                Ran::Protected(claim, finished.unwrap_or(panicked))
            }
        };
        claims.into_iter().zip(ends).map(run).collect()
    }

    /// Runs work within the bounds of an invocation, and hands its end on. `None` if it panicked outside of its run, as its
    /// future may when it is dropped.
    fn guarded<F, U>(
        &self,
        work: F,
        window: Window,
        ended: impl FnOnce(Ended<F::Output>) -> U + Send,
    ) -> impl Future<Output = Option<U>> + Send
    where
        F: Future + Send,
    {
        // The future is dropped before its end is handed on, and so within what catches panics.
        let run = Guarded::new(work, Arc::clone(&self.clock), window.stop).map(ended);
        AssertUnwindSafe(run).catch_unwind().map(|caught| caught.map_err(discard).ok())
    }
}

/// How the run of an operation of a batch ended.
#[cfg(feature = "batch")]
#[derive(Debug)]
pub(crate) enum Ran<T> {
    Unprotected(Outcome<T>),
    Protected(Claim, Finished<T>),
}

#[cfg(feature = "batch")]
impl<T> Ran<T> {
    /// The run panicked where its end is not known.
    fn panicked(claim: Option<Claim>) -> Self {
        match claim {
            Some(claim) => Self::Protected(claim, Finished::Concluded(Conclusion::Interrupted(Interruption::Panicked))),
            None => Self::Unprotected(ended_unprotected(Ended::Panicked(None), |value| value)),
        }
    }
}

/// Only the stored form of a value is needed. Dropping it runs code of the user's.
#[cfg(feature = "batch")]
pub(crate) fn forget<T>(value: T) {
    let _ = contain(|| drop(value));
}

fn ended_unprotected<T, U>(ended: Ended<Result<T, Failure>>, keep: impl FnOnce(T) -> U) -> Outcome<U> {
    match ended {
        Ended::Returned(Ok(value)) => Outcome::Executed(keep(value)),
        Ended::Returned(Err(failure)) => Outcome::Failed(failure),
        Ended::Panicked(message) => {
            tracing::error!(target: "lambda_once", panic = message, "the handler panicked, unprotected");
            Outcome::Interrupted(Interruption::Panicked)
        }
        Ended::CutOff => Outcome::Interrupted(Interruption::CutOff),
        Ended::NotStarted => Outcome::NotStarted,
    }
}
