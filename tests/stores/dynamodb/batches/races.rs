//! Actions of another owner between the steps of a batched claim. The claim either ends as a single-step claim after
//! them would have, or gives way.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_once::{
    Error, ErrorKind, Store,
    clock::ManualClock,
    record::{Fingerprint, Record, Status},
    store::{
        ClaimRequest, Claimed, Grant, Refusal, ResultData, Settled, Settlement,
        rules::{Judgement, judge},
    },
};

use super::{Duration, LEASE, MARGIN, Purpose, RETENTION, Stores, claim, complete};
use crate::{
    dynamodb::{number, text},
    support::FUTURE,
};

/// The state when the claim begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    Standing,
    Lapsed,
    HandedBack,
    Done,
    Expired,
    ExpiredInProgress,
}

/// The action in between.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    Claim,
    /// A claim that is handed back immediately. The record's lease is over as before, but the attempt has increased.
    ClaimAndHandBack,
    ClaimOfAnotherPayload,
    Renewal,
    Completion,
    Release,
    Deletion,
    /// A deletion by TTL, followed by another owner's claim.
    DeletionAndClaim,
    /// A deletion by TTL, followed by another owner's claim and completion.
    DeletionAndCompletion,
}

const STARTS: [Start; 6] =
    [Start::Standing, Start::Lapsed, Start::HandedBack, Start::Done, Start::Expired, Start::ExpiredInProgress];

const EVENTS: [Event; 10] = [
    Event::Nothing,
    Event::Claim,
    Event::ClaimAndHandBack,
    Event::ClaimOfAnotherPayload,
    Event::Renewal,
    Event::Completion,
    Event::Release,
    Event::Deletion,
    Event::DeletionAndClaim,
    Event::DeletionAndCompletion,
];

impl Start {
    /// Whether the claim finds a record that it may replace.
    fn is_replaceable(self) -> bool {
        !matches!(self, Self::Standing | Self::Done)
    }
}

impl Stores {
    /// Creates the state, and returns the claim of its holder.
    async fn begin(&self, start: Start) -> ClaimRequest {
        let mut holder = claim(1);
        if matches!(start, Start::ExpiredInProgress) {
            holder.retention = Duration::ZERO;
        }
        self.claim_elsewhere(&holder).await;
        let lapse = || self.world.clock.jump(LEASE + MARGIN + Duration::from_secs(1));
        match start {
            Start::Standing => {}
            Start::Lapsed | Start::ExpiredInProgress => lapse(),
            Start::HandedBack => {
                lapse();
                holder = claim(1);
                self.claim_elsewhere(&holder).await;
                self.settle_elsewhere(&holder, Settlement::HandBack).await;
            }
            Start::Done => self.settle_elsewhere(&holder, complete()).await,
            Start::Expired => {
                self.settle_elsewhere(&holder, complete()).await;
                self.world.clock.jump(RETENTION + Duration::from_secs(1));
            }
        }
        holder
    }

    async fn happen(&self, event: Event, holder: &ClaimRequest) {
        let other = claim(1);
        match event {
            Event::Nothing => {}
            Event::Claim => drop(self.claim_elsewhere(&other).await),
            Event::ClaimAndHandBack => {
                if matches!(self.claim_elsewhere(&other).await, Claimed::Granted(_)) {
                    self.settle_elsewhere(&other, Settlement::HandBack).await;
                }
            }
            Event::ClaimOfAnotherPayload => {
                let fingerprint = Some(Fingerprint::from_bytes([2; 32]));
                self.claim_elsewhere(&ClaimRequest { fingerprint, ..other }).await;
            }
            Event::Renewal => {
                let renewal = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
                self.settle_elsewhere(holder, renewal).await;
            }
            Event::Completion => self.settle_elsewhere(holder, complete()).await,
            Event::Release => self.settle_elsewhere(holder, Settlement::Release).await,
            Event::Deletion => self.delete(holder).await,
            Event::DeletionAndClaim => {
                self.delete(holder).await;
                self.claim_elsewhere(&other).await;
            }
            Event::DeletionAndCompletion => {
                self.delete(holder).await;
                self.claim_elsewhere(&other).await;
                self.settle_elsewhere(&other, complete()).await;
            }
        }
    }

