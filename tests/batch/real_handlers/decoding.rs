//! What a decoder says of a body that it cannot decode counts, and its panic decides nothing.

use std::{borrow::Cow, sync::Arc};

use lambda_once::{
    BoxError, Classify, Error, Failure, Key, PermanentFailures, Verdict,
    batch::{BatchService, Handler, Processed, RecordInfo, Source},
    store::fault::Call,
};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

use crate::{
    sqs::dead_letters::Letters,
    world::{World, ids, order, seconds, work},
};

/// Bodies with the ids `m0`, `m1` and so on; with an order or without one.
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

/// What a decoder does that may do better in a later delivery.
const FOR_NOW: [&str; 4] = ["transient", "transient inside", "unknown", "panic"];

/// Decodes a body, or fails as it says.
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
    world.once.batch(Bodies { in_order }, Key::pointer("/order_id"), |body: &String| decode(body), handler)
}

/// Delivers two bodies, of which the first may not be decoded, with a minute left: the ids that are reported.
async fn deliver<H: Handler<Value, (Value,)>>(
    world: &World,
    service: &BatchService<Bodies, H, Value, (Value,)>,
    act: &str,
) -> Vec<String> {
    let event = vec![work("A", act, 0), order("B")];
    let Processed { response, .. } = service.process(LambdaEvent::new(event, world.left(seconds(60)))).await;
    response.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_for_now_is_reported_under_every_policy() {
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
async fn what_cannot_be_decoded_for_now_is_not_dead_lettered() {
    for act in FOR_NOW {
        let (world, letters) = (World::new(), Letters::new());
        let service = service(&world, false).dead_letters(letters.clone());
        assert_eq!((deliver(&world, &service, act).await, letters.ids()), (ids(0..1), vec![]), "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_for_now_blocks_those_behind_it() {
    for act in FOR_NOW {
        let world = World::new();
        let service = service(&world, true).permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(deliver(&world, &service, act).await, ids(0..2), "{act}");
        assert!(world.records().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_decoded_follows_the_policy_marked_or_not() {
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
