//! Handlers of several consecutive records of a shard.

use std::sync::{Arc, Mutex};

use lambda_once::{
    AfterUnknown, BoxFuture, ErrorKind, Failure, Key, OutcomeKind, PermanentFailures, Verdict,
    batch::{Handler, Processed, bulk, stream::StreamResponse},
    testing::{self, kinesis, sqs},
};

type Outcome = Result<OutcomeKind, ErrorKind>;

const DONE: Outcome = Ok(OutcomeKind::Executed);
const REPLAYED: Outcome = Ok(OutcomeKind::Replayed);
const SKIPPED: Outcome = Ok(OutcomeKind::Skipped);
const TRANSIENT: Outcome = Ok(OutcomeKind::Failed(Verdict::Transient));

/// A handler with the numbers of each call. The map contains the first failures, as `true` if they are permanent.
#[derive(Clone, Default)]
struct Ledger {
    calls: Arc<Mutex<Vec<Vec<u32>>>>,
    failing: Arc<Mutex<Vec<(u32, bool)>>>,
    /// Whether the records behind a failure in a call are processed.
    goes_on: bool,
}

impl Ledger {
    fn failing(numbers: &[(u32, bool)]) -> Self {
        Self { failing: Arc::new(Mutex::new(numbers.to_vec())), ..Self::default() }
    }

    fn write_all(&self, numbers: &[u32]) -> Vec<Result<(), Failure>> {
        self.calls.lock().unwrap().push(numbers.to_vec());
        let mut failing = self.failing.lock().unwrap();
        let mut has_failed = false;
        let write = |number: &u32| {
            if has_failed && !self.goes_on {
                return Err(Failure::transient("not reached"));
            }
            let Some(at) = failing.iter().position(|(fails, _)| fails == number) else { return Ok(()) };
            has_failed = true;
            let (_, is_permanent) = failing.remove(at);
            Err(if is_permanent { Failure::permanent("no") } else { Failure::transient("not now") })
        };
        numbers.iter().map(write).collect()
    }

    fn handler(&self, most: usize) -> impl Handler<u32, (Vec<u32>,), Output = ()> + use<> {
        let ledger = self.clone();
        bulk(most, move |numbers: Vec<u32>| -> BoxFuture<'static, _> {
            let ledger = ledger.clone();
            Box::pin(async move {
                tokio::task::yield_now().await;
                ledger.write_all(&numbers)
            })
        })
        .consecutive()
    }

    fn calls(&self) -> Vec<Vec<u32>> {
        self.calls.lock().unwrap().clone()
    }
}

fn shard(count: u32) -> testing::Batch<lambda_once::batch::kinesis::KinesisEvent> {
    kinesis::batch((0..count).map(|number| testing::record(&number)))
}

async fn twice(handler: impl Handler<u32, (Vec<u32>,)>, count: u32) -> [Processed<StreamResponse>; 2] {
    let service = testing::engine().kinesis(Key::message_id(), handler);
    let deliveries = testing::deliver_twice(&service, &shard(count)).await;
    [deliveries.first, deliveries.second]
}

fn checkpoint(delivered: &Processed<StreamResponse>) -> Option<usize> {
    let checkpoint = delivered.response.as_ref().unwrap().checkpoint.as_deref()?;
    let is_it = |number: Option<&str>| number == Some(checkpoint);
    delivered.records.iter().position(|report| is_it(report.record.attribute("sequenceNumber")))
}

