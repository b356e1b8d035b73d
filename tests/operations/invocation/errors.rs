//! The handler's errors: the settles of their claims, and the errors of the caller.

use std::{fmt, time::Duration};

use anyhow::Context as _;
use lambda_once::{
    BoxError, Classify, Failure, Verdict,
    invocation::{HandlerError, InvocationError},
};
use lambda_runtime::Diagnostic;

use crate::invocation::setup::{Function, LAPSE, order, refusal};

/// An error with a verdict on its operation.
#[derive(Debug, PartialEq)]
struct Charge(Verdict);

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not charged")
    }
}

impl std::error::Error for Charge {}

impl HandlerError for Charge {
    fn as_error(&self) -> &(dyn std::error::Error + 'static) {
        self
    }

    fn verdict(&self) -> Option<Verdict> {
        Some(self.0)
    }
}

/// The same error without a verdict.
#[derive(Debug, thiserror::Error)]
#[error("not charged")]
struct Plain(#[source] Cause);

#[derive(Debug, thiserror::Error)]
#[error("the bank's answer was {0:?}")]
struct Cause(Verdict);

lambda_once::handler_error!(Plain);

impl From<Charge> for Diagnostic {
    fn from(error: Charge) -> Self {
        Self { error_type: "ChargeFailed".to_owned(), error_message: error.to_string() }
    }
}

#[test]
fn handler_error_gives_the_runtime_the_types_name() {
    let diagnostic = Diagnostic::from(Plain(Cause(Verdict::Unknown)));
    assert_eq!(diagnostic.error_type, std::any::type_name::<Plain>());
    assert_eq!(diagnostic.error_message, "not charged");
}

fn own<R, E>(answer: Result<R, InvocationError<E>>) -> E {
    match answer {
        Err(InvocationError::Handler(error)) => error,
        Err(_) => panic!("an error of the library"),
        Ok(_) => panic!("a result"),
    }
}

/// Returns the result of the second invocation after the first one's error, a run or the kind of a refusal.
async fn after<E: HandlerError + Send + 'static>(
    error: impl Fn() -> E + Clone + Send + Sync + 'static,
) -> Result<u32, &'static str> {
    let handler = move |run, _| {
        let end = if run == 1 { Err(error()) } else { Ok(run) };
        async move { end }
    };
    let function = Function::with(|engine| engine.classify(|cause: &Cause| cause.0), |layer| layer, handler);
    own(function.invoke(order()).await);
    match function.invoke(order()).await {
        Ok(run) => Ok(run),
        error => Err(refusal(error).0),
    }
}

fn broken() -> Result<(), std::io::Error> {
    Err(std::io::Error::other("broken"))
}

#[tokio::test]
async fn a_verdict_is_found_in_every_kind_of_error() {
    assert_eq!(after::<BoxError>(|| "busy".into()).await, Ok(2));
    assert_eq!(after(|| anyhow::anyhow!("busy")).await, Ok(2));
    assert_eq!(after(|| Failure::transient("busy")).await, Ok(2));
    assert_eq!(after(|| Charge(Verdict::Transient)).await, Ok(2));

    let (permanent, unknown) = (Err("replayed_failure"), Err("in_progress"));
    assert_eq!(after::<BoxError>(|| broken().permanent().unwrap_err().into()).await, permanent);
    assert_eq!(after(|| broken().permanent().context("while charging").unwrap_err()).await, permanent);
    assert_eq!(after(|| Failure::permanent("declined")).await, permanent);
    assert_eq!(after(|| Charge(Verdict::Permanent)).await, permanent);

    assert_eq!(after::<BoxError>(|| broken().unknown().unwrap_err().into()).await, unknown);
    assert_eq!(after(|| broken().unknown().context("while charging").unwrap_err()).await, unknown);
    assert_eq!(after(|| Failure::unknown("timed out")).await, unknown);
    assert_eq!(after(|| Charge(Verdict::Unknown)).await, unknown);
}

