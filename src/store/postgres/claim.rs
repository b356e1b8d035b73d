//! Claims: one statement for all keys of the same terms, and a `SELECT` right behind it that explains the refusals.

use std::{collections::HashMap, time::Duration};

use futures_util::future::{join, join_all};
use tokio_postgres::types::Type;

use super::{
    BATCH, PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    read::Records,
    row,
};
use crate::{
    error::Error,
    record::{KeyHash, NEWEST_KNOWN_VERSION, RECORD_VERSION},
    store::{
        Answers, ClaimRequest, Claimed, Grant, Refusal, ResultData, Takeover,
        rules::{self, Judgement},
    },
};

const OPERATION: &str = "claim";

/// What the claims of one statement have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    lease: Duration,
    skew_margin: Duration,
    retention: Duration,
    takeover: Takeover,
    result_data: ResultData,
}

impl Terms {
    const fn of(request: &ClaimRequest) -> Self {
        let ClaimRequest { lease, skew_margin, retention, takeover, result_data, .. } = *request;
        Self { lease, skew_margin, retention, takeover, result_data }
    }
}

/// The claims of one statement.
struct Group<'a> {
    terms: Terms,
    /// Each with its place in the call.
    members: Vec<(usize, &'a ClaimRequest)>,
}

/// The answers of a group's two statements.
struct GroupAnswer {
    granted: Result<HashMap<KeyHash, Grant>, Failure>,
    records: Result<Records, Failure>,
}

/// The answers of a call, `None` where there is none yet.
type Open = Vec<Option<Result<Claimed, Error>>>;

impl PostgresStore {
    /// A second try is for keys that nothing stands in the way of any more, or that a lock of another key has held up. Each
    /// then has a statement of its own, so that a locked one is waited for alone.
    pub(super) async fn claim_all(&self, requests: &[ClaimRequest]) -> Answers<Claimed> {
        if requests.is_empty() {
            return Vec::new();
        }
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return error::for_each(error, requests.len()),
        };
        let mut answers: Open = requests.iter().map(|_| None).collect();
        self.claim_groups(&connection, groups(requests), &mut answers).await;
        let left: Vec<Group<'_>> = requests
            .iter()
            .enumerate()
            .filter(|(place, _)| answers[*place].is_none())
            .map(|member| Group { terms: Terms::of(member.1), members: vec![member] })
            .collect();
        if !left.is_empty() {
            self.claim_groups(&connection, left, &mut answers).await;
        }
        connection.give_back();
        answers.into_iter().map(|answer| answer.unwrap_or(Ok(HELD))).collect()
    }

    /// Sends the claims of all groups at once, and enters what is decided.
    async fn claim_groups(&self, connection: &Connection, groups: Vec<Group<'_>>, answers: &mut Open) {
        let sent = join_all(groups.iter().map(|group| self.claim_group(connection, group))).await;
        for (group, answer) in groups.into_iter().zip(sent) {
            self.enter(group, answer, answers);
        }
    }

    async fn claim_group(&self, connection: &Connection, group: &Group<'_>) -> GroupAnswer {
        let requests = || group.members.iter().map(|(_, request)| *request);
        let keys: Vec<&[u8]> = requests().map(|request| request.key.as_bytes().as_slice()).collect();
        let owners: Vec<&[u8]> = requests().map(|request| request.owner.as_bytes().as_slice()).collect();
        let fingerprints: Vec<Option<&[u8]>> =
            requests().map(|request| request.fingerprint.as_ref().map(|hash| hash.as_bytes().as_slice())).collect();
        let Terms { lease, skew_margin, retention, takeover, result_data } = group.terms;
        let ttl = retention.max(lease.saturating_add(skew_margin).saturating_add(Duration::from_millis(1)));
        let (lease, margin, ttl) = (row::millis(lease), row::millis(skew_margin), row::millis(ttl));
        let takes_over = takeover == Takeover::Allowed;
        let (version, newest_known) = (RECORD_VERSION.cast_signed(), NEWEST_KNOWN_VERSION.cast_signed());
        let now = self.now();
        let parameters: [Parameter<'_>; 11] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&owners, Type::BYTEA_ARRAY),
            (&fingerprints, Type::BYTEA_ARRAY),
            (&lease, Type::INT8),
            (&margin, Type::INT8),
            (&ttl, Type::INT8),
            (&takes_over, Type::BOOL),
            (&version, Type::INT4),
            (&newest_known, Type::INT4),
            (&now, Type::INT8),
        ];
        let claim = async {
            let rows = connection.query(OPERATION, &self.statements.claim, &parameters).await?;
            rows.iter().map(row::grant).collect::<Result<_, _>>().map_err(Failure::from)
        };
        // Polled in this order, so sent in this order.
        let (granted, records) = join(claim, self.select(connection, &keys, result_data, OPERATION)).await;
        GroupAnswer { granted, records }
    }

    fn enter(&self, group: Group<'_>, answer: GroupAnswer, answers: &mut Open) {
        let count = group.members.len();
        let (granted, was_locked) = match answer.granted {
            Ok(granted) => (granted, false),
            Err(failure) if failure.is_lock_timeout => (HashMap::new(), true),
            Err(failure) => {
                let errors = error::for_each(failure.error, count);
                return group.members.iter().zip(errors).for_each(|((place, _), error)| answers[*place] = Some(error));
            }
        };
        let records = match answer.records {
            Ok(records) => records,
            Err(failure) => {
                // What was granted is. The others were refused, nobody knows why.
                let errors = error::for_each(failure.error, count);
                for ((place, request), error) in group.members.iter().zip(errors) {
                    answers[*place] =
                        Some(granted.get(&request.key).map_or(error, |grant| Ok(Claimed::Granted(*grant))));
                }
                return;
            }
        };
        for (place, request) in group.members {
            answers[place] = match granted.get(&request.key) {
                Some(grant) => Some(Ok(Claimed::Granted(*grant))),
                None => self.explain(request, &records),
            };
            // Nothing but the lock stands in its way, and it has been waited for.
            if answers[place].is_none() && was_locked && count == 1 {
                answers[place] = Some(Ok(HELD));
            }
        }
    }

    /// Why a claim was refused; `None` if nothing forbids it by now.
    fn explain(&self, request: &ClaimRequest, records: &Records) -> Option<Result<Claimed, Error>> {
        let found = records.get(&request.key)?;
        let now = self.clock.as_ref().map_or(found.now, |clock| clock.now());
        let record = found.record.as_ref().map_err(Error::without_source);
        match record.and_then(|record| rules::judge(record, request, now)) {
            Ok(Judgement::Free) => None,
            Ok(Judgement::Mine(grant)) => Some(Ok(Claimed::Granted(grant))),
            Ok(Judgement::Refused(refusal)) => Some(Ok(Claimed::Refused(refusal))),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Another transaction, not yet committed, has the key, or others were quicker twice. No lease is known, so nobody waits for
/// one: whoever waits polls.
const HELD: Claimed = Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 });

/// As a rule one group: an engine's claims differ in nothing but key, owner and fingerprint.
fn groups(requests: &[ClaimRequest]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for member in requests.iter().enumerate() {
        let terms = Terms::of(member.1);
        match groups.iter_mut().find(|group| group.terms == terms && group.members.len() < BATCH) {
            Some(group) => group.members.push(member),
            None => groups.push(Group { terms, members: vec![member] }),
        }
    }
    groups
}
