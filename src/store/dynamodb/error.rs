//! Classifies errors of the SDK: whether the call may have been applied, and whether a retry can help.

use std::iter;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::{
    config::http::HttpResponse,
    error::{BuildError, ProvideErrorMetadata, SdkError},
};

use super::single::COMMIT;
use crate::error::{Error, ErrorKind, ErrorStatus, root_cause};

pub(super) fn from_sdk<E>(
    error: SdkError<E, HttpResponse>,
    operation: &'static str,
    place: impl FnOnce() -> Place,
) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let (kind, status, message) = match &error {
        SdkError::ConstructionFailure(_) => {
            (ErrorKind::Request, ErrorStatus::Permanent, "the request could not be built".to_owned())
        }
        SdkError::TimeoutError(_) => {
            (ErrorKind::Timeout, ErrorStatus::Ambiguous, "DynamoDB did not respond in time".to_owned())
        }
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            (ErrorKind::Timeout, ErrorStatus::Ambiguous, "DynamoDB could not be reached in time".to_owned())
        }
        SdkError::ServiceError(answer) => {
            let code = answer.err().code().unwrap_or("an error without a code");
            let said = answer.err().message().unwrap_or_default();
            let (kind, status, message) = match key_schema(code, said) {
                Some(message) => (ErrorKind::Table, ErrorStatus::Temporary, message),
                None => {
                    let (kind, status) = of_code(code, answer.raw().status().as_u16());
                    // The message contains the caller, the action and the table, and nothing of an item.
                    let said = if code == "AccessDeniedException" { said } else { "" };
                    (kind, status, [code, if said.is_empty() { "" } else { ": " }, said].concat())
                }
            };
            let message = format!("DynamoDB returned {message}");
            (kind, status, if kind == ErrorKind::Table { place().named_in(&message, operation) } else { message })
        }
        SdkError::DispatchFailure(_) if has_no_credentials(&error) => {
            let message = format!(
                "no AWS credentials were found: give the function a role or, outside AWS, set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or a profile ({})",
                root_cause(&error)
            );
            (ErrorKind::AccessDenied, ErrorStatus::Permanent, message)
        }
        other => {
            let cause = root_cause(other);
            if cause.contains(NO_REGION) {
                let message =
                    "no AWS Region is configured: set AWS_REGION, or the Region of the client's configuration";
                (ErrorKind::Config, ErrorStatus::Permanent, message.to_owned())
            } else {
                let message = format!("the connection to DynamoDB failed: {cause}");
                (ErrorKind::Unavailable, ErrorStatus::Ambiguous, message)
            }
        }
    };
    Error::new(kind, status, operation, message).with_source(error)
}

/// The text of the SDK's error for a client without a Region. Its type is not public.
const NO_REGION: &str = "Missing Region";

/// The location of a store's table, for errors about it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) table: String,
    /// The names of the partition key attribute and of the sort key, if any.
    pub(super) partition_key: String,
    pub(super) sort_key: Option<String>,
    pub(super) region: Option<String>,
    /// The endpoint, if it is known and not the Region's.
    pub(super) endpoint: Option<String>,
}

impl Place {
    /// Adds the table's name to the message of an error about it. If the table is missing, the message explains how to
    /// create it.
    fn named_in(self, message: &str, operation: &'static str) -> String {
        let Self { table, partition_key, sort_key, region, endpoint } = self;
        let region = region.as_deref().unwrap_or("no Region");
        let place = match endpoint {
            Some(endpoint) => format!("in {region} at {endpoint}"),
            None => format!("in {region}"),
        };
        if !message.contains("ResourceNotFound") {
            return format!("table `{table}` {place}: {message}");
        }
        let sort_key = sort_key.map_or("no sort key".to_owned(), |name| format!("the sort key `{name}` (String)"));
        // A transaction also contains tables of the caller, and DynamoDB does not report which one is missing.
        let others = if operation == COMMIT { ", or another table of the transaction," } else { "" };
        format!(
            "the table `{table}`{others} does not exist {place}: create it with the partition key `{partition_key}` (String) and \
             {sort_key}, for example by `aws dynamodb create-table`, or correct the name, the Region or the endpoint"
        )
    }
}

/// Returns whether there are no credentials, without an outage of their provider.
fn has_no_credentials<E: std::error::Error + 'static>(error: &SdkError<E, HttpResponse>) -> bool {
    let links = iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    links.into_iter().any(|error| {
        matches!(error.downcast_ref(), Some(CredentialsError::CredentialsNotLoaded(_)))
            // The client was built without any provider. The error's type is not public.
            || error.to_string().contains("no identity resolver")
    })
}

/// DynamoDB's messages about a primary key that differs from the table's. They contain attributes and types, but no
/// values.
const KEY_SCHEMA: [&str; 6] = [
    "does not match the schema",
    "Missing the key",
    "Type mismatch for key",
    "mandatory equality on all key attributes",
    // From DynamoDB Local.
    "One of the required keys was not given a value",
    "The number of conditions on the keys is invalid",
];

