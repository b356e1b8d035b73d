//! Reads of records.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use tokio_postgres::{Row, types::Type};

use super::{
    BATCH, PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    row::{self, Found},
};
use crate::{
    error::Error,
    record::{KeyHash, Record},
    store::{Answers, ResultData},
};

/// The existing records, by their keys.
pub(super) type Records = HashMap<KeyHash, Found>;

impl PostgresStore {
    pub(super) async fn read_all(
        &self,
        keys: &[KeyHash],
        data: ResultData,
        operation: &'static str,
    ) -> Answers<Option<Record>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return error::for_each(error, keys.len()),
        };
        let answers = self.read_on(&connection, keys, data, operation).await;
        connection.give_back();
        answers
    }

    /// Reads on a connection that is in use.
    pub(super) async fn read_on(
        &self,
        connection: &Connection,
        keys: &[KeyHash],
        data: ResultData,
        operation: &'static str,
    ) -> Answers<Option<Record>> {
        let parts = join_all(keys.chunks(BATCH).map(async |keys| {
            let hashes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes().as_slice()).collect();
            let rows = self.select(connection, &hashes, data, operation).await;
            match rows.and_then(|rows| records(&rows, |_| true, data, operation)) {
                Ok(found) => {
                    let record = |found: &Found| found.record.as_ref().map_err(Error::without_source).cloned();
                    keys.iter().map(|key| found.get(key).map(record).transpose()).collect()
                }
                Err(failure) => error::for_each(failure.error, keys.len()),
            }
        }));
        parts.await.into_iter().flatten().collect()
    }

    /// Returns the keys whose records another transaction has locked.
    pub(super) async fn locked(
        &self,
        connection: &Connection,
        keys: impl Iterator<Item = &KeyHash>,
        operation: &'static str,
    ) -> Result<HashSet<KeyHash>, Failure> {
        let keys: Vec<&[u8]> = keys.map(|key| key.as_bytes().as_slice()).collect();
        let parameters: [Parameter<'_>; 2] = [(&self.scope.as_ref(), Type::TEXT), (&keys, Type::BYTEA_ARRAY)];
        let rows = connection.query(operation, &self.statements.locked, &parameters).await?;
        rows.iter().map(|row| row::key(row, operation)).collect::<Result<_, _>>().map_err(Failure::from)
    }

    pub(super) async fn select(
        &self,
        connection: &Connection,
        keys: &[&[u8]],
        data: ResultData,
        operation: &'static str,
    ) -> Result<Vec<Row>, Failure> {
        self.select_by(&self.statements.select, connection, keys, data, operation).await
    }

    /// Selects by `select.sql`, or by its variant with a lock.
    pub(super) async fn select_by(
        &self,
        sql: &str,
        connection: &Connection,
        keys: &[&[u8]],
        data: ResultData,
        operation: &'static str,
    ) -> Result<Vec<Row>, Failure> {
        let with_data = data == ResultData::Include;
        let parameters: [Parameter<'_>; 3] =
            [(&self.scope.as_ref(), Type::TEXT), (&keys, Type::BYTEA_ARRAY), (&with_data, Type::BOOL)];
        connection.query(operation, sql, &parameters).await
    }
}

/// Returns the records in rows of `select.sql` for the requested keys.
pub(super) fn records(
    rows: &[Row],
    is_wanted: impl Fn(&KeyHash) -> bool,
    data: ResultData,
    operation: &'static str,
) -> Result<Records, Failure> {
    let mut records = Records::new();
    for row in rows {
        let key = row::key(row, operation)?;
        if is_wanted(&key) {
            records.insert(key, row::found(row, data, operation)?);
        }
    }
    Ok(records)
}
