//! Creates the table, deletes expired records, and finds abandoned claims.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{PostgresStore, connection::Connection, error::Failure, row, statements::Statements};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    record::KeyHash,
    store::ResultData,
};

/// Lets one migration run at a time: of two that create a table concurrently both may fail, even with `IF NOT EXISTS`.
const ADVISORY_LOCK: i64 = 0x6f6e_6365_5f70_6731;

/// How long [`warm`](crate::Store::warm) waits for the server's answers.
const WARM_TIMEOUT: Duration = Duration::from_secs(3);

/// A claim that ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abandoned {
    /// The operation.
    pub key: KeyHash,
    /// How often the record was granted.
    pub attempt: u64,
    /// When the lease ended; [`Timestamp::EPOCH`] if the claim was handed back.
    pub lease_until: Timestamp,
}

impl PostgresStore {
    /// Creates the table and its index if they are missing, and changes nothing if both exist. Repeated and concurrent calls
    /// are safe: one waits for the other.
    ///
    /// The role needs `CREATE` on the schema, which a function's role should not have. Call this during deployment, or run the
    /// statements in [`schema`](Self::schema) with a migration tool.
    ///
    /// # Errors
    ///
    /// Those of PostgreSQL; [`ErrorKind::Timeout`] if another migration takes longer than `lock_timeout`.
    pub async fn migrate(&self) -> Result<(), Error> {
        let connection = self.connections.get().await?;
        let done = self.migrate_on(&connection).await;
        connection.give_back();
        done.map_err(|failure| failure.error)
    }

    async fn migrate_on(&self, connection: &Connection) -> Result<(), Failure> {
        const OPERATION: &str = "migrate";
        let Statements { table, index, schema, .. } = &*self.statements;
        let parameters = [(table as _, Type::TEXT), (index as _, Type::TEXT)];
        let found = connection.query(OPERATION, include_str!("is_migrated.sql"), &parameters).await?;
        if !found.is_empty() {
            return Ok(());
        }
        connection.execute_all(OPERATION, &format!("SELECT pg_advisory_xact_lock({ADVISORY_LOCK});\n{schema}")).await
    }

    /// The statements that create the table and its index.
    pub fn schema(&self) -> &str {
        &self.statements.schema
    }

    /// Deletes up to `limit` expired records of the table, in every scope, and returns their number. It skips locked records, so
    /// it never waits for a lock. Repeat it until it returns less than `limit`.
    ///
    /// Expired records count as absent in any case: this only frees storage.
    ///
    /// # Errors
    ///
    /// Those of PostgreSQL.
    pub async fn purge_expired(&self, limit: u32) -> Result<u64, Error> {
        let (limit, now) = (i64::from(limit), self.now());
        let connection = self.connections.get().await?;
        let parameters = [(&limit as _, Type::INT8), (&now as _, Type::INT8)];
        let deleted = connection.execute("purge", &self.statements.purge, &parameters).await;
        connection.give_back();
        deleted.map_err(|failure| failure.error)
    }

    /// Returns up to `limit` claims of this scope whose leases ended more than `older_than` ago without an outcome, and which
    /// have not been taken over. They are sorted by the end of the lease.
    ///
    /// Use it for an alarm, or to find operations that are blocked under
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse). It reads the whole scope.
    ///
    /// # Errors
    ///
    /// Those of PostgreSQL.
    pub async fn abandoned(&self, older_than: Duration, limit: u32) -> Result<Vec<Abandoned>, Error> {
        const OPERATION: &str = "abandoned";
        let (age, limit, now) = (row::millis(older_than), i64::from(limit), self.now());
        let connection = self.connections.get().await?;
        let rows = connection
            .query(
                OPERATION,
                &self.statements.abandoned,
                &[(&self.scope.as_ref(), Type::TEXT), (&age, Type::INT8), (&limit, Type::INT8), (&now, Type::INT8)],
            )
            .await;
        connection.give_back();
        let rows = rows.map_err(|failure| failure.error)?;
        rows.iter()
            .map(|row| {
                let (key, lease_until) = row::key_and_lease(row, OPERATION)?;
                Ok(Abandoned { key, attempt: row::attempt(row, OPERATION)?, lease_until })
            })
            .collect()
    }

    /// Opens a connection, reads from the table, and warns if the role has no `lock_timeout`.
    pub(super) async fn warm_up(&self) -> Result<(), Error> {
        let warmed = tokio::time::timeout(WARM_TIMEOUT, async {
            let connection = self.connections.get().await?;
            let key = KeyHash::from_bytes([0; 32]);
            let keys = [key.as_bytes().as_slice()];
            let (read, has_lock_timeout) = futures_util::future::join(
                self.select(&connection, &keys, ResultData::Omit, OPERATION),
                has_lock_timeout(&connection),
            )
            .await;
            connection.give_back();
            read.and(has_lock_timeout).map_err(|failure| failure.error)
        });
        const OPERATION: &str = "warm";
        let has_lock_timeout = warmed.await.unwrap_or_else(|_| {
            let message = "PostgreSQL did not answer in time";
            Err(Error::new(ErrorKind::Timeout, ErrorStatus::Temporary, OPERATION, message))
        })?;
        if !has_lock_timeout {
            tracing::warn!(
                target: "lambda_once",
                "the role has no lock_timeout: an open transaction on one record blocks whole batches for as long as it \
                 lasts; ALTER ROLE … SET lock_timeout = '200ms'"
            );
        }
        Ok(())
    }
}

async fn has_lock_timeout(connection: &Connection) -> Result<bool, Failure> {
    let rows = connection.query("warm", "SELECT current_setting('lock_timeout') <> '0'", &[]).await?;
    Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
}
