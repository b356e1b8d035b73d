//! Rules for a table in DynamoDB.

use super::{
    super::facts::{Table, TableDescription, Ttl},
    Report,
    Severity::{Error, Note, Warning},
};

/// The index for lists.
pub(crate) const LISTING_INDEX: &str = "open";
const TTL_ATTRIBUTE: &str = "expiration";

fn schema(parts: &[(&str, &str)]) -> Vec<(String, String)> {
    parts.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

/// Checks a table with the default attributes.
pub(crate) fn table(table: &Table, report: &mut Report) {
    let name = &table.name;
    let resource = format!("table {name}");
    let Some(description) = &table.description else {
        report.find(
            Error,
            "table-missing",
            &resource,
            "There is no such table in this account and Region: every operation is refused.",
            format!(
                "aws dynamodb create-table --table-name {name} --billing-mode PAY_PER_REQUEST --attribute-definitions \
                 AttributeName=id,AttributeType=S --key-schema AttributeName=id,KeyType=HASH"
            ),
        );
        return;
    };
    if !description.is_active {
        report.find(
            Warning,
            "table-not-active",
            &resource,
            "The table is being created, changed or deleted.",
            format!("aws dynamodb wait table-exists --table-name {name}"),
        );
    }
    if description.key != schema(&[("id", "S")]) {
        let names: Vec<_> = description.key.iter().map(|(name, kind)| format!("{name} ({kind})")).collect();
        report.find(
            Error,
            "table-key-schema",
            &resource,
            format!(
                "The key is {}, not `id` (S) alone: only a function with `Config::attributes` or `Config::sort_key` can use the \
                 table, and this tool cannot.",
                names.join(", ")
            ),
            "a new table with AttributeDefinitions: [{ AttributeName: id, AttributeType: S }] and KeySchema: [{ AttributeName: id, \
             KeyType: HASH }]: a key cannot be changed",
        );
    }
    check_ttl(&resource, name, description.ttl.as_ref(), report);
    check_index(&resource, table, description, report);
    if !description.replicas.is_empty() && !description.is_strong && table.home_region.is_none() {
        report.find(
            Error,
            "home-region-missing",
            &resource,
            format!(
                "The table has replicas ({}), which do not exclude each other's claims, and no home Region is known.",
                description.replicas.join(", ")
            ),
            "`Config::home_region`, from a variable HOME_REGION of the function. If the code has it otherwise, give --home-region",
        );
    }
    if !description.is_protected {
        report.find(
            Note,
            "deletion-protection-off",
            &resource,
            "The table can be deleted, and all operations would run again.",
            format!(
                "DeletionProtectionEnabled: true, or aws dynamodb update-table --table-name {name} --deletion-protection-enabled"
            ),
        );
    }
    match description.has_recovery {
        Some(true) => report.find(
            Note,
            "point-in-time-recovery-on",
            &resource,
            "An older copy of the table lacks the operations that were done since, and they would run again: do not restore it.",
            format!(
                "aws dynamodb update-continuous-backups --table-name {name} --point-in-time-recovery-specification \
                 PointInTimeRecoveryEnabled=false"
            ),
        ),
        Some(false) => {}
        None => report.skip(
            &resource,
            "point-in-time recovery",
            "DescribeContinuousBackups was refused (dynamodb:DescribeContinuousBackups)",
        ),
    }
}

fn check_ttl(resource: &str, name: &str, ttl: Option<&Ttl>, report: &mut Report) {
    let enable = format!(
        "TimeToLiveSpecification: {{ AttributeName: {TTL_ATTRIBUTE}, Enabled: true }}, or aws dynamodb update-time-to-live \
         --table-name {name} --time-to-live-specification Enabled=true,AttributeName={TTL_ATTRIBUTE}"
    );
    match ttl {
        None => report.skip(resource, "TTL", "DescribeTimeToLive was refused (dynamodb:DescribeTimeToLive)"),
        Some(Ttl::On(attribute)) if attribute == TTL_ATTRIBUTE => {}
        Some(Ttl::On(other)) => report.find(
            Warning,
            "ttl-attribute",
            resource,
            format!("TTL is on `{other}`, so that records are never deleted."),
            format!(
                "aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification \
                 Enabled=false,AttributeName={other}; an hour later: {enable}"
            ),
        ),
        Some(Ttl::Off) => report.find(
            Warning,
            "ttl-off",
            resource,
            "TTL is off, so that records are never deleted: the table grows without end.",
            enable,
        ),
    }
}

fn check_index(resource: &str, table: &Table, description: &TableDescription, report: &mut Report) {
    match &description.index {
        Some(key) if *key != schema(&[("open", "S"), ("claimed_at", "N")]) => report.find(
            Error,
            "listing-index-key",
            resource,
            format!("The key of the index `{LISTING_INDEX}` is not `open` (S) and `claimed_at` (N)."),
            "delete the index, and create it as docs/dynamodb.md shows",
        ),
        None if table.wants_index => report.find(
            Error,
            "listing-index-missing",
            resource,
            format!("There is no index `{LISTING_INDEX}`, which lists are to read."),
            "create it as docs/dynamodb.md shows, or leave out index=true",
        ),
        _ => {}
    }
}
