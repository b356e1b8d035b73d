//! Settles with one statement for changes and one for deletions of records, sent together.

use std::collections::HashMap;

use futures_util::future::join_all;
use tokio_postgres::types::Type;

use super::{
    BATCH, PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    row,
};
use crate::{
    clock::Timestamp,
    error::Error,
    future::BoxFuture,
    record::{KeyHash, StoredData},
    store::{Answers, FinalStatus, ResultData, SettleRequest, Settled, Settlement, remote::chunks::chunks, rules},
};

const OPERATION: &str = "settle";

/// The maximum size of the results in one statement, in bytes. A larger result has a separate statement.
const MAX_BYTES: usize = 1 << 20;

/// A settle, and its position in the call.
type Member<'a> = (usize, &'a SettleRequest);

/// The settles of one statement.
enum Statement<'a> {
    /// `settle.sql`.
    Update(Vec<Member<'a>>),
    /// `release.sql`.
    Delete(Vec<Member<'a>>),
}

/// The keys of applied settles, and for an update their recorded leases.
type Applied = HashMap<KeyHash, Option<Timestamp>>;

/// The results of a call, with `None` for undecided settles.
type Open = [Option<Result<Settled, Error>>];

/// The columns that a settle of `settle.sql` writes.
#[derive(Default)]
struct Change<'a> {
    what: i16,
    retention: i64,
    lease: i64,
    margin: i64,
    data: Option<&'a [u8]>,
    encoding: Option<i16>,
}

impl<'a> Change<'a> {
    fn of(settlement: &'a Settlement) -> Self {
        match settlement {
            Settlement::Record { outcome, result, retention } => {
                let what = match outcome {
                    FinalStatus::Completed => 1,
                    FinalStatus::Failed => 2,
                };
                let (data, encoding) = row::stored(result);
                Self { what, retention: row::millis(*retention), data, encoding, ..Self::default() }
            }
            Settlement::Renew { lease, skew_margin, retention } => Self {
                what: 3,
                retention: row::millis(*retention),
                lease: row::millis(*lease),
                margin: row::millis(*skew_margin),
                ..Self::default()
            },
            Settlement::Release | Settlement::HandBack => Self { what: 4, ..Self::default() },
        }
    }
}

impl PostgresStore {
    pub(super) async fn settle_all(&self, requests: &[SettleRequest]) -> Answers<Settled> {
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        let plain: Vec<Member<'_>> = members(requests).filter(|(_, request)| request.order().is_none()).collect();
        if !plain.is_empty() {
            self.settle_together(plain, &mut answers).await;
        }
        if requests.iter().any(|request| request.order().is_some()) {
            let ordered = members(requests).filter_map(|(place, request)| Some((place, request, request.order()?)));
            self.settle_in_order(ordered, &mut answers).await;
        }
        answers.into_iter().flatten().collect()
    }

