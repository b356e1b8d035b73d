//! Checks of lists.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{join, join_all};

use super::*;
use crate::{
    error::ErrorKind,
    store::listing::{Cursor, ListRequest, ListedState, MAX_READS, Page},
};

const RULE: &str = "a list has each record that fits, as a read shows it without its result";

/// Returns a claim of an operation that no other check uses.
fn named(operation: &Arc<str>) -> ClaimRequest {
    ClaimRequest { operation: Arc::clone(operation), label: Some("a label".into()), ..new_claim() }
}

/// Returns a name that no other check uses.
fn operation() -> Arc<str> {
    format!("list {}", KeyHash::from_bytes(random()).to_hex()).into()
}

fn of(operation: &Arc<str>, state: ListedState) -> ListRequest {
    ListRequest { operation: Some(Arc::clone(operation)), skew_margin: MARGIN, ..ListRequest::new(state) }
}

impl Subject {
    async fn page(&self, request: &ListRequest) -> Page {
        let list = self.list.as_ref().unwrap_or_else(|| broken("the subject lists", "Subject::with_lists", ()));
        let page = list.list(request).await;
        let page = page.unwrap_or_else(|error| broken("a store that can be reached answers", "Ok(…)", error));
        if page.read < page.records.len() as u64 {
            broken(
                "a page contains the number of records that it has read",
                "as many as it has, at the least",
                page.read,
            );
        }
        page
    }

    /// Returns the records of all pages, and the number of pages.
    async fn pages(&self, mut request: ListRequest) -> (BTreeMap<KeyHash, Record>, usize) {
        let (mut listed, mut pages, mut seen) = (BTreeMap::new(), 0, Vec::new());
        loop {
            let page = self.page(&request).await;
            pages += 1;
            listed.extend(page.records.into_iter().map(|found| (found.key, found.record)));
            let Some(next) = page.next else { return (listed, pages) };
            // As in a tool that is called once per page.
            let next = Cursor::new(next.to_string());
            if seen.contains(&next) {
                broken("no page repeats an earlier one", "a new cursor", next);
            }
            seen.push(next.clone());
            request.after = Some(next);
        }
    }

    async fn listed(&self, request: ListRequest) -> BTreeSet<KeyHash> {
        self.pages(request).await.0.into_keys().collect()
    }

    async fn lists<const N: usize>(&self, request: ListRequest, expected: [&ClaimRequest; N], rule: &str) {
        expect(rule, self.listed(request).await, expected.map(|claim| claim.key).into());
    }
}

/// Operations are listed while they are in progress, lapsed or failed, and never when they are completed.
pub async fn operations_are_listed_by_their_state(subject: &Subject) {
    let operation = operation();
    let [handed_back, lapsed, failed, done, released, standing, other] = [(); 7].map(|()| named(&operation));
    let other = ClaimRequest { operation: "another".into(), ..other };
    for claim in [&handed_back, &lapsed] {
        subject.granted(claim).await;
    }
    subject.advance(LAPSE).await;
    let taker = rival(&handed_back);
    subject.took_over(&taker).await;
    subject.done(&taker, HAND_BACK).await;
    for claim in [&failed, &done, &released, &standing, &other] {
        subject.granted(claim).await;
    }
    subject.done(&failed, fail("1")).await;
    subject.done(&done, complete("1")).await;
    subject.done(&released, RELEASE).await;

    let in_progress = of(&operation, ListedState::InProgress);
    subject.lists(in_progress.clone(), [&handed_back, &lapsed, &standing], RULE).await;
    subject.lists(of(&operation, ListedState::Lapsed), [&handed_back, &lapsed], RULE).await;
    subject.lists(of(&operation, ListedState::Failed), [&failed], RULE).await;
    let (records, _) = subject.pages(in_progress).await;
    for (key, record) in records {
        expect(RULE, record, subject.record(key, "the listed record").await.without_data());
    }
    let (records, _) = subject.pages(of(&operation, ListedState::Failed)).await;
    let found = records.into_values().next().map(|record| (record.operation, record.label, record.result.data));
    expect(RULE, found, Some((Some(Arc::clone(&operation)), Some("a label".into()), None)));
    let all = subject.listed(ListRequest::new(ListedState::InProgress)).await;
    for claim in [&handed_back, &lapsed, &standing, &other] {
        expect("a list of all operations has each of them", all.contains(&claim.key), true);
    }
    for claim in [&failed, &done, &released] {
        expect("a list has one state", all.contains(&claim.key), false);
    }
    subject.advance(RETENTION + Duration::from_secs(1)).await;
    for state in [ListedState::InProgress, ListedState::Lapsed, ListedState::Failed] {
        subject.lists(of(&operation, state), [], "C1: an expired record is not listed").await;
    }
}

