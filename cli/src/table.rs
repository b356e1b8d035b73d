//! `lambda-once table`, which checks the table in DynamoDB.

use anyhow::{Context, Result, bail};
use aws_sdk_dynamodb::{
    error::DisplayErrorContext,
    types::{
        KeySchemaElement, KeyType, ScalarAttributeType, TableDescription, TableStatus, TimeToLiveDescription,
        TimeToLiveStatus,
    },
};

use crate::{
    args,
    output::{self, Ending},
    policy::policy,
    settings::Settings,
    spec::{Spec, Table},
    store,
};

/// The index for lists.
pub(crate) const LISTING_INDEX: &str = "open";

/// The result of one check.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Good(String),
    /// Works, but could be better.
    Note(String),
    Bad(String),
}

pub(crate) async fn run(command: args::Table, settings: &Settings) -> Result<Ending> {
    let Spec::DynamoDb(table) = &settings.store else { bail!("{} is not in DynamoDB", settings.store) };
    match command {
        args::Table::Check => check(table).await,
        args::Table::Policy { role, account, ordered } => {
            output::line(&serde_json::to_string_pretty(&policy(role, table, &account, ordered))?)?;
            Ok(Ending::Done)
        }
    }
}

async fn check(table: &Table) -> Result<Ending> {
    let client = store::client(table).await;
    let described = client.describe_table().table_name(&table.name).send().await;
    let described = described.map_err(|error| anyhow::anyhow!("{}", DisplayErrorContext(error)))?;
    let description = described.table.with_context(|| format!("DynamoDB does not describe {}", table.name))?;
    let ttl = client.describe_time_to_live().table_name(&table.name).send().await;
    let ttl = ttl.map_err(|error| anyhow::anyhow!("{}", DisplayErrorContext(error)))?.time_to_live_description;
    let findings = findings(table, &description, ttl.as_ref());
    let lines: String = findings.iter().map(line).collect();
    output::text(&lines)?;
    let is_bad = findings.iter().any(|finding| matches!(finding, Finding::Bad(_)));
    Ok(if is_bad { Ending::Partly } else { Ending::Done })
}

fn line(finding: &Finding) -> String {
    match finding {
        Finding::Good(text) => format!("ok    {text}\n"),
        Finding::Note(text) => format!("note  {text}\n"),
        Finding::Bad(text) => format!("FAIL  {text}\n"),
    }
}

fn findings(table: &Table, description: &TableDescription, ttl: Option<&TimeToLiveDescription>) -> Vec<Finding> {
    let mut findings = vec![key(description), expiration(&table.name, ttl), index(table, description)];
    if description.table_status.as_ref().is_some_and(|status| *status != TableStatus::Active) {
        findings.push(Finding::Bad("the table is not active yet".to_owned()));
    }
    if !description.replicas().is_empty() {
        findings.push(Finding::Note(
            "the table is a global table, whose Regions do not exclude each other's claims: set `Config::home_region`"
                .to_owned(),
        ));
    }
    if description.deletion_protection_enabled != Some(true) {
        findings.push(Finding::Note(format!(
            "the table can be deleted, and all operations would run again: aws dynamodb update-table --table-name {} \
             --deletion-protection-enabled",
            table.name
        )));
    }
    findings
}

/// Returns the parts of a key, with the types of their attributes.
fn schema(
    elements: &[KeySchemaElement],
    description: &TableDescription,
) -> Vec<(KeyType, String, Option<ScalarAttributeType>)> {
    let definitions = description.attribute_definitions();
    let of = |element: &KeySchemaElement| {
        let definition = definitions.iter().find(|definition| definition.attribute_name == element.attribute_name);
        let scalar = definition.map(|definition| definition.attribute_type.clone());
        (element.key_type.clone(), element.attribute_name.clone(), scalar)
    };
    elements.iter().map(of).collect()
}

fn key(description: &TableDescription) -> Finding {
    let expected = (KeyType::Hash, "id".to_owned(), Some(ScalarAttributeType::S));
    match &schema(description.key_schema(), description)[..] {
        [only] if *only == expected => Finding::Good("partition key: id (S)".to_owned()),
        found => {
            let names: Vec<_> = found.iter().map(|(_, name, _)| name.as_str()).collect();
            Finding::Bad(format!(
                "the key is {}, not `id` of type String alone: only a function with `Config::attributes` or \
                 `Config::sort_key` can use the table, and this tool cannot",
                names.join(", ")
            ))
        }
    }
}

