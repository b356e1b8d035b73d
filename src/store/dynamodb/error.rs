//! Classifies errors of the SDK: whether the call may have been applied, and whether another one can help.

use aws_sdk_dynamodb::{
    config::http::HttpResponse,
    error::{BuildError, ProvideErrorMetadata, SdkError},
};

use crate::error::{Error, ErrorKind, ErrorStatus, root_cause};

pub(super) fn from_sdk<E>(error: SdkError<E, HttpResponse>, operation: &'static str) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let (kind, status, message) = match &error {
        SdkError::ConstructionFailure(_) => {
            (ErrorKind::Request, ErrorStatus::Permanent, "the request could not be built".to_owned())
        }
        SdkError::TimeoutError(_) => {
            (ErrorKind::Timeout, ErrorStatus::Ambiguous, "DynamoDB did not answer in time".to_owned())
        }
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            (ErrorKind::Timeout, ErrorStatus::Ambiguous, "DynamoDB could not be reached in time".to_owned())
        }
        SdkError::ServiceError(answer) => {
            let code = answer.err().code().unwrap_or("an error without a code");
            let (kind, status) = of_code(code, answer.raw().status().as_u16());
            // This names the caller, the action and the table, and nothing of an item.
            let said = answer.err().message().filter(|_| code == "AccessDeniedException");
            (kind, status, ["DynamoDB answered ", code, said.map_or("", |_| ": "), said.unwrap_or_default()].concat())
        }
        other => {
            let message = format!("the connection to DynamoDB failed: {}", root_cause(other));
            (ErrorKind::Unavailable, ErrorStatus::Ambiguous, message)
        }
    };
    Error::new(kind, status, operation, message).with_source(error)
}

pub(super) fn unbuilt(error: BuildError) -> Error {
    let message = "the transaction could not be built";
    Error::new(ErrorKind::Request, ErrorStatus::Permanent, "transaction", message).with_source(error)
}

/// The error of one statement in an answer that succeeded, or of one write of a transaction that was cancelled.
pub(super) fn of_statement(code: &str, operation: &'static str) -> Error {
    let (kind, status) = match code {
        "ProvisionedThroughputExceeded" | "RequestLimitExceeded" | "ThrottlingError" => {
            (ErrorKind::Throttled, ErrorStatus::Temporary)
        }
        "TransactionConflict" => (ErrorKind::Unavailable, ErrorStatus::Temporary),
        "ResourceNotFound" => (ErrorKind::Table, ErrorStatus::Temporary),
        "ItemCollectionSizeLimitExceeded" | "ValidationError" => (ErrorKind::Request, ErrorStatus::Permanent),
        _ => (ErrorKind::Unavailable, ErrorStatus::Ambiguous),
    };
    Error::new(kind, status, operation, format!("DynamoDB answered {code} to a statement or a write"))
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

    #[test]
    fn a_conflict_with_a_transaction_is_temporary() {
        let temporary = (ErrorKind::Unavailable, ErrorStatus::Temporary);
        let codes =
            ["TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException"];
        for code in codes {
            assert_eq!(of_code(code, 400), temporary, "{code}");
        }
        let error = of_statement("TransactionConflict", "claim");
        assert_eq!((error.kind(), error.status()), temporary);
    }

    #[test]
    fn what_failed_inside_dynamodb_is_ambiguous() {
        let ambiguous = (ErrorKind::Unavailable, ErrorStatus::Ambiguous);
        for (code, http_status) in [("InternalServerError", 500), ("ServiceUnavailable", 503), ("of tomorrow", 599)] {
            assert_eq!(of_code(code, http_status), ambiguous, "{code}");
        }
        for code in ["InternalServerError", "of tomorrow"] {
            let error = of_statement(code, "claim");
            assert_eq!((error.kind(), error.status()), ambiguous, "{code}");
        }
    }

    #[test]
    fn what_no_retry_can_help_is_permanent() {
        for (code, http_status) in [("ValidationException", 400), ("of tomorrow", 400)] {
            assert_eq!(of_code(code, http_status), (ErrorKind::Request, ErrorStatus::Permanent), "{code}");
        }
    }
}
