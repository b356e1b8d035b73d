//! Builds PartiQL statements. Their texts are built once per table.

use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure, builders::BatchStatementRequestBuilder,
};

use crate::{
    clock::Timestamp,
    record::{KeyHash, Status},
    store::{
        ClaimRequest, ResultData, SettleRequest, Takeover,
        dynamodb::{
            item::{NO_STATUS, attempts, number, text, written_version},
            schema::{Schema, Stored},
        },
        rules::{self, Renewal, Resolved},
    },
};

/// The texts that do not depend on the contents of a request.
#[derive(Debug)]
pub(in crate::store::dynamodb) struct Statements {
    /// Indexed by whether the request has a fingerprint, and whether it has a label.
    inserts: [[String; 2]; 2],
    select: String,
    select_without_data: String,
    /// A success is removed from the index for lists.
    completed: Outcomes,
    failed: Outcomes,
    delete: String,
    hand_back: String,
    renew: String,
}

/// Outcomes, by the stored form of their result.
#[derive(Debug)]
struct Outcomes {
    without_data: String,
    with_data: String,
    dropped: String,
    superseded: String,
}

impl Statements {
    pub(in crate::store::dynamodb) fn new(schema: &Schema) -> Self {
        let names = &schema.names;
        let table = quoted(&schema.table);
        let key: Vec<&str> = [names.id.as_str()].into_iter().chain(schema.sort_key_name()).collect();
        let this_key = key.iter().map(|name| format!("{}=?", quoted(name))).collect::<Vec<_>>().join(" AND ");
        let still_mine = format!("{this_key} AND {}=? AND {}=?", quoted(&names.owner), quoted(&names.status));
        let claimed = [
            names.status.as_str(),
            &names.owner,
            &names.attempt,
            &names.prior_status,
            &names.in_progress_expiration,
            &names.expiration,
            &names.version,
        ];
        let details: &[&str] = if schema.has_details() { &[&names.operation, &names.claimed_at] } else { &[] };
        let open = schema.has_listing_index.then_some(&*names.open);
        let settled: &[&str] = if schema.has_details() { &[&names.settled_at] } else { &[] };
        let not_released =
            if schema.has_details() { format!(" AND {} IS MISSING", quoted(&names.released)) } else { String::new() };
        let insert = |fingerprint: bool, label: bool| {
            let fingerprint = fingerprint.then_some(&*names.validation);
            let label = (label && schema.has_details()).then_some(&*names.label);
            let attributes = key
                .iter()
                .chain(&claimed)
                .chain(details)
                .chain(&open)
                .chain(&fingerprint)
                .chain(&label)
                .map(|name| format!("'{name}':?"));
            format!("INSERT INTO {table} VALUE {{{}}}", attributes.collect::<Vec<_>>().join(","))
        };
        let update = |changed: &[&str], more: &str| {
            let sets: String = changed.iter().map(|name| format!(" SET {}=?", quoted(name))).collect();
            format!("UPDATE {table}{sets}{more} WHERE {still_mine}")
        };
        let outcome = |result: &[&str], more: &str| {
            update(&[&[names.status.as_str(), &names.expiration], settled, result].concat(), more)
        };
        let outcomes = |more: &str| Outcomes {
            without_data: outcome(&[], more),
            with_data: outcome(&[&names.data], more),
            dropped: outcome(&[&names.result_dropped], more),
            superseded: outcome(&[&names.superseded], more),
        };
        let leave = if schema.has_listing_index { format!(" REMOVE {}", quoted(&names.open)) } else { String::new() };
        Self {
            inserts: [false, true].map(|fingerprint| [false, true].map(|label| insert(fingerprint, label))),
            select: format!("SELECT * FROM {table} WHERE {this_key}"),
            select_without_data: format!(
                "SELECT {} FROM {table} WHERE {this_key}",
                names.without_data().map(quoted).join(",")
            ),
            completed: outcomes(&leave),
            failed: outcomes(""),
            delete: format!("DELETE FROM {table} WHERE {still_mine} AND {}<>?", quoted(&names.prior_status)),
            hand_back: format!(
                "{}{not_released}",
                update(
                    &[&[names.in_progress_expiration.as_str()], settled].concat(),
                    &format!(" REMOVE {}", quoted(&names.owner)),
                )
            ),
            renew: format!(
                "{} AND {lease}<=? AND {}<=? AND {lease}>=?",
                update(&[&names.in_progress_expiration, &names.expiration], ""),
                quoted(&names.expiration),
                lease = quoted(&names.in_progress_expiration),
            ),
        }
    }

