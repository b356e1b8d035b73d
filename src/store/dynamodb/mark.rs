//! Reads and writes the marks of entities, which are separate items beside the records, by the rules for ordered
//! operations.

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, ReturnValuesOnConditionCheckFailure::AllOld, TransactWriteItem, Update,
};

use super::{
    item::{Item, newest_known_version, number, text, version, written_version},
    schema::{DOUBT, HOLDER, NEWEST, Schema},
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::{Doubt, Entity, Holder, Mark, Order, Sequence},
    record::{KeyHash, Owner},
    store::{ClaimRequest, FinalStatus, Grant, SettleRequest, Settlement, amend::AmendRequest, ordering, rules},
};

/// The known state of a mark that is to be written.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// Unknown. The likeliest state is assumed, and stated in the write's condition, which saves a read.
    Nothing,
    /// Known: this item, or none.
    Item(Option<Item>),
}

impl Schema {
    /// Returns the primary key of an entity's mark. No record has it, because the hash is half as long.
    pub(super) fn mark_key(&self, entity: &Entity) -> Item {
        let id = text(format!("{}{entity}mark", self.key_prefix));
        let sort_key = self.sort_key.as_ref().map(|(name, value)| (name.clone(), text(value)));
        [(self.names.id.clone(), id)].into_iter().chain(sort_key).collect()
    }

    /// Converts an item to a mark. An expired one that cannot be read counts as absent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`], temporary, if an attribute has a value that is unknown to this version.
    pub(super) fn mark(
        &self,
        entity: &Entity,
        item: Option<&Item>,
        now: Timestamp,
        operation: &'static str,
    ) -> Result<Option<Mark>, Error> {
        let Some(item) = item else { return Ok(None) };
        let mark = self.known_mark(entity, item);
        if mark.is_none() && !self.is_expired(item, now) {
            let message = "the mark of an entity has contents that this version does not know; finish the deployment";
            return Err(Error::new(ErrorKind::Format, ErrorStatus::Temporary, operation, message));
        }
        Ok(mark)
    }

    fn known_mark(&self, entity: &Entity, item: &Item) -> Option<Mark> {
        let names = &self.names;
        let words = |name: &str| item.get(name).map(|value| value.as_s().ok());
        let millis = |name: &str| item.get(name)?.as_n().ok()?.parse().ok();
        let sequence = |digits: &String| digits.parse::<Sequence>().ok();
        let holder = match words(&names.owner) {
            None => None,
            Some(owner) => Some(Holder {
                owner: Owner::from_hex(owner?)?,
                key: key_of(entity, words(HOLDER)??)?,
                sequence: sequence(words(&names.sequence)??)?,
                lease_until: Timestamp::from_millis(millis(&names.in_progress_expiration)?),
            }),
        };
        let doubt = |entry: &str| {
            let (digits, operation) = entry.split_once(' ')?;
            let key = if operation.is_empty() { None } else { Some(key_of(entity, operation)?) };
            Some(Doubt { key, sequence: digits.parse().ok()? })
        };
        Some(Mark {
            newest: match words(NEWEST) {
                None => None,
                Some(digits) => Some(sequence(digits?)?),
            },
            holder,
            doubt: match words(DOUBT) {
                None => Vec::new(),
                Some(entries) => entries?.split(',').map(doubt).collect::<Option<_>>()?,
            },
            expiration: millis(&names.expiration)?,
            version: version(item.get(&names.version))?,
        })
    }

    fn mark_item(&self, entity: &Entity, mark: &Mark) -> Item {
        let names = &self.names;
        let mut item = self.mark_key(entity);
        let mut set = |name: &str, value: AttributeValue| drop(item.insert(name.to_owned(), value));
        set(&names.expiration, number(mark.expiration));
        set(&names.version, number(mark.version.into()));
        if let Some(newest) = mark.newest {
            set(NEWEST, text(newest.to_digits()));
        }
        if let Some(holder) = &mark.holder {
            set(&names.owner, text(holder.owner.to_hex()));
            set(HOLDER, text(operation_of(&holder.key)));
            set(&names.sequence, text(holder.sequence.to_digits()));
            set(&names.in_progress_expiration, number(holder.lease_until.as_millis()));
        }
        if !mark.doubt.is_empty() {
            let operation = |doubt: &Doubt| doubt.key.as_ref().map_or_else(String::new, operation_of);
            let entry = |doubt: &Doubt| format!("{} {}", doubt.sequence.to_digits(), operation(doubt));
            set(DOUBT, text(mark.doubt.iter().map(entry).collect::<Vec<_>>().join(",")));
        }
        item
    }

