//! Lists records with one statement per page.

use tokio_postgres::types::Type;

use super::{
    PostgresStore,
    amend::number_of,
    connection::{Connection, Parameter},
    error::Failure,
    row,
};
use crate::{
    error::Error,
    record::{KeyHash, Status},
    store::{
        ResultData,
        listing::{Cursor, ListRequest, ListedRecord, ListedState, Page},
    },
};

const LIST: &str = "list";

/// Start of a page: the key before it, and with the index also the claim time of that key.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    claimed_at: i64,
    key: Option<KeyHash>,
}

impl Place {
    fn read(cursor: &Cursor, by_index: bool) -> Option<Self> {
        let (claimed_at, hex) = match cursor.as_str().split_once(' ') {
            Some((claimed_at, hex)) if by_index => (claimed_at.parse().ok()?, hex),
            None if !by_index => (0, cursor.as_str()),
            _ => return None,
        };
        Some(Self { claimed_at, key: Some(KeyHash::from_hex(hex)?) })
    }
}

impl PostgresStore {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<Page, Error> {
        let by_index = self.statements.list_open.is_some();
        let place = match &request.after {
            Some(cursor) => Place::read(cursor, by_index).ok_or_else(Cursor::unreadable)?,
            None => Place { claimed_at: -1, key: None },
        };
        let connection = self.connections.get().await?;
        let page = self.list_on(&connection, request, place).await;
        connection.give_back();
        page.map_err(|failure| failure.error)
    }

    async fn list_on(&self, connection: &Connection, request: &ListRequest, place: Place) -> Result<Page, Failure> {
        let after = place.key.as_ref().map_or(&[][..], |key| key.as_bytes());
        let most = i64::from(request.reads());
        let status = number_of(match request.state {
            ListedState::InProgress | ListedState::Lapsed => Status::InProgress,
            ListedState::Failed => Status::Failed,
        });
        let operation = request.operation.as_deref();
        let [scope, after, most]: [Parameter<'_>; 3] =
            [(&self.scope.as_ref(), Type::TEXT), (&after, Type::BYTEA), (&most, Type::INT8)];
        let [status, operation]: [Parameter<'_>; 2] = [(&status, Type::INT2), (&operation, Type::TEXT)];
        let rows = match &self.statements.list_open {
            Some(list) => {
                let claimed_at: Parameter<'_> = (&place.claimed_at, Type::INT8);
                connection.query(LIST, list, &[scope, claimed_at, after, most, status, operation]).await?
            }
            None => connection.query(LIST, &self.statements.list, &[scope, after, most, status, operation]).await?,
        };
        let mut page = Page { records: Vec::new(), read: 0, next: None };
        for row in &rows {
            let row::Listed { read, last, last_claimed_at, key } = row::listed(row, LIST)?;
            page.read = read;
            page.next = last.filter(|_| read == u64::from(request.reads())).map(|key| {
                Cursor::new(last_claimed_at.map_or(key.to_hex(), |claimed_at| format!("{claimed_at} {}", key.to_hex())))
            });
            let Some(key) = key else { continue };
            let found = row::found(row, ResultData::Omit, LIST)?;
            let now = self.clock.as_ref().map_or(found.now, |clock| clock.now());
            let record = found.record.ok().filter(|record| request.includes(record, now));
            page.records.extend(record.map(|record| ListedRecord { key, record }));
        }
        Ok(page)
    }
}
