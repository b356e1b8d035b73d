//! The verdict of a decoder for a body that it cannot decode counts. Its panic decides nothing.

use std::{borrow::Cow, sync::Arc};

use lambda_once::{
    BoxError, Builder, Classify, Error, ErrorKind, Failure, Key, Payload, PermanentFailures, Verdict,
    batch::{BatchService, Handler, Processed, RecordInfo, Source},
    store::fault::Call,
};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

use crate::{
    sqs::dead_letters::Letters,
    world::{World, ids, order, seconds, work},
};

/// A source of bodies with the ids `m0`, `m1` and so on, ordered or unordered.
#[derive(Clone)]
struct Bodies {
    in_order: bool,
}

impl Source for Bodies {
    type Event = Vec<Value>;
    type Record = (usize, Value);
    type Rest = ();
    type Body = String;
    type Response = Vec<String>;

    const OPERATION: &'static str = "bodies";

    fn split(&self, event: Vec<Value>) -> Result<(Vec<(usize, Value)>, ()), Error> {
        Ok((event.into_iter().enumerate().collect(), ()))
    }

    fn lane<'a>(&self, _: &'a (usize, Value)) -> Option<Cow<'a, str>> {
        self.in_order.then_some(Cow::Borrowed("all"))
    }

    fn open(&self, (number, body): (usize, Value)) -> (RecordInfo, String) {
        (RecordInfo::new(format!("m{number}")), body.to_string())
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<Vec<String>, Error> {
        Ok(failed.iter().map(|record| record.id().to_owned()).collect())
    }
}

/// The failures of a decoder that a later delivery may avoid.
const FOR_NOW: [&str; 4] = ["transient", "transient inside", "unknown", "panic"];

/// Decodes a body, or fails as the body specifies.
fn decode(body: &str) -> Result<Value, BoxError> {
    let job: Value = serde_json::from_str(body)?;
    let away = || Err::<Value, _>(std::io::Error::other("the schema registry is away"));
    match job["act"].as_str() {
        Some("transient") => Ok(away().classify(|_| Verdict::Transient)?),
        Some("transient inside") => {
            let error = away().classify(|_| Verdict::Transient).unwrap_err();
            Err(anyhow::Error::new(error).context("the body has no schema").into())
        }
        Some("unknown") => Ok(away().unknown()?),
        Some("permanent") => Ok(away().permanent()?),
        Some("unmarked") => Ok(away()?),
        Some("panic") => std::panic::resume_unwind(Box::new("the decoder is on fire")),
        _ => Ok(job),
    }
}

fn service(
    world: &World,
    in_order: bool,
) -> BatchService<Bodies, impl Handler<Value, (Value,)> + use<>, Value, (Value,)> {
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    world.once.batch(Bodies { in_order }, Key::pointer("/order_id"), |_, body| decode(body), handler)
}

/// Delivers two bodies with a minute left, of which the first may not be decoded, and returns the reported ids.
async fn deliver<H: Handler<Value, (Value,)>>(
    world: &World,
    service: &BatchService<Bodies, H, Value, (Value,)>,
    act: &str,
) -> Vec<String> {
    let event = vec![work("A", act, 0), order("B")];
    let Processed { response, .. } = service.process(LambdaEvent::new(event, world.left(seconds(60)))).await;
    response.unwrap()
}