    /// Settles records together. A locked row blocks the statement of all settles until `lock_timeout`. They are then
    /// retried without the requests for locked rows, which fail.
    async fn settle_together(&self, members: Vec<Member<'_>>, answers: &mut Open) {
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return fail(&members, error, answers),
        };
        let (mut refused, mut blocked) = (Vec::new(), Vec::new());
        for (members, answer) in self.settle_statements(&connection, statements(members.into_iter())).await {
            match answer {
                Err(failure) if failure.is_lock_timeout && members.len() > 1 => blocked.extend(members),
                answer => enter(members, answer, answers, &mut refused),
            }
        }
        if !blocked.is_empty() {
            let free = self.without_locked(&connection, blocked, answers).await;
            for (members, answer) in self.settle_statements(&connection, statements(free.into_iter())).await {
                enter(members, answer, answers, &mut refused);
            }
        }
        let keys: Vec<KeyHash> = refused.iter().map(|(_, request)| request.key).collect();
        let needs_data = refused.iter().any(|(_, request)| !request.settlement.is_release());
        let data = if needs_data { ResultData::Include } else { ResultData::Omit };
        let current = self.read_on(&connection, &keys, data, OPERATION).await;
        connection.give_back();
        for ((place, request), current) in refused.into_iter().zip(current) {
            answers[place] = Some(rules::explain_settle(request, current));
        }
    }

    /// Returns the settles whose records are not locked. The others fail.
    async fn without_locked<'a>(
        &self,
        connection: &Connection,
        members: Vec<Member<'a>>,
        answers: &mut Open,
    ) -> Vec<Member<'a>> {
        match self.locked(connection, members.iter().map(|(_, request)| &request.key), OPERATION).await {
            Ok(locked) => {
                let (locked, free): (Vec<_>, Vec<_>) =
                    members.into_iter().partition(|(_, request)| locked.contains(&request.key));
                locked.into_iter().for_each(|(place, _)| answers[place] = Some(Err(error::locked(OPERATION))));
                free
            }
            Err(failure) => {
                fail(&members, failure.error, answers);
                Vec::new()
            }
        }
    }

    /// Sends all statements together.
    async fn settle_statements<'a>(
        &self,
        connection: &Connection,
        statements: Vec<Statement<'a>>,
    ) -> Vec<(Vec<Member<'a>>, Result<Applied, Failure>)> {
        join_all(statements.into_iter().map(async |statement| match statement {
            Statement::Update(members) => {
                let applied = self.update(connection, &members, self.now(), None).await;
                (members, applied)
            }
            Statement::Delete(members) => {
                let applied = self.delete(connection, &members).await;
                (members, applied)
            }
        }))
        .await
    }

    /// Records an outcome within this transaction. Returns whether it was applied. It is not if the connection is in a
    /// different transaction, or in none.
    pub(super) async fn settle_within(
        &self,
        connection: &Connection,
        request: &SettleRequest,
        transaction: &str,
    ) -> Result<bool, Failure> {
        if let Some(order) = request.order() {
            let settle: BoxFuture<'_, _> =
                Box::pin(self.settle_ordered_within(connection, request, order, transaction));
            return settle.await;
        }
        let applied = self.update(connection, &[(0, request)], self.now(), Some(transaction)).await?;
        Ok(applied.contains_key(&request.key))
    }

    /// Settles one record at a given time. Returns the lease that is then on record, if it still exists, or `None` if
    /// the settle was not applied.
    pub(super) async fn settle_at(
        &self,
        connection: &Connection,
        request: &SettleRequest,
        now: Timestamp,
    ) -> Result<Option<Option<Timestamp>>, Failure> {
        let members = [(0, request)];
        let mut applied = match request.settlement {
            Settlement::Release => self.delete(connection, &members).await?,
            _ => self.update(connection, &members, Some(row::timestamp(now)), None).await?,
        };
        Ok(applied.remove(&request.key))
    }

    async fn update(
        &self,
        connection: &Connection,
        members: &[Member<'_>],
        now: Option<i64>,
        transaction: Option<&str>,
    ) -> Result<Applied, Failure> {
        let (keys, owners) = keys_and_owners(members);
        let changes: Vec<Change<'_>> = members.iter().map(|(_, request)| Change::of(&request.settlement)).collect();
        let what: Vec<i16> = changes.iter().map(|change| change.what).collect();
        let retentions: Vec<i64> = changes.iter().map(|change| change.retention).collect();
        let leases: Vec<i64> = changes.iter().map(|change| change.lease).collect();
        let margins: Vec<i64> = changes.iter().map(|change| change.margin).collect();
        let data: Vec<Option<&[u8]>> = changes.iter().map(|change| change.data).collect();
        let encodings: Vec<Option<i16>> = changes.iter().map(|change| change.encoding).collect();
        let parameters: [Parameter<'_>; 11] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&owners, Type::BYTEA_ARRAY),
            (&what, Type::INT2_ARRAY),
            (&retentions, Type::INT8_ARRAY),
            (&leases, Type::INT8_ARRAY),
            (&margins, Type::INT8_ARRAY),
            (&data, Type::BYTEA_ARRAY),
            (&encodings, Type::INT2_ARRAY),
            (&now, Type::INT8),
            (&transaction, Type::TEXT),
        ];
        let rows = connection.query(OPERATION, &self.statements.settle, &parameters).await?;
        let applied = rows.iter().map(|row| row::key_and_lease(row, OPERATION).map(|(key, lease)| (key, Some(lease))));
        applied.collect::<Result<_, _>>().map_err(Failure::from)
    }

    async fn delete(&self, connection: &Connection, members: &[Member<'_>]) -> Result<Applied, Failure> {
        let (keys, owners) = keys_and_owners(members);
        let parameters: [Parameter<'_>; 3] =
            [(&self.scope.as_ref(), Type::TEXT), (&keys, Type::BYTEA_ARRAY), (&owners, Type::BYTEA_ARRAY)];
        let rows = connection.query(OPERATION, &self.statements.release, &parameters).await?;
        rows.iter()
            .map(|row| Ok((row::key(row, OPERATION)?, None)))
            .collect::<Result<_, Error>>()
            .map_err(Failure::from)
    }
}

/// Sets the results of a statement's settles. Those that it did not apply go to `refused`.
fn enter<'a>(
    members: Vec<Member<'a>>,
    answer: Result<Applied, Failure>,
    answers: &mut Open,
    refused: &mut Vec<Member<'a>>,
) {
    match answer {
        Err(failure) => fail(&members, failure.error, answers),
        Ok(changed) => {
            for (place, request) in members {
                match changed.get(&request.key) {
                    Some(lease_until) => answers[place] = Some(Ok(applied(request, *lease_until))),
                    None => refused.push((place, request)),
                }
            }
        }
    }
}

/// Returns the result of an applied settle, after which this lease is on record.
pub(super) fn applied(request: &SettleRequest, lease_until: Option<Timestamp>) -> Settled {
    match (lease_until, &request.settlement) {
        (Some(lease_until), Settlement::Renew { .. }) => Settled::Renewed { lease_until },
        _ => Settled::Done { found: None },
    }
}

/// Sets the error as the result of each of these settles.
fn fail(members: &[Member<'_>], error: Error, answers: &mut Open) {
    for ((place, _), error) in members.iter().zip(error::for_each(error, members.len())) {
        answers[*place] = Some(error);
    }
}

fn members(requests: &[SettleRequest]) -> impl Iterator<Item = Member<'_>> {
    requests.iter().enumerate()
}

fn statements<'a>(members: impl Iterator<Item = Member<'a>>) -> Vec<Statement<'a>> {
    let is_delete = |(_, request): &Member<'_>| matches!(request.settlement, Settlement::Release);
    let (deletes, updates): (Vec<_>, Vec<_>) = members.partition(is_delete);
    let sizes: Vec<usize> = updates.iter().map(|(_, request)| size(request)).collect();
    let updates = chunks(&sizes, BATCH, MAX_BYTES).into_iter().map(|chunk| Statement::Update(updates[chunk].to_vec()));
    updates.chain(deletes.chunks(BATCH).map(|members| Statement::Delete(members.to_vec()))).collect()
}

/// Returns the size of a settle's result, in bytes.
fn size(request: &SettleRequest) -> usize {
    request.settlement.result().and_then(|result| result.data.as_ref()).map_or(0, StoredData::len)
}

fn keys_and_owners<'a>(members: &[Member<'a>]) -> (Vec<&'a [u8]>, Vec<&'a [u8]>) {
    let pair =
        |(_, request): &Member<'a>| -> (&'a [u8], &'a [u8]) { (request.key.as_bytes(), request.owner.as_bytes()) };
    members.iter().map(pair).unzip()
}
