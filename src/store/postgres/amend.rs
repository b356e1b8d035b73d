//! Amends with one statement per call, and a transaction for each settle of an ordered operation.

use std::collections::HashSet;

use tokio_postgres::types::Type;

use super::{
    BATCH, PostgresStore,
    connection::{Connection, Parameter},
    error::{self, Failure},
    row,
};
use crate::{
    error::Error,
    future::BoxFuture,
    record::{KeyHash, Status, StoredData},
    store::{
        Answers, FinalStatus, ResultData,
        amend::{AmendRequest, Amended, Amendment},
        remote::chunks::chunks,
        rules,
    },
};

pub(super) const AMEND: &str = "amend";

/// The maximum size of the results in one statement, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The columns that an amendment writes.
#[derive(Default)]
struct Change<'a> {
    what: i16,
    retention: i64,
    data: Option<&'a [u8]>,
    encoding: Option<i16>,
}

impl<'a> Change<'a> {
    fn of(amendment: &'a Amendment) -> Self {
        match amendment {
            Amendment::Settle { outcome, result, retention } => {
                let what = match outcome {
                    FinalStatus::Completed => 1,
                    FinalStatus::Failed => 2,
                };
                let (data, encoding) = row::stored(result);
                Self { what, retention: row::millis(*retention), data, encoding }
            }
            Amendment::Forget { .. } => Self { what: 3, ..Self::default() },
            Amendment::Redact => Self { what: 4, ..Self::default() },
            Amendment::Release => Self { what: 5, ..Self::default() },
        }
    }
}

impl PostgresStore {
    pub(super) async fn amend_all(&self, requests: &[AmendRequest]) -> Answers<Amended> {
        let (ordered, others): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.order().is_some());
        let sizes: Vec<usize> = others.iter().map(|request| size(request)).collect();
        let mut unordered = Vec::with_capacity(others.len());
        for chunk in chunks(&sizes, BATCH, MAX_BYTES) {
            unordered.extend(self.amend_together(&others[chunk]).await);
        }
        let mut in_order = Vec::with_capacity(ordered.len());
        for request in ordered {
            let settle: BoxFuture<'_, _> = Box::pin(self.amend_ordered(request));
            in_order.push(settle.await);
        }
        let (mut unordered, mut in_order) = (unordered.into_iter(), in_order.into_iter());
        let answer = |request: &AmendRequest| match request.order() {
            Some(_) => in_order.next(),
            None => unordered.next(),
        };
        requests.iter().filter_map(answer).collect()
    }

    async fn amend_together(&self, requests: &[&AmendRequest]) -> Answers<Amended> {
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return error::for_each(error, requests.len()),
        };
        let amended = self.amend_on(&connection, requests).await;
        connection.give_back();
        amended.unwrap_or_else(|failure| error::for_each(failure.error, requests.len()))
    }

    async fn amend_on(&self, connection: &Connection, requests: &[&AmendRequest]) -> Result<Answers<Amended>, Failure> {
        let valid: Vec<&AmendRequest> =
            requests.iter().copied().filter(|request| rules::check_amendment(request).is_ok()).collect();
        let changed = self.amend_valid(connection, &valid, self.now()).await?;
        let keys: Vec<&[u8]> = valid
            .iter()
            .filter(|request| !changed.contains(&request.key))
            .map(|request| request.key.as_bytes().as_slice())
            .collect();
        let rows = match keys[..] {
            [] => Vec::new(),
            _ => self.select(connection, &keys, ResultData::Include, AMEND).await?,
        };
        let mut found = super::read::records(&rows, |_| true, ResultData::Include, AMEND)?;
        let mut answer = |request: &AmendRequest| -> Result<Amended, Error> {
            rules::check_amendment(request)?;
            if changed.contains(&request.key) {
                return Ok(Amended::Changed);
            }
            let Some(found) = found.remove(&request.key) else { return Ok(Amended::Gone) };
            let now = self.clock.as_ref().map_or(found.now, |clock| clock.now());
            // An expired record counts as absent, whatever it contains.
            if found.expiration <= now.seconds_rounded_down() {
                return Ok(Amended::Gone);
            }
            rules::explain_amendment(request, Some(found.record?), now)
        };
        Ok(requests.iter().map(|request| answer(request)).collect())
    }

    /// Returns the keys of the records that were amended.
    pub(super) async fn amend_valid(
        &self,
        connection: &Connection,
        requests: &[&AmendRequest],
        now: Option<i64>,
    ) -> Result<HashSet<KeyHash>, Failure> {
        let keys: Vec<&[u8]> = requests.iter().map(|request| request.key.as_bytes().as_slice()).collect();
        let owners: Vec<Option<&[u8]>> = requests
            .iter()
            .map(|request| request.read.owner.as_ref().map(|owner| owner.as_bytes().as_slice()))
            .collect();
        let statuses: Vec<i16> = requests.iter().map(|request| number_of(request.read.status)).collect();
        let attempts: Vec<i64> =
            requests.iter().map(|request| i64::try_from(request.read.attempt).unwrap_or(i64::MAX)).collect();
        let margins: Vec<i64> = requests.iter().map(|request| row::millis(request.skew_margin)).collect();
        let changes: Vec<Change<'_>> = requests.iter().map(|request| Change::of(&request.amendment)).collect();
        let what: Vec<i16> = changes.iter().map(|change| change.what).collect();
        let retentions: Vec<i64> = changes.iter().map(|change| change.retention).collect();
        let data: Vec<Option<&[u8]>> = changes.iter().map(|change| change.data).collect();
        let encodings: Vec<Option<i16>> = changes.iter().map(|change| change.encoding).collect();
        let sequences: Vec<Option<String>> =
            requests.iter().map(|request| request.read.sequence.map(|sequence| sequence.to_digits())).collect();
        let parameters: [Parameter<'_>; 13] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&owners, Type::BYTEA_ARRAY),
            (&statuses, Type::INT2_ARRAY),
            (&attempts, Type::INT8_ARRAY),
            (&what, Type::INT2_ARRAY),
            (&margins, Type::INT8_ARRAY),
            (&retentions, Type::INT8_ARRAY),
            (&data, Type::BYTEA_ARRAY),
            (&encodings, Type::INT2_ARRAY),
            (&now, Type::INT8),
            (&row::NEWEST_VERSION, Type::INT4),
            (&sequences, Type::TEXT_ARRAY),
        ];
        let rows = connection.query(AMEND, &self.statements.amend, &parameters).await?;
        rows.iter().map(|row| row::key(row, AMEND)).collect::<Result<_, Error>>().map_err(Failure::from)
    }
}

/// Returns the number of a status in the table.
pub(super) const fn number_of(status: Status) -> i16 {
    match status {
        Status::InProgress => 0,
        Status::Completed => 1,
        Status::Failed => 2,
    }
}

/// Returns the size of the result that an amendment writes, in bytes.
fn size(request: &AmendRequest) -> usize {
    match &request.amendment {
        Amendment::Settle { result, .. } => result.data.as_ref().map_or(0, StoredData::len),
        Amendment::Forget { .. } | Amendment::Redact | Amendment::Release => 0,
    }
}