// Tests B7.
#[tokio::test(start_paused = true)]
async fn a_temporarily_undecodable_record_is_reported_under_every_policy() {
    for act in FOR_NOW {
        for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
            let world = World::new();
            let service = service(&world, false).permanent_failures(policy);
            assert_eq!(deliver(&world, &service, act).await, ids(0..1), "{act}, {policy:?}");
            assert_eq!(
                world.store.calls(),
                [(Call::Claim, 1), (Call::Settle, 1)],
                "of the second; the first never ran"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_temporarily_undecodable_record_is_not_dead_lettered() {
    for act in FOR_NOW {
        let (world, letters) = (World::new(), Letters::new());
        let service = service(&world, false).dead_letters(letters.clone());
        assert_eq!((deliver(&world, &service, act).await, letters.ids()), (ids(0..1), vec![]), "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_temporarily_undecodable_record_blocks_those_behind_it() {
    for act in FOR_NOW {
        let world = World::new();
        let service = service(&world, true).permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(deliver(&world, &service, act).await, ids(0..2), "{act}");
        assert!(world.records().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanently_undecodable_record_follows_the_policy_marked_or_not() {
    for act in ["unmarked", "permanent"] {
        let world = World::new();
        assert_eq!(deliver(&world, &service(&world, false), act).await, ids(0..1), "{act}");
        let acknowledging = service(&world, false).permanent_failures(PermanentFailures::Acknowledge);
        assert!(deliver(&world, &acknowledging, act).await.is_empty());
        let letters = Letters::new();
        assert!(deliver(&world, &service(&world, false).dead_letters(letters.clone()), act).await.is_empty());
        assert_eq!(letters.ids(), ids(0..1));
        assert_eq!(world.calls(Call::Claim), [1; 3], "of the second; no failure of the first is recorded");
    }
}

/// Returns a user-defined selector that fails as the body's `act` specifies, and otherwise returns the key.
fn found() -> Key {
    Key::from_fn(|delivery| Ok(decode(std::str::from_utf8(delivery.body())?)?["order_id"].as_str().map(str::to_owned)))
}

/// Returns services in which such a selector computes the key, the payload, the entity or the sequence.
fn finding(world: &World, nth: usize) -> BatchService<Bodies, impl Handler<Value, (Value,)> + use<>, Value, (Value,)> {
    let pointer = || Key::pointer("/order_id");
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    let decode = |_: &RecordInfo, body: &String| serde_json::from_str::<Value>(body).map_err(BoxError::from);
    let key = if nth == 0 { found() } else { pointer() };
    let service = world.once.batch(Bodies { in_order: false }, key, decode, handler);
    let service = service.permanent_failures(PermanentFailures::Acknowledge);
    match nth {
        1 => service.payload(Payload::Part(found())),
        2 => service.ordered_by(found(), Key::pointer("/ms")),
        3 => service.ordered_by(pointer(), found().parse_json("")),
        _ => service,
    }
}

// Tests B7.
#[tokio::test(start_paused = true)]
async fn a_key_functions_error_keeps_its_verdict() {
    for nth in 0..4 {
        for act in FOR_NOW {
            let world = World::new();
            let service = finding(&world, nth);
            let event = LambdaEvent::new(vec![work("1", act, 0)], world.left(seconds(60)));
            let Processed { response, records, .. } = service.process(event).await;
            assert_eq!((response.unwrap(), records[0].outcome), (ids(0..1), Err(ErrorKind::Decode)), "{act}, {nth}");
            assert!(world.store.calls().is_empty());
        }
        for act in ["unmarked", "permanent"] {
            let world = World::new();
            let service = finding(&world, nth);
            let event = LambdaEvent::new(vec![work("1", act, 0)], world.left(seconds(60)));
            let Processed { response, records, .. } = service.process(event).await;
            let kind = if nth < 2 { ErrorKind::Payload } else { ErrorKind::Order };
            assert_eq!((response.unwrap(), records[0].outcome), (vec![], Err(kind)), "{act}, {nth}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_key_has_the_verdict_that_a_classifier_gives() {
    let classified = |builder: Builder| builder.classify(|_: &std::io::Error| Verdict::Transient);
    let world = World::with(classified);
    let service = finding(&world, 0);
    let event = LambdaEvent::new(vec![work("1", "unmarked", 0)], world.left(seconds(60)));
    assert_eq!(service.process(event).await.response.unwrap(), ids(0..1));
}

/// The library's own error about a key is around the error of the key's function.
#[tokio::test(start_paused = true)]
async fn a_classifier_of_the_librarys_errors_is_not_asked_about_a_key() {
    let world = World::with(|builder| builder.classify(|_: &Error| Verdict::Transient));
    let service = finding(&world, 0);
    let event = LambdaEvent::new(vec![work("1", "unmarked", 0)], world.left(seconds(60)));
    assert_eq!(service.process(event).await.response.unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_default_decoder_has_the_verdict_of_a_classifier() {
    for (settings, reported) in [
        ((|builder| builder) as fn(Builder) -> Builder, vec![]),
        (|builder| builder.classify(|_: &serde_json::Error| Verdict::Transient), ids(0..1)),
    ] {
        let world = World::with(settings);
        let service = world.once.sqs(Key::pointer("/order_id"), |_: u64| async { Ok::<_, Failure>(()) });
        let service = service.permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(world.deliver_to(&service, [order("A")]).await, reported);
    }
}

// Tests B11.
#[tokio::test(start_paused = true)]
async fn a_decoder_that_panics_does_not_stop_a_stream_that_has_dead_letters() {
    let (world, letters) = (World::new(), Letters::new());
    let service = service(&world, true).dead_letters(letters.clone());
    assert_eq!((deliver(&world, &service, "panic").await, letters.ids()), (vec![], ids(0..1)));
    assert_eq!(letters.sent()[0].outcome, Err(ErrorKind::Decode));
    for act in ["transient", "unknown"] {
        let (world, letters) = (World::new(), Letters::new());
        let service = self::service(&world, true).dead_letters(letters.clone());
        assert_eq!((deliver(&world, &service, act).await, letters.ids()), (ids(0..2), vec![]), "it may pass: {act}");
    }
}