    /// Returns a claim's write to the mark. If nothing is known, it assumes an entity without a holder, older
    /// operations, and no doubt. Adds the state of the mark to the grant.
    pub(super) fn claimed_mark(
        &self,
        seen: &Seen,
        request: &ClaimRequest,
        order: &Order,
        grant: &mut Grant,
        now: Timestamp,
    ) -> Result<TransactWriteItem, Error> {
        let entity = Entity::of(&request.key);
        let lease_until = grant.lease_until;
        if let Seen::Item(item) = seen {
            let before = self.mark(&entity, item.as_ref(), now, "claim")?;
            grant.has_merged_doubt = ordering::begins_to_merge(before.as_ref(), now);
            let mark = ordering::claimed(before.as_ref(), request, order, lease_until, now);
            return self.put_mark(&entity, &mark, item.as_ref());
        }
        let expiration = rules::in_progress_expiration(now, lease_until, request.skew_margin, order.retention);
        self.update_mark(
            &entity,
            "SET #owner = :owner, #holder = :holder, #sequence = :sequence, #lease = :lease, \
             #expiration = :expiration, #version = :v",
            "attribute_not_exists(#id) OR (#expiration > :now AND #expiration <= :expiration \
             AND #version <= :known AND attribute_not_exists(#owner) AND attribute_not_exists(#doubt) \
             AND (attribute_not_exists(#newest) OR #newest < :sequence))",
            [
                (":owner", text(request.owner.to_hex())),
                (":holder", text(operation_of(&request.key))),
                (":sequence", text(order.sequence.to_digits())),
                (":lease", number(lease_until.as_millis())),
                (":expiration", number(expiration)),
                (":now", number(now.seconds_rounded_down())),
                (":v", written_version()),
                (":known", newest_known_version()),
            ],
        )
    }

    /// Returns a settle's write to the mark. If nothing is known, it assumes that its claim holds the entity, older
    /// operations, and no doubt.
    pub(super) fn settled_mark(
        &self,
        seen: &Seen,
        request: &SettleRequest,
        order: &Order,
        now: Timestamp,
    ) -> Result<TransactWriteItem, Error> {
        let entity = Entity::of(&request.key);
        if let Seen::Item(item) = seen {
            let before = self.mark(&entity, item.as_ref(), now, request.settlement.as_str())?;
            if let Some(mark) = before.as_ref().filter(|mark| !ordering::is_expired(mark, now)) {
                ordering::check_version(mark, request.settlement.as_str())?;
            }
            return match ordering::settled(before.as_ref(), request, order, now) {
                Some(mark) => self.put_mark(&entity, &mark, item.as_ref()),
                None => self.check_mark(&entity, item.as_ref()),
            };
        }
        let mut until = now.after(order.retention);
        let mut values = vec![
            (":owner", text(request.owner.to_hex())),
            (":now", number(now.seconds_rounded_down())),
            (":known", newest_known_version()),
        ];
        let ends = "REMOVE #owner, #holder, #sequence, #lease";
        let (update, older) = match &request.settlement {
            Settlement::Record { outcome: FinalStatus::Completed, .. } => {
                values.push((":sequence", text(order.sequence.to_digits())));
                let older = " AND (attribute_not_exists(#newest) OR #newest < :sequence)";
                (format!("SET #expiration = :expiration, #newest = :sequence {ends}"), older)
            }
            Settlement::Renew { lease, skew_margin, .. } => {
                let lease_until = now.after(*lease);
                until = until.max(rules::lapses(lease_until, *skew_margin));
                values.push((":lease", number(lease_until.as_millis())));
                ("SET #expiration = :expiration, #lease = :lease".to_owned(), " AND #lease <= :lease")
            }
            Settlement::Record { outcome: FinalStatus::Failed, .. } | Settlement::Release | Settlement::HandBack => {
                (format!("SET #expiration = :expiration {ends}"), "")
            }
        };
        values.push((":expiration", number(until.seconds_rounded_up())));
        let condition = format!(
            "#owner = :owner AND #version <= :known AND attribute_not_exists(#doubt) AND #expiration > :now \
             AND #expiration <= :expiration{older}"
        );
        self.update_mark(&entity, &update, &condition, values)
    }

    /// Returns the write to the mark for an operator's settle. The mark was read.
    pub(super) fn amended_mark(
        &self,
        seen: Option<&Item>,
        request: &AmendRequest,
        now: Timestamp,
    ) -> Result<TransactWriteItem, Error> {
        let entity = Entity::of(&request.key);
        let before = self.mark(&entity, seen, now, "amend")?;
        match ordering::amended(before.as_ref(), request, now)? {
            Some(mark) => self.put_mark(&entity, &mark, seen),
            None => self.check_mark(&entity, seen),
        }
    }

    /// Returns the write to the mark for a commit without a claim before it. The mark was read.
    pub(super) fn claimed_and_settled_mark(
        &self,
        seen: &Seen,
        claim: &ClaimRequest,
        request: &SettleRequest,
        order: &Order,
        now: Timestamp,
    ) -> Result<TransactWriteItem, Error> {
        let entity = Entity::of(&request.key);
        let item = match seen {
            Seen::Item(item) => item.as_ref(),
            Seen::Nothing => None,
        };
        let before = self.mark(&entity, item, now, "commit")?;
        let claimed = ordering::claimed(before.as_ref(), claim, order, now.after(claim.lease), now);
        let mark = ordering::settled(Some(&claimed), request, order, now).unwrap_or(claimed);
        self.put_mark(&entity, &mark, item)
    }

