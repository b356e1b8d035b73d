//! Checks of amendments.

use futures_util::future::join;

use super::*;
use crate::{
    error::{Error, ErrorKind},
    order::Sequence,
    store::{
        FinalStatus,
        amend::{AmendRequest, Amended, Amendment},
    },
};

pub(super) const FORGET: Amendment = Amendment::Forget { completed: false };
const FORGET_ALL: Amendment = Amendment::Forget { completed: true };

/// Returns an amendment that settles an operation as completed, with this result.
pub(super) fn settle_as(result: StoredResult) -> Amendment {
    Amendment::Settle { outcome: FinalStatus::Completed, result, retention: RETENTION }
}

impl Subject {
    pub(super) async fn amend(&self, request: &AmendRequest) -> Result<Amended, Error> {
        let amend = self.amend.as_ref().unwrap_or_else(|| broken("the subject amends", "Subject::with_amendments", ()));
        let mut answers = amend.amend(std::slice::from_ref(request)).await;
        expect("a call has one answer for each request", answers.len(), 1);
        answers.remove(0)
    }

    /// Amends the current record.
    async fn amend_now(&self, key: KeyHash, amendment: Amendment) -> Result<Amended, Error> {
        let record = self.record(key, "the amended record").await;
        self.amend(&request(key, &record, amendment)).await
    }

    pub(super) async fn amended(&self, key: KeyHash, amendment: Amendment, rule: &str) {
        match self.amend_now(key, amendment).await {
            Ok(Amended::Changed) => {}
            answer => broken(rule, "Ok(Changed)", answer),
        }
    }

    /// Returns the result of an operation that was settled like this.
    async fn outcome(&self, claim: &ClaimRequest, settlement: &Settlement) -> StoredResult {
        match settlement {
            Settlement::Record { outcome: FinalStatus::Failed, .. } => self.failed(&rival(claim)).await,
            _ => self.completed(&rival(claim)).await,
        }
    }

    pub(super) async fn stays(&self, request: &AmendRequest, rule: &str) {
        let before = self.read(request.key).await;
        match (self.amend(request).await, &before) {
            (Ok(Amended::Gone), None) => {}
            (Ok(Amended::Unchanged { current }), Some(record)) => expect(rule, &*current, record),
            (answer, _) => broken(rule, "the record as it is, unchanged", answer),
        }
        self.unchanged(request.key, before.as_ref(), rule).await;
    }

    async fn refuses(&self, key: KeyHash, amendment: Amendment, kind: ErrorKind, rule: &str) {
        let before = self.read(key).await;
        match self.amend_now(key, amendment).await {
            Err(error) if error.kind() == kind && !error.is_retryable() => {}
            answer => broken(rule, "a permanent error", answer),
        }
        self.unchanged(key, before.as_ref(), rule).await;
    }
}

pub(super) fn request(key: KeyHash, record: &Record, amendment: Amendment) -> AmendRequest {
    AmendRequest { skew_margin: MARGIN, ..AmendRequest::new(key, record, amendment) }
}

/// An amendment changes only the record that was read, and not if it has changed since.
// Tests O1, O2.
pub async fn an_amendment_changes_only_the_record_that_was_read(subject: &Subject) {
    const RULE: &str = "O1: a record that is not as it was read stays as it is";
    let claim = new_claim();
    subject.granted(&claim).await;
    let read = subject.record(claim.key, "a claim").await;
    subject.advance(LAPSE).await;
    subject.took_over(&rival(&claim)).await;
    subject.advance(LAPSE).await;
    for amendment in [FORGET, settle_as(json("1"))] {
        subject.stays(&request(claim.key, &read, amendment), RULE).await;
    }
    let now = subject.record(claim.key, "a takeover").await;
    for (owner, attempt) in [(read.owner, now.attempt), (now.owner, read.attempt), (None, now.attempt)] {
        let read = Record { owner, attempt, ..now.clone() };
        subject.stays(&request(claim.key, &read, FORGET), RULE).await;
    }
    subject.stays(&request(claim.key, &Record { status: Status::Failed, ..now.clone() }, FORGET), RULE).await;
    let ordered = Record { sequence: Some(Sequence::from(1_u64)), ..now };
    subject.stays(&request(claim.key, &ordered, FORGET), RULE).await;
    subject.amended(claim.key, FORGET, "O4: a claim that has lapsed is forgotten").await;
    subject.stays(&request(claim.key, &read, FORGET), "O2: nothing is left to amend").await;
}

/// An amendment of a record that has changed since it was read returns all of the current one.
// Tests O1.
pub async fn a_refused_amendment_returns_the_record(subject: &Subject) {
    const RULE: &str = "O1: a record that is not as it was read is returned";
    let refused = async |key| {
        let read = subject.record(key, "the amended record").await;
        subject.stays(&request(key, &Record { attempt: read.attempt + 1, ..read }, FORGET_ALL), RULE).await;
    };
    for result in [json("1"), deflated(), encoded(), StoredResult::DROPPED, StoredResult::SUPERSEDED] {
        let claim = ClaimRequest { label: Some("label".into()), ..new_claim() };
        subject.granted(&claim).await;
        subject.done(&claim, Settlement::complete(result, RETENTION)).await;
        refused(claim.key).await;
    }
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    subject.amended(claim.key, Amendment::Release, "O7: a claim that has lapsed is released").await;
    refused(claim.key).await;
    subject.took_over(&rival(&claim)).await;
    refused(claim.key).await;
}

