//! The purpose of a request, in every protocol.

use serde_json::Value;

use crate::support::wire::Request;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Creates a record, or replaces a replaceable one.
    Claim,
    /// Replaces a record if that takes a different request than creating one, in DynamoDB batches.
    Takeover,
    Complete,
    Fail,
    Release,
    HandBack,
    Renew,
    /// Reads records.
    Read,
    /// Sets up a connection or a script.
    Other,
}

impl Purpose {
    /// Returns the purpose of a request, or of a batch's first statement.
    pub(crate) fn of(request: &Request) -> Self {
        match request.command.as_str() {
            // The arguments are the hash or the text of the script, the number of keys, the key, the owner, and the
            // terms. The first term is the settle's action, or the claim's fingerprint.
            "EVALSHA" | "EVAL" => match request.argument(4).split(' ').next().unwrap_or_default() {
                "COMPLETED" => Self::Complete,
                "FAILED" => Self::Fail,
                "release" => Self::Release,
                "hand_back" => Self::HandBack,
                "renew" => Self::Renew,
                _ => Self::Claim,
            },
            "HGETALL" | "GetItem" => Self::Read,
            "UpdateItem" => Self::of_update(&request.body()["ExpressionAttributeValues"]),
            "DeleteItem" => Self::Release,
            "BatchExecuteStatement" => Self::of_statement(&request.body()["Statements"][0]),
            // An ordered request also locks and writes the order marker of its entity.
            sql if sql.contains("\"once_marks\"") => Self::Other,
            sql if ["SELECT pg_current_xact_id", "SELECT pg_xact_status"].iter().any(|id| sql.contains(id)) => {
                Self::Other
            }
            sql if sql.ends_with("FOR UPDATE") => Self::Read,
            sql if sql.contains("INSERT INTO") => Self::Claim,
            sql if sql.contains("DELETE FROM") => Self::Release,
            sql if sql.contains("UPDATE") => match request.arguments.get(3).map(|what| &what[..]) {
                // An array with one `smallint`, which ends with its value.
                Some([.., 0, 1]) => Self::Complete,
                Some([.., 0, 2]) => Self::Fail,
                Some([.., 0, 3]) => Self::Renew,
                Some([.., 0, 4]) => Self::HandBack,
                other => panic!("not a settle: {other:?}"),
            },
            sql if sql.contains("SELECT") => Self::Read,
            _ => Self::Other,
        }
    }

    fn of_update(values: &Value) -> Self {
        match (values[":outcome"]["S"].as_str(), &values[":none"], &values[":ended"]) {
            (Some("COMPLETED"), ..) => Self::Complete,
            (Some("FAILED"), ..) => Self::Fail,
            (None, Value::Null, Value::Null) => Self::Renew,
            (None, Value::Null, _) => Self::HandBack,
            (None, ..) => Self::Claim,
            other => panic!("not an update of the store's: {other:?}"),
        }
    }

    fn of_statement(statement: &Value) -> Self {
        let text = statement["Statement"].as_str().unwrap_or_default();
        match (text.split(' ').next(), statement["Parameters"][0]["S"].as_str()) {
            (Some("INSERT"), _) => Self::Claim,
            (Some("SELECT"), _) => Self::Read,
            (Some("DELETE"), _) => Self::Release,
            (Some("UPDATE"), Some("INPROGRESS")) => Self::Takeover,
            (Some("UPDATE"), Some("COMPLETED")) => Self::Complete,
            (Some("UPDATE"), Some("FAILED")) => Self::Fail,
            (Some("UPDATE"), None) if text.contains(" REMOVE ") => Self::HandBack,
            (Some("UPDATE"), None) => Self::Renew,
            other => panic!("not a statement of the store's: {other:?}"),
        }
    }
}
