//! The conformance suite, which every store must pass (feature `conformance`).
//!
//! [`conformance_tests!`](crate::conformance_tests) generates one test per check:
//!
//! ```
//! use lambda_once::{clock::{ManualClock, Timestamp}, store::{conformance::Subject, memory::MemoryStore}};
//!
//! async fn subject() -> Subject {
//!     let clock = ManualClock::at(Timestamp::from_seconds(2_000_000_000));
//!     Subject::new(MemoryStore::with_clock(clock.clone()), clock)
//! }
//! lambda_once::conformance_tests!(subject().await);
//! # fn main() {}
//! ```
//!
//! Every check uses distinct keys, so all may run on one table simultaneously. A check panics if the store breaks the
//! contract. The message names the rule, by its label in `docs/internals/protocol.md` if it has one, the expectation,
//! and the actual result. Races are run ten times each. The environment variable `CONFORMANCE_ROUNDS` sets a different
//! number. The list of checks grows with the contract and is not covered by semantic versioning.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Answers, BoxFuture, ClaimRequest, Claimed, Grant, Mismatch, MismatchState, Refusal, ResultData, SettleRequest,
    Settled, Settlement, Store, Takeover, amend::Amend, listing::List,
};
use crate::{
    clock::{ManualClock, Timestamp},
    record::{
        Difference, EncodedData, Fingerprint, KeyHash, Owner, PayloadPart, Record, Status, StoredData, StoredResult,
    },
};

mod amendments;
mod amendments_in_order;
mod claims;
mod connections;
mod doubt;
mod listing;
mod orders;
mod releases;
mod resolutions;
mod settles;

/// The checks, only for [`conformance_tests!`](crate::conformance_tests).
#[doc(hidden)]
pub mod checks {
    pub use super::{
        amendments::*, amendments_in_order::*, claims::*, doubt::*, listing::*, orders::*, releases::*, resolutions::*,
        settles::*,
    };
}

