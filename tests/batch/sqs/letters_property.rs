//! Random batches with a dead-letter destination that also fails.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use aws_lambda_events::sqs::SqsEvent;
use lambda_once::{
    BoxError, BoxFuture, ErrorKind, OutcomeKind, Verdict,
    batch::{DeadLetter, DeadLetters, OnFailure, RecordReport},
    clock::Clock,
    record::Status,
    store::fault::Fault,
};
use lambda_runtime::LambdaEvent;
use proptest::{collection::vec, prelude::*, sample::select, test_runner::RngSeed};
use serde_json::{Value, json};

use crate::world::{Backing, World, batch, fifo, millis, work};

const GROUPS: [&str; 3] = ["a", "b", "c"];
const MAX_RECEIVE_COUNT: u32 = 3;

/// The behavior of the dead-letter destination, after this many milliseconds.
#[derive(Clone, Copy, Debug)]
enum Post {
    Taken(u64),
    Refused(u64),
    Panics,
    Hangs,
}

#[derive(Clone, Debug)]
struct Message {
    group: usize,
    /// The index of the key, or `None` if the body cannot be decoded.
    key: Option<usize>,
    receive_count: u32,
    post: Post,
}

#[derive(Clone, Debug)]
struct Plan {
    acts: Vec<(&'static str, u64)>,
    before: Vec<Option<Status>>,
    messages: Vec<Message>,
    is_fifo: bool,
    on_failure: OnFailure,
    left: u64,
    concurrency: usize,
    store_batch: usize,
    faults: Vec<(Fault, f64)>,
}

const KEYS: usize = 12;

fn message() -> impl Strategy<Value = Message> {
    let post = prop_oneof![
        6 => (0..500_u64).prop_map(Post::Taken),
        2 => (0..500_u64).prop_map(Post::Refused),
        1 => Just(Post::Panics),
        1 => Just(Post::Hangs),
    ];
    let key = prop_oneof![6 => (0..KEYS).prop_map(Some), 1 => Just(None)];
    (0..GROUPS.len(), key, 1..=4_u32, post).prop_map(|(group, key, receive_count, post)| Message {
        group,
        key,
        receive_count,
        post,
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let act = select(vec!["succeed", "succeed", "transient", "permanent", "unknown", "panic", "hang"]);
    let faults = vec![(Fault::Throttled, 0.1), (Fault::ErrorAfter, 0.1), (Fault::Delay(millis(200)), 0.05)];
    (
        vec((act, prop_oneof![Just(0), 0..800_u64]), KEYS),
        vec(
            select(vec![None, None, None, Some(Status::Completed), Some(Status::Failed), Some(Status::InProgress)]),
            KEYS,
        ),
        vec(message(), 0..=20),
        any::<bool>(),
        select(vec![OnFailure::StopGroup, OnFailure::StopBatch]),
        prop_oneof![600..3_000_u64, 3_000..30_000_u64],
        1..=6_usize,
        1..=25_usize,
        select(vec![vec![], faults]),
    )
        .prop_map(|(acts, before, messages, is_fifo, on_failure, left, concurrency, store_batch, faults)| Plan {
            acts,
            before,
            messages,
            is_fifo,
            on_failure,
            left,
            concurrency,
            store_batch,
            faults,
        })
}

/// A dead-letter destination that follows the plan, and counts for each record how often it was sent and accepted.
#[derive(Clone, Debug)]
struct Posts {
    posts: Arc<Vec<Post>>,
    sent: Arc<Mutex<HashMap<usize, (usize, bool)>>>,
}

impl DeadLetters for Posts {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        let i: usize = letter.record.id()[1..].parse().unwrap();
        self.sent.lock().unwrap().entry(i).or_default().0 += 1;
        Box::pin(async move {
            let (time, is_taken) = match self.posts[i] {
                Post::Taken(time) => (time, true),
                Post::Refused(time) => (time, false),
                Post::Panics => std::panic::resume_unwind(Box::new("the post is on fire")),
                Post::Hangs => std::future::pending().await,
            };
            tokio::time::sleep(millis(time)).await;
            self.sent.lock().unwrap().entry(i).or_default().1 = is_taken;
            if is_taken { Ok(()) } else { Err("the post is closed".into()) }
        })
    }
}

/// Returns the seed, which is the same in each run unless `PROPERTY_SEED` is set.
fn seed() -> u64 {
    std::env::var("PROPERTY_SEED").map_or(0, |seed| seed.parse().expect("PROPERTY_SEED is a number"))
}

fn event(plan: &Plan) -> SqsEvent {
    let body = |message: &Message| match message.key {
        Some(key) => work(&format!("order-{key}"), plan.acts[key].0, plan.acts[key].1),
        None => json!("not an order"),
    };
    let bodies: Vec<Value> = plan.messages.iter().map(body).collect();
    let mut event = if plan.is_fifo {
        fifo(plan.messages.iter().map(|message| GROUPS[message.group]).zip(bodies))
    } else {
        batch(bodies)
    };
    for (record, message) in event.records.iter_mut().zip(&plan.messages) {
        record.attributes.insert("ApproximateReceiveCount".to_owned(), message.receive_count.to_string());
    }
    event
}

fn no_retry_helps(report: &RecordReport) -> bool {
    matches!(
        report.outcome,
        Ok(OutcomeKind::Failed(Verdict::Permanent) | OutcomeKind::ReplayedFailure)
            | Err(ErrorKind::Payload | ErrorKind::KeyMissing)
    )
}

fn has_failed(report: &RecordReport) -> bool {
    let has_failed = |outcome| matches!(outcome, OutcomeKind::Failed(_) | OutcomeKind::Interrupted(_));
    report.outcome.is_ok_and(|outcome| has_failed(outcome) || outcome == OutcomeKind::Abandoned)
}

async fn deliver(plan: Plan) -> Result<(), TestCaseError> {
    // The engine's pauses are random.
    fastrand::seed(seed());
    let backing = Backing { batch: plan.store_batch, faults: plan.faults.clone(), ..Backing::default() };
    let world = World::on(backing, |builder| builder);
    for (key, status) in plan.before.iter().enumerate() {
        if let Some(status) = status {
            world.put(&format!("order-{key}"), *status, "1");
        }
    }
    let posts = plan.messages.iter().map(|message| message.post).collect();
    let posts = Posts { posts: Arc::new(posts), sent: Arc::default() };
    let service = world.service().concurrency(plan.concurrency).on_failure(plan.on_failure);
    let service = service.dead_letters(posts.clone()).max_receive_count(MAX_RECEIVE_COUNT);
    let deadline = world.clock.now().after(millis(plan.left));
    let reserve = millis((plan.left / 20).clamp(500, 2_000));
    let processed = service.process(LambdaEvent::new(event(&plan), world.left(millis(plan.left)))).await;
    let answered = world.clock.now();
    prop_assert!(answered <= deadline);
    let is_late = answered >= deadline.before(reserve);

    let failures = processed.response.unwrap().batch_item_failures;
    let failures: Vec<_> = failures.iter().map(|failure| &*failure.item_identifier).collect();
    let records = &processed.records;
    let reported: Vec<_> = records.iter().filter(|report| report.reported).map(|report| report.record.id()).collect();
    prop_assert_eq!(reported, failures);
    prop_assert_eq!(records.len(), plan.messages.len());
    let sent = posts.sent.lock().unwrap().clone();
    let mut held_up = [false; GROUPS.len()];
    for (i, (report, message)) in records.iter().zip(&plan.messages).enumerate() {
        let (times, is_taken) = sent.get(&i).copied().unwrap_or_default();
        prop_assert!(times <= 1, "{} was sent {} times", i, times);
        let leader = plan.messages[..i].iter().position(|other| other.key.is_some() && other.key == message.key);
        let with_leader = !report.reported && leader.is_some_and(|leader| records[leader].dead_lettered);
        prop_assert_eq!(report.dead_lettered, is_taken || with_leader, "{}: {:?}", i, report);
        prop_assert!(!(report.dead_lettered && report.reported), "{} is put aside and reported", i);
        if !report.reported && !report.dead_lettered {
            let is_done = report.outcome.is_ok_and(OutcomeKind::is_done);
            prop_assert!(is_done, "{} is lost: {:?}", i, report);
        }
        let is_last = plan.is_fifo && message.receive_count >= MAX_RECEIVE_COUNT;
        let is_dead = no_retry_helps(report) || is_last && has_failed(report);
        prop_assert!(times == 0 || is_dead, "{} was sent for no reason: {:?}", i, report);
        prop_assert!(times == 1 || !is_dead || leader.is_some() || is_late, "{} was not sent: {:?}", i, report);
        if plan.is_fifo {
            prop_assert!(report.reported || !held_up[message.group], "{} overtook one that is reported", i);
            prop_assert!(times == 0 || !held_up[message.group], "{} was sent behind one that is reported", i);
            held_up[message.group] |= report.reported;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_message_is_done_reported_or_dead_lettered_once_and_in_its_turn(plan in plan()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(deliver(plan))?;
    }
}