    /// Creates the record if there is none.
    pub(super) fn insert(
        &self,
        schema: &Schema,
        request: &ClaimRequest,
        now: Timestamp,
        begun: Timestamp,
    ) -> BatchStatementRequest {
        let lease_until = begun.after(request.lease);
        let expiration = rules::in_progress_expiration(now, lease_until, request.skew_margin, request.retention);
        let mut values = Vec::with_capacity(13);
        values.extend(schema.key_values(&request.key));
        values.extend([
            text(Status::InProgress.as_str()),
            text(request.owner.to_hex()),
            number(1),
            text(NO_STATUS),
            number(lease_until.as_millis()),
            number(expiration),
            written_version(),
        ]);
        if schema.has_details() {
            values.extend([text(&*request.operation), number(begun.as_millis())]);
        }
        values.extend(schema.open(&request.key, &request.operation));
        values.extend(request.fingerprint.as_ref().map(|fingerprint| schema.validation(fingerprint)));
        let label = request.label.as_ref().filter(|_| schema.has_details());
        values.extend(label.map(|label| text(&**label)));
        // Its condition is that there is no item. Otherwise the result is a duplicate error, without the item.
        let statement = &self.inserts[usize::from(request.fingerprint.is_some())][usize::from(label.is_some())];
        build(BatchStatementRequest::builder().statement(statement).set_parameters(Some(values)))
    }

    /// Reads the current record, with or without the data of its result.
    pub(super) fn select(&self, schema: &Schema, key: &KeyHash, data: ResultData) -> BatchStatementRequest {
        let text = match data {
            ResultData::Include => &self.select,
            ResultData::Omit => &self.select_without_data,
        };
        read_statement(text, schema.key_values(key).collect())
    }

    /// Ends or renews the claim, if the record is still in progress under its owner.
    pub(super) fn settle(
        &self,
        schema: &Schema,
        request: &SettleRequest,
        settlement: &Resolved<'_>,
    ) -> BatchStatementRequest {
        let mut values = Vec::with_capacity(9);
        let has_details = schema.has_details();
        let mut more = None;
        let statement = match settlement {
            Resolved::Record { status, result, expiration, settled_at } => {
                values.extend([text(status.as_str()), number(*expiration)]);
                values.extend(has_details.then(|| number(settled_at.as_millis())));
                let outcomes = if *status == Status::Completed { &self.completed } else { &self.failed };
                let (statement, value) = match schema.stored(result) {
                    Stored::Nothing => (&outcomes.without_data, None),
                    Stored::Data(data) => (&outcomes.with_data, Some(data)),
                    Stored::Dropped => (&outcomes.dropped, Some(AttributeValue::Bool(true))),
                    Stored::Superseded => (&outcomes.superseded, Some(AttributeValue::Bool(true))),
                };
                values.extend(value);
                statement
            }
            Resolved::Release => {
                more = Some(text(Status::InProgress.as_str()));
                &self.delete
            }
            Resolved::HandBack { settled_at, .. } => {
                values.push(number(Timestamp::EPOCH.as_millis()));
                values.extend(has_details.then(|| number(settled_at.as_millis())));
                &self.hand_back
            }
            Resolved::Renew(Renewal { lease_until, expiration, lapsed, .. }) => {
                values.extend([number(lease_until.as_millis()), number(*expiration)]);
                more = Some(number(lapsed.as_millis()));
                &self.renew
            }
        };
        values.extend(schema.key_values(&request.key));
        values.extend([text(request.owner.to_hex()), text(Status::InProgress.as_str())]);
        if matches!(settlement, Resolved::Renew(_)) {
            // The upper bound of the condition is the value to set.
            values.extend_from_within(..2);
        }
        values.extend(more);
        write_statement(statement.as_str(), values)
    }
}

/// A record that may be replaced, the rule for it, and the values that the replacement depends on.
pub(super) struct Replaceable {
    pub(super) by: Replacement,
    pub(super) status: Option<AttributeValue>,
    pub(super) attempt: Option<AttributeValue>,
    pub(super) version: Option<AttributeValue>,
    pub(super) validation: Option<AttributeValue>,
}

/// The reason why a record may be replaced.
pub(super) enum Replacement {
    /// Its expiration has passed.
    Expired,
    /// Its holder's lease and the margin have passed, and the payload is the same, or of a different version.
    Lapsed,
}

impl Replaceable {
    pub(super) fn next_attempt(&self) -> u64 {
        self.attempt.as_ref().and_then(attempts).unwrap_or(0).saturating_add(1)
    }

    /// Returns the status that the claim replaces. A claim that has expired is not taken over, because its payload was
    /// not compared.
    pub(super) fn prior_status(&self) -> Option<Status> {
        let status = self.status.as_ref().and_then(|value| Status::from_word(value.as_s().ok()?));
        status.filter(|status| *status != Status::InProgress || matches!(self.by, Replacement::Lapsed))
    }

