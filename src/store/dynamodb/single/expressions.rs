//! Builds the expressions for DynamoDB once per table, with the names in them.

use std::collections::HashMap;

use crate::store::{
    ClaimRequest, Takeover,
    dynamodb::schema::{AttributeNames, Schema},
};

/// Names that expressions may contain as is. Any other may be a reserved word or contain special characters.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html>
const NOT_RESERVED: [&str; 14] = [
    "id",
    "expiration",
    "in_progress_expiration",
    "validation",
    "attempt",
    "prior_status",
    "result_dropped",
    "superseded",
    "v",
    "operation",
    "label",
    "claimed_at",
    "settled_at",
    "released",
];

/// The parts of a conditional write besides its key and its values.
#[derive(Debug)]
pub(in crate::store::dynamodb) struct Expression {
    /// Empty for a delete.
    pub(in crate::store::dynamodb) update: String,
    pub(in crate::store::dynamodb) condition: String,
    /// The names that the texts have placeholders for. DynamoDB rejects unused ones.
    pub(in crate::store::dynamodb) names: Option<HashMap<String, String>>,
}

/// The expressions for a table.
#[derive(Debug)]
pub(in crate::store::dynamodb) struct Expressions {
    /// Indexed by whether they write a fingerprint, and whether they write a label.
    claims: [[Claims; 2]; 2],
    /// The attribute for an ordered operation's sequence, as expressions name it, and its name. `None` if the records
    /// do not have it.
    sequence: Option<(String, String)>,
    /// A success is removed from the index for lists.
    pub(super) completed: Outcomes,
    pub(super) failed: Outcomes,
    pub(super) delete: Expression,
    pub(super) hand_back: Expression,
    /// For a record whose release is known.
    pub(super) hand_back_released: Expression,
    pub(super) renew: Expression,
    /// The condition of a commit without a claim, that the item may be replaced.
    commit: Replaceable,
    commit_with_fingerprint: Replaceable,
    /// Every attribute except the result's data.
    pub(super) without_data: Expression,
}

/// Outcomes, by the stored form of their result.
#[derive(Debug)]
pub(super) struct Outcomes {
    pub(super) without_data: Expression,
    pub(super) with_data: Expression,
    pub(super) dropped: Expression,
    pub(super) superseded: Expression,
}

/// Claims with or without a fingerprint, and with or without a label.
#[derive(Debug)]
struct Claims {
    create: Expression,
    take_over: Expression,
    restart: Expression,
}

/// Conditions for replacing an item, with a takeover of any lapsed claim, or only of released ones.
#[derive(Debug)]
struct Replaceable {
    if_released: Expression,
    if_lapsed: Expression,
}

impl Expressions {
    pub(in crate::store::dynamodb) fn new(schema: &Schema) -> Self {
        let (n, aliases) = aliased(&schema.names);
        let expression = |update: String, condition: String| Expression::new(update, condition, &aliases);
        let (status, expiration, lease) = (&n.status, &n.expiration, &n.in_progress_expiration);
        let still_mine = format!("{} = :owner AND {status} = :inprogress", n.owner);
        let has_details = schema.has_details();
        let settled = if has_details { format!(", {} = :settled", n.settled_at) } else { String::new() };
        let not_released =
            if has_details { format!(" AND attribute_not_exists({})", n.released) } else { String::new() };
        let outcome = format!("SET {status} = :outcome, {expiration} = :expiration{settled}");
        let outcomes = |more: String| Outcomes {
            without_data: expression(format!("{outcome}{more}"), still_mine.clone()),
            with_data: expression(format!("{outcome}, {} = :data{more}", n.data), still_mine.clone()),
            dropped: expression(format!("{outcome}, {} = :true{more}", n.result_dropped), still_mine.clone()),
            superseded: expression(format!("{outcome}, {} = :true{more}", n.superseded), still_mine.clone()),
        };
        let claims = |fingerprint, label| Claims::new(&n, schema, fingerprint, label, expression);
        Self {
            claims: [false, true].map(|fingerprint| [false, true].map(|label| claims(fingerprint, label))),
            sequence: has_details.then(|| (n.sequence.clone(), schema.names.sequence.clone())),
            completed: outcomes(if schema.has_listing_index { format!(" REMOVE {}", n.open) } else { String::new() }),
            failed: outcomes(String::new()),
            delete: expression(String::new(), format!("{still_mine} AND {} <> :inprogress", n.prior_status)),
            // A release takes a different write, which passes it on.
            hand_back: expression(
                format!("SET {lease} = :ended{settled} REMOVE {}", n.owner),
                format!("{still_mine}{not_released}"),
            ),
            hand_back_released: expression(
                format!("SET {lease} = :ended{settled}, {} = :released REMOVE {}", n.released, n.owner),
                // An operator may release this attempt meanwhile.
                format!("{still_mine} AND {} = :attempt AND {} = :seen", n.attempt, n.released),
            ),
            renew: expression(
                format!("SET {lease} = :lease, {expiration} = :expiration"),
                // A renewal lowers nothing, and does not revive a claim that others may take over.
                format!(
                    "{still_mine} AND {lease} <= :lease AND {lease} >= :lapsed \
                     AND (attribute_not_exists({expiration}) OR {expiration} <= :expiration)"
                ),
            ),
            commit: Replaceable::new(&n, false, has_details, expression),
            commit_with_fingerprint: Replaceable::new(&n, true, has_details, expression),
            without_data: expression(n.without_data().join(", "), String::new()),
        }
    }

