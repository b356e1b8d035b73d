//! IAM policies for a table, as in docs/dynamodb.md.

use serde_json::{Value, json};

use crate::{args::Role, doctor::LISTING_INDEX, spec::Table};

/// Actions for claims and settles, one key per request, and for amendments.
const RECORDS: [&str; 3] = ["dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:GetItem"];
/// Actions for requests with several keys.
const BATCHES: [&str; 4] =
    ["dynamodb:PartiQLInsert", "dynamodb:PartiQLSelect", "dynamodb:PartiQLUpdate", "dynamodb:PartiQLDelete"];
/// Actions of a function.
pub(crate) const FUNCTION: [&str; 7] =
    [RECORDS[0], RECORDS[1], RECORDS[2], BATCHES[0], BATCHES[1], BATCHES[2], BATCHES[3]];
const ORDERED: &str = "dynamodb:ConditionCheckItem";
const READS: [&str; 2] = ["dynamodb:GetItem", "dynamodb:PartiQLSelect"];
const TABLE: [&str; 4] =
    ["dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:DescribeContinuousBackups"];

/// Returns the policy of a role on a table in an account.
pub(crate) fn policy(role: Role, table: &Table, account: &str, ordered: bool) -> Value {
    let arn = format!("arn:aws:dynamodb:{}:{account}:table/{}", table.region.as_deref().unwrap_or("*"), table.name);
    let mut actions = match role {
        Role::Function => FUNCTION.to_vec(),
        Role::Operator => [&RECORDS[..], &READS[1..], &TABLE].concat(),
        Role::Reader => [&READS[..], &TABLE].concat(),
    };
    if ordered && role != Role::Reader {
        actions.push(ORDERED);
    }
    let mut statements = vec![json!({ "Sid": "Records", "Effect": "Allow", "Action": actions, "Resource": arn })];
    statements.push(match role {
        Role::Function => json!({
            "Sid": "NoTableScan",
            "Effect": "Deny",
            "Action": "dynamodb:PartiQLSelect",
            "Resource": arn,
            "Condition": { "Bool": { "dynamodb:FullTableScan": "true" } },
        }),
        Role::Operator | Role::Reader => json!({
            "Sid": "Lists",
            "Effect": "Allow",
            "Action": ["dynamodb:Query", "dynamodb:Scan"],
            "Resource": format!("{arn}/index/{LISTING_INDEX}"),
        }),
    });
    json!({ "Version": "2012-10-17", "Statement": statements })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(role: Role, ordered: bool) -> Vec<String> {
        let table = Table { name: "orders".into(), region: Some("eu-central-1".into()), ..Table::default() };
        let policy = policy(role, &table, "123456789012", ordered);
        assert_eq!(policy["Statement"][0]["Resource"], "arn:aws:dynamodb:eu-central-1:123456789012:table/orders");
        let actions = policy["Statement"][0]["Action"].as_array().unwrap().iter();
        actions.map(|action| action.as_str().unwrap().trim_start_matches("dynamodb:").to_owned()).collect()
    }

    /// The list of docs/dynamodb.md#permissions.
    #[test]
    fn function_permissions_match_the_documentation() {
        let documented =
            ["UpdateItem", "DeleteItem", "GetItem", "PartiQLInsert", "PartiQLSelect", "PartiQLUpdate", "PartiQLDelete"];
        assert_eq!(actions(Role::Function, false), documented);
        assert!(actions(Role::Function, true).ends_with(&["ConditionCheckItem".to_owned()]));
    }

    #[test]
    fn a_reader_cannot_write() {
        for action in actions(Role::Reader, true) {
            assert!(
                action.starts_with("Describe") || ["GetItem", "PartiQLSelect", "Scan"].contains(&action.as_str()),
                "{action}"
            );
        }
    }
}
