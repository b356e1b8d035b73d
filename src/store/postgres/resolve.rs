//! Marks for operators: reads them, and ends doubt in a transaction that locks the mark.

use futures_util::future::{join, join_all};
use tokio_postgres::types::Type;

use super::{
    PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    mark::Stored,
    ordered::{begin, commit},
    rollback::roll_back,
};
use crate::{
    clock::Timestamp,
    error::Error,
    order::{Entity, Mark},
    store::{
        Answers,
        amend::{Amended, ResolveRequest},
        ordering,
    },
};

const READ: &str = "read";
const RESOLVE: &str = "resolve";

impl PostgresStore {
    pub(super) async fn read_marks(&self, entities: &[Entity]) -> Answers<Option<Mark>> {
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return error::for_each(error, entities.len()),
        };
        let reads = entities.iter().map(|entity| self.read_mark(&connection, entity, READ));
        let found = join_all(reads).await;
        connection.give_back();
        found.into_iter().map(|found| found.map_err(|failure| failure.error).and_then(|(mark, _)| mark)).collect()
    }

    pub(super) async fn resolve_mark(&self, request: &ResolveRequest) -> Result<Amended<Mark>, Error> {
        ordering::check_resolution(request)?;
        let connection = self.connections.get().await?;
        let begun = begin(&connection, RESOLVE, self.hold_mark(&connection, &request.entity)).await;
        let judged = begun.and_then(|(mark, now)| Ok(ordering::resolve(mark.as_ref(), request, now)?));
        let answer = match judged {
            Ok((Some(resolved), answer)) => {
                let written = self.write_resolved(&connection, &request.entity, &resolved);
                let applied = commit(&connection, RESOLVE, written).await;
                connection.give_back();
                return match applied {
                    Ok(1) => Ok(answer),
                    Ok(_) => Err(error::no_row(RESOLVE)),
                    Err(failure) => Err(failure.error),
                };
            }
            Ok((None, answer)) => Ok(answer),
            Err(failure) if failure.is_lock_timeout => Err(error::locked(RESOLVE)),
            Err(failure) => Err(failure.error),
        };
        roll_back(connection).await;
        answer
    }

    /// Locks the mark, and reads it and the clock, in this order.
    async fn hold_mark(&self, connection: &Connection, entity: &Entity) -> Result<(Option<Mark>, Timestamp), Failure> {
        let id = entity.as_bytes().as_slice();
        let parameters: [Parameter<'_>; 2] = [(&self.scope.as_ref(), Type::TEXT), (&id, Type::BYTEA)];
        // Polled in this order, so sent in this order.
        let (held, mark) = join(
            connection.execute(RESOLVE, &self.statements.hold_mark, &parameters),
            self.read_mark(connection, entity, RESOLVE),
        )
        .await;
        // The statement after a failed one reports only that failure.
        held?;
        let (mark, now) = mark?;
        Ok((mark?, now))
    }

    /// Returns the number of marks that were written.
    async fn write_resolved(&self, connection: &Connection, entity: &Entity, mark: &Mark) -> Result<u64, Failure> {
        let id = entity.as_bytes().as_slice();
        let stored = Stored::of(mark);
        let [newest, owner, key, sequence, lease_until, doubt_keys, doubt_sequences, expiration] = stored.parameters();
        let parameters: [Parameter<'_>; 10] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&id, Type::BYTEA),
            newest,
            owner,
            key,
            sequence,
            lease_until,
            doubt_keys,
            doubt_sequences,
            expiration,
        ];
        connection.execute(RESOLVE, &self.statements.resolve_mark, &parameters).await
    }
}
