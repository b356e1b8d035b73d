//! Ordered requests, one after another. Each is a transaction that locks the entity's mark and then the record, judges
//! the request by the shared rules, and writes both, so nothing can change in between.
//!
//! Statements without an order lock only records, and a purge waits for no lock, so none of these deadlock. The
//! statements before the judgement share a round trip, and so do the writes and their `COMMIT`.
//!
//! Callers hold these futures boxed. Without the feature `order` none is ever created, so that the linker removes this
//! code, although an `async` function could await it.

use std::iter::once;

use futures_util::future::join;
use tokio_postgres::types::Type;

use super::{
    PostgresStore,
    amend::AMEND,
    claim::{HELD, MAX_BLOCKED, Open},
    connection::{Connection, Parameter},
    error::{self, Failure},
    mark::Stored,
    rollback::{is_within, roll_back},
    row, settle,
    state::State,
    transaction::{is_rolled_back, unanswered},
};
use crate::{
    clock::Timestamp,
    error::Error,
    future::BoxFuture,
    order::{Entity, Mark, Order},
    record::{KeyHash, Owner},
    store::{
        ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled,
        amend::{AmendRequest, Amended},
        ordering,
        rules::{self, Change},
    },
};

const CLAIM: &str = "claim";
const SETTLE: &str = "settle";

/// A request with an order, and its position in the call.
pub(super) type Member<'a, R> = (usize, &'a R, &'a Order);