/// Generates one test per check. The expression creates a [`Subject`] and may await. With the prefix `amendments:` the
/// checks are for a store that [amends](crate::store::amend) records, for a subject [with
/// amendments](crate::store::conformance::Subject::with_amendments). With `listing:` they are for a store that
/// [lists](crate::store::listing) records, for a subject [with lists](crate::store::conformance::Subject::with_lists).
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::conformance_tests!($subject;
            a_new_key_is_granted_and_then_in_progress,
            of_many_claims_exactly_one_is_granted,
            a_claim_sent_again_gets_its_first_grant,
            a_lapsed_claim_sent_again_takes_over,
            a_lapsed_claim_is_taken_over_and_a_live_one_is_not,
            a_takeover_sent_again_still_took_over,
            a_lapsed_claim_is_taken_over_once,
            an_abandoned_claim_stays_so_where_takeover_is_refused,
            another_payload_is_a_mismatch_whatever_the_status,
            a_claim_without_a_fingerprint_matches_any_payload,
            the_first_half_of_a_fingerprint_decides,
            a_mismatch_names_the_parts_that_differ,
            payloads_of_different_versions_are_not_compared,
            an_expired_record_counts_as_absent,
            a_live_claim_never_counts_as_expired,
            batch_results_are_in_request_order,
            warming_changes_nothing,
            a_store_keeps_its_id,
            a_record_contains_operation_label_and_times,
            a_completed_operation_replays_its_result,
            a_failed_operation_replays_its_failure,
            results_come_back_as_they_were_stored,
            results_are_omitted_only_on_request,
            the_largest_result_fits,
            a_released_key_is_free,
            a_settle_sent_again_succeeds,
            a_late_holder_changes_nothing,
            a_settle_creates_no_record,
            an_outcome_is_decided_once,
            a_taken_over_claim_is_handed_back,
            a_late_release_does_not_forget_a_takeover,
            a_renewal_extends_the_lease,
            a_late_renewal_shortens_nothing,
            a_renewal_after_the_lease_and_the_margin_revives_nothing,
            a_record_expires_no_earlier_than_its_retention,
            a_store_orders_or_refuses_to,
            an_ordered_record_contains_its_sequence,
            an_older_operation_is_superseded,
            sequences_are_compared_as_numbers,
            an_entity_has_one_holder,
            of_many_claims_on_an_entity_exactly_one_is_granted,
            only_a_completion_supersedes,
            a_late_completion_lowers_nothing,
            a_late_settle_frees_nothing,
            operations_older_than_one_in_doubt_wait,
            doubt_ends_with_its_operation_or_a_newer_one,
            no_release_ends_doubt,
            a_superseded_operation_is_not_taken_over,
            a_renewal_keeps_the_entity,
            a_mark_lives_as_long_as_its_outcomes,
            doubt_is_bounded_and_blocks_nothing_newer,
            merged_doubt_ends_with_a_completion,
            a_batch_holds_operations_of_several_entities,
        );
    };
    (amendments: $subject:expr) => {
        $crate::conformance_tests!($subject;
            a_released_claim_is_taken_over_once_where_takeover_is_refused,
            a_release_does_not_end_the_claim_itself,
            a_handed_back_claim_passes_its_release_on,
            a_released_claim_in_order_keeps_the_order,
            an_amendment_changes_only_the_record_that_was_read,
            a_refused_amendment_returns_the_record,
            an_amendment_changes_no_other_record,
            an_amendment_finds_no_expired_record,
            a_live_claim_is_not_amended,
            a_lapsed_claim_is_settled_by_an_operator,
            a_forgotten_record_leaves_its_key_free,
            a_redacted_record_still_guards_its_key,
            an_operator_settles_an_ordered_operation_with_its_mark,
            an_operators_settle_ends_only_its_own_doubt,
            an_operators_settle_frees_no_entity_of_another_claim,
            a_forgotten_operation_stays_in_doubt_until_it_is_settled,
            an_operators_settle_and_a_newer_claim_both_count,
            a_takeover_and_an_amendment_exclude_each_other,
            amendment_results_are_in_request_order,
            marks_are_read_in_order,
            a_superseded_operation_is_not_in_doubt,
            an_operator_ends_the_doubt_that_a_statement_names,
            a_resolution_leaves_records_as_they_are,
            a_resolution_changes_only_the_mark_that_was_read,
            no_doubt_is_resolved_while_a_claim_is_live,
            a_resolved_mark_has_the_retention_of_its_resolution,
            merged_doubt_ends_with_an_operators_statement,
            a_resolution_and_a_newer_claim_exclude_each_other,
        );
    };
    (listing: $subject:expr) => {
        $crate::conformance_tests!($subject;
            operations_are_listed_by_their_state,
            a_list_has_the_records_that_are_old_enough,
            pages_have_each_record_and_an_end,
            a_cursor_of_nobody_is_refused,
            operations_completed_during_a_list_are_not_listed_afterwards,
        );
    };
    ($subject:expr; $($check:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                $crate::store::conformance::checks::$check(&$subject).await;
            }
        )+
    };
}

/// The lease of the checks' claims.
const LEASE: Duration = Duration::from_secs(2);
/// Their skew margin.
const MARGIN: Duration = Duration::from_millis(500);
/// The retention of their records.
const RETENTION: Duration = Duration::from_secs(60);

type Advance = dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync;
/// A store, and a way to let time pass for it.
pub struct Subject {
    store: Arc<dyn Store>,
    amend: Option<Arc<dyn Amend>>,
    list: Option<Arc<dyn List>>,
    advance: Box<Advance>,
}

impl Subject {
    /// Creates a subject whose store reads `clock`.
    pub fn new(store: impl Store, clock: ManualClock) -> Self {
        Self::with_time(store, move |time| {
            clock.advance(time);
            Box::pin(std::future::ready(()))
        })
    }

    /// Creates a subject whose store has its own clock. `advance` lets that much time pass, for example by sleeping. Single
    /// checks then take six minutes, and the checks of amendments fail, because they stop at the last millisecond of a
    /// lease.
    pub fn with_time(
        store: impl Store,
        advance: impl Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self { store: Arc::new(store), amend: None, list: None, advance: Box::new(advance) }
    }

    /// Adds another connection: a store that was opened separately on the same records, as another process would open
    /// it. The checks send their calls to the connections in turn. This finds a store that keeps records consistent only
    /// within one value, for example by a lock in its memory. The results of the first store's [`Store::id`],
    /// [`Store::limits`] and [`Store::format`] count.
    #[must_use]
    pub fn with_connection(mut self, store: impl Store) -> Self {
        self.store = Arc::new(connections::InTurn::new(self.store, Arc::new(store)));
        self
    }

    /// Adds the store that amends the records: the same store, or a second one on the same records.
    #[must_use]
    pub fn with_amendments(mut self, store: impl Amend) -> Self {
        self.amend = Some(Arc::new(store));
        self
    }

