//! Claims with one statement for all keys with the same settings, followed by a `SELECT` that explains the refusals.

use std::collections::HashMap;

use futures_util::future::{join, join_all};
use tokio_postgres::{Row, types::Type};

use super::{
    BATCH, PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    read::{Records, records},
    row,
};
use crate::{
    clock::Timestamp,
    error::Error,
    future::BoxFuture,
    record::{Fingerprint, KeyHash},
    store::{
        Answers, ClaimRequest, Claimed, Grant, Refusal, Takeover,
        remote::terms::Terms,
        rules::{self, Judgement},
    },
};

const OPERATION: &str = "claim";

/// The maximum number of keys in a call that may each wait until `lock_timeout`.
pub(super) const MAX_BLOCKED: usize = 2;

/// The claims of one statement.
struct Group<'a> {
    terms: Terms,
    members: Vec<Member<'a>>,
}

/// The results of a group's two statements.
struct GroupAnswer {
    granted: Result<HashMap<KeyHash, Grant>, Failure>,
    /// The records of all keys. Most were granted just now, and are not decoded.
    rows: Result<Vec<Row>, Failure>,
}

/// The results of a call, with `None` for undecided claims.
pub(super) type Open = [Option<Result<Claimed, Error>>];

/// A claim, and its position in the call.
type Member<'a> = (usize, &'a ClaimRequest);

impl PostgresStore {
    pub(super) async fn claim_all(&self, requests: &[ClaimRequest]) -> Answers<Claimed> {
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        let plain: Vec<Member<'_>> = members(requests).filter(|(_, request)| request.order().is_none()).collect();
        if !plain.is_empty() {
            self.claim_together(plain, &mut answers).await;
        }
        if requests.iter().any(|request| request.order().is_some()) {
            let ordered = members(requests).filter_map(|(place, request)| Some((place, request, request.order()?)));
            self.claim_in_order(ordered, &mut answers).await;
        }
        answers.into_iter().map(|answer| answer.unwrap_or(Ok(HELD))).collect()
    }

