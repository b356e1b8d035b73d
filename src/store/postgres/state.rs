//! The state that decides an ordered request, which is the mark of its entity, its record, and the time.

use futures_util::future::{join, join3};
use tokio_postgres::{Row, types::Type};

use super::{
    PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    mark,
    read::records,
    row::Found,
};
use crate::{
    clock::Timestamp,
    error::Error,
    order::{Entity, Mark, Order},
    record::{KeyHash, Record},
    store::{
        ClaimRequest, Claimed, ResultData, SettleRequest, ordering,
        rules::{self, Judgement},
    },
};

/// A mark, which may be unreadable, and the time at which it was read.
type ReadMark = (Result<Option<Mark>, Error>, Timestamp);

pub(super) struct State {
    record: Option<Found>,
    mark: Result<Option<Mark>, Error>,
    pub(super) now: Timestamp,
}

impl State {
    /// Returns the result of a claim, or `None` if it is to be granted.
    pub(super) fn judge(&self, request: &ClaimRequest, order: &Order) -> Result<Option<Claimed>, Error> {
        let record = match &self.record {
            // An expired record is replaced, whatever it contains.
            Some(Found { record: Err(_), expiration, .. }) if *expiration <= self.now.seconds_rounded_down() => None,
            Some(Found { record, .. }) => Some(record.as_ref().map_err(Error::without_source)?),
            None => None,
        };
        Ok(match ordering::judge_found(record, &self.mark, request, order, self.now)? {
            Judgement::Free => None,
            Judgement::Mine(grant) => Some(Claimed::Granted(grant)),
            Judgement::Refused(refusal) => Some(Claimed::Refused(refusal)),
        })
    }

    /// Returns whether the record allows the settle, and `allows` is true of the mark.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`](crate::ErrorKind::Format) for a mark that cannot be read or has an unknown version, if the
    /// record allows the settle.
    pub(super) fn may_settle(
        &self,
        request: &SettleRequest,
        operation: &'static str,
        allows: impl FnOnce(Option<&Mark>) -> bool,
    ) -> Result<bool, Error> {
        let record = self.record.as_ref().and_then(|found| found.record.as_ref().ok());
        let by_record = record.is_some_and(|record| rules::may_settle(request, record, self.now));
        if !by_record {
            return Ok(false);
        }
        let mark = self.mark()?;
        if !allows(mark) {
            return Ok(false);
        }
        let live = mark.filter(|mark| !ordering::is_expired(mark, self.now));
        live.map_or(Ok(()), |mark| ordering::check_version(mark, operation)).map(|()| true)
    }

    /// # Errors
    ///
    /// [`ErrorKind::Format`](crate::ErrorKind::Format) for a mark that cannot be read.
    pub(super) fn mark(&self) -> Result<Option<&Mark>, Error> {
        self.mark.as_ref().map(Option::as_ref).map_err(Error::without_source)
    }

    /// Returns the record, unless it has expired and counts as absent, whatever it contains.
    pub(super) fn into_live_record(self) -> Result<Option<Record>, Error> {
        let now = self.now.seconds_rounded_down();
        self.record.filter(|found| found.expiration > now).map(|found| found.record).transpose()
    }

    pub(super) fn into_record(self) -> Result<Option<Record>, Error> {
        self.record.map(|found| found.record).transpose()
    }
}

impl PostgresStore {
    /// Locks the mark and the record, and reads them and the clock, in this order. A statement that waits for a lock
    /// may have started long before it gets the lock, so the last one, which waits for none, reads the clock.
    pub(super) async fn hold(
        &self,
        connection: &Connection,
        key: &KeyHash,
        data: ResultData,
        operation: &'static str,
    ) -> Result<State, Failure> {
        let entity = Entity::of(key);
        let entity = entity.as_bytes().as_slice();
        let parameters: [Parameter<'_>; 2] = [(&self.scope.as_ref(), Type::TEXT), (&entity, Type::BYTEA)];
        // Polled in this order, so sent in this order.
        let (held, record, mark) = join3(
            connection.execute(operation, &self.statements.hold_mark, &parameters),
            self.select_by(&self.statements.hold_record, connection, &[key.as_bytes().as_slice()], data, operation),
            self.read_mark(connection, &Entity::of(key), operation),
        )
        .await;
        // The statements after a failed one report only that failure.
        held?;
        state(record, mark, data, operation)
    }

    /// Reads the committed state without locks. The mark is read before the record, so that an operation which
    /// completes in between is replayed, and not superseded by itself.
    pub(super) async fn look(
        &self,
        connection: &Connection,
        key: &KeyHash,
        data: ResultData,
        operation: &'static str,
    ) -> Result<State, Failure> {
        let (mark, record) = join(
            self.read_mark(connection, &Entity::of(key), operation),
            self.select(connection, &[key.as_bytes().as_slice()], data, operation),
        )
        .await;
        state(record, mark, data, operation)
    }

    /// Reads the mark, and the time.
    pub(super) async fn read_mark(
        &self,
        connection: &Connection,
        entity: &Entity,
        operation: &'static str,
    ) -> Result<ReadMark, Failure> {
        let entity = entity.as_bytes().as_slice();
        let parameters: [Parameter<'_>; 2] = [(&self.scope.as_ref(), Type::TEXT), (&entity, Type::BYTEA)];
        let rows = connection.query(operation, &self.statements.read_mark, &parameters).await?;
        let found = match rows.first() {
            Some(row) => mark::found(row, operation)?,
            None => return Err(error::no_row(operation).into()),
        };
        let now = self.clock.as_ref().map_or(found.now, |clock| clock.now());
        Ok((found.into_mark(now), now))
    }
}

fn state(
    record: Result<Vec<Row>, Failure>,
    mark: Result<ReadMark, Failure>,
    data: ResultData,
    operation: &'static str,
) -> Result<State, Failure> {
    let found = records(&record?, |_| true, data, operation)?;
    let (mark, now) = mark?;
    Ok(State { record: found.into_values().next(), mark, now })
}