    /// Returns a claim that replaces any item that the request may replace, except a claim that has expired.
    pub(super) fn claim(&self, request: &ClaimRequest) -> &Expression {
        match request.takeover {
            Takeover::Allowed => &self.claims(request).take_over,
            Takeover::Refused => &self.claims(request).create,
        }
    }

    /// Returns a claim that replaces only an expired item, whatever it contains, and has no prior status.
    pub(super) fn restart(&self, request: &ClaimRequest) -> &Expression {
        &self.claims(request).restart
    }

    /// Returns the condition that a commit without a claim may replace the item.
    pub(super) fn commit(&self, request: &ClaimRequest) -> &Expression {
        let replaceable = if request.fingerprint.is_some() { &self.commit_with_fingerprint } else { &self.commit };
        match request.takeover {
            Takeover::Allowed => &replaceable.if_lapsed,
            Takeover::Refused => &replaceable.if_released,
        }
    }

    fn claims(&self, request: &ClaimRequest) -> &Claims {
        &self.claims[usize::from(request.fingerprint.is_some())][usize::from(request.label.is_some())]
    }

    /// Returns the update of a claim with the sequence of an ordered operation, and the name that this needs.
    pub(super) fn with_sequence(&self, update: &str) -> (String, Option<(String, String)>) {
        match &self.sequence {
            Some((alias, name)) => {
                // A claim without an order removes it last.
                let update =
                    update.strip_suffix(alias.as_str()).and_then(|update| update.strip_suffix(", ")).unwrap_or(update);
                let update = update.replacen("SET ", &format!("SET {alias} = :sequence, "), 1);
                (update, alias.starts_with('#').then(|| (alias.clone(), name.clone())))
            }
            None => (update.to_owned(), None),
        }
    }
}

impl Claims {
    fn new(
        n: &AttributeNames,
        schema: &Schema,
        with_fingerprint: bool,
        with_label: bool,
        expression: impl Fn(String, String) -> Expression,
    ) -> Self {
        let AttributeNames { status, expiration, in_progress_expiration: lease, .. } = n;
        let AttributeNames { operation, label, sequence, claimed_at, settled_at, .. } = n;
        let AttributeNames { validation, owner, attempt, prior_status: prior, version, .. } = n;
        let update = |attempts: &str, prior_status: &str| {
            let (mut set, mut remove) = if with_fingerprint {
                (format!(", {validation} = :validation"), String::new())
            } else {
                (String::new(), format!(", {validation}"))
            };
            if schema.has_listing_index {
                set += &format!(", {} = :open", n.open);
            }
            if schema.has_details() {
                set += &format!(", {operation} = :operation, {claimed_at} = :claimed");
                if with_label {
                    set += &format!(", {label} = :label");
                } else {
                    remove += &format!(", {label}");
                }
                remove += &format!(", {settled_at}, {sequence}");
            }
            format!(
                "SET {status} = :inprogress, {owner} = :owner, {lease} = :lease, {expiration} = :expiration, \
                 {attempt} = {attempts}, {prior} = {prior_status}, {version} = :v{set} \
                 REMOVE {}, {}, {}{remove}",
                n.data, n.result_dropped, n.superseded
            )
        };
        let (is_absent, is_expired, is_lapsed) =
            (is_absent(n), is_expired(n), is_lapsed(n, with_fingerprint, schema.has_details()));
        let is_released = is_released(n, schema.has_details());
        // A claim that has expired is not taken over, because its payload was not compared. It takes `restart`.
        let is_over = format!("({is_expired} AND {status} <> :inprogress)");
        let is_lapsed = format!("({is_lapsed} AND NOT {is_expired})");
        let replaced = format!("if_not_exists({status}, :none)");
        // A value that is not a number, or is negative, cannot be incremented.
        let counts = format!("(attribute_not_exists({attempt}) OR {attempt} >= :zero)");
        let one_more = format!("if_not_exists({attempt}, :zero) + :one");
        Self {
            create: expression(
                update(&one_more, &replaced),
                format!("{is_absent} OR (({is_over} OR ({is_lapsed} AND {is_released})) AND {counts})"),
            ),
            take_over: expression(
                update(&one_more, &replaced),
                format!("{is_absent} OR (({is_over} OR {is_lapsed}) AND {counts})"),
            ),
            restart: expression(update(":attempt", ":none"), format!("{is_absent} OR {is_expired}")),
        }
    }
}