/// The age counts from the last claim, in milliseconds.
pub async fn a_list_has_the_records_that_are_old_enough(subject: &Subject) {
    const AGE: &str = "a list has the records whose last claim is as old as was asked for";
    let operation = operation();
    let [older, newer] = [(); 2].map(|()| named(&operation));
    subject.granted(&older).await;
    subject.advance(LAPSE).await;
    subject.granted(&newer).await;
    let request = |older_than| ListRequest { older_than, ..of(&operation, ListedState::InProgress) };
    subject.lists(request(Duration::ZERO), [&older, &newer], AGE).await;
    subject.lists(request(LAPSE), [&older], AGE).await;
    subject.lists(request(LAPSE + Duration::from_secs(50)), [], AGE).await;
    subject.took_over(&rival(&older)).await;
    subject.lists(request(LAPSE), [], AGE).await;
}

/// Pages follow each other to an end, whatever their limit.
pub async fn pages_have_each_record_and_an_end(subject: &Subject) {
    let operation = operation();
    let claims: Vec<_> = (0..25).map(|_| named(&operation)).collect();
    for claim in &claims {
        subject.granted(claim).await;
    }
    let expected: BTreeSet<_> = claims.iter().map(|claim| claim.key).collect();
    for max_reads in [10, MAX_READS, u32::MAX] {
        let request = ListRequest { max_reads, ..of(&operation, ListedState::InProgress) };
        expect(RULE, subject.listed(request).await, expected.clone());
    }
    let nothing = ListRequest { max_reads: 0, ..of(&operation, ListedState::InProgress) };
    expect("each page reads something", subject.page(&nothing).await.read <= u64::from(MAX_READS), true);
}

/// A cursor from elsewhere is a permanent error.
pub async fn a_cursor_of_nobody_is_refused(subject: &Subject) {
    let list = subject.list.as_ref().expect("the subject lists");
    for text in ["", "nothing", "[1]"] {
        let request = ListRequest { after: Some(Cursor::new(text)), ..ListRequest::new(ListedState::Failed) };
        match list.list(&request).await {
            Err(error) if error.kind() == ErrorKind::Request && !error.is_retryable() => {}
            answer => broken("a cursor of nobody is refused", "Err(Request), permanent", answer),
        }
    }
}

/// Lists that run simultaneously with claims and settles fail nothing. When those are over, exactly the open operations
/// are listed.
pub async fn operations_completed_during_a_list_are_not_listed_afterwards(subject: &Subject) {
    let operation = operation();
    let claims: Vec<_> = (0..12).map(|_| named(&operation)).collect();
    let work = join_all(claims.iter().enumerate().map(|(place, claim)| async move {
        subject.granted(claim).await;
        match place % 4 {
            0 => subject.done(claim, complete("1")).await,
            1 => subject.done(claim, fail("1")).await,
            2 => subject.done(claim, RELEASE).await,
            _ => {}
        }
    }));
    let lists = async {
        for state in [ListedState::InProgress, ListedState::Failed] {
            subject.listed(of(&operation, state)).await;
        }
    };
    join(work, lists).await;
    let at = |rest| claims.iter().skip(rest).step_by(4).map(|claim| claim.key).collect::<BTreeSet<_>>();
    expect(RULE, subject.listed(of(&operation, ListedState::Failed)).await, at(1));
    expect(RULE, subject.listed(of(&operation, ListedState::InProgress)).await, at(3));
}
