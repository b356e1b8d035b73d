//! If an unused claim is not simply taken over, records are claimed when their handlers can begin. A crash then leaves
//! at most one claim of a record that never began.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    AfterUnknown, Failure, Key, OutcomeKind, ProbeResult, RecordContext,
    batch::{Processed, bulk},
};

use crate::{
    support::clock::block,
    world::{Event, Job, Latency, World, batch, fifo, ids, jobs, millis, orders, reported},
};

const POLICIES: [AfterUnknown; 2] = [AfterUnknown::Refuse, AfterUnknown::Probe];

const SLOW_STORE: Latency = Latency { claim: millis(5), settle: millis(5), read: millis(5), settle_arrives: millis(0) };

fn guarded(policy: AfterUnknown, latency: Latency) -> World {
    World::on(latency, |builder| builder.after_unknown(policy))
}

/// Delivers an event under the policy, with a minute left.
async fn process(
    world: &World,
    policy: AfterUnknown,
    concurrency: usize,
    event: SqsEvent,
) -> Processed<SqsBatchResponse> {
    let service = world.service().concurrency(concurrency);
    if policy == AfterUnknown::Probe {
        let service = service.probe(|_: Job, _: RecordContext| async { Ok::<_, Failure>(ProbeResult::NotDone) });
        world.process(&service, event).await
    } else {
        world.process(&service, event).await
    }
}

#[tokio::test(start_paused = true)]
async fn blocking_handlers_leave_at_most_one_claim_on_unbegun_work() {
    for policy in POLICIES {
        for latency in [Latency::default(), SLOW_STORE] {
            let world = guarded(policy, latency);
            let processed = process(&world, policy, 10, batch(orders(10, "block", 200))).await;
            assert!(reported(&processed).is_empty());
            assert_eq!(world.journal.most_unbegun_since(0), 1, "{policy:?}, {latency:?}");
            assert_eq!(world.journal.claim_calls_since(0), [1; 10]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn blocking_heads_of_groups_leave_at_most_one_claim_on_unbegun_work() {
    for policy in POLICIES {
        let world = guarded(policy, Latency::default());
        let groups = ["a", "b", "c", "d", "a", "e"];
        let event = fifo(groups.into_iter().zip(orders(groups.len(), "block", 200)));
        assert!(reported(&process(&world, policy, 10, event).await).is_empty());
        assert_eq!(world.journal.most_unbegun_since(0), 1, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn until_a_first_poll_returns_one_record_is_claimed_then_all_slots_fill() {
    for policy in POLICIES {
        for latency in [Latency::default(), SLOW_STORE] {
            let world = guarded(policy, latency);
            let processed = process(&world, policy, 6, batch(orders(10, "succeed", 500))).await;
            assert!(reported(&processed).is_empty());
            assert_eq!(world.journal.claim_calls_since(0)[..2], [1, 5], "{policy:?}, {latency:?}");
            assert!(world.journal.most_unbegun_since(0) <= 5);
            let first = world.journal.beginnings();
            assert!(first[5].since(first[0]) <= millis(10), "six run side by side: {first:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_of_nine_milliseconds_does_not_count_as_long() {
    for policy in POLICIES {
        let world = guarded(policy, Latency::default());
        assert!(reported(&process(&world, policy, 10, batch(orders(10, "block", 9))).await).is_empty());
        assert_eq!(world.journal.claim_calls_since(0), [1, 9], "{policy:?}");
    }
}

// Tests B12.
#[tokio::test(start_paused = true)]
async fn after_a_long_poll_one_record_is_claimed_at_a_time() {
    for policy in POLICIES {
        let world = guarded(policy, SLOW_STORE);
        let mut acts = [("succeed", 50); 40];
        acts[3] = ("sleep, then block", 11);
        assert!(reported(&process(&world, policy, 10, batch(jobs(&acts))).await).is_empty());
        let events = world.journal.events();
        assert_eq!(world.journal.claim_calls_since(0)[..2], [1, 9], "{policy:?}");
        let blocked = events.iter().position(|event| matches!(event, Event::Blocked(_))).unwrap();
        let after = world.journal.claim_calls_since(blocked);
        assert!(after.len() >= 20 && after.iter().all(|keys| *keys == 1), "{policy:?}: {after:?}");
        assert_eq!(world.journal.most_unbegun_since(blocked), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_bulk_handler_leaves_at_most_one_call_of_claims_unbegun() {
    let world = guarded(AfterUnknown::Refuse, SLOW_STORE);
    let events = world.journal.clone();
    let handler = move |jobs: Vec<Job>, contexts: Vec<RecordContext>| {
        let events = events.clone();
        async move {
            contexts.iter().for_each(|context| events.note(Event::Began(context.claim().unwrap().key())));
            block(millis(200));
            jobs.into_iter().map(|_| Ok::<_, Failure>(())).collect::<Vec<_>>()
        }
    };
    let service = world.once.sqs(Key::pointer("/order_id"), bulk(4, handler)).concurrency(3);
    let processed = world.process(&service, batch(orders(20, "", 0))).await;
    assert!(reported(&processed).is_empty());
    assert_eq!(world.journal.most_unbegun_since(0), 4);
    assert_eq!(world.journal.claim_calls_since(0), [4; 5], "and each call is full");
}

// Tests B12, P17.
#[tokio::test(start_paused = true)]
async fn a_crash_leaves_one_claim_at_most_on_work_that_never_began() {
    for killed_in in 0..9 {
        let world = guarded(AfterUnknown::Refuse, Latency::default());
        let service = world.service();
        let event = || batch(orders(10, "block", 20));
        world.process_and_die(&service, event(), killed_in).await;
        let began = world.journal.beginnings().len();
        let again = world.process(&service, event()).await;
        assert_eq!(again.records[killed_in].outcome, Ok(OutcomeKind::Abandoned), "nobody knows what it did");
        let never_began = again.records[began..].iter();
        let refused = never_began.filter(|report| report.outcome == Ok(OutcomeKind::Abandoned)).count();
        assert!(refused <= 1, "killed in run {killed_in}: {refused} that never began are refused for good");
    }
}

#[tokio::test]
async fn handlers_that_sleep_leave_at_most_one_claim_on_unbegun_work() {
    let world = guarded(AfterUnknown::Refuse, SLOW_STORE).in_real_time();
    let processed = process(&world, AfterUnknown::Refuse, 10, batch(orders(10, "block", 30))).await;
    assert_eq!(reported(&processed), ids(0..0));
    assert_eq!(world.journal.most_unbegun_since(0), 1);
}
