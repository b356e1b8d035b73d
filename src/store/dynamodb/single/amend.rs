//! Amends with one `UpdateItem` or `DeleteItem`, conditional on the record that was read. The settle of an ordered
//! operation is a transaction, which also writes the mark.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{Expression, Values, Write, expressions::aliased, values};
use crate::{
    clock::Timestamp,
    error::Error,
    future::BoxFuture,
    record::{Record, Status},
    store::{
        FinalStatus, ResultData,
        amend::{AmendRequest, Amended, Amendment},
        dynamodb::{
            DynamoDbStore,
            item::{Item, newest_known_version, number, text},
            schema::Stored,
        },
        rules,
    },
};

pub(super) const AMEND: &str = "amend";

impl DynamoDbStore {
    pub(in crate::store::dynamodb) async fn amend_one(&self, request: &AmendRequest) -> Result<Amended, Error> {
        rules::check_amendment(request)?;
        self.home.check()?;
        if !self.schema.has_details() {
            return Err(Error::config("records of AWS Powertools cannot be amended: delete the item instead"));
        }
        if request.order().is_some() {
            let settle: BoxFuture<'_, _> = Box::pin(self.amend_ordered(request));
            return settle.await;
        }
        let now = self.clock.now();
        let (expression, values) = self.amending_expression(request, now);
        let write = match request.amendment {
            Amendment::Forget { .. } => self.delete(AMEND, &request.key, &expression, values).await?,
            Amendment::Settle { .. } | Amendment::Redact | Amendment::Release => {
                self.update(AMEND, &request.key, &expression, values, None).await?
            }
        };
        let found = match write {
            Write::Applied(_) => return Ok(Amended::Changed),
            Write::Refused(Some(item)) => Some(item),
            Write::Refused(None) => self.read_item(&request.key, ResultData::Include, AMEND).await?,
        };
        rules::explain_amendment(request, self.live_record(found, now)?, now)
    }

    /// Returns the record of an item, unless it has expired and counts as absent, whatever it contains.
    pub(super) fn live_record(&self, item: Option<Item>, now: Timestamp) -> Result<Option<Record>, Error> {
        let live = item.filter(|item| !self.schema.is_expired(item, now));
        live.map(|item| self.schema.record(&item, ResultData::Include, AMEND)).transpose()
    }

    /// Returns the expression of an amendment, and its values. Built for each call, because amendments are rare.
    pub(super) fn amending_expression(&self, request: &AmendRequest, now: Timestamp) -> (Expression, Values) {
        let (n, aliases) = aliased(&self.schema.names);
        let read = &request.read;
        let mut values = values([
            (":status", text(read.status.as_str())),
            (":attempt", number(read.attempt)),
            (":now", number(now.seconds_rounded_down())),
            (":newest", newest_known_version()),
        ]);
        let mut set = |placeholder: &str, value| drop(values.insert(placeholder.to_owned(), value));
        let or_absent = |name: &str, condition: &str| format!("(attribute_not_exists({name}) OR {name} {condition})");
        let owner = match read.owner {
            Some(owner) => {
                set(":owner", text(owner.to_hex()));
                format!("{} = :owner", n.owner)
            }
            None => format!("attribute_not_exists({})", n.owner),
        };
        let attempt = match read.attempt {
            0 => or_absent(&n.attempt, "= :attempt"),
            _ => format!("{} = :attempt", n.attempt),
        };
        let sequence = match read.sequence {
            Some(sequence) => {
                set(":sequence", text(sequence.to_digits()));
                format!("{} = :sequence", n.sequence)
            }
            None => format!("attribute_not_exists({})", n.sequence),
        };
        let mut condition = format!(
            "{} = :status AND {owner} AND {attempt} AND {sequence} AND {} AND {}",
            n.status,
            or_absent(&n.expiration, "> :now"),
            or_absent(&n.version, "<= :newest")
        );
        if read.status == Status::InProgress {
            set(":lapsed", number(now.before(request.skew_margin).as_millis()));
            condition += &match request.amendment {
                Amendment::Forget { .. } => {
                    format!(" AND {}", or_absent(&n.in_progress_expiration, "< :lapsed"))
                }
                Amendment::Settle { .. } | Amendment::Release | Amendment::Redact => {
                    format!(" AND {} < :lapsed", n.in_progress_expiration)
                }
            };
        }
        let update = match &request.amendment {
            Amendment::Forget { .. } => String::new(),
            Amendment::Release => format!("SET {} = :attempt", n.released),
            // A superseded operation has no result.
            Amendment::Redact if read.superseded => format!("REMOVE {}, {}", n.data, n.label),
            Amendment::Redact => {
                set(":true", AttributeValue::Bool(true));
                format!("SET {} = :true REMOVE {}, {}", n.result_dropped, n.data, n.label)
            }
            Amendment::Settle { outcome, result, retention } => {
                set(":outcome", text(Status::from(*outcome).as_str()));
                set(":expiration", number(now.after(*retention).seconds_rounded_up()));
                set(":settled", number(now.as_millis()));
                let (name, value) = match self.schema.stored(result) {
                    Stored::Nothing => (None, None),
                    Stored::Data(data) => (Some(&n.data), Some(data)),
                    Stored::Dropped => (Some(&n.result_dropped), Some(AttributeValue::Bool(true))),
                    Stored::Superseded => (Some(&n.superseded), Some(AttributeValue::Bool(true))),
                };
                let result = name.map_or(String::new(), |name| format!(", {name} = :result"));
                value.into_iter().for_each(|value| set(":result", value));
                let is_done = *outcome == FinalStatus::Completed && self.schema.has_listing_index;
                let open = if is_done { format!(", {}", n.open) } else { String::new() };
                format!(
                    "SET {} = :outcome, {} = :expiration, {} = :settled{result} REMOVE {}{open}",
                    n.status, n.expiration, n.settled_at, n.owner
                )
            }
        };
        (Expression::new(update, condition, &aliases), values)
    }
}
