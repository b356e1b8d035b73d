//! What a request is for, in any of the protocols.

use crate::support::wire::Request;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Creates a record, or replaces one that may be replaced.
    Claim,
    Complete,
    Fail,
    Release,
    HandBack,
    Renew,
    /// Reads, or sets up a connection.
    Other,
}

impl Purpose {
    pub(super) fn of(request: &Request) -> Self {
        match request.command.as_str() {
            // The hash or the text of the script, the number of keys, the key, the owner, and what a settle does.
            "EVALSHA" | "EVAL" => match request.argument(4) {
                "COMPLETED" => Self::Complete,
                "FAILED" => Self::Fail,
                "release" => Self::Release,
                "hand_back" => Self::HandBack,
                "renew" => Self::Renew,
                _ => Self::Claim,
            },
            sql if sql.contains("INSERT INTO") => Self::Claim,
            sql if sql.contains("DELETE FROM") => Self::Release,
            sql if sql.contains("UPDATE") => match request.arguments.get(3).map(|what| &what[..]) {
                // An array of one `smallint`, which ends with its value.
                Some([.., 0, 1]) => Self::Complete,
                Some([.., 0, 2]) => Self::Fail,
                Some([.., 0, 3]) => Self::Renew,
                Some([.., 0, 4]) => Self::HandBack,
                other => panic!("not a settle: {other:?}"),
            },
            _ => Self::Other,
        }
    }
}