    async fn delete(&self, claim: &ClaimRequest) {
        let id = text(&format!("once#{}", claim.key));
        self.world.direct.delete_item().table_name(&self.world.table).key("id", id).send().await.unwrap();
    }

    async fn record(&self, claim: &ClaimRequest) -> Option<Record> {
        self.direct.read(&[claim.key], ResultData::Include).await.remove(0).unwrap()
    }

    /// Claims in a batch while `event` happens before the step with this purpose, and checks the result against the
    /// rules.
    async fn race(&self, start: Start, event: Event, before: Purpose) {
        let holder = self.begin(start).await;
        let at_start = self.record(&holder).await;
        let ours = claim(1);
        let mut step = self.world.on(before).hold();
        let meanwhile = async {
            step.arrived().await;
            self.happen(event, &holder).await;
            let record = self.record(&holder).await;
            step.release();
            record
        };
        let (mut answers, in_the_way) = tokio::join!(self.store.claim(std::slice::from_ref(&ours)), meanwhile);
        let answer = answers.remove(0).unwrap();
        let after = self.record(&holder).await;
        let case = format!("{start:?}, {event:?} before {before:?}: {in_the_way:?} and then {after:?}");
        self.check(&ours, &answer, in_the_way.as_ref(), after.as_ref(), in_the_way == at_start, &case);
    }

    fn check(
        &self,
        ours: &ClaimRequest,
        answer: &Claimed,
        in_the_way: Option<&Record>,
        after: Option<&Record>,
        unchanged: bool,
        case: &str,
    ) {
        let now = lambda_once::clock::Clock::now(&self.world.clock);
        let (free, refusal) = match in_the_way.map(|record| judge(record, ours, now).unwrap()) {
            None | Some(Judgement::Free) => (true, None),
            Some(Judgement::Refused(refusal)) => (false, Some(refusal)),
            Some(Judgement::Mine(grant)) => panic!("{case}: {grant:?} is nobody's"),
        };
        match answer {
            Claimed::Granted(Grant { attempt, prior_status, .. }) => {
                assert!(free, "{case}: granted");
                // A claim that has expired is not taken over.
                let counts = |record: &Record| {
                    record.status != Status::InProgress || record.expiration > Some(now.seconds_rounded_down())
                };
                let expected = in_the_way
                    .map_or((1, None), |record| (record.attempt + 1, counts(record).then_some(record.status)));
                assert_eq!((*attempt, *prior_status), expected, "{case}");
                let after = after.unwrap();
                assert_eq!(
                    (after.owner, after.attempt, after.prior_status),
                    (Some(ours.owner), expected.0, expected.1)
                );
            }
            Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }) => {
                assert!(!unchanged && in_the_way.is_some(), "{case}: gave way to nobody");
                assert_eq!(after, in_the_way, "{case}: a claim that gives way changes nothing");
            }
            Claimed::Refused(given) => {
                assert_eq!(Some(given), refusal.as_ref(), "{case}");
                assert_eq!(after, in_the_way, "{case}: a refused claim changes nothing");
            }
        }
    }
}

#[tokio::test]
async fn between_the_insert_and_the_select() {
    for start in STARTS {
        for event in EVENTS {
            Stores::new().await.race(start, event, Purpose::Read).await;
        }
    }
}

#[tokio::test]
async fn between_the_select_and_the_update() {
    for start in STARTS.into_iter().filter(|start| start.is_replaceable()) {
        for event in EVENTS {
            Stores::new().await.race(start, event, Purpose::Takeover).await;
        }
    }
}

