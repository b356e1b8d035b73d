//! Lists: one statement for each page, which reads the scope by its primary key.

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

impl PostgresStore {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<Page, Error> {
        let after = request.after.as_ref().map(|cursor| KeyHash::from_hex(cursor.as_str()));
        let after = after.map(|key| key.ok_or_else(Cursor::unreadable)).transpose()?;
        let connection = self.connections.get().await?;
        let page = self.list_on(&connection, request, after).await;
        connection.give_back();
        page.map_err(|failure| failure.error)
    }

    async fn list_on(
        &self,
        connection: &Connection,
        request: &ListRequest,
        after: Option<KeyHash>,
    ) -> Result<Page, Failure> {
        let after = after.as_ref().map_or(&[][..], |key| key.as_bytes());
        let most = i64::from(request.reads());
        let status = number_of(match request.state {
            ListedState::InProgress | ListedState::Lapsed => Status::InProgress,
            ListedState::Failed => Status::Failed,
        });
        let operation = request.operation.as_deref();
        let parameters: [Parameter<'_>; 5] = [
            (&self.scope.as_ref(), Type::TEXT),
            (&after, Type::BYTEA),
            (&most, Type::INT8),
            (&status, Type::INT2),
            (&operation, Type::TEXT),
        ];
        let rows = connection.query(LIST, &self.statements.list, &parameters).await?;
        let mut page = Page { records: Vec::new(), read: 0, next: None };
        for row in &rows {
            let row::Listed { read, last, key } = row::listed(row, LIST)?;
            page.read = read;
            page.next = last.filter(|_| read == u64::from(request.reads())).map(|key| Cursor::new(key.to_hex()));
            let Some(key) = key else { continue };
            let found = row::found(row, ResultData::Omit, LIST)?;
            let now = self.clock.as_ref().map_or(found.now, |clock| clock.now());
            let record = found.record.ok().filter(|record| request.includes(record, now));
            page.records.extend(record.map(|record| ListedRecord { key, record }));
        }
        Ok(page)
    }
}
