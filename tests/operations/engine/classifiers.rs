//! Verdicts that are derived from the user's error types.

use std::{io, sync::Arc};

use lambda_once::{BoxError, Builder, Classify, Failure, OnPanic, Outcome, Verdict, record::Status};
use thiserror::Error;
use tokio::task::JoinError;

use crate::{
    engine::{CHARGE, KEY, World},
    support::collector::Collector,
};

#[derive(Clone, Debug, Error)]
enum PaymentError {
    #[error("the card was declined")]
    Declined,
    #[error("the bank is busy")]
    Busy,
    #[error("the bank has not answered")]
    TimedOut,
}

/// An application's error, with the errors of its parts.
#[derive(Debug, Error)]
enum AppError {
    #[error(transparent)]
    Transparent(#[from] PaymentError),
    #[error("the order was not paid")]
    Unpaid(#[source] PaymentError),
    #[error("the order was not paid")]
    Shared(#[source] Arc<PaymentError>),
    #[error("the order was not paid")]
    Boxed(#[source] Box<PaymentError>),
    #[error("the order was not paid")]
    Io(#[from] io::Error),
    #[error("the order was not paid")]
    Marked(#[source] BoxError),
}

fn payments(builder: Builder) -> Builder {
    builder.classify(|error: &PaymentError| match error {
        PaymentError::Declined => Verdict::Permanent,
        PaymentError::Busy => Verdict::Transient,
        PaymentError::TimedOut => Verdict::Unknown,
    })
}

/// Returns the verdict for an operation that fails with this error, after checking the remaining record.
async fn verdict<E: Into<Failure>>(settings: impl FnOnce(Builder) -> Builder, error: E) -> Verdict {
    let world = World::with(settings);
    let error: Failure = error.into();
    let outcome = world.once.operation(CHARGE, KEY).run(|| async { Err::<(), _>(error) }).await.unwrap();
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    let left = match failure.verdict() {
        Verdict::Permanent => Some(Status::Failed),
        Verdict::Unknown => Some(Status::InProgress),
        _ => None,
    };
    assert_eq!(world.record().await.map(|record| record.status), left);
    failure.verdict()
}

#[tokio::test(start_paused = true)]
async fn an_error_type_of_the_users_has_the_verdict_that_its_classifier_gives() {
    for (error, expected) in [
        (PaymentError::Declined, Verdict::Permanent),
        (PaymentError::Busy, Verdict::Transient),
        (PaymentError::TimedOut, Verdict::Unknown),
    ] {
        let world = World::with(payments);
        let work = || async { Err::<(), PaymentError>(error.clone()) };
        let outcome = world.once.operation(CHARGE, KEY).run(work).await.unwrap();
        assert!(matches!(outcome, Outcome::Failed(failure) if failure.verdict() == expected), "{error}");
        assert_eq!(verdict(payments, error).await, expected);
    }
    assert_eq!(verdict(|builder| builder, PaymentError::TimedOut).await, Verdict::Transient, "without a classifier");
}

#[tokio::test(start_paused = true)]
async fn a_classified_error_is_found_inside_its_wrappers() {
    let wraps: [fn(PaymentError) -> Failure; 10] = [
        |error| AppError::Unpaid(error).into(),
        |error| AppError::Shared(Arc::new(error)).into(),
        |error| AppError::Boxed(Box::new(error)).into(),
        |error| AppError::Io(io::Error::other(error)).into(),
        |error| Arc::new(error).into(),
        |error| io::Error::other(AppError::Unpaid(error)).into(),
        |error| BoxError::from(error).into(),
        |error| anyhow::Error::from(error).into(),
        |error| anyhow::Error::from(error).context("while charging").into(),
        |error| BoxError::from(anyhow::Error::from(error).context("while charging")).into(),
    ];
    for (number, wrap) in wraps.into_iter().enumerate() {
        assert_eq!(verdict(payments, wrap(PaymentError::Declined)).await, Verdict::Permanent, "{number}");
        assert_eq!(verdict(payments, wrap(PaymentError::TimedOut)).await, Verdict::Unknown, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_boxed_anyhow_error_hides_its_root_and_a_mark_shows_it() {
    let boxed = || BoxError::from(anyhow::Error::from(PaymentError::TimedOut));
    assert_eq!(verdict(payments, boxed()).await, Verdict::Transient, "if this fails, its documentation is out of date");
    let marked = Err::<(), _>(anyhow::Error::from(PaymentError::TimedOut)).unknown().unwrap_err();
    assert_eq!(verdict(payments, BoxError::from(marked)).await, Verdict::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_transparent_error_hides_its_source_from_all_but_its_own_classifier() {
    let hidden = || AppError::from(PaymentError::TimedOut);
    assert_eq!(
        verdict(payments, hidden()).await,
        Verdict::Transient,
        "if this fails, its documentation is out of date"
    );
    let inside = |builder: Builder| {
        builder.classify(|error: &AppError| match error {
            AppError::Transparent(PaymentError::TimedOut) => Some(Verdict::Unknown),
            _ => None,
        })
    };
    assert_eq!(verdict(inside, hidden()).await, Verdict::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_mark_wins_over_a_classifier_wherever_both_stand() {
    let marked = |error| Err::<(), PaymentError>(error).transient().unwrap_err();
    assert_eq!(verdict(payments, marked(PaymentError::Declined)).await, Verdict::Transient);
    assert_eq!(verdict(payments, Failure::transient(PaymentError::Declined)).await, Verdict::Transient);
    let all = |builder: Builder| payments(builder).classify(|_: &AppError| Verdict::Unknown);
    let inside = AppError::Marked(marked(PaymentError::Declined).into());
    assert_eq!(verdict(all, inside).await, Verdict::Transient, "a mark in the sources");
}

#[test]
fn a_mark_hides_no_error_in_the_chain_of_its_sources() {
    let marked = Err::<(), _>(AppError::Unpaid(PaymentError::Busy)).permanent().unwrap_err();
    let failure = Failure::from(marked);
    let outermost: &(dyn std::error::Error + 'static) = failure.source();
    let mut chain = std::iter::successors(Some(outermost), |error| error.source());
    assert!(chain.any(|error| error.is::<PaymentError>()));
}

#[tokio::test(start_paused = true)]
async fn the_outermost_error_with_a_classifier_counts() {
    let both = |builder: Builder| payments(builder).classify(|_: &AppError| Verdict::Unknown);
    assert_eq!(verdict(both, AppError::Unpaid(PaymentError::Declined)).await, Verdict::Unknown);
    assert_eq!(verdict(both, io::Error::other(AppError::Unpaid(PaymentError::Declined))).await, Verdict::Unknown);
    assert_eq!(verdict(both, PaymentError::Declined).await, Verdict::Permanent);
}

#[tokio::test(start_paused = true)]
async fn a_classifier_without_a_verdict_defers_to_the_next() {
    let some = |builder: Builder| {
        builder
            .classify(|error: &AppError| matches!(error, AppError::Shared(_)).then_some(Verdict::Unknown))
            .classify(|error: &PaymentError| matches!(error, PaymentError::Busy).then_some(Verdict::Superseded))
    };
    let all = |builder| payments(some(builder));
    assert_eq!(verdict(all, AppError::Unpaid(PaymentError::Declined)).await, Verdict::Permanent, "of its source");
    assert_eq!(verdict(all, AppError::Shared(Arc::new(PaymentError::Declined))).await, Verdict::Unknown);
    assert_eq!(verdict(some, PaymentError::Declined).await, Verdict::Transient, "no classifier decides");

    let first = |builder: Builder| payments(builder.classify(|_: &PaymentError| Verdict::Unknown));
    assert_eq!(verdict(first, PaymentError::Declined).await, Verdict::Unknown, "the first for a type is asked first");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_classifier_yields_unknown() {
    let panics =
        |builder: Builder| builder.classify(|error: &PaymentError| -> Verdict { panic!("not known: {error}") });
    let (collector, guard) = Collector::install();
    assert_eq!(verdict(panics, PaymentError::Declined).await, Verdict::Unknown);
    drop(guard);
    let lines = collector.lines();
    assert!(lines.iter().any(|line| line.get("classifier").ends_with("::PaymentError")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_sources_that_does_not_end_is_transient() {
    #[derive(Debug, Error)]
    #[error("around")]
    struct Around;

    #[derive(Debug)]
    struct Circle;
    impl std::fmt::Display for Circle {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("circle")
        }
    }
    impl std::error::Error for Circle {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&Self)
        }
    }
    let settings = |builder: Builder| builder.classify(|_: &Around| Verdict::Permanent);
    assert_eq!(verdict(settings, Circle).await, Verdict::Transient);
}

#[tokio::test(start_paused = true)]
async fn without_protection_an_error_has_its_verdict_too() {
    let world = World::with(|builder| payments(builder).disabled(true));
    let work = || async { Err::<(), _>(PaymentError::Declined) };
    let outcome = world.once.operation(CHARGE, KEY).run(work).await.unwrap();
    assert!(matches!(outcome, Outcome::Failed(failure) if failure.verdict() == Verdict::Permanent));
}

/// Returns the error of a task that panicked or was cancelled.
async fn ended(panics: bool) -> JoinError {
    let task = tokio::spawn(async move {
        if panics {
            std::panic::resume_unwind(Box::new("the bank is on fire"));
        }
        std::future::pending::<()>().await;
    });
    if !panics {
        task.abort();
    }
    task.await.unwrap_err()
}

#[derive(Debug, Error)]
#[error("the order was not paid")]
struct Unpaid(#[source] JoinError);

fn wraps() -> [fn(JoinError) -> Failure; 8] {
    [
        Failure::from,
        |error| BoxError::from(error).into(),
        |error| anyhow::Error::from(error).into(),
        |error| anyhow::Error::from(error).context("while charging").into(),
        |error| BoxError::from(anyhow::Error::from(Unpaid(error)).context("while charging")).into(),
        |error| io::Error::other(error).into(),
        |error| Arc::new(Unpaid(error)).into(),
        |error| io::Error::other(Unpaid(error)).into(),
    ]
}

fn transient_panics(builder: Builder) -> Builder {
    builder.on_panic(OnPanic::Transient)
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_task_that_is_awaited_counts_as_a_panic() {
    for (number, wrap) in wraps().into_iter().enumerate() {
        assert_eq!(verdict(|builder| builder, wrap(ended(true).await)).await, Verdict::Unknown, "{number}");
        assert_eq!(verdict(payments, wrap(ended(true).await)).await, Verdict::Unknown, "{number}");
        assert_eq!(verdict(transient_panics, wrap(ended(true).await)).await, Verdict::Transient, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_cancelled_may_have_taken_effect() {
    for (number, wrap) in wraps().into_iter().enumerate() {
        assert_eq!(verdict(|builder| builder, wrap(ended(false).await)).await, Verdict::Unknown, "{number}");
        assert_eq!(verdict(transient_panics, wrap(ended(false).await)).await, Verdict::Unknown, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_or_classifier_overrides_the_verdict_of_a_join_error() {
    let marked = Err::<(), _>(ended(true).await).permanent().unwrap_err();
    assert_eq!(verdict(|builder| builder, marked).await, Verdict::Permanent);
    let of_tasks =
        |builder: Builder| builder.classify(|error: &JoinError| error.is_cancelled().then_some(Verdict::Transient));
    assert_eq!(verdict(of_tasks, ended(false).await).await, Verdict::Transient);
    assert_eq!(verdict(of_tasks, ended(true).await).await, Verdict::Unknown, "of which it says nothing");
}