/// An expired record counts as absent from the first millisecond of its expiration, whether or not it has been deleted.
// Tests O2.
pub async fn an_amendment_finds_no_expired_record(subject: &Subject) {
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, complete("1")).await;
    let read = subject.record(claim.key, "an outcome").await;
    let (settled_at, expiration) = (read.settled_at.expect("a time"), read.expiration.expect("an expiration"));
    let remains = Timestamp::from_seconds(expiration).since(settled_at);
    subject.advance(remains - A_MILLISECOND).await;
    subject.amended(claim.key, Amendment::Redact, "O2: a record is amended until it expires").await;
    let read = subject.record(claim.key, "a redacted outcome").await;
    subject.advance(A_MILLISECOND).await;
    for amendment in [FORGET_ALL, Amendment::Redact] {
        let answer = subject.amend(&request(claim.key, &read, amendment)).await;
        if !matches!(answer, Ok(Amended::Gone)) {
            broken("O2: an expired record is gone", "Ok(Gone)", answer);
        }
    }
}

/// A live claim belongs only to its holder, until the lease and the margin have passed.
// Tests O3.
pub async fn a_live_claim_is_not_amended(subject: &Subject) {
    const RULE: &str = "O3: a claim that stands is never amended";
    let claim = new_claim();
    subject.granted(&claim).await;
    let read = subject.record(claim.key, "a claim").await;
    let (claimed_at, lease_until) = (read.claimed_at.expect("a time"), read.lease_until.expect("a lease"));
    // The last time at which the margin has not passed.
    for time in [Duration::ZERO, lease_until.since(claimed_at) + MARGIN] {
        subject.advance(time).await;
        for amendment in [FORGET, settle_as(json("1"))] {
            subject.stays(&request(claim.key, &read, amendment), RULE).await;
        }
        subject
            .refuses(claim.key, Amendment::Redact, ErrorKind::Request, "O6: an operation in progress has no result")
            .await;
    }
    subject.advance(A_MILLISECOND).await;
    subject.amended(claim.key, FORGET, "O4: a claim that has lapsed is forgotten").await;
}

/// The outcome of a lapsed claim is settled once, by an operator or by a successor, and its holder can no longer change
/// it.
// Tests O5, P11.
pub async fn a_lapsed_claim_is_settled_by_an_operator(subject: &Subject) {
    for result in [json("1"), encoded(), StoredResult::DROPPED, StoredResult::default()] {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.advance(LAPSE).await;
        let read = subject.record(claim.key, "a claim").await;
        let settle = request(claim.key, &read, settle_as(result.clone()));
        subject.amended(claim.key, settle_as(result.clone()), "O5: a claim that has lapsed is settled").await;
        let record = subject.record(claim.key, "an outcome").await;
        let again = subject.amend(&settle).await;
        if !matches!(again, Ok(Amended::Changed)) {
            broken("O5: a settle that is sent again is a success", "Ok(Changed)", again);
        }
        const OTHER: &str = "O5: another settle of the record that was read changes nothing";
        subject.stays(&request(claim.key, &read, settle_as(json("\"another\""))), OTHER).await;
        expect("O5: the claim has no owner any more", record.owner, None);
        let expires = record.settled_at.map(|settled_at| settled_at.after(RETENTION).seconds_rounded_up());
        expect("O5: the outcome expires after its retention", record.expiration, expires);
        subject.replays(&rival(&claim), result).await;
        subject.lost(&claim, complete("2"), Some(record)).await;
        const RULE: &str = "O5: an outcome is decided once";
        subject.refuses(claim.key, settle_as(json("3")), ErrorKind::Request, RULE).await;
    }
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.advance(LAPSE).await;
    let fail = Amendment::Settle { outcome: FinalStatus::Failed, result: json("{}"), retention: RETENTION };
    subject.amended(claim.key, fail, "O5: a claim that has lapsed is settled").await;
    expect("C4: a failed operation replays its failure", subject.failed(&rival(&claim)).await, json("{}"));
}

/// A record that is forgotten leaves its key free. A success is forgotten only if the request includes COMPLETED
/// records.
// Tests O4, P4.
pub async fn a_forgotten_record_leaves_its_key_free(subject: &Subject) {
    for (settlement, amendment) in [(Some(fail("1")), FORGET), (Some(complete("1")), FORGET_ALL), (None, FORGET)] {
        let claim = new_claim();
        subject.granted(&claim).await;
        match settlement {
            Some(settlement) => subject.done(&claim, settlement).await,
            None => subject.advance(LAPSE).await,
        }
        subject.amended(claim.key, amendment, "O4: a record is forgotten").await;
        expect("O4: a record that is forgotten is gone", subject.read(claim.key).await, None);
        expect("O4: a forgotten key is free", subject.granted(&misuse(&claim)).await.prior_status, None);
    }
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, complete("1")).await;
    const RULE: &str = "O4: a completed record is forgotten only if the request permits it";
    subject.refuses(claim.key, FORGET, ErrorKind::Request, RULE).await;
}