    /// Adds the store that lists the records: the same store, or a second one on the same records.
    #[must_use]
    pub fn with_lists(mut self, store: impl List) -> Self {
        self.list = Some(Arc::new(store));
        self
    }

    async fn advance(&self, time: Duration) {
        (self.advance)(time).await;
    }

    async fn claim(&self, request: &ClaimRequest) -> Claimed {
        only(self.store.claim(std::slice::from_ref(request)).await)
    }

    async fn granted(&self, request: &ClaimRequest) -> Grant {
        match self.claim(request).await {
            Claimed::Granted(grant) => grant,
            refused => {
                broken("C1, C7: a key that is free, or whose lease has passed, is granted", "Granted(…)", refused)
            }
        }
    }

    /// Expects a grant over a claim that ended without an outcome.
    async fn took_over(&self, request: &ClaimRequest) -> Grant {
        let grant = self.granted(request).await;
        expect("C8: a claim over an INPROGRESS record took over", grant.prior_status, Some(Status::InProgress));
        grant
    }

    async fn refused(&self, request: &ClaimRequest) -> Refusal {
        match self.claim(request).await {
            Claimed::Refused(refusal) => refusal,
            granted => {
                broken("C2 to C7: a key that is decided, held or another payload's is refused", "Refused(…)", granted)
            }
        }
    }

    /// Expects the operation to be in progress, and returns the lease and the attempts of the blocking claim.
    async fn in_progress(&self, request: &ClaimRequest, when: &str) -> (Option<Timestamp>, u64) {
        match self.refused(request).await {
            Refusal::InProgress { lease_until, attempt } => (lease_until, attempt),
            refusal => broken(&format!("C6: {when}, others are in progress"), "Refused(InProgress { … })", refusal),
        }
    }

    async fn mismatch(&self, request: &ClaimRequest, when: &str, with: MismatchState) -> Difference {
        let rule = format!("C2: {when}, another payload is a mismatch, which names the differing parts");
        match self.refused(request).await {
            Refusal::Mismatch(Mismatch { state, difference }) => {
                expect(&rule, state, with);
                difference
            }
            refusal => broken(&rule, "Refused(Mismatch(…))", refusal),
        }
    }

    /// Expects a completed operation and returns its result. The returned record equals the stored one, as far as a
    /// replay depends on it.
    async fn completed(&self, request: &ClaimRequest) -> StoredResult {
        match self.refused(request).await {
            Refusal::Completed(record) => self.replayed(request, *record, Status::Completed).await,
            refusal => broken("C3: a completed operation is replayed", "Refused(Completed(…))", refusal),
        }
    }

    /// Expects a failed operation and returns its failure, like [`completed`](Self::completed).
    async fn failed(&self, request: &ClaimRequest) -> StoredResult {
        match self.refused(request).await {
            Refusal::Failed(record) => self.replayed(request, *record, Status::Failed).await,
            refusal => broken("C4: a failed operation is replayed", "Refused(Failed(…))", refusal),
        }
    }

    async fn replays(&self, request: &ClaimRequest, result: StoredResult) {
        expect("C3: a completed operation replays its result, byte for byte", self.completed(request).await, result);
    }

    async fn replayed(&self, request: &ClaimRequest, record: Record, status: Status) -> StoredResult {
        let read = self.record(request.key, "C3, C4: the replayed record").await;
        expect("C3, C4: a refusal has the status on record", (record.status, read.status), (status, status));
        expect("C2: a refusal has the fingerprint on record", record.fingerprint, read.fingerprint);
        expect("C3, C4: a refusal has the result on record", &record.result, &read.result);
        let found = (record.expiration, read.expiration);
        if record.expiration.is_none() || record.expiration > read.expiration {
            broken(
                "C1: the replayed record expires, and no later than the stored one",
                "an expiration up to that on record",
                found,
            );
        }
        record.result
    }

    async fn settle(&self, request: &ClaimRequest, settlement: Settlement) -> Settled {
        only(self.store.settle(&[settle_request(request, settlement)]).await)
    }

    /// Settles a claim that holds the record, and expects a change.
    async fn done(&self, request: &ClaimRequest, settlement: Settlement) {
        let rule = format!("S1: the holder of a claim may {} it", settlement.as_str());
        expect(&rule, self.settle(request, settlement).await, Settled::Done { found: None });
    }