/// Returns the message if the table's key is not the one that the store is configured for.
fn key_schema(code: &str, said: &str) -> Option<String> {
    let is_validation = matches!(code, "ValidationException" | "ValidationError");
    if !is_validation || !KEY_SCHEMA.iter().any(|phrase| said.contains(phrase)) {
        return None;
    }
    Some(format!(
        "{code}: {said}; the table needs the partition key `id` of type String and no sort key, or the names that \
         `Config::attributes` and `Config::sort_key` give"
    ))
}

pub(super) fn unbuilt(error: BuildError) -> Error {
    let message = "the transaction could not be built";
    Error::new(ErrorKind::Request, ErrorStatus::Permanent, "transaction", message).with_source(error)
}

/// Returns the error of one statement in a successful response, or of one write of a cancelled transaction.
pub(super) fn of_statement(
    code: &str,
    said: Option<&str>,
    operation: &'static str,
    place: impl FnOnce() -> Place,
) -> Error {
    if let Some(message) = key_schema(code, said.unwrap_or_default()) {
        let message = place().named_in(&format!("DynamoDB returned {message}"), operation);
        return Error::new(ErrorKind::Table, ErrorStatus::Temporary, operation, message);
    }
    let (kind, status) = match code {
        "ProvisionedThroughputExceeded" | "RequestLimitExceeded" | "ThrottlingError" => {
            (ErrorKind::Throttled, ErrorStatus::Temporary)
        }
        "TransactionConflict" => (ErrorKind::Unavailable, ErrorStatus::Temporary),
        "ResourceNotFound" => (ErrorKind::Table, ErrorStatus::Temporary),
        "ItemCollectionSizeLimitExceeded" | "ValidationError" => (ErrorKind::Request, ErrorStatus::Permanent),
        _ => (ErrorKind::Unavailable, ErrorStatus::Ambiguous),
    };
    let message = format!("DynamoDB returned {code} to a statement or a write");
    let message = if kind == ErrorKind::Table { place().named_in(&message, operation) } else { message };
    Error::new(kind, status, operation, message)
}

fn of_code(code: &str, http_status: u16) -> (ErrorKind, ErrorStatus) {
    match code {
        "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "ThrottlingException"
        | "ThrottlingError"
        | "Throttling" => (ErrorKind::Throttled, ErrorStatus::Temporary),
        "TransactionConflictException" | "TransactionInProgressException" | "ReplicatedWriteConflictException" => {
            (ErrorKind::Unavailable, ErrorStatus::Temporary)
        }
        "AccessDeniedException"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationTokenException"
        | "ExpiredTokenException" => (ErrorKind::AccessDenied, ErrorStatus::Temporary),
        "ResourceNotFoundException" => (ErrorKind::Table, ErrorStatus::Temporary),
        _ if http_status >= 500 => (ErrorKind::Unavailable, ErrorStatus::Ambiguous),
        _ => (ErrorKind::Request, ErrorStatus::Permanent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            table: "claims".into(),
            partition_key: "pk".into(),
            sort_key: Some("sk".into()),
            region: Some("eu-central-1".into()),
            endpoint: Some("http://localhost:8000".into()),
        }
    }

    #[test]
    fn a_conflict_with_a_transaction_is_temporary() {
        let temporary = (ErrorKind::Unavailable, ErrorStatus::Temporary);
        let codes =
            ["TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException"];
        for code in codes {
            assert_eq!(of_code(code, 400), temporary, "{code}");
        }
        let error = of_statement("TransactionConflict", None, "claim", place);
        assert_eq!((error.kind(), error.status()), temporary);
    }

    #[test]
    fn a_missing_table_is_named_with_its_place_and_its_key() {
        let named = |place: Place, operation| of_statement("ResourceNotFound", None, operation, || place);
        assert_eq!(
            named(place(), "claim").message(),
            "the table `claims` does not exist in eu-central-1 at http://localhost:8000: create it with the partition key `pk` \
             (String) and the sort key `sk` (String), for example by `aws dynamodb create-table`, or correct the name, the Region \
             or the endpoint"
        );
        let commit = named(Place { sort_key: None, endpoint: None, ..place() }, COMMIT);
        assert!(
            commit.message().starts_with(
                "the table `claims`, or another table of the transaction, does not exist in eu-central-1: create it with the \
                 partition key `pk` (String) and no sort key"
            ),
            "{commit}"
        );
        let other = of_statement("TransactionConflict", None, "claim", place);
        assert_eq!(other.message(), "DynamoDB returned TransactionConflict to a statement or a write");
    }

    #[test]
    fn an_internal_dynamodb_error_is_ambiguous() {
        let ambiguous = (ErrorKind::Unavailable, ErrorStatus::Ambiguous);
        for (code, http_status) in [("InternalServerError", 500), ("ServiceUnavailable", 503), ("of tomorrow", 599)] {
            assert_eq!(of_code(code, http_status), ambiguous, "{code}");
        }
        for code in ["InternalServerError", "of tomorrow"] {
            let error = of_statement(code, None, "claim", place);
            assert_eq!((error.kind(), error.status()), ambiguous, "{code}");
        }
    }

    #[test]
    fn an_invalid_request_is_a_permanent_error() {
        for (code, http_status) in [("ValidationException", 400), ("of tomorrow", 400)] {
            assert_eq!(of_code(code, http_status), (ErrorKind::Request, ErrorStatus::Permanent), "{code}");
        }
    }
}