/// A record that is redacted has neither its result nor its label, and still guards its key.
// Tests O6.
pub async fn a_redacted_record_still_guards_its_key(subject: &Subject) {
    let [encoded, deflated] = [encoded(), deflated()].map(|result| Settlement::complete(result, RETENTION));
    for settlement in [complete("\"personal\""), encoded, deflated, fail("\"personal\"")] {
        let claim = ClaimRequest { label: Some("personal".into()), ..new_claim() };
        subject.granted(&claim).await;
        subject.done(&claim, settlement.clone()).await;
        // A cache keeps records that it has replayed.
        subject.outcome(&claim, &settlement).await;
        let before = subject.record(claim.key, "an outcome").await;
        // An amendment that is sent again changes nothing.
        for _ in 0..2 {
            subject.amended(claim.key, Amendment::Redact, "O6: an outcome is redacted").await;
            let redacted = Record { result: StoredResult::DROPPED, label: None, ..before.clone() };
            subject.unchanged(claim.key, Some(&redacted), "O6: nothing else of the record changes").await;
        }
        subject.mismatch(&misuse(&claim), "after a redaction", MismatchState::Final).await;
        let result = subject.outcome(&claim, &settlement).await;
        expect("O6: a redacted result is dropped", result, StoredResult::DROPPED);
    }
    let claim = new_claim();
    subject.granted(&claim).await;
    subject.done(&claim, Settlement::complete(StoredResult::SUPERSEDED, RETENTION)).await;
    let before = subject.record(claim.key, "an outcome").await;
    subject.amended(claim.key, Amendment::Redact, "O6: an outcome is redacted").await;
    subject.unchanged(claim.key, Some(&before), "O6: a superseded record stays superseded").await;
}

/// An amendment changes no other record, even if that has the same status and attempt, or no owner either.
// Tests O1.
pub async fn an_amendment_changes_no_other_record(subject: &Subject) {
    let amendments = [
        (complete("1"), vec![FORGET_ALL, Amendment::Redact]),
        (fail("1"), vec![FORGET, Amendment::Redact]),
        (HAND_BACK, vec![Amendment::Release, settle_as(json("2")), FORGET]),
    ];
    for (settlement, amendments) in amendments {
        for amendment in amendments {
            let [amended, other] = [(); 2].map(|()| new_claim());
            for claim in [&amended, &other] {
                subject.granted(claim).await;
                // A hand-back leaves a record only after a takeover.
                subject.advance(LAPSE).await;
                let taken = rival(claim);
                subject.took_over(&taken).await;
                subject.done(&taken, settlement.clone()).await;
            }
            let before = subject.record(other.key, "another record").await;
            subject.amended(amended.key, amendment, "O4 to O7: the amendment applies").await;
            subject.unchanged(other.key, Some(&before), "an amendment changes no other record").await;
        }
    }
}

/// Either an operator or a successor decides.
// Tests O1.
pub async fn a_takeover_and_an_amendment_exclude_each_other(subject: &Subject) {
    for _ in 0..rounds() {
        let claim = new_claim();
        subject.granted(&claim).await;
        subject.advance(LAPSE).await;
        let read = subject.record(claim.key, "a claim").await;
        let (request, rival) = (request(claim.key, &read, settle_as(json("1"))), rival(&claim));
        match join(subject.amend(&request), subject.claim(&rival)).await {
            (Ok(Amended::Changed), Claimed::Refused(Refusal::Completed(_)))
            | (Ok(Amended::Unchanged { .. }), Claimed::Granted(_)) => {}
            answers => broken("O1: a takeover and an amendment exclude each other", "one of the two", answers),
        }
    }
}

/// The results of a call are independent and in the order of its requests.
pub async fn amendment_results_are_in_request_order(subject: &Subject) {
    let claims = [(); 4].map(|()| new_claim());
    let mut requests = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        subject.granted(claim).await;
        if i != 3 {
            subject.done(claim, complete("1")).await;
        }
        let record = subject.record(claim.key, "the amended record").await;
        requests.push(request(claim.key, &record, if i == 1 { FORGET } else { Amendment::Redact }));
    }
    requests[2].key = new_claim().key;
    requests[3].amendment = FORGET;
    let amend = subject.amend.as_ref().expect("the subject amends");
    let answers = amend.amend(&requests).await;
    let is_expected = matches!(
        &answers[..],
        [Ok(Amended::Changed), Err(_), Ok(Amended::Gone), Ok(Amended::Unchanged { current })]
            if current.status == Status::InProgress
    );
    if !is_expected {
        broken("amendments are answered in order", "Changed, an error, Gone, Unchanged", answers);
    }
}
