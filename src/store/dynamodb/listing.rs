//! Lists: one `Scan` for each page.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    DynamoDbStore, error,
    item::{Item, text},
    single::{Expression, aliased},
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
const SORT_KEY: &str = "#sort_key";

impl DynamoDbStore {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<Page, Error> {
        if !self.schema.has_details() {
            return Err(Error::config("records of AWS Powertools cannot be listed: their keys are not on record"));
        }
        let (n, mut aliases) = aliased(&self.schema.names);
        let status = match request.state {
            ListedState::InProgress | ListedState::Lapsed => Status::InProgress,
            ListedState::Failed => Status::Failed,
        };
        let mut filter = format!("{} = :status AND begins_with({}, :prefix)", n.status, n.id);
        let mut scan = self
            .client
            .scan()
            .table_name(&self.schema.table)
            .consistent_read(true)
            .limit(request.reads().cast_signed())
            .expression_attribute_values(":status", text(status.as_str()))
            .expression_attribute_values(":prefix", text(&self.schema.key_prefix));
        if let Some(operation) = &request.operation {
            filter += &format!(" AND {} = :operation", n.operation);
            scan = scan.expression_attribute_values(":operation", text(&**operation));
        }
        if let Some((name, constant)) = &self.schema.sort_key {
            filter += &format!(" AND {SORT_KEY} = :sort_key");
            aliases.push((SORT_KEY, name.clone()));
            scan = scan.expression_attribute_values(":sort_key", text(constant));
        }
        let Expression { update: attributes, condition, names } =
            Expression::new(n.without_data().join(", "), filter, &aliases);
        let begin = request.after.as_ref().map(|cursor| self.key_at(cursor)).transpose()?;
        let answer = scan
            .projection_expression(attributes)
            .filter_expression(condition)
            .set_expression_attribute_names(names)
            .set_exclusive_start_key(begin)
            .send()
            .await
            .map_err(|failure| error::from_sdk(failure, LIST))?;
        let now = self.clock.now();
        let listed = |item: Item| {
            let key = self.key_of(&item)?;
            let record = self.schema.record(&item, ResultData::Omit, LIST).ok()?;
            request.includes(&record, now).then_some(ListedRecord { key, record })
        };
        Ok(Page {
            records: answer.items.unwrap_or_default().into_iter().filter_map(listed).collect(),
            read: u64::try_from(answer.scanned_count).unwrap_or_default(),
            next: answer.last_evaluated_key.map(|key| self.cursor(&key)).transpose()?,
        })
    }

    /// The key of an item; `None` for a mark, and for an item of somebody else.
    fn key_of(&self, item: &Item) -> Option<KeyHash> {
        let id = item.get(&self.schema.names.id)?.as_s().ok()?;
        KeyHash::from_hex(id.strip_prefix(&self.schema.key_prefix)?)
    }

    /// The place after the item of this primary key. Other items of the table may have other sort keys.
    fn cursor(&self, key: &Item) -> Result<Cursor, Error> {
        let part = |name: &str| key.get(name).and_then(|value| value.as_s().ok());
        let parts: Option<Vec<&String>> = self.schema.key_names().map(part).collect();
        let text = parts.and_then(|parts| serde_json::to_string(&parts).ok());
        text.map(Cursor::new).ok_or_else(|| Error::config("the table has another primary key than the store's"))
    }

    /// The primary key of the item at a place.
    fn key_at(&self, cursor: &Cursor) -> Result<Item, Error> {
        let parts: Vec<String> = serde_json::from_str(cursor.as_str()).map_err(|_| Cursor::unreadable())?;
        let names: Vec<&str> = self.schema.key_names().collect();
        if names.len() != parts.len() {
            return Err(Cursor::unreadable());
        }
        Ok(names.into_iter().map(str::to_owned).zip(parts.into_iter().map(AttributeValue::S)).collect())
    }
}