    /// Settles a claim that has lost the record, and expects no change.
    async fn lost(&self, request: &ClaimRequest, settlement: Settlement, current: Option<Record>) {
        let rule =
            format!("S3: a record that another claim holds or has decided cannot be changed ({})", settlement.as_str());
        let lost = Settled::LeaseLost { current: current.map(Box::new) };
        expect(&rule, self.settle(request, settlement).await, lost);
    }

    /// Renews a claim and returns its lease.
    async fn renewed(&self, request: &ClaimRequest, renew: Settlement) -> Timestamp {
        match self.settle(request, renew).await {
            Settled::Renewed { lease_until } => lease_until,
            settled => broken("L5: a claim that stands is renewed", "Renewed { … }", settled),
        }
    }

    async fn read(&self, key: KeyHash) -> Option<Record> {
        only(self.store.read(&[key], ResultData::Include).await)
    }

    async fn record(&self, key: KeyHash, what: &str) -> Record {
        self.read(key).await.unwrap_or_else(|| broken(&format!("{what} is on record"), "Some(…)", None::<Record>))
    }

    /// Expects the same record from a read without data, except for the data.
    async fn has_all_but_data(&self, key: KeyHash, record: &Record) {
        let read = only(self.store.read(&[key], ResultData::Omit).await);
        expect("a read without data leaves out only that", read, Some(record.without_data()));
    }

    async fn unchanged(&self, key: KeyHash, before: Option<&Record>, rule: &str) {
        expect(rule, self.read(key).await.as_ref(), before);
    }
}

/// Returns the result of the only request of a call.
fn only<T: fmt::Debug>(mut answers: Answers<T>) -> T {
    expect("a call has one answer for each request", answers.len(), 1);
    answers.remove(0).unwrap_or_else(|error| broken("a store that can be reached answers", "Ok(…)", error))
}

/// Panics unless the rule's expectation is met.
#[track_caller]
fn expect<T: PartialEq + fmt::Debug>(rule: &str, found: T, expected: T) {
    assert!(found == expected, "{rule}\n  expected: {expected:?}\n     found: {found:?}");
}

/// Panics because the store breaks a rule.
#[track_caller]
fn broken(rule: &str, expected: &str, found: impl fmt::Debug) -> ! {
    panic!("{rule}\n  expected: {expected}\n     found: {found:?}")
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("store", &self.store).finish_non_exhaustive()
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

fn owner() -> Owner {
    Owner::from_bytes(random())
}

/// Returns the number of rounds in each race.
fn rounds() -> usize {
    std::env::var("CONFORMANCE_ROUNDS")
        .map_or(10, |rounds| rounds.parse().unwrap_or_else(|_| panic!("CONFORMANCE_ROUNDS is not a number: {rounds}")))
}

/// Returns a claim on a new key.
fn new_claim() -> ClaimRequest {
    ClaimRequest {
        key: KeyHash::from_bytes(random()),
        fingerprint: Some(Fingerprint::from_bytes([1; 32])),
        owner: owner(),
        lease: LEASE,
        skew_margin: MARGIN,
        retention: RETENTION,
        takeover: Takeover::Allowed,
        result_data: ResultData::Include,
        order: None,
        operation: "orders".into(),
        label: None,
    }
}

/// Returns another owner's claim on the same operation.
fn rival(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { owner: owner(), ..claim.clone() }
}

/// Returns a claim that uses the same key with a different payload.
fn misuse(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(claim) }
}

fn settle_request(claim: &ClaimRequest, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: claim.fingerprint, settlement, order: claim.order }
}

fn json(text: &str) -> StoredResult {
    StoredResult::of(StoredData::Json(text.to_owned()))
}

fn deflated() -> StoredResult {
    StoredResult::of(StoredData::Deflated((0..=255).collect()))
}

fn encoded() -> StoredResult {
    let data = EncodedData::new("key-2026", b"any \x00 bytes \xff".to_vec()).expect("the id is short");
    StoredResult::of(StoredData::Encoded(data))
}

fn complete(text: &str) -> Settlement {
    Settlement::complete(json(text), RETENTION)
}

fn fail(text: &str) -> Settlement {
    Settlement::fail(json(text), RETENTION)
}

const RELEASE: Settlement = Settlement::Release;
const HAND_BACK: Settlement = Settlement::HandBack;

const A_MILLISECOND: Duration = Duration::from_millis(1);

/// A time after the lease and the margin, with any rounding.
const LAPSE: Duration = Duration::from_millis(2_501);