    fn update_mark(
        &self,
        entity: &Entity,
        update: &str,
        condition: &str,
        values: impl IntoIterator<Item = (&'static str, AttributeValue)>,
    ) -> Result<TransactWriteItem, Error> {
        let mut write = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.mark_key(entity)))
            .update_expression(update)
            .condition_expression(condition)
            .return_values_on_condition_check_failure(AllOld);
        for (placeholder, name) in self.placeholders() {
            if update.contains(placeholder) || condition.contains(placeholder) {
                write = write.expression_attribute_names(placeholder, name);
            }
        }
        for (placeholder, value) in values {
            write = write.expression_attribute_values(placeholder, value);
        }
        Ok(TransactWriteItem::builder().update(write.build().map_err(super::error::unbuilt)?).build())
    }

    fn put_mark(&self, entity: &Entity, mark: &Mark, seen: Option<&Item>) -> Result<TransactWriteItem, Error> {
        Ok(TransactWriteItem::builder().update(self.replaced_mark(entity, mark, seen)?).build())
    }

    /// Replaces the mark, if it is unchanged since it was read, because the new one depends on it. Attributes that are
    /// unknown to this version are kept.
    pub(super) fn replaced_mark(&self, entity: &Entity, mark: &Mark, seen: Option<&Item>) -> Result<Update, Error> {
        let (condition, mut names, values) = self.as_seen(seen);
        let (mut values, mut sets, mut removed) = (values.unwrap_or_default(), Vec::new(), Vec::new());
        let mut item = self.mark_item(entity, mark);
        for (placeholder, name) in &self.placeholders()[1..] {
            match item.remove(*name) {
                Some(value) => {
                    let new = placeholder.replace('#', ":new_");
                    sets.push(format!("{placeholder} = {new}"));
                    values.insert(new, value);
                }
                None if seen.is_some() => removed.push(*placeholder),
                None => continue,
            }
            names.insert((*placeholder).to_owned(), (*name).to_owned());
        }
        let mut update = format!("SET {}", sets.join(", "));
        if !removed.is_empty() {
            update += &format!(" REMOVE {}", removed.join(", "));
        }
        let write = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.mark_key(entity)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(AllOld);
        write.build().map_err(super::error::unbuilt)
    }

    /// Leaves the mark unchanged, on the condition that it has not changed since it was read.
    fn check_mark(&self, entity: &Entity, seen: Option<&Item>) -> Result<TransactWriteItem, Error> {
        let (condition, names, values) = self.as_seen(seen);
        let check = ConditionCheck::builder()
            .table_name(&self.table)
            .set_key(Some(self.mark_key(entity)))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(AllOld);
        Ok(TransactWriteItem::builder().condition_check(check.build().map_err(super::error::unbuilt)?).build())
    }

    /// Returns the condition that every attribute of a mark is unchanged since it was read.
    fn as_seen(&self, seen: Option<&Item>) -> (String, std::collections::HashMap<String, String>, Option<Item>) {
        let Some(item) = seen else {
            let names = [("#id".to_owned(), self.names.id.clone())].into();
            return ("attribute_not_exists(#id)".to_owned(), names, None);
        };
        let (mut conditions, mut values) = (Vec::new(), Item::new());
        let placeholders = &self.placeholders()[1..];
        for (placeholder, name) in placeholders {
            match item.get(*name) {
                Some(value) => {
                    let seen = placeholder.replace('#', ":");
                    conditions.push(format!("{placeholder} = {seen}"));
                    values.insert(seen, value.clone());
                }
                None => conditions.push(format!("attribute_not_exists({placeholder})")),
            }
        }
        let names = placeholders.iter().map(|(placeholder, name)| ((*placeholder).to_owned(), (*name).to_owned()));
        (conditions.join(" AND "), names.collect(), (!values.is_empty()).then_some(values))
    }

    /// Returns the placeholders for the attributes of marks in expressions. No placeholder is a prefix of another.
    fn placeholders(&self) -> [(&'static str, &str); 9] {
        let names = &self.names;
        [
            ("#id", &names.id),
            ("#expiration", &names.expiration),
            ("#owner", &names.owner),
            ("#lease", &names.in_progress_expiration),
            ("#newest", NEWEST),
            ("#sequence", &names.sequence),
            ("#holder", HOLDER),
            ("#doubt", DOUBT),
            ("#version", &names.version),
        ]
    }
}

/// Returns the second half of an operation's key. The first half is its entity.
fn operation_of(key: &KeyHash) -> String {
    key.to_hex().split_off(32)
}

fn key_of(entity: &Entity, operation: &str) -> Option<KeyHash> {
    KeyHash::from_hex(&format!("{entity}{operation}"))
}