impl PostgresStore {
    /// Claims one after another, until `MAX_BLOCKED` of them have waited for a lock.
    pub(super) fn claim_in_order<'a>(
        &'a self,
        members: impl Iterator<Item = Member<'a, ClaimRequest>> + Send + 'a,
        answers: &'a mut Open,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (mut blocked, mut members) = (0, members);
            while let Some((place, request, order)) = members.next().filter(|_| blocked < MAX_BLOCKED) {
                let connection = match self.connections.get().await {
                    Ok(connection) => connection,
                    // The others would not get one either.
                    Err(error) => return fail(error, place, members, answers),
                };
                let claimed = match self.claim_ordered(connection, request, order).await {
                    Err(failure) if failure.is_lock_timeout => {
                        blocked += 1;
                        self.explain_ordered(request, order).await
                    }
                    claimed => claimed.map_err(|failure| failure.error),
                };
                answers[place] = Some(claimed);
            }
        })
    }

    async fn claim_ordered(
        &self,
        connection: Connection,
        request: &ClaimRequest,
        order: &Order,
    ) -> Result<Claimed, Failure> {
        let begun = begin(&connection, CLAIM, self.hold(&connection, &request.key, request.result_data, CLAIM)).await;
        let answer = match begun.and_then(|state| Ok((state.judge(request, order)?, state))) {
            Ok((None, state)) => {
                let write = self.write_claim(&connection, request, order, &state);
                let granted = commit(&connection, CLAIM, write).await;
                connection.give_back();
                return Ok(granted?.map_or(HELD, Claimed::Granted));
            }
            Ok((Some(answer), _)) => Ok(answer),
            Err(failure) => Err(failure),
        };
        roll_back(connection).await;
        answer
    }

    /// Claims within a transaction. With any result but a grant the transaction must be rolled back.
    pub(super) async fn claim_ordered_within(
        &self,
        connection: &Connection,
        request: &ClaimRequest,
        order: &Order,
    ) -> Result<Claimed, Failure> {
        let state = self.hold(connection, &request.key, request.result_data, CLAIM).await?;
        if let Some(answer) = state.judge(request, order)? {
            return Ok(answer);
        }
        Ok(self.write_claim(connection, request, order, &state).await?.map_or(HELD, Claimed::Granted))
    }

    /// Decides a claim whose mark or record is locked, by the committed state.
    async fn explain_ordered(&self, request: &ClaimRequest, order: &Order) -> Result<Claimed, Error> {
        let connection = self.connections.get().await?;
        let state = self.look(&connection, &request.key, request.result_data, CLAIM).await;
        connection.give_back();
        let state = state.map_err(|failure| failure.error)?;
        Ok(state.judge(request, order)?.unwrap_or(HELD))
    }

    /// Settles one after another.
    pub(super) fn settle_in_order<'a>(
        &'a self,
        members: impl Iterator<Item = Member<'a, SettleRequest>> + Send + 'a,
        answers: &'a mut [Option<Result<Settled, Error>>],
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut members = members;
            while let Some((place, request, order)) = members.next() {
                let connection = match self.connections.get().await {
                    Ok(connection) => connection,
                    Err(error) => return fail(error, place, members, answers),
                };
                let settled = self.settle_ordered(connection, request, order).await;
                answers[place] = Some(settled.map_err(|failure| match failure.is_lock_timeout {
                    true => error::locked(SETTLE),
                    false => failure.error,
                }));
            }
        })
    }

    async fn settle_ordered(
        &self,
        connection: Connection,
        request: &SettleRequest,
        order: &Order,
    ) -> Result<Settled, Failure> {
        let data = if request.settlement.is_release() { ResultData::Omit } else { ResultData::Include };
        let state = match begin(&connection, SETTLE, self.hold(&connection, &request.key, data, SETTLE)).await {
            Ok(state) => state,
            Err(failure) => {
                roll_back(connection).await;
                return Err(failure);
            }
        };
        match state.may_settle(request, SETTLE, |mark| ordering::may_settle(mark, request, state.now)) {
            Ok(true) => {
                let write = self.write_settle(&connection, request, order, &state);
                let applied = commit(&connection, SETTLE, write).await;
                connection.give_back();
                if let Some(lease_until) = applied? {
                    return Ok(settle::applied(request, lease_until));
                }
            }
            Ok(false) => roll_back(connection).await,
            Err(error) => {
                roll_back(connection).await;
                return Err(error.into());
            }
        }
        Ok(rules::explain_settle(request, state.into_record())?)
    }

    /// Records the outcome of an ordered operation for an operator, and the mark with it.
    pub(super) async fn amend_ordered(&self, request: &AmendRequest) -> Result<Amended, Error> {
        rules::check_amendment(request)?;
        let connection = self.connections.get().await?;
        let begun = begin(&connection, AMEND, self.hold(&connection, &request.key, ResultData::Include, AMEND)).await;
        let judged = begun.and_then(|state| {
            let (now, mark) = (state.now, state.mark().map(Option::<&Mark>::cloned));
            let record = state.into_live_record()?;
            let (change, answer) = rules::amend_record(record.as_ref(), request, now)?;
            // Only an amendment that is applied needs the mark.
            let write = match change {
                Change::Keep => None,
                Change::Put(_) | Change::Delete => Some((ordering::amended(mark?.as_ref(), request, now)?, now)),
            };
            Ok((answer, write))
        });
        let answer = match judged {
            Ok((_, Some((mark, now)))) => {
                let applied = commit(&connection, AMEND, self.write_amendment(&connection, request, mark, now)).await;
                connection.give_back();
                return match applied {
                    Ok(true) => Ok(Amended::Changed),
                    Ok(false) => Err(error::no_row(AMEND)),
                    Err(failure) => Err(failure.error),
                };
            }
            Ok((answer, None)) => Ok(answer),
            Err(failure) if failure.is_lock_timeout => Err(error::locked(AMEND)),
            Err(failure) => Err(failure.error),
        };
        roll_back(connection).await;
        answer
    }

    /// Writes an amendment that may be applied, and the mark. Returns whether it was applied.
    async fn write_amendment(
        &self,
        connection: &Connection,
        request: &AmendRequest,
        mark: Option<Mark>,
        now: Timestamp,
    ) -> Result<bool, Failure> {
        let requests = [request];
        let amend = self.amend_valid(connection, &requests, Some(row::timestamp(now)));
        let Some(mark) = mark else { return Ok(!amend.await?.is_empty()) };
        let mark = self.write_mark(connection, &mark, &request.key, request.read.owner.as_ref(), AMEND);
        let (marked, amended) = join(mark, amend).await;
        marked?;
        Ok(!amended?.is_empty())
    }

    /// Records an outcome within this transaction, if the claim holds the entity and nothing newer was completed. Returns
    /// whether it was applied.
    pub(super) async fn settle_ordered_within(
        &self,
        connection: &Connection,
        request: &SettleRequest,
        order: &Order,
        transaction: &str,
    ) -> Result<bool, Failure> {
        // One round trip, so that no statement of the handler can come in between.
        let (is_within, state) = join(
            is_within(connection, transaction, SETTLE),
            self.hold(connection, &request.key, ResultData::Omit, SETTLE),
        )
        .await;
        let state = state?;
        if !is_within? {
            return Ok(false);
        }
        if !state.may_settle(request, SETTLE, |mark| ordering::may_commit(mark, request, order, state.now))? {
            return Ok(false);
        }
        Ok(self.write_settle(connection, request, order, &state).await?.is_some())
    }

    /// Writes a claim that is free to be granted. Returns `None` if a request without an order has claimed the key
    /// meanwhile, which no lock excludes. In that case nothing is written.
    async fn write_claim(
        &self,
        connection: &Connection,
        request: &ClaimRequest,
        order: &Order,
        state: &State,
    ) -> Result<Option<Grant>, Failure> {
        let lease_until = state.now.after(request.lease);
        let before = state.mark()?;
        let mark = ordering::claimed(before, request, order, lease_until, state.now);
        let (granted, marked) = join(
            self.claim_one_at(connection, request, state.now),
            self.write_mark(connection, &mark, &request.key, Some(&request.owner), CLAIM),
        )
        .await;
        let granted = granted?;
        marked?;
        let has_merged_doubt = ordering::begins_to_merge(before, state.now);
        Ok(granted.map(|grant| Grant { has_merged_doubt, ..grant }))
    }

    /// Writes a settle that may be applied. Returns the lease that is then on record, if it still exists, or `None` if
    /// the settle was not applied.
    async fn write_settle(
        &self,
        connection: &Connection,
        request: &SettleRequest,
        order: &Order,
        state: &State,
    ) -> Result<Option<Option<Timestamp>>, Failure> {
        let settle = self.settle_at(connection, request, state.now);
        let Some(mark) = ordering::settled(state.mark()?, request, order, state.now) else { return settle.await };
        let mark = self.write_mark(connection, &mark, &request.key, Some(&request.owner), SETTLE);
        let (marked, settled) = join(mark, settle).await;
        marked?;
        settled
    }

    async fn write_mark(
        &self,
        connection: &Connection,
        mark: &Mark,
        key: &KeyHash,
        owner: Option<&Owner>,
        operation: &'static str,
    ) -> Result<(), Failure> {
        let entity = Entity::of(key);
        let (entity, key, owner) =
            (entity.as_bytes().as_slice(), key.as_bytes().as_slice(), owner.map(|owner| owner.as_bytes().as_slice()));
        let stored = Stored::of(mark);
        let [newest, holder, holder_key, sequence, lease_until, doubt_keys, doubt_sequences, expiration] =
            stored.parameters();
        let version = mark.version.cast_signed();
        let parameters: [Parameter<'_>; 13] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&entity, Type::BYTEA),
            newest,
            holder,
            holder_key,
            sequence,
            lease_until,
            doubt_keys,
            doubt_sequences,
            expiration,
            (&key, Type::BYTEA),
            (&owner, Type::BYTEA),
            (&version, Type::INT4),
        ];
        connection.execute(operation, &self.statements.write_mark, &parameters).await.map(drop)
    }
}

/// Sends `BEGIN` and then the statements of `work`, all together.
pub(super) async fn begin<T>(
    connection: &Connection,
    operation: &'static str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let (begun, done) = join(connection.execute_all(operation, "BEGIN"), work).await;
    begun.and(done)
}

/// Sends the statements of `work` and then `COMMIT`, all together. If one fails, the `COMMIT` rolls back.
pub(super) async fn commit<T>(
    connection: &Connection,
    operation: &'static str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let (done, committed) = join(work, connection.execute_all(operation, "COMMIT")).await;
    let done = done?;
    match committed {
        Err(failure) if !is_rolled_back(&failure) => Err(unanswered(failure.error, operation).into()),
        committed => committed.map(|()| done),
    }
}

/// Sets the error as the result of this request and those after it.
fn fail<'a, R: 'a, T>(
    error: Error,
    place: usize,
    rest: impl Iterator<Item = Member<'a, R>>,
    answers: &mut [Option<Result<T, Error>>],
) {
    let places: Vec<usize> = once(place).chain(rest.map(|(place, ..)| place)).collect();
    for (place, error) in places.iter().zip(error::for_each(error, places.len())) {
        answers[*place] = Some(error);
    }
}
