//! Ordered operations. One record at a time works on an entity, and records older than the newest one are acknowledged
//! without running.

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use lambda_once::{
    BoxError, BoxFuture, Error, ErrorKind, Failure, Key, MissingKey, Outcome, OutcomeKind, PermanentFailures,
    RecordContext,
    batch::{BatchService, DeadLetter, DeadLetters, Handler, RecordInfo, sqs::Sqs},
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

use crate::world::{Job, World, batch, fifo, invoke, millis, seconds, work};

/// Returns a message that sets the account to this version, with this act.
fn set(account: &str, version: impl Into<Value>, act: &str, ms: u64) -> Value {
    let version = version.into();
    let mut body = work(&format!("{account}{}", version.to_string().replace('"', "")), act, ms);
    body["account"] = json!(account);
    body["version"] = version;
    body
}

/// The ids of records that were dead-lettered.
#[derive(Clone, Debug, Default)]
struct Letters(Arc<Mutex<Vec<String>>>);

impl DeadLetters for Letters {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        self.0.lock().unwrap().push(letter.record.id().to_owned());
        Box::pin(async { Ok(()) })
    }
}

impl World {
    fn ordered(&self) -> BatchService<Sqs, impl Handler<Job, (Job, RecordContext)> + use<>, Job, (Job, RecordContext)> {
        self.service().ordered_by(Key::pointer("/account"), Key::pointer("/version"))
    }

    async fn outcomes(&self, bodies: impl IntoIterator<Item = Value>) -> Vec<Result<OutcomeKind, ErrorKind>> {
        let event = LambdaEvent::new(batch(bodies), self.left(seconds(60)));
        self.ordered().process(event).await.outcomes()
    }

    async fn set_elsewhere(&self, account: &str, version: u64, ms: u64) -> Result<Outcome<u32>, Error> {
        let operation =
            self.once.operation("sqs", &format!("{account}{version}")).ordered_by(account, version).all_tenants();
        let work = || async move {
            tokio::time::sleep(millis(ms)).await;
            Ok::<_, Failure>(1)
        };
        operation.run(work).await
    }
}

// Tests P21.
#[tokio::test(start_paused = true)]
async fn a_record_older_than_the_newest_is_acknowledged_without_running() {
    let world = World::new();
    let bodies = [set("A", 5, "succeed", 0), set("A", "0004", "succeed", 0), set("A", 6, "succeed", 0)];
    let outcomes = world.outcomes(bodies.clone()).await;
    assert_eq!(outcomes, [OutcomeKind::Executed, OutcomeKind::Superseded, OutcomeKind::Executed].map(Ok));
    assert_eq!(world.journal.keys(), ["A5", "A6"]);
    assert_eq!(world.deliver_to(&world.ordered(), bodies).await, [""; 0], "a redelivery changes nothing");
    assert_eq!(world.journal.keys(), ["A5", "A6"]);
}