    /// Replaces the record. The condition states the rule itself, so that a completion or a renewal since the read is
    /// not overwritten. It also contains the values that were read, because the new values depend on them.
    pub(super) fn update(
        &self,
        schema: &Schema,
        request: &ClaimRequest,
        now: Timestamp,
        begun: Timestamp,
    ) -> BatchStatementRequest {
        let names = &schema.names;
        let lease_until = begun.after(request.lease);
        let expiration = rules::in_progress_expiration(now, lease_until, request.skew_margin, request.retention);
        let fingerprint = request.fingerprint.as_ref().map(|fingerprint| schema.validation(fingerprint));
        let mut update = Writer::new(format!("UPDATE {}", quoted(&schema.table)));
        update.set(&names.status, text(Status::InProgress.as_str()));
        update.set(&names.owner, text(request.owner.to_hex()));
        update.set(&names.in_progress_expiration, number(lease_until.as_millis()));
        update.set(&names.expiration, number(expiration));
        update.set(&names.attempt, number(self.next_attempt()));
        update.set(&names.prior_status, text(self.prior_status().map_or(NO_STATUS, Status::as_str)));
        update.set(&names.version, written_version());
        if schema.has_details() {
            update.set(&names.operation, text(&*request.operation));
            update.set(&names.claimed_at, number(begun.as_millis()));
            if let Some(open) = schema.open(&request.key, &request.operation) {
                update.set(&names.open, open);
            }
            if let Some(label) = &request.label {
                update.set(&names.label, text(&**label));
            }
        }
        match &fingerprint {
            Some(fingerprint) => update.set(&names.validation, fingerprint.clone()),
            None => update.remove(&names.validation),
        }
        update.remove(&names.data);
        update.remove(&names.result_dropped);
        update.remove(&names.superseded);
        if schema.has_details() {
            if request.label.is_none() {
                update.remove(&names.label);
            }
            update.remove(&names.settled_at);
            update.remove(&names.sequence);
        }
        for (name, value) in schema.key_names().zip(schema.key_values(&request.key)) {
            update.only_if(name, "=", value);
        }
        update.only_as_read(&names.status, self.status.as_ref());
        update.only_as_read(&names.attempt, self.attempt.as_ref());
        match self.by {
            // Expirations are whole seconds, so before the next second means at or before this one.
            Replacement::Expired => update.only_if(&names.expiration, "<", number(now.seconds_rounded_down() + 1)),
            Replacement::Lapsed => {
                let lapsed = now.before(request.skew_margin);
                update.only_if(&names.in_progress_expiration, "<", number(lapsed.as_millis()));
                if request.takeover == Takeover::Refused {
                    // It was judged free because the recorded attempt is the released one.
                    update.only_as_read(&names.released, self.attempt.as_ref());
                }
                update.only_as_read(&names.version, self.version.as_ref());
                if fingerprint.is_some() {
                    // Its payload was judged to be the same, or of a different version.
                    update.only_as_read(&names.validation, self.validation.as_ref());
                }
            }
        }
        write_statement(update.statement, update.values)
    }
}

/// Writes a statement and collects its values. All `SET`s and `REMOVE`s precede the conditions.
struct Writer {
    statement: String,
    values: Vec<AttributeValue>,
    conditions: bool,
}

impl Writer {
    fn new(beginning: String) -> Self {
        Self { statement: beginning, values: Vec::with_capacity(17), conditions: false }
    }

    fn set(&mut self, name: &str, value: AttributeValue) {
        self.write(&[" SET ", &quoted(name), "=?"]);
        self.values.push(value);
    }

    fn remove(&mut self, name: &str) {
        self.write(&[" REMOVE ", &quoted(name)]);
    }

    fn only_if(&mut self, name: &str, comparison: &str, value: AttributeValue) {
        self.condition(&[&quoted(name), comparison, "?"]);
        self.values.push(value);
    }

    fn only_as_read(&mut self, name: &str, value: Option<&AttributeValue>) {
        match value {
            Some(value) => self.only_if(name, "=", value.clone()),
            None => self.condition(&[&quoted(name), " IS MISSING"]),
        }
    }

    fn condition(&mut self, pieces: &[&str]) {
        self.statement.push_str(if self.conditions { " AND " } else { " WHERE " });
        self.conditions = true;
        self.write(pieces);
    }

    fn write(&mut self, pieces: &[&str]) {
        self.statement.extend(pieces.iter().copied());
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn read_statement(text: &str, parameters: Vec<AttributeValue>) -> BatchStatementRequest {
    build(BatchStatementRequest::builder().statement(text).consistent_read(true).set_parameters(Some(parameters)))
}

fn write_statement(text: impl Into<String>, parameters: Vec<AttributeValue>) -> BatchStatementRequest {
    build(
        BatchStatementRequest::builder()
            .statement(text)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_parameters(Some(parameters)),
    )
}

fn build(builder: BatchStatementRequestBuilder) -> BatchStatementRequest {
    builder.build().expect("a statement has a text")
}
