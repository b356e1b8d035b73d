//! Classifiers: what errors of the user's types say about their operations.

#[cfg(feature = "http")]
use std::any::Any;
use std::{error::Error as StdError, fmt, marker::PhantomData, sync::Arc};

use super::{
    guard::catch_panic,
    verdict::{Failure, Verdict, chain},
};
#[cfg(feature = "http")]
use crate::error::BoxError;

/// The classifiers of an engine, in the order in which they are asked.
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

    /// The failure with its verdict: its mark, or what the classifiers say of it.
    pub(crate) fn judge(&self, failure: Failure) -> Failure {
        if failure.is_judged() || self.0.is_empty() {
            return failure;
        }
        match self.of(failure.source()) {
            Some(verdict) => Failure::new(verdict, failure.into_source()),
            None => failure,
        }
    }

    /// What an error says by its mark or, without one, by its type.
    #[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
    pub(crate) fn verdict(&self, error: &(dyn StdError + 'static)) -> Option<Verdict> {
        Verdict::marked(error).or_else(|| self.of(error))
    }

    /// The same of a value that may be an error, a boxed one included.
    #[cfg(feature = "http")]
    pub(crate) fn verdict_of_any(&self, value: &dyn Any) -> Option<Verdict> {
        if let Some(failure) = value.downcast_ref::<Failure>() {
            return Some(failure.verdict()).filter(|_| failure.is_judged()).or_else(|| self.of(failure.source()));
        }
        if let Some(error) = value.downcast_ref::<BoxError>() {
            return self.verdict(&**error);
        }
        #[cfg(feature = "anyhow")]
        if let Some(error) = value.downcast_ref::<anyhow::Error>() {
            return self.verdict(&**error);
        }
        self.verdict(self.0.iter().find_map(|classifier| classifier.as_error(value))?)
    }

    /// What the classifiers say of the outermost error of a chain that one of them knows.
    fn of(&self, error: &(dyn StdError + 'static)) -> Option<Verdict> {
        chain(error).find_map(|error| self.0.iter().find_map(|classifier| classifier.verdict(error)))
    }
}

impl fmt::Debug for Classifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|classifier| classifier.name())).finish()
    }
}

/// A classifier, without the type of its errors.
trait Classifier: Send + Sync {
    fn name(&self) -> &'static str;

    /// `None` if the error is of another type, or the classifier says nothing of it.
    fn verdict(&self, error: &(dyn StdError + 'static)) -> Option<Verdict>;

    /// The value as the error that it is, if it is of the classifier's type.
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
        // As sources, the standard library's pointers pass over what they point to.
        let error = error
            .downcast_ref::<E>()
            .or_else(|| error.downcast_ref::<Arc<E>>().map(|error| &**error))
            .or_else(|| error.downcast_ref::<Box<E>>().map(|error| &**error))?;
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