#[tokio::test(start_paused = true)]
async fn records_of_one_entity_run_in_sequence_and_those_of_others_beside_them() {
    let world = World::new();
    let bodies = (1..=4).flat_map(|version| ["A", "B", "C"].map(|account| set(account, version, "succeed", 100)));
    let outcomes = world.outcomes(bodies).await;
    assert_eq!(outcomes, vec![Ok(OutcomeKind::Executed); 12]);
    let runs = world.journal.runs();
    for account in ["A", "B", "C"] {
        let of_account: Vec<_> = runs.iter().filter(|run| run.key.starts_with(account)).collect();
        assert_eq!(of_account.iter().map(|run| &run.key[1..]).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
        assert!(of_account.windows(2).all(|pair| pair[0].ended.unwrap() <= pair[1].began), "{account}");
    }
    assert_eq!(world.journal.most_at_once(), 3);
}

#[tokio::test(start_paused = true)]
async fn many_records_of_one_entity_do_not_keep_others_from_running() {
    let world = World::new();
    let bodies = (1..=30).map(|version| set("A", version, "succeed", 100)).chain([set("B", 1, "succeed", 100)]);
    assert_eq!(world.outcomes(bodies).await, vec![Ok(OutcomeKind::Executed); 31]);
    let runs = world.journal.runs();
    assert!(runs.iter().position(|run| run.key == "B1").unwrap() < 3, "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_reports_its_record_alone_and_newer_ones_run() {
    let world = World::new();
    let bodies =
        [set("A", 1, "transient", 0), set("A", 2, "succeed", 0), set("A", 3, "unknown", 0), set("A", 4, "succeed", 0)];
    assert_eq!(world.deliver_to(&world.ordered(), bodies.clone()).await, ["m0", "m2", "m3"]);
    assert_eq!(world.journal.keys(), ["A1", "A2", "A3"], "what is unknown holds its entity until its lease ends");
    tokio::time::advance(seconds(70)).await;
    let outcomes = world.outcomes(bodies).await;
    assert_eq!(outcomes[..2], [Ok(OutcomeKind::Superseded), Ok(OutcomeKind::Replayed)]);
}

#[tokio::test(start_paused = true)]
async fn a_record_waits_for_its_entity_and_for_the_next_that_takes_it() {
    let world = World::new();
    let elsewhere = async {
        assert!(world.set_elsewhere("A", 1, 2_000).await.unwrap().is_done());
        world.set_elsewhere("A", 2, 2_000).await.unwrap()
    };
    let here = async {
        tokio::task::yield_now().await;
        world.outcomes([set("A", 3, "succeed", 0), set("B", 1, "succeed", 0)]).await
    };
    let (_, outcomes) = tokio::join!(elsewhere, here);
    assert_eq!(outcomes, [OutcomeKind::Executed; 2].map(Ok));
}

// Tests B8.
#[tokio::test(start_paused = true)]
async fn a_record_whose_outcome_is_not_recorded_is_reported() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::ErrorBefore);
    let event = LambdaEvent::new(batch([set("A", 1, "succeed", 0)]), world.left(seconds(60)));
    let processed = world.ordered().process(event).await;
    assert_eq!((processed.outcomes(), processed.reported()), (vec![Ok(OutcomeKind::Unrecorded)], vec!["m0"]));
}

#[tokio::test(start_paused = true)]
async fn an_unrecorded_permanent_failure_is_reported_whatever_the_policy() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::ErrorBefore);
    let service = world.ordered().permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.deliver_to(&service, [set("A", 1, "permanent", 0)]).await, ["m0"]);
    let letters = Letters::default();
    let service = world.ordered().dead_letters(letters.clone());
    assert_eq!(world.deliver_to(&service, [set("B", 1, "permanent", 0)]).await, ["m0"]);
    assert_eq!(*letters.0.lock().unwrap(), [""; 0], "it is delivered again");
    world.store.heal();
    tokio::time::advance(seconds(130)).await;
    let service = world.ordered().permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.deliver_to(&service, [set("A", 1, "permanent", 0)]).await, [""; 0], "it is recorded");
}

