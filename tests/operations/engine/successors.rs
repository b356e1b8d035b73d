//! A holder that blocks past its lease, and the successor that claims the key meanwhile.

use std::future::Future;

use lambda_once::{
    Error, Failure, Outcome, Verdict,
    clock::Clock,
    record::{Fingerprint, RECORD_VERSION, Record, Status},
};

use super::{CHARGE, KEY, LEASE, MARGIN, MILLISECOND, World, assert_outcome};

impl World {
    /// Runs the operation with a handler that blocks until its lease has ended for others, lets `meanwhile` happen, and
    /// ends as given. It does so in a single poll, so that it cannot be cancelled.
    async fn run_late(
        &self,
        meanwhile: impl Future<Output = ()> + Send,
        end: Result<u32, Failure>,
    ) -> Result<Outcome<u32>, Error> {
        let operation = self.once.operation(CHARGE, KEY).payload("first");
        let late = operation.run(|| async {
            self.clock.jump(LEASE + MARGIN + MILLISECOND);
            meanwhile.await;
            end
        });
        late.await
    }

    /// Runs a successor that succeeds.
    async fn succeeds(&self) {
        assert_outcome!(self.run_on("first").await, Ok(Outcome::TookOver(_)));
    }

    /// Runs a successor that fails permanently.
    async fn fails(&self) {
        assert_outcome!(self.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    }

    /// Runs a successor that does not finish.
    async fn runs_on(&self) {
        self.abandon().await;
    }
}

// Tests S3, S8, P8.
#[tokio::test(start_paused = true)]
async fn a_late_completion_is_refused_and_its_holder_gets_the_successors_result() {
    let world = World::new();
    assert_outcome!(world.run_late(world.succeeds(), Ok(99)).await, Ok(Outcome::Replayed(1)));
    assert_outcome!(world.run_on("first").await, Ok(Outcome::Replayed(1)));
}

// Tests S8, P8.
#[tokio::test(start_paused = true)]
async fn a_late_holder_sees_the_successors_failure() {
    let world = World::new();
    assert_outcome!(
        world.run_late(world.fails(), Ok(99)).await,
        Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such card")
    );
}

// Tests S8.
#[tokio::test(start_paused = true)]
async fn a_late_holder_whose_successor_has_not_finished_has_lost_its_lease() {
    let world = World::new();
    assert_outcome!(world.run_late(world.runs_on(), Ok(99)).await, Ok(Outcome::LeaseLost));
    assert_eq!(world.record().await.unwrap().status, Status::InProgress);
}

// Tests S1, S8.
#[tokio::test(start_paused = true)]
async fn a_late_holder_does_not_recreate_a_deleted_record() {
    let world = World::new();
    let deleted = async { drop(world.records.remove(&world.once.key_hash(CHARGE, KEY).unwrap())) };
    assert_outcome!(world.run_late(deleted, Ok(99)).await, Ok(Outcome::LeaseLost));
    assert_eq!(world.record().await, None);
}

// Tests S8.
#[tokio::test(start_paused = true)]
async fn the_result_of_another_payload_is_not_replayed_to_a_late_holder() {
    let world = World::new();
    let another = async {
        world.records.remove(&world.once.key_hash(CHARGE, KEY).unwrap());
        assert_outcome!(world.run_on("second").await, Ok(Outcome::Executed(1)));
    };
    assert_outcome!(world.run_late(another, Ok(99)).await, Ok(Outcome::LeaseLost));
    assert_outcome!(world.run_on("second").await, Ok(Outcome::Replayed(1)));

    let world = World::new();
    let another = async {
        world.records.remove(&world.once.key_hash(CHARGE, KEY).unwrap());
        let fails = || async { Err::<u32, _>(Failure::permanent("no such card")) };
        let failed = world.once.operation(CHARGE, KEY).payload("second").run(fails).await;
        assert_outcome!(failed, Ok(Outcome::Failed(_)));
    };
    assert_outcome!(world.run_late(another, Ok(99)).await, Ok(Outcome::LeaseLost));
    assert_outcome!(world.run_on("second").await, Ok(Outcome::ReplayedFailure(_)));
}

/// A later version may write such fingerprints, with other bytes after those that decide.
#[tokio::test(start_paused = true)]
async fn a_late_holder_compares_payloads_as_the_rules_do() {
    let world = World::new();
    let successor = async {
        world.succeeds().await;
        let key = world.once.key_hash(CHARGE, KEY).unwrap();
        let record = world.records.remove(&key).unwrap();
        let mut bytes: [u8; 32] = record.fingerprint.unwrap().as_bytes().try_into().unwrap();
        bytes[31] ^= 2;
        world.records.insert(key, Record { fingerprint: Some(Fingerprint::from_bytes(bytes)), ..record });
    };
    assert_outcome!(world.run_late(successor, Ok(99)).await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_without_a_successor_still_records_its_outcome() {
    let world = World::new();
    assert_outcome!(world.run_late(async {}, Ok(99)).await, Ok(Outcome::Executed(99)));
    assert_outcome!(world.run_on("first").await, Ok(Outcome::Replayed(99)));
}

// Tests S3, S8, P1.
#[tokio::test(start_paused = true)]
async fn a_late_holder_changes_nothing_whatever_its_verdict() {
    for verdict in [Verdict::Transient, Verdict::Permanent, Verdict::Unknown] {
        let world = World::new();
        let late = world.run_late(world.runs_on(), Err(Failure::new(verdict, "late"))).await;
        match verdict {
            // An unrecorded outcome decides nothing. A queue must not acknowledge it.
            Verdict::Permanent => assert_outcome!(late, Ok(Outcome::LeaseLost)),
            _ => assert_outcome!(late, Ok(Outcome::Failed(_))),
        }
        let record = world.record().await.unwrap();
        assert_eq!((record.status, record.attempt), (Status::InProgress, 2), "{verdict:?}");
        assert!(record.owner.is_some(), "{verdict:?}");

        let world = World::new();
        let _ = world.run_late(world.succeeds(), Err(Failure::new(verdict, "late"))).await.unwrap();
        assert_outcome!(world.run_on("first").await, Ok(Outcome::Replayed(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_permanent_failure_gives_way_to_the_successors_result() {
    let world = World::new();
    let late = world.run_late(world.succeeds(), Err(Failure::permanent("late"))).await;
    assert_outcome!(late, Ok(Outcome::Replayed(1)));
}

// Tests S8.
#[tokio::test(start_paused = true)]
async fn a_successors_outcome_that_has_expired_decides_nothing() {
    for status in [Status::Completed, Status::Failed] {
        let world = World::new();
        let expired = async {
            match status {
                Status::Failed => world.fails().await,
                _ => world.succeeds().await,
            }
            let record = world.record().await.unwrap();
            assert_eq!(record.status, status);
            let now = world.clock.now().seconds_rounded_down();
            let key = world.once.key_hash(CHARGE, KEY).unwrap();
            world.records.insert(key, Record { expiration: Some(now), ..record });
        };
        assert_outcome!(world.run_late(expired, Ok(99)).await, Ok(Outcome::LeaseLost));
    }
}

// Tests S7, S8.
#[tokio::test(start_paused = true)]
async fn a_successors_outcome_of_an_unknown_version_decides_nothing() {
    let world = World::new();
    let newer = async {
        world.succeeds().await;
        world.alter(|record| record.version = RECORD_VERSION + 2).await;
    };
    assert_outcome!(world.run_late(newer, Ok(99)).await, Ok(Outcome::LeaseLost));
}

/// A late copy of the claim took over from another claim, which a release must not erase.
// Tests S8, S9.
#[tokio::test(start_paused = true)]
async fn a_release_that_finds_its_lease_lost_keeps_the_outcome_of_its_run() {
    let world = World::new();
    let run = world.once.operation(CHARGE, KEY).run(|| async {
        world.alter(|record| record.prior_status = Some(Status::InProgress)).await;
        Err::<u32, _>(Failure::transient("declined for now"))
    });
    assert_outcome!(run.await, Ok(Outcome::Failed(_)));
    let record = world.record().await.unwrap();
    assert_eq!((record.status, record.prior_status), (Status::InProgress, Some(Status::InProgress)));
}