// Tests B4.
#[tokio::test]
async fn consecutive_records_of_a_shard_go_together_in_their_order() {
    let ledger = Ledger::default();
    let deliveries = twice(ledger.handler(4), 10).await;
    assert_eq!(ledger.calls(), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    assert_eq!(deliveries.map(|delivered| delivered.outcomes()), [[DONE; 10], [REPLAYED; 10]]);
}

#[tokio::test]
async fn other_handlers_get_one_at_a_time() {
    let ledger = Ledger::default();
    let written = ledger.clone();
    let write = move |numbers: Vec<u32>| {
        let written = written.clone();
        async move { written.write_all(&numbers) }
    };
    let deliveries = twice(bulk(4, write), 3).await;
    assert_eq!(ledger.calls(), [[0], [1], [2]]);
    assert_eq!(deliveries[0].outcomes(), [DONE; 3]);
}

#[tokio::test]
async fn a_failure_blocks_only_the_records_behind_it_in_the_call_and_the_shard() {
    let ledger = Ledger::failing(&[(2, false)]);
    let [first, second] = twice(ledger.handler(4), 6).await;
    assert_eq!(first.outcomes(), [DONE, DONE, TRANSIENT, SKIPPED, SKIPPED, SKIPPED]);
    assert_eq!((checkpoint(&first), first.reported().len()), (Some(2), 4));
    assert_eq!(second.outcomes(), [REPLAYED, REPLAYED, DONE, DONE, DONE, DONE]);
    assert_eq!(ledger.calls(), [vec![0, 1, 2, 3], vec![2, 3, 4, 5]]);
}

#[tokio::test]
async fn records_done_behind_a_failure_are_replayed() {
    let ledger = Ledger { goes_on: true, ..Ledger::failing(&[(1, false)]) };
    let [first, second] = twice(ledger.handler(10), 4).await;
    assert_eq!(first.outcomes(), [DONE, TRANSIENT, SKIPPED, SKIPPED]);
    assert_eq!(checkpoint(&first), Some(1));
    assert_eq!(second.outcomes(), [REPLAYED, DONE, REPLAYED, REPLAYED]);
    assert_eq!(ledger.calls(), [vec![0, 1, 2, 3], vec![1]]);
}

#[tokio::test]
async fn a_failure_that_is_acknowledged_blocks_nothing() {
    let ledger = Ledger { goes_on: true, ..Ledger::failing(&[(1, true)]) };
    let service = testing::engine()
        .kinesis(Key::message_id(), ledger.handler(3))
        .permanent_failures(PermanentFailures::Acknowledge);
    let delivered = testing::deliver(&service, &shard(5)).await;
    assert_eq!(delivered.outcomes(), [DONE, Ok(OutcomeKind::Failed(Verdict::Permanent)), DONE, DONE, DONE]);
    assert_eq!(checkpoint(&delivered), None);
    assert_eq!(ledger.calls(), [vec![0, 1, 2], vec![3, 4]]);
}

#[tokio::test]
async fn a_duplicate_skips_the_handler_and_the_records_behind_it_wait_for_it() {
    let ledger = Ledger::default();
    let service = testing::engine().kinesis(Key::pointer(""), ledger.handler(10));
    let batch = kinesis::batch([1, 2, 1, 3, 4].map(|number| testing::record(&number)));
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes(), [DONE, DONE, REPLAYED, DONE, DONE]);
    assert_eq!(ledger.calls(), [vec![1, 2], vec![3, 4]]);
}

#[tokio::test]
async fn a_panic_is_unknown_for_each_of_the_call_and_nothing_else_runs() {
    let panic = |_: Vec<u32>| -> BoxFuture<'static, Vec<Result<(), Failure>>> { panic!("the handler") };
    let service = testing::engine().kinesis(Key::message_id(), bulk(3, panic).consecutive());
    let delivered = testing::deliver(&service, &shard(5)).await;
    let names: Vec<_> = delivered.outcomes().iter().map(|outcome| outcome.unwrap().as_str()).collect();
    assert_eq!(names, ["panicked", "skipped", "skipped", "skipped", "skipped"]);
    assert_eq!(checkpoint(&delivered), Some(0));
}

/// Groups are handled together too, each in its own order.
#[tokio::test]
async fn in_a_fifo_queue_each_group_keeps_its_own_order() {
    let ledger = Ledger::failing(&[(11, false)]);
    let service = testing::engine().sqs(Key::message_id(), ledger.handler(10));
    let message = |(group, number): (&str, u32)| {
        testing::record(&number).attribute("MessageGroupId", group).id(format!("m-{number}"))
    };
    let batch = sqs::fifo([("a", 10), ("b", 20), ("a", 11), ("a", 12), ("b", 21)].map(message));
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes()[..4], [DONE, DONE, TRANSIENT, SKIPPED]);
    assert_eq!(delivered.reported()[..2], ["m-11", "m-12"]);
    let calls = ledger.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let of_group = |tens: u32| calls[0].iter().copied().filter(|number| number / 10 == tens).collect::<Vec<_>>();
    assert_eq!((of_group(1), of_group(2)), (vec![10, 11, 12], vec![20, 21]));
}

#[tokio::test]
async fn one_record_is_claimed_at_a_time_if_lost_outcomes_are_refused() {
    let ledger = Ledger::default();
    let once = testing::builder(testing::store()).after_unknown(AfterUnknown::Refuse).build().unwrap();
    let service = once.kinesis(Key::message_id(), ledger.handler(4));
    testing::deliver_twice(&service, &shard(3)).await.assert_once();
    assert_eq!(ledger.calls(), [[0], [1], [2]]);
}

/// Behind a record that fails in the same call, it would be dead-lettered without having run.
// Tests B11.
#[tokio::test]
async fn on_its_last_delivery_a_record_goes_alone() {
    let ledger = Ledger::failing(&[(10, true)]);
    let service = testing::engine()
        .sqs(Key::message_id(), ledger.handler(10))
        .permanent_failures(PermanentFailures::Acknowledge)
        .max_receive_count(1);
    let batch = sqs::fifo([10, 11, 12].map(|number| testing::record(&number).attribute("MessageGroupId", "a")));
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Failed(Verdict::Permanent)), DONE, DONE]);
    assert!(delivered.reported().is_empty());
    assert_eq!(ledger.calls(), [[10], [11], [12]]);

    // While others follow, they are handled together.
    let ledger = Ledger::default();
    let service = testing::engine().sqs(Key::message_id(), ledger.handler(10)).max_receive_count(2);
    testing::deliver_twice(&service, &batch).await.assert_once();
    assert_eq!(ledger.calls(), [[10, 11, 12]]);
}