#[tokio::test]
async fn between_the_select_and_the_second_insert() {
    for event in [Event::Nothing, Event::DeletionAndClaim, Event::DeletionAndCompletion, Event::ClaimOfAnotherPayload] {
        let stores = Stores::new().await;
        let holder = stores.begin(Start::Standing).await;
        let ours = claim(1);
        let mut look = stores.world.on(Purpose::Read).hold();
        let mut insert = stores.world.on(Purpose::Claim).nth(2).hold();
        let meanwhile = async {
            look.arrived().await;
            stores.delete(&holder).await;
            look.release();
            insert.arrived().await;
            stores.happen(event, &holder).await;
            let record = stores.record(&holder).await;
            insert.release();
            record
        };
        let (mut answers, in_the_way) = tokio::join!(stores.store.claim(std::slice::from_ref(&ours)), meanwhile);
        let after = stores.record(&holder).await;
        let case = format!("{event:?} before the second insert");
        stores.check(&ours, &answers.remove(0).unwrap(), in_the_way.as_ref(), after.as_ref(), true, &case);
    }
}

/// The item is deleted between two steps. The second `INSERT` is applied, but its first response is lost.
#[tokio::test]
async fn a_claim_of_a_deleted_record_recognizes_itself() {
    for (start, step) in [(Start::Standing, Purpose::Read), (Start::Lapsed, Purpose::Takeover)] {
        let stores = Stores::new().await;
        let holder = stores.begin(start).await;
        let mut held = stores.world.on(step).hold();
        stores.world.on(Purpose::Claim).nth(2).drop_response();
        let ours = claim(1);
        let meanwhile = async {
            held.arrived().await;
            stores.delete(&holder).await;
            held.release();
        };
        let (answers, ()) = tokio::join!(stores.store.claim(std::slice::from_ref(&ours)), meanwhile);
        stores.world.all_struck();
        assert!(matches!(&answers[0], Ok(Claimed::Granted(Grant { attempt: 1, .. }))), "{start:?}: {answers:?}");
    }
}

impl Stores {
    /// Takes over a lapsed claim in a batch while another client changes its item, bypassing the rules.
    async fn take_over_while(&self, attribute: &str, value: AttributeValue) -> Result<Claimed, Error> {
        let holder = self.begin(Start::Lapsed).await;
        let mut takeover = self.world.on(Purpose::Takeover).hold();
        let change = async {
            takeover.arrived().await;
            let update = self.world.direct.update_item().table_name(&self.world.table);
            let update = update.key("id", text(&format!("once#{}", holder.key)));
            let update =
                update.update_expression("SET #changed = :value").expression_attribute_names("#changed", attribute);
            update.expression_attribute_values(":value", value).send().await.unwrap();
            takeover.release();
        };
        let ours = claim(1);
        let (mut answers, ()) = tokio::join!(self.store.claim(std::slice::from_ref(&ours)), change);
        answers.remove(0)
    }
}

#[tokio::test]
async fn a_record_written_by_a_newer_deployment_before_the_update_is_left_to_it() {
    let error = Stores::new().await.take_over_while("v", number(9)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true));
}

#[tokio::test]
async fn a_lease_that_ends_with_the_margin_now_is_not_taken_over() {
    // Each of the two stores has a clock that does not advance.
    let mut stores = Stores::new().await;
    stores.store = stores.store.clone().with_clock(ManualClock::at(FUTURE.after(LEASE)));
    let ends_now = FUTURE.after(LEASE).before(MARGIN);
    let holder = claim(1);
    stores.direct = stores.direct.clone().with_clock(ManualClock::at(ends_now.before(LEASE + MARGIN)));
    stores.claim_elsewhere(&holder).await;
    let mut takeover = stores.world.on(Purpose::Takeover).hold();
    let change = async {
        takeover.arrived().await;
        let elsewhere = stores.direct.clone().with_clock(ManualClock::at(ends_now.before(LEASE)));
        let renewal = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
        let settle = super::settle(&holder, renewal);
        assert_eq!(elsewhere.settle(&[settle]).await.remove(0).unwrap(), Settled::Renewed { lease_until: ends_now });
        takeover.release();
    };
    let ours = claim(1);
    let (answers, ()) = tokio::join!(stores.store.claim(std::slice::from_ref(&ours)), change);
    let in_progress = Refusal::InProgress { lease_until: Some(ends_now), attempt: 1 };
    assert_eq!(answers[0].as_ref().unwrap(), &Claimed::Refused(in_progress));
}