#[tokio::test]
async fn an_error_without_a_mark_is_left_to_the_classifiers() {
    let expected = [
        (Verdict::Transient, Ok(2)),
        (Verdict::Permanent, Err("replayed_failure")),
        (Verdict::Unknown, Err("in_progress")),
        (Verdict::Superseded, Err("superseded")),
    ];
    for (verdict, expected) in expected {
        assert_eq!(after(move || Plain(Cause(verdict))).await, expected, "its own type");
        assert_eq!(after(move || BoxError::from(Plain(Cause(verdict)))).await, expected, "boxed");
        assert_eq!(after(move || anyhow::Error::from(Cause(verdict))).await, expected, "of anyhow");
        assert_eq!(after(move || Failure::from(Plain(Cause(verdict)))).await, expected, "a failure");
        let marked = move || Charge(if verdict == Verdict::Unknown { Verdict::Transient } else { verdict });
        assert_eq!(after(marked).await, if verdict == Verdict::Unknown { Ok(2) } else { expected }, "its own word");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_with_a_timeout_among_its_sources_keeps_the_claim() {
    let late = || tokio::time::timeout(Duration::from_secs(1), std::future::pending::<u32>());
    let function = Function::of(move |_, _| async move { late().await.context("the bank") });
    assert!(own(function.invoke(order()).await).is::<tokio::time::error::Elapsed>());
    assert_eq!(refusal(function.invoke(order()).await).0, "in_progress");

    let marked =
        Function::of(move |run, _| async move { if run == 1 { Ok(late().await.transient()?) } else { Ok(run) } });
    let _: BoxError = own(marked.invoke(order()).await);
    assert_eq!(marked.invoke(order()).await.ok(), Some(2), "the mark counts");
}

#[tokio::test]
async fn the_handlers_error_is_handed_on_unchanged() {
    for verdict in [Verdict::Transient, Verdict::Permanent, Verdict::Unknown] {
        let function = Function::<u32, _>::of(move |_, _| async move { Err(Charge(verdict)) });
        assert_eq!(own(function.invoke(order()).await), Charge(verdict));
    }
    let function = Function::<u32, BoxError>::of(|_, _| async move { Ok(broken().permanent().map(|()| 1)?) });
    let error = own(function.invoke(order()).await);
    assert_eq!(Verdict::of(&*error), Verdict::Permanent, "with its mark");
}

#[test]
fn the_verdict_of_an_error_is_by_default_its_mark() {
    let marked = BoxError::from(broken().permanent().unwrap_err());
    assert_eq!(HandlerError::verdict(&marked), Some(Verdict::Permanent));
    assert_eq!(HandlerError::verdict(&BoxError::from("busy")), None);
}

#[tokio::test]
async fn the_source_of_an_invocations_error_is_that_of_the_handlers_error() {
    let function = Function::<u32, _>::of(|_, _| async { Err(Plain(Cause(Verdict::Transient))) });
    let error = function.invoke(order()).await.unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the bank's answer was Transient");
}

#[tokio::test]
async fn a_handlers_error_type_is_the_one_that_lambda_reports_without_the_layer() {
    let function = Function::<u32, _>::of(|_, _| async { Err(Charge(Verdict::Transient)) });
    let error = function.invoke(order()).await.unwrap_err();
    assert_eq!(error.to_string(), "not charged");
    assert_eq!(format!("{error:?}"), "Charge(Transient)");
    assert_eq!(Diagnostic::from(error), Diagnostic::from(Charge(Verdict::Transient)));

    let function = Function::<u32, BoxError>::of(|_, _| async { Err("busy".into()) });
    let error = function.invoke(order()).await.unwrap_err();
    assert_eq!(Diagnostic::from(error), Diagnostic::from(BoxError::from("busy")));
}

#[tokio::test]
async fn the_error_type_of_a_failure_names_its_verdict() {
    for (failure, name) in [
        (Failure::transient("no"), "lambda_once.transient_failure"),
        (Failure::permanent("no"), "lambda_once.permanent_failure"),
        (Failure::unknown("no"), "lambda_once.unknown_failure"),
    ] {
        let reported = Diagnostic::from(failure);
        assert_eq!((reported.error_type.as_str(), reported.error_message.as_str()), (name, "no"));
    }
}

#[tokio::test]
async fn a_permanent_error_is_replayed_with_its_text() {
    let function = Function::<u32, _>::of(|_, _| async { Err(Failure::permanent("card declined")) });
    own(function.invoke(order()).await);
    let replayed = function.invoke(order()).await.unwrap_err();
    let reported = Diagnostic::from(replayed);
    assert_eq!(reported.error_type, "lambda_once.replayed_failure");
    assert!(reported.error_message.ends_with("the operation failed permanently before: card declined"));
    assert_eq!(refusal(function.invoke(order()).await), ("replayed_failure", false));
    assert_eq!(function.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_error_keeps_the_claim_until_its_lease_ends() {
    let function =
        Function::of(|run, _| async move { if run == 1 { Err(Failure::unknown("timed out")) } else { Ok(run) } });
    own(function.invoke(order()).await);
    assert_eq!(function.refusal().await, ("in_progress", true));
    tokio::time::advance(LAPSE).await;
    assert_eq!(function.invoke(order()).await.unwrap(), 2);
}

#[tokio::test]
async fn an_unprotected_run_hands_its_error_on_too() {
    let fails = |_, _| async { Err::<u32, _>(Charge(Verdict::Permanent)) };
    let function = Function::with(|engine| engine.disabled(true), |layer| layer, fails);
    assert_eq!(own(function.invoke(order()).await), Charge(Verdict::Permanent));
}

#[tokio::test]
async fn an_error_whose_text_panics_is_handed_on_and_remembered() {
    #[derive(Debug)]
    struct Nasty;
    impl fmt::Display for Nasty {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("in display");
        }
    }
    impl std::error::Error for Nasty {}
    impl HandlerError for Nasty {
        fn as_error(&self) -> &(dyn std::error::Error + 'static) {
            self
        }

        fn verdict(&self) -> Option<Verdict> {
            Some(Verdict::Permanent)
        }
    }
    assert_eq!(after(|| Nasty).await, Err("replayed_failure"));
}
