//! Classifiers, which return verdicts for errors of the user's types.

#[cfg(feature = "http")]
use std::any::Any;
use std::{error::Error as StdError, fmt, marker::PhantomData, sync::Arc};

use tokio::task::JoinError;

use super::{
    guard::catch_panic,
    policy::OnPanic,
    verdict::{Failure, Verdict, chain},
};
#[cfg(feature = "http")]
use crate::error::BoxError;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
use crate::error::Error;

/// The classifiers of an engine, in the order in which they are applied.
#[derive(Clone, Default)]
pub(crate) struct Classifiers(Vec<Arc<dyn Classifier>>);

impl Classifiers {
    pub(super) fn add<E, V>(&mut self, classify: impl Fn(&E) -> V + Send + Sync + 'static)
    where
        E: StdError + 'static,
        V: Into<Option<Verdict>>,
    {
        let verdict = move |error: &E| classify(error).into();
        self.0.push(Arc::new(OfType { verdict, error: PhantomData::<fn(&E)> }));
    }

    /// Returns the failure with its verdict, from its mark, from the classifiers, or from a task that panicked.
    pub(crate) fn judge(&self, failure: Failure, on_panic: OnPanic) -> Failure {
        if failure.is_judged() {
            return failure;
        }
        match self.of(failure.source(), on_panic) {
            Some(verdict) => Failure::new(verdict, failure.into_source()),
            None => failure,
        }
    }

    /// Returns the verdict on an error, from its mark or, without one, from its type.
    #[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
    pub(crate) fn verdict(&self, error: &(dyn StdError + 'static), on_panic: OnPanic) -> Option<Verdict> {
        Verdict::marked(error).or_else(|| self.of(error, on_panic))
    }

    /// Returns the error of a key, a payload's part or an order with the verdict of the user's function. A transient
    /// error is not a property of the delivery. Nothing ran, so an unknown one counts as transient too.
    #[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
    pub(crate) fn key_error(&self, error: Error, on_panic: OnPanic) -> Error {
        let verdict = chain(&error).find(|error| !error.is::<Error>()).and_then(|error| self.verdict(error, on_panic));
        match verdict {
            Some(Verdict::Transient | Verdict::Unknown) => {
                let message = "the key, the payload or the order cannot be found now, and its error is not permanent";
                Error::not_decoded(message).with_source(error)
            }
            Some(Verdict::Permanent | Verdict::Superseded) | None => error,
        }
    }

    /// Returns the verdict on an error of a service, from its mark or from the classifiers. Without either it is
    /// unknown if the error means that a future was dropped.
    #[cfg(any(feature = "http", feature = "invocation"))]
    pub(crate) fn verdict_of_service(&self, error: &(dyn StdError + 'static), on_panic: OnPanic) -> Option<Verdict> {
        self.verdict(error, on_panic).or_else(|| chain(error).any(is_elapsed).then_some(Verdict::Unknown))
    }

    /// Returns the verdict on a value that may be an error or a boxed error.
    #[cfg(feature = "http")]
    pub(crate) fn verdict_of_any(&self, value: &dyn Any, on_panic: OnPanic) -> Option<Verdict> {
        if let Some(failure) = value.downcast_ref::<Failure>() {
            let said = Some(failure.verdict()).filter(|_| failure.is_judged());
            return said.or_else(|| self.verdict_of_service(failure.source(), on_panic));
        }
        if let Some(error) = value.downcast_ref::<BoxError>() {
            return self.verdict_of_service(&**error, on_panic);
        }
        #[cfg(feature = "anyhow")]
        if let Some(error) = value.downcast_ref::<anyhow::Error>() {
            return self.verdict_of_service(&**error, on_panic);
        }
        let known = self.0.iter().find_map(|classifier| classifier.as_error(value));
        let is_task = || value.downcast_ref::<JoinError>().map(|error| error as _);
        let is_elapsed = || value.downcast_ref::<tokio::time::error::Elapsed>().map(|error| error as _);
        self.verdict_of_service(known.or_else(is_task).or_else(is_elapsed)?, on_panic)
    }

    /// Returns the classifiers' verdict on the outermost error of a chain that one of them applies to, or else the
    /// verdict on a task that was awaited.
    fn of(&self, error: &(dyn StdError + 'static), on_panic: OnPanic) -> Option<Verdict> {
        let by_type = chain(error).find_map(|error| self.0.iter().find_map(|classifier| classifier.verdict(error)));
        by_type
            .or_else(|| chain(error).find_map(|error| found::<JoinError>(error)).map(|ended| of_task(ended, on_panic)))
    }
}

/// Returns whether a timeout of `tower` or `tokio` dropped a future, which may have taken effect.
#[cfg(any(feature = "http", feature = "invocation"))]
fn is_elapsed(error: &(dyn StdError + 'static)) -> bool {
    error.is::<tower::timeout::error::Elapsed>() || error.is::<tokio::time::error::Elapsed>()
}

impl fmt::Debug for Classifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|classifier| classifier.name())).finish()
    }
}

/// Returns the verdict on a task that did not return. A panic counts as one in the handler that awaits the task. A
/// cancelled task ended at one of its awaits, like a cancelled handler.
fn of_task(ended: &JoinError, on_panic: OnPanic) -> Verdict {
    match on_panic {
        OnPanic::Transient if ended.is_panic() => Verdict::Transient,
        _ => Verdict::Unknown,
    }
}

/// Returns the error as this type, also if it is in one of the standard library's pointers, whose `source` skips the
/// error itself.
fn found<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    error
        .downcast_ref::<E>()
        .or_else(|| error.downcast_ref::<Arc<E>>().map(|error| &**error))
        .or_else(|| error.downcast_ref::<Box<E>>().map(|error| &**error))
}