impl Replaceable {
    fn new(
        n: &AttributeNames,
        with_fingerprint: bool,
        has_details: bool,
        expression: impl Fn(String, String) -> Expression,
    ) -> Self {
        let if_expired = format!("{} OR {}", is_absent(n), is_expired(n));
        let if_lapsed = format!("{if_expired} OR {}", is_lapsed(n, with_fingerprint, has_details));
        let if_released = format!("{if_lapsed} AND {}", is_released(n, has_details));
        Self { if_released: expression(String::new(), if_released), if_lapsed: expression(String::new(), if_lapsed) }
    }
}

fn is_absent(n: &AttributeNames) -> String {
    format!("attribute_not_exists({})", n.id)
}

fn is_expired(n: &AttributeNames) -> String {
    format!("{} <= :now", n.expiration)
}

/// Returns the condition that an operator has released the recorded attempt of a lapsed claim.
fn is_released(n: &AttributeNames, has_details: bool) -> String {
    if has_details {
        format!("{} = {}", n.released, n.attempt)
    } else {
        // Nothing releases a record of AWS Powertools, so this never holds: a lapsed claim has a status. Without a
        // condition on it, the values that describe a lapsed claim would be unused, which DynamoDB rejects.
        format!("attribute_not_exists({})", n.status)
    }
}

/// Returns the condition that the item is an abandoned claim on the same payload, or on one of a different version.
fn is_lapsed(n: &AttributeNames, with_fingerprint: bool, has_versions: bool) -> String {
    let AttributeNames { status, in_progress_expiration: lease, validation, version, .. } = n;
    let same_payload = if with_fingerprint {
        // Payloads of different versions are not compared, and payloads of AWS Powertools have no versions.
        let other_version =
            if has_versions { format!(" OR NOT {validation} BETWEEN :from AND :to") } else { String::new() };
        format!(" AND (attribute_not_exists({validation}) OR begins_with({validation}, :payload){other_version})")
    } else {
        String::new()
    };
    format!(
        "({status} = :inprogress AND {lease} < :lapsed \
         AND (attribute_not_exists({version}) OR {version} <= :newest){same_payload})"
    )
}

impl Expression {
    pub(in crate::store::dynamodb) fn new(
        update: String,
        condition: String,
        aliases: &[(&'static str, String)],
    ) -> Self {
        let used = |placeholder: &str| update.contains(placeholder) || condition.contains(placeholder);
        let names: HashMap<_, _> = aliases
            .iter()
            .filter(|(placeholder, _)| used(placeholder))
            .map(|(placeholder, name)| ((*placeholder).to_owned(), name.clone()))
            .collect();
        Self { names: (!names.is_empty()).then_some(names), update, condition }
    }
}

/// Returns the names for each attribute in an expression, and the placeholders among them. No placeholder is a prefix
/// of another.
pub(in crate::store::dynamodb) fn aliased(names: &AttributeNames) -> (AttributeNames, Vec<(&'static str, String)>) {
    let mut aliases = Vec::new();
    let mut alias = |name: &String, placeholder: &'static str| {
        if NOT_RESERVED.contains(&name.as_str()) {
            return name.clone();
        }
        aliases.push((placeholder, name.clone()));
        placeholder.to_owned()
    };
    let texts = AttributeNames {
        id: alias(&names.id, "#id"),
        status: alias(&names.status, "#status"),
        expiration: alias(&names.expiration, "#expiration"),
        in_progress_expiration: alias(&names.in_progress_expiration, "#lease"),
        data: alias(&names.data, "#data"),
        validation: alias(&names.validation, "#validation"),
        owner: alias(&names.owner, "#owner"),
        attempt: alias(&names.attempt, "#attempt"),
        prior_status: alias(&names.prior_status, "#prior"),
        result_dropped: alias(&names.result_dropped, "#dropped"),
        superseded: alias(&names.superseded, "#superseded"),
        version: alias(&names.version, "#version"),
        operation: alias(&names.operation, "#operation"),
        label: alias(&names.label, "#label"),
        sequence: alias(&names.sequence, "#sequence"),
        claimed_at: alias(&names.claimed_at, "#claimed"),
        settled_at: alias(&names.settled_at, "#settled"),
        released: alias(&names.released, "#released"),
        open: alias(&names.open, "#open"),
    };
    (texts, aliases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_be_reserved_have_placeholders_and_no_others() {
        let expressions = Expressions::new(&Schema::new("t".into()));
        let names = |expression: &Expression| {
            let mut names: Vec<_> = expression.names.clone().unwrap_or_default().into_iter().collect();
            names.sort_unstable();
            names.into_iter().map(|(placeholder, name)| format!("{placeholder} {name}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            names(&expressions.claims[0][0].take_over),
            "#data data, #owner owner, #sequence sequence, #status status"
        );
        assert_eq!(names(&expressions.renew), "#owner owner, #status status");
        let mut schema = Schema::new("t".into());
        schema.names.in_progress_expiration = "lease-until".into();
        assert_eq!(names(&Expressions::new(&schema).hand_back), "#lease lease-until, #owner owner, #status status");
    }
}