#[tokio::test(start_paused = true)]
async fn another_payload_of_an_unrecorded_record_is_reported_with_it() {
    for act in ["succeed", "permanent"] {
        let world = World::new();
        world.store.always(Call::Settle, Fault::ErrorBefore);
        let service = world.ordered().permanent_failures(PermanentFailures::Acknowledge);
        let bodies = [set("A", 1, act, 0), set("A", 1, act, 1)];
        assert_eq!(world.deliver_to(&service, bodies).await, ["m0", "m1"], "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_in_an_order_is_dead_lettered_and_newer_records_run() {
    let world = World::new();
    let letters = Letters::default();
    let service = world.ordered().dead_letters(letters.clone());
    assert_eq!(world.deliver_to(&service, [set("A", 1, "permanent", 0), set("A", 2, "succeed", 0)]).await, [""; 0]);
    assert_eq!(*letters.0.lock().unwrap(), ["m0"]);
    assert_eq!(world.outcomes([set("A", 2, "succeed", 0)]).await, [Ok(OutcomeKind::Replayed)]);
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_an_entity_once() {
    let world = World::new();
    let elsewhere = world.set_elsewhere("A", 9, 25_000);
    let here = async {
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        let bodies = (1..=5).map(|version| set("A", version, "succeed", 0));
        let service = world.ordered().wait_up_to(seconds(10));
        let failed = invoke(&service, batch(bodies), world.left(seconds(60))).await.unwrap();
        (failed.len(), begun.elapsed())
    };
    let (_, (failed, took)) = tokio::join!(elsewhere, here);
    assert!(failed == 5 && took < seconds(12), "{failed} failed after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_entity_or_a_sequence_fails_permanently() {
    let world = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    let without = |name: &str| {
        let mut body = set("A", 1, "succeed", 0);
        body.as_object_mut().unwrap().remove(name);
        body
    };
    let bad = ["one", "", "-1", "1.5"].map(|version| set("A", version, "succeed", 0));
    let bodies =
        bad.into_iter().chain([json!(null), json!(-1), json!(1.5)].map(|version| set("A", version, "succeed", 0)));
    let outcomes = world.outcomes(bodies.chain([without("account"), without("version")])).await;
    assert_eq!(outcomes, [Err(ErrorKind::Order); 9]);
    assert_eq!(world.outcomes([without("order_id")]).await, [Err(ErrorKind::Payload)], "it does not decode");
    assert_eq!(world.journal.keys(), [""; 0]);
    assert_eq!(world.calls(Call::Claim), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_keeps_its_groups() {
    let world = World::new();
    let bodies = [
        ("g", set("A", 1, "succeed", 50)),
        ("g", set("B", 1, "transient", 0)),
        ("g", set("A", 2, "succeed", 0)),
        ("h", set("A", 3, "succeed", 0)),
    ];
    let failed = invoke(&world.ordered(), fifo(bodies), world.left(seconds(60))).await.unwrap();
    assert_eq!(failed, ["m1", "m2"], "what is behind a failure in its group is skipped");
    let runs = world.journal.runs();
    let run = |key: &str| runs.iter().find(|run| run.key == key).unwrap();
    assert!(runs.len() == 3 && run("B1").ended.is_some());
    assert!(run("A1").ended.unwrap() <= run("A3").began, "one at a time works on the entity, across groups");
}

#[tokio::test(start_paused = true)]
async fn a_record_is_claimed_when_it_is_about_to_start() {
    let world = World::new();
    let bodies = (1..=3).map(|version| set("A", version, "succeed", 0));
    world.outcomes(bodies).await;
    assert_eq!(world.calls(Call::Claim), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_record_skipped_before_its_turn_does_not_end_that_of_another() {
    let world = World::new();
    let bodies = [
        ("g", set("A", 1, "succeed", 100)),
        ("h", set("B", 1, "transient", 50)),
        ("h", set("A", 2, "succeed", 0)),
        ("i", set("A", 3, "succeed", 0)),
    ];
    let failed = invoke(&world.ordered(), fifo(bodies), world.left(seconds(60))).await.unwrap();
    assert_eq!(failed, ["m1", "m2"]);
    assert_eq!(world.calls(Call::Claim), [2, 1], "the last one is claimed when the first one has ended");
}

/// Records are decoded until the next claim call is full, in which each entity takes one place.
#[tokio::test(start_paused = true)]
async fn as_many_records_are_decoded_as_a_claim_call_has_room_for_entities() {
    let of_many: Vec<_> = (0..30).map(|account| set(&format!("{account:02}-"), 1, "succeed", 0)).collect();
    let of_two: Vec<_> = (1..=30).map(|version| ("A", version)).chain([("B", 1)]).collect();
    let of_two: Vec<_> = of_two.into_iter().map(|(account, version)| set(account, version, "succeed", 0)).collect();
    let of_one: Vec<_> = (1..=120).map(|version| set("A", version, "succeed", 0)).collect();
    // At most 100 decoded records wait, as many as may be claimed ahead of handlers that are expected to be fast.
    let cases = [
        (of_many, None, 25, 25),
        (of_two, None, 31, 2),
        (of_one.clone(), None, 100, 1),
        (of_one, Some(millis(1)), 100, 1),
    ];
    for (bodies, expected, decoded, claimed) in cases {
        let (world, count, at_first) = (World::new(), Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::new()));
        let (counted, noted) = (Arc::clone(&count), Arc::clone(&at_first));
        let decode = move |_: &RecordInfo, body: &String| {
            count.fetch_add(1, Ordering::Relaxed);
            serde_json::from_str::<Job>(body).map_err(BoxError::from)
        };
        let handler = move |_: Job| {
            noted.get_or_init(|| counted.load(Ordering::Relaxed));
            async { Ok::<_, Failure>(()) }
        };
        let service = world.once.batch(Sqs, Key::pointer("/order_id"), decode, handler);
        let service = service.ordered_by(Key::pointer("/account"), Key::pointer("/version")).concurrency(1);
        let service = match expected {
            Some(time) => service.expected_duration(time),
            None => service,
        };
        assert_eq!(world.deliver_to(&service, bodies).await, [""; 0]);
        assert_eq!((at_first.get(), world.calls(Call::Claim)[0]), (Some(&decoded), claimed));
    }
}