/// A classifier, without the type of its errors.
trait Classifier: Send + Sync {
    fn name(&self) -> &'static str;

    /// Returns `None` if the error is of a different type, or if the classifier returns no verdict.
    fn verdict(&self, error: &(dyn StdError + 'static)) -> Option<Verdict>;

    /// Returns the value as an error, if it is of the classifier's type.
    #[cfg(feature = "http")]
    fn as_error<'a>(&self, value: &'a dyn Any) -> Option<&'a (dyn StdError + 'static)>;
}

struct OfType<E, F> {
    verdict: F,
    error: PhantomData<fn(&E)>,
}

impl<E, F> Classifier for OfType<E, F>
where
    E: StdError + 'static,
    F: Fn(&E) -> Option<Verdict> + Send + Sync,
{
    fn name(&self) -> &'static str {
        std::any::type_name::<E>()
    }

    fn verdict(&self, error: &(dyn StdError + 'static)) -> Option<Verdict> {
        let error = found::<E>(error)?;
        catch_panic(|| (self.verdict)(error)).unwrap_or_else(|| {
            let classifier = self.name();
            tracing::error!(target: "lambda_once", classifier, "the classifier of an error panicked: whether the operation took effect is not known");
            Some(Verdict::Unknown)
        })
    }

    #[cfg(feature = "http")]
    fn as_error<'a>(&self, value: &'a dyn Any) -> Option<&'a (dyn StdError + 'static)> {
        value.downcast_ref::<E>().map(|error| error as _)
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use super::*;

    #[tokio::test]
    async fn a_panicked_task_of_a_service_has_the_verdict_of_a_panic() {
        let ended = || async { tokio::spawn(async { std::panic::resume_unwind(Box::new(7)) }).await.unwrap_err() };
        let classifiers = Classifiers::default();
        for (on_panic, verdict) in [(OnPanic::Unknown, Verdict::Unknown), (OnPanic::Transient, Verdict::Transient)] {
            let values: [Box<dyn Any>; 3] = [
                Box::new(ended().await),
                Box::new(BoxError::from(ended().await)),
                Box::new(Failure::from(std::io::Error::other(ended().await))),
            ];
            for value in values {
                assert_eq!(classifiers.verdict_of_any(&*value, on_panic), Some(verdict));
            }
        }
        assert_eq!(classifiers.verdict_of_any(&"no error", OnPanic::Unknown), None);
    }
}
