//! Lists records with one `Scan` per page. An index for lists is queried or scanned instead, and its records are read.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    DynamoDbStore,
    item::{Item, number, text},
    schema::{LISTING_INDEX, SHARDS},
    single::{Expression, aliased},
};
use crate::{
    error::{Error, ErrorKind},
    record::{KeyHash, Status},
    store::{
        ResultData, Store,
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
        if self.schema.has_listing_index {
            return match &request.operation {
                Some(operation) => self.list_operation(request, operation).await,
                None => self.list_index(request).await,
            };
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
            .map_err(|failure| self.failed(failure, LIST))?;
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

    /// Lists the records of one operation by the index, one partition after another.
    async fn list_operation(&self, request: &ListRequest, operation: &str) -> Result<Page, Error> {
        let (n, aliases) = aliased(&self.schema.names);
        let condition = format!("{} = :open AND {} <= :claimed", n.open, n.claimed_at);
        let Expression { condition, names, .. } = Expression::new(String::new(), condition, &aliases);
        let latest = number(self.clock.now().before(request.older_than).as_millis());
        let (mut shard, mut begin) = match &request.after {
            Some(cursor) => self.shard_at(cursor)?,
            None => (0, None),
        };
        let (mut keys, mut read) = (Vec::new(), 0);
        let next = loop {
            let query = self
                .client
                .query()
                .table_name(&self.schema.table)
                .index_name(LISTING_INDEX)
                .key_condition_expression(&condition)
                .set_expression_attribute_names(names.clone())
                .expression_attribute_values(":open", self.schema.partition(operation, shard))
                .expression_attribute_values(":claimed", latest.clone())
                .limit(request.reads().saturating_sub(read).cast_signed())
                .set_exclusive_start_key(begin.take());
            let answer = query.send().await.map_err(|failure| self.failed(failure, LIST))?;
            read += answer.scanned_count.unsigned_abs();
            keys.extend(answer.items.unwrap_or_default().iter().filter_map(|item| self.key_of(item)));
            begin = answer.last_evaluated_key;
            if begin.is_none() {
                shard += 1;
            }
            if shard == SHARDS {
                break None;
            }
            if begin.is_some() || read >= request.reads() {
                break Some(self.cursor_in(shard, begin.as_ref())?);
            }
        };
        Ok(Page { records: self.listed(request, &keys).await?, read: read.into(), next })
    }

    /// Lists all records in the index.
    async fn list_index(&self, request: &ListRequest) -> Result<Page, Error> {
        let begin = request.after.as_ref().map(|cursor| self.shard_at(cursor)).transpose()?;
        let scan = self.client.scan().table_name(&self.schema.table).index_name(LISTING_INDEX);
        let scan = scan.limit(request.reads().cast_signed()).set_exclusive_start_key(begin.and_then(|(_, key)| key));
        let answer = scan.send().await.map_err(|failure| self.failed(failure, LIST))?;
        let keys: Vec<KeyHash> = answer.items.unwrap_or_default().iter().filter_map(|item| self.key_of(item)).collect();
        Ok(Page {
            records: self.listed(request, &keys).await?,
            read: u64::try_from(answer.scanned_count).unwrap_or_default(),
            next: answer.last_evaluated_key.map(|key| self.cursor_in(0, Some(&key))).transpose()?,
        })
    }

    /// Reads the records of these keys, and returns the matching ones. The index may still contain a record that is
    /// completed by now.
    async fn listed(&self, request: &ListRequest, keys: &[KeyHash]) -> Result<Vec<ListedRecord>, Error> {
        let mut listed = Vec::new();
        for (key, answer) in keys.iter().zip(self.read(keys, ResultData::Omit).await) {
            let record = match answer {
                Err(error) if error.kind() == ErrorKind::Format => continue,
                answer => answer?,
            };
            let record = record.filter(|record| request.includes(record, self.clock.now()));
            listed.extend(record.map(|record| ListedRecord { key: *key, record }));
        }
        Ok(listed)
    }

    /// Returns the position after an entry of the index, or at the beginning of a partition.
    fn cursor_in(&self, shard: usize, entry: Option<&Item>) -> Result<Cursor, Error> {
        let names = &self.schema.names;
        let part = |name: &str| {
            let value = entry?.get(name)?;
            value.as_s().or_else(|_| value.as_n()).ok().cloned()
        };
        let parts =
            [names.open.as_str(), &names.claimed_at].into_iter().chain(self.schema.key_names()).filter_map(part);
        let text = serde_json::to_string(&[shard.to_string()].into_iter().chain(parts).collect::<Vec<_>>());
        text.map(Cursor::new).map_err(|_| Cursor::unreadable())
    }

    /// Returns the partition, and the key in the index, at a position.
    fn shard_at(&self, cursor: &Cursor) -> Result<(usize, Option<Item>), Error> {
        let parts: Vec<String> = serde_json::from_str(cursor.as_str()).map_err(|_| Cursor::unreadable())?;
        let names = &self.schema.names;
        let mut parts = parts.into_iter();
        let shard = parts.next().and_then(|shard| shard.parse().ok()).filter(|shard| *shard < SHARDS);
        let shard = shard.ok_or_else(Cursor::unreadable)?;
        let Some(open) = parts.next() else { return Ok((shard, None)) };
        let claimed_at = parts.next().and_then(|millis| millis.parse().ok()).ok_or_else(Cursor::unreadable)?;
        let key: Item = self.schema.key_names().map(str::to_owned).zip(parts.by_ref().map(AttributeValue::S)).collect();
        if key.len() != self.schema.key_names().count() {
            return Err(Cursor::unreadable());
        }
        let entry = [(names.open.clone(), text(open)), (names.claimed_at.clone(), number(claimed_at))];
        Ok((shard, Some(key.into_iter().chain(entry).collect())))
    }

    /// Returns the key of an item, or `None` for a mark or a foreign item.
    fn key_of(&self, item: &Item) -> Option<KeyHash> {
        let id = item.get(&self.schema.names.id)?.as_s().ok()?;
        KeyHash::from_hex(id.strip_prefix(&self.schema.key_prefix)?)
    }

    /// Returns the position after the item with this primary key. Other items of the table may have other sort keys.
    fn cursor(&self, key: &Item) -> Result<Cursor, Error> {
        let part = |name: &str| key.get(name).and_then(|value| value.as_s().ok());
        let parts: Option<Vec<&String>> = self.schema.key_names().map(part).collect();
        let text = parts.and_then(|parts| serde_json::to_string(&parts).ok());
        text.map(Cursor::new).ok_or_else(|| Error::config("the table has another primary key than the store's"))
    }

    /// Returns the primary key of the item at a position.
    fn key_at(&self, cursor: &Cursor) -> Result<Item, Error> {
        let parts: Vec<String> = serde_json::from_str(cursor.as_str()).map_err(|_| Cursor::unreadable())?;
        let names: Vec<&str> = self.schema.key_names().collect();
        if names.len() != parts.len() {
            return Err(Cursor::unreadable());
        }
        Ok(names.into_iter().map(str::to_owned).zip(parts.into_iter().map(AttributeValue::S)).collect())
    }
}
