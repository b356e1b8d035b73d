//! What a request is for, in either shape.

use super::World;
use crate::support::proxy::{Call, Fault};

/// What a request to DynamoDB is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Creates a record; a request for one key replaces one that may be replaced as well.
    Claim,
    /// Replaces a record, in a batch.
    Takeover,
    /// Reads what is in the way.
    Look,
    /// Records an outcome, or hands a claim back.
    Outcome,
    /// Deletes a record.
    Release,
}

impl Purpose {
    /// The purpose of a request; of a batch, that of its first statement.
    pub(super) fn of(call: &Call) -> Self {
        let grants = |text: &str| text.contains("attempt");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        match call.operation.as_str() {
            "UpdateItem" if grants(&text(&call.body["UpdateExpression"])) => Self::Claim,
            "UpdateItem" => Self::Outcome,
            "DeleteItem" => Self::Release,
            "GetItem" => Self::Look,
            "BatchExecuteStatement" => match text(&call.body["Statements"][0]["Statement"]) {
                insert if insert.starts_with("INSERT") => Self::Claim,
                select if select.starts_with("SELECT") => Self::Look,
                update if update.starts_with("UPDATE") && grants(&update) => Self::Takeover,
                update if update.starts_with("UPDATE") => Self::Outcome,
                _ => Self::Release,
            },
            other => panic!("the store does not use {other}"),
        }
    }
}

impl World {
    /// Prepares a fault for the next request of this purpose.
    pub(super) fn on(&self, purpose: Purpose) -> Fault<'_> {
        self.proxy.on_matching(move |call| Purpose::of(call) == purpose)
    }

    /// Prepares a fault for the next request that takes a claim over.
    pub(super) fn on_takeover(&self) -> Fault<'_> {
        self.on(if self.is_batched { Purpose::Takeover } else { Purpose::Claim })
    }

    /// What the requests were for that the proxy has seen.
    pub(super) fn purposes(&self) -> Vec<Purpose> {
        self.proxy.calls().iter().map(Purpose::of).collect()
    }
}