    /// Claims keys together. Retries a claim once if its record was released, lapsed or unlocked between its two
    /// statements.
    ///
    /// A locked row blocks the statement of all keys until `lock_timeout`. The retry leaves locked rows out. It can be
    /// blocked only by a key that another transaction is inserting, which no query shows. In that case the rest is
    /// claimed key by key.
    async fn claim_together(&self, mut undecided: Vec<Member<'_>>, answers: &mut Open) {
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return fail(&undecided, error.into(), answers),
        };
        let is_single = undecided.len() == 1;
        let mut is_blocked = self.claim_groups(&connection, groups(&undecided), answers).await;
        undecided.retain(|(place, _)| answers[*place].is_none());
        if is_blocked && is_single {
            // It has waited for its own lock.
            undecided.clear();
        }
        if is_blocked && !undecided.is_empty() {
            let keys = undecided.iter().map(|(_, request)| &request.key);
            match self.locked(&connection, keys, OPERATION).await {
                Ok(locked) => undecided.retain(|(_, request)| !locked.contains(&request.key)),
                Err(failure) => fail(&undecided, failure, answers),
            }
        }
        if !undecided.is_empty() {
            is_blocked = self.claim_groups(&connection, groups(&undecided), answers).await;
            undecided.retain(|(place, _)| answers[*place].is_none());
            if is_blocked && undecided.len() > 1 {
                self.claim_singly(&connection, &undecided, answers).await;
            }
        }
        connection.give_back();
    }

    /// Claims one key within a transaction. A refusal because of a lock, or an error, also ends the transaction.
    pub(super) async fn claim_within(&self, connection: &Connection, request: &ClaimRequest) -> Result<Claimed, Error> {
        if let Some(order) = request.order() {
            let claim: BoxFuture<'_, _> = Box::pin(self.claim_ordered_within(connection, request, order));
            return match claim.await {
                Err(failure) if failure.is_lock_timeout => Ok(HELD),
                claimed => claimed.map_err(|failure| failure.error),
            };
        }
        let mut answers = [None];
        // As without a transaction, a record may be released or lapse between the two statements.
        for _ in 0..2 {
            if self.claim_groups(connection, groups(&[(0, request)]), &mut answers).await {
                return Ok(HELD);
            }
            if let Some(answer) = answers[0].take() {
                return answer;
            }
        }
        Ok(HELD)
    }

    /// Claims key by key, until `MAX_BLOCKED` of them have waited for a lock.
    async fn claim_singly(&self, connection: &Connection, members: &[Member<'_>], answers: &mut Open) {
        let mut blocked = 0;
        for member in members {
            blocked += usize::from(self.claim_groups(connection, groups(&[*member]), answers).await);
            if blocked == MAX_BLOCKED {
                return;
            }
        }
    }

    /// Sends the claims of all groups together, and sets the results. Returns whether a lock blocked any of them.
    async fn claim_groups(&self, connection: &Connection, groups: Vec<Group<'_>>, answers: &mut Open) -> bool {
        let sent = join_all(groups.iter().map(|group| self.claim_group(connection, group))).await;
        let mut is_blocked = false;
        for (group, answer) in groups.into_iter().zip(sent) {
            is_blocked |= self.enter(group, answer, answers);
        }
        is_blocked
    }

    async fn claim_group(&self, connection: &Connection, group: &Group<'_>) -> GroupAnswer {
        let keys: Vec<&[u8]> = group.members.iter().map(|(_, request)| request.key.as_bytes().as_slice()).collect();
        // Polled in this order, so sent in this order.
        let (granted, rows) = join(
            self.claim_at(connection, group, &keys, self.now()),
            self.select(connection, &keys, group.terms.result_data, OPERATION),
        )
        .await;
        GroupAnswer { granted, rows }
    }

    /// Claims one key at a given time.
    pub(super) async fn claim_one_at(
        &self,
        connection: &Connection,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Option<Grant>, Failure> {
        let group = Group { terms: Terms::of(request), members: vec![(0, request)] };
        let keys = [request.key.as_bytes().as_slice()];
        let mut granted = self.claim_at(connection, &group, &keys, Some(row::timestamp(now))).await?;
        Ok(granted.remove(&request.key))
    }

    async fn claim_at(
        &self,
        connection: &Connection,
        group: &Group<'_>,
        keys: &[&[u8]],
        now: Option<i64>,
    ) -> Result<HashMap<KeyHash, Grant>, Failure> {
        let requests = || group.members.iter().map(|(_, request)| *request);
        let owners: Vec<&[u8]> = requests().map(|request| request.owner.as_bytes().as_slice()).collect();
        let fingerprints: Vec<Option<&[u8]>> =
            requests().map(|request| request.fingerprint.as_ref().map(Fingerprint::as_bytes)).collect();
        let operations: Vec<&str> = requests().map(|request| &*request.operation).collect();
        let labels: Vec<Option<&str>> =
            requests().map(|request| connection.storable(request.label.as_deref()?)).collect();
        let digits = |request: &ClaimRequest| request.order().map(|order| order.sequence.to_digits());
        let sequences: Vec<Option<String>> = requests().map(digits).collect();
        let terms = &group.terms;
        let (lease, margin) = (row::millis(terms.lease), row::millis(terms.skew_margin));
        let ttl = row::millis(terms.time_to_live());
        let takes_over = terms.takeover == Takeover::Allowed;
        let parameters: [Parameter<'_>; 14] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&owners, Type::BYTEA_ARRAY),
            (&fingerprints, Type::BYTEA_ARRAY),
            (&lease, Type::INT8),
            (&margin, Type::INT8),
            (&ttl, Type::INT8),
            (&takes_over, Type::BOOL),
            (&row::WRITTEN_VERSION, Type::INT4),
            (&row::NEWEST_VERSION, Type::INT4),
            (&now, Type::INT8),
            (&operations, Type::TEXT_ARRAY),
            (&labels, Type::TEXT_ARRAY),
            (&sequences, Type::TEXT_ARRAY),
        ];
        let rows = connection.query(OPERATION, &self.statements.claim, &parameters).await?;
        rows.iter().map(row::grant).collect::<Result<_, _>>().map_err(Failure::from)
    }

    /// Sets the results that the two statements decide. Returns whether a lock blocked the claims.
    fn enter(&self, group: Group<'_>, answer: GroupAnswer, answers: &mut Open) -> bool {
        let (granted, is_blocked) = match answer.granted {
            Ok(granted) => (granted, false),
            Err(failure) if failure.is_lock_timeout => (HashMap::new(), true),
            Err(failure) => {
                fail(&group.members, failure, answers);
                return false;
            }
        };
        let (granted_members, refused): (Vec<_>, Vec<_>) =
            group.members.into_iter().partition(|(_, request)| granted.contains_key(&request.key));
        for (place, request) in granted_members {
            answers[place] = granted.get(&request.key).map(|grant| Ok(Claimed::Granted(*grant)));
        }
        if refused.is_empty() {
            return is_blocked;
        }
        let is_refused = |key: &KeyHash| !granted.contains_key(key);
        let records = answer.rows.and_then(|rows| records(&rows, is_refused, group.terms.result_data, OPERATION));
        match records {
            Ok(records) => {
                for (place, request) in refused {
                    answers[place] = self.explain(request, &records);
                }
            }
            Err(failure) => fail(&refused, failure, answers),
        }
        is_blocked
    }

    /// Explains a refusal. Returns `None` if the record now permits the claim.
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

/// Sets the error as the result of each of these claims.
fn fail(members: &[Member<'_>], failure: Failure, answers: &mut Open) {
    let errors = error::for_each(failure.error, members.len());
    for ((place, _), error) in members.iter().zip(errors) {
        answers[*place] = Some(error);
    }
}

/// Refuses a claim whose key is locked by an open transaction, or was claimed by others twice meanwhile. The lease is
/// unknown, so callers poll instead of waiting for its end.
pub(super) const HELD: Claimed = Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 });

fn members(requests: &[ClaimRequest]) -> impl Iterator<Item = Member<'_>> {
    requests.iter().enumerate()
}

/// Groups claims by their settings. An engine's claims have the same settings, so there is one group.
fn groups<'a>(members: &[Member<'a>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for member in members {
        let terms = Terms::of(member.1);
        match groups.iter_mut().find(|group| group.terms == terms && group.members.len() < BATCH) {
            Some(group) => group.members.push(*member),
            None => groups.push(Group { terms, members: vec![*member] }),
        }
    }
    groups
}