fn expiration(table: &str, ttl: Option<&TimeToLiveDescription>) -> Finding {
    let status = ttl.and_then(|ttl| ttl.time_to_live_status.as_ref());
    let attribute = ttl.and_then(|ttl| ttl.attribute_name.as_deref());
    match (status, attribute) {
        (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), Some("expiration")) => {
            Finding::Good("TTL: expiration".to_owned())
        }
        (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), Some(other)) => Finding::Bad(format!(
            "TTL is on `{other}`, so that records are never deleted: disable it, and enable it on `expiration`"
        )),
        _ => Finding::Bad(format!(
            "TTL is off, so that records are never deleted: aws dynamodb update-time-to-live --table-name {table} \
             --time-to-live-specification Enabled=true,AttributeName=expiration"
        )),
    }
}

fn index(table: &Table, description: &TableDescription) -> Finding {
    let indexes = description.global_secondary_indexes();
    let Some(index) = indexes.iter().find(|index| index.index_name.as_deref() == Some(LISTING_INDEX)) else {
        let text = format!("there is no index `{LISTING_INDEX}`: lists scan the table");
        return if table.has_index { Finding::Bad(text) } else { Finding::Note(text) };
    };
    let expected = [
        (KeyType::Hash, "open".to_owned(), Some(ScalarAttributeType::S)),
        (KeyType::Range, "claimed_at".to_owned(), Some(ScalarAttributeType::N)),
    ];
    if schema(index.key_schema(), description) != expected {
        return Finding::Bad(format!("the key of the index `{LISTING_INDEX}` is not `open` (S) and `claimed_at` (N)"));
    }
    if table.has_index {
        Finding::Good(format!("index for lists: {LISTING_INDEX}"))
    } else {
        Finding::Note(format!("there is an index `{LISTING_INDEX}`: read it by dynamodb://{}?index=true", table.name))
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{AttributeDefinition, GlobalSecondaryIndexDescription};

    use super::*;

    fn attribute(name: &str, scalar: ScalarAttributeType) -> AttributeDefinition {
        AttributeDefinition::builder().attribute_name(name).attribute_type(scalar).build().unwrap()
    }

    fn element(name: &str, key: KeyType) -> KeySchemaElement {
        KeySchemaElement::builder().attribute_name(name).key_type(key).build().unwrap()
    }

    fn table(has_index: bool) -> Table {
        Table { name: "orders".into(), has_index, ..Table::default() }
    }

    fn ttl(attribute: &str) -> TimeToLiveDescription {
        TimeToLiveDescription::builder()
            .attribute_name(attribute)
            .time_to_live_status(TimeToLiveStatus::Enabled)
            .build()
    }

    fn description() -> aws_sdk_dynamodb::types::builders::TableDescriptionBuilder {
        TableDescription::builder()
            .attribute_definitions(attribute("id", ScalarAttributeType::S))
            .key_schema(element("id", KeyType::Hash))
            .deletion_protection_enabled(true)
    }

    fn bad(findings: &[Finding]) -> usize {
        findings.iter().filter(|finding| matches!(finding, Finding::Bad(_))).count()
    }

    #[test]
    fn the_table_of_the_documentation_has_no_fault() {
        let found = findings(&table(false), &description().build(), Some(&ttl("expiration")));
        assert_eq!(bad(&found), 0, "{found:?}");
    }

    #[test]
    fn each_fault_is_found() {
        let described = description().build();
        assert_eq!(bad(&findings(&table(false), &described, None)), 1);
        assert_eq!(bad(&findings(&table(false), &described, Some(&ttl("other")))), 1);
        assert_eq!(bad(&findings(&table(true), &described, Some(&ttl("expiration")))), 1);
        let sorted = description()
            .attribute_definitions(attribute("sk", ScalarAttributeType::S))
            .key_schema(element("sk", KeyType::Range));
        assert_eq!(bad(&findings(&table(false), &sorted.build(), Some(&ttl("expiration")))), 1);
        let numbers = TableDescription::builder()
            .attribute_definitions(attribute("id", ScalarAttributeType::N))
            .key_schema(element("id", KeyType::Hash));
        assert_eq!(bad(&findings(&table(false), &numbers.build(), Some(&ttl("expiration")))), 1);
    }

    #[test]
    fn the_index_has_the_key_that_lists_read() {
        let of = |scalar| {
            let index = GlobalSecondaryIndexDescription::builder()
                .index_name("open")
                .key_schema(element("open", KeyType::Hash))
                .key_schema(element("claimed_at", KeyType::Range));
            let described = description()
                .attribute_definitions(attribute("open", ScalarAttributeType::S))
                .attribute_definitions(attribute("claimed_at", scalar))
                .global_secondary_indexes(index.build())
                .build();
            bad(&findings(&table(true), &described, Some(&ttl("expiration"))))
        };
        assert_eq!(of(ScalarAttributeType::N), 0);
        assert_eq!(of(ScalarAttributeType::S), 1);
    }
}
