//! Classifies errors of the client and of the server: whether a call may have been applied, and whether a retry can help.

use std::io;

use redis::{RedisError, ServerErrorKind};

use crate::{
    error::{BoxError, Error, ErrorKind, ErrorStatus, root_cause},
    store::remote::untrusted::connection_cause,
};

/// Returns the error of a call that may have reached the server.
pub(super) fn of_call(error: RedisError, operation: &'static str) -> Error {
    let (kind, status, message) = classify(&error);
    Error::new(kind, status, operation, message).with_source(error)
}

/// Returns the error of a connection that was not opened, so that nothing was sent.
pub(super) fn of_connection(error: RedisError, addresses: &str, operation: &'static str) -> Error {
    let (kind, status, message) = match classify(&error) {
        (kind, ErrorStatus::Ambiguous, _) => {
            let message = format!("no connection to Redis at {addresses}: {}", connection_cause(&error));
            (kind, ErrorStatus::Temporary, message)
        }
        classified => classified,
    };
    Error::new(kind, status, operation, message).with_source(error)
}

/// Returns the error of a retry. Whatever its cause, the first call got no response and may have been applied.
pub(super) fn of_retry(error: RedisError, operation: &'static str) -> Error {
    let message = format!("the connection to Redis was lost, and the retry failed: {}", classify(&error).2);
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message).with_source(error)
}

/// Returns a failure to fetch the password, as the client's error type.
pub(super) fn no_password(error: BoxError) -> RedisError {
    io::Error::other(format!("the password could not be fetched: {error}")).into()
}

/// Returns the error of a reply with an unexpected form.
pub(super) fn unexpected(operation: &'static str) -> Error {
    let message = "Redis did not answer as the library's script does";
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message)
}

/// Returns whether the connection must be replaced, because it is broken, or the server is no longer the primary.
pub(super) fn is_of_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || error.kind() == redis::ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.kind() == redis::ErrorKind::ClusterConnectionNotFound
}

fn classify(error: &RedisError) -> (ErrorKind, ErrorStatus, String) {
    if error.is_timeout() {
        return (ErrorKind::Timeout, ErrorStatus::Ambiguous, "Redis did not respond in time".to_owned());
    }
    if let Some(code) = error.code() {
        let detail = error.detail().unwrap_or_default();
        let (kind, status) = of_code(code, detail);
        if code == "CROSSSLOT" {
            let message =
                "`listing_index` needs a Redis server without cluster mode: leave it out here, and lists scan the keys";
            return (kind, status, message.to_owned());
        }
        return (kind, status, format!("Redis returned {code}: {detail}"));
    }
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => {
            (ErrorKind::AccessDenied, ErrorStatus::Temporary, format!("Redis refuses the credentials: {error}"))
        }
        // The settings were checked before. The host name has no address, as may happen while an endpoint moves.
        redis::ErrorKind::InvalidClientConfig => (ErrorKind::Unavailable, ErrorStatus::Temporary, error.to_string()),
        _ => {
            let message = format!("the connection to Redis failed: {}", root_cause(error));
            (ErrorKind::Unavailable, ErrorStatus::Ambiguous, message)
        }
    }
}

/// Classifies an error reply by its first word. The server sends the known ones before a script writes, except for a
/// command that the script may not call.
/// <https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors>
fn of_code(code: &str, detail: &str) -> (ErrorKind, ErrorStatus) {
    match code {
        "OOM" => (ErrorKind::Throttled, ErrorStatus::Temporary),
        "READONLY" | "LOADING" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "MOVED" | "ASK" | "BUSY" | "MISCONF"
        | "NOREPLICAS" => (ErrorKind::Unavailable, ErrorStatus::Temporary),
        "NOAUTH" | "WRONGPASS" | "NOPERM" => (ErrorKind::AccessDenied, ErrorStatus::Temporary),
        // Before authentication the server accepts only short commands, and reports longer ones as protocol errors.
        "ERR" if detail.contains("unauthenticated") => (ErrorKind::AccessDenied, ErrorStatus::Temporary),
        // From `claim.lua`, and from a server in cluster mode for a script that uses the index.
        "UNSUPPORTED" | "CROSSSLOT" => (ErrorKind::Config, ErrorStatus::Temporary),
        "WRONGTYPE" => (ErrorKind::Table, ErrorStatus::Temporary),
        // A renamed command.
        "ERR" if detail.contains("unknown command") => (ErrorKind::AccessDenied, ErrorStatus::Temporary),
        // A command that the user may not call in a script. The server keeps the script's earlier writes, of which there are
        // none before these two.
        "ERR" if ["ACL failure in script", "user executing the script"].iter().any(|text| detail.contains(text)) => {
            let is_first = ["'time'", "'hmget'"].iter().any(|command| detail.contains(command));
            let status = if is_first { ErrorStatus::Temporary } else { ErrorStatus::Ambiguous };
            (ErrorKind::AccessDenied, status)
        }
        "ERR" if detail.starts_with("max number of clients") => (ErrorKind::Throttled, ErrorStatus::Temporary),
        _ => (ErrorKind::Unavailable, ErrorStatus::Ambiguous),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_before_any_write_is_temporary() {
        for code in ["READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS"] {
            assert_eq!(of_code(code, ""), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{code}");
        }
        let denied = "User once has no permissions to run the 'evalsha' command";
        assert_eq!(of_code("NOPERM", denied), (ErrorKind::AccessDenied, ErrorStatus::Temporary));
        for command in ["time", "hmget"] {
            let denied = format!("ACL failure in script: User once has no permissions to run the '{command}' command");
            assert_eq!(of_code("ERR", &denied), (ErrorKind::AccessDenied, ErrorStatus::Temporary));
        }
        let renamed = "unknown command 'EVALSHA', with args beginning with: ";
        assert_eq!(of_code("ERR", renamed), (ErrorKind::AccessDenied, ErrorStatus::Temporary));
        assert_eq!(of_code("OOM", ""), (ErrorKind::Throttled, ErrorStatus::Temporary));
        let too_many = "max number of clients reached";
        assert_eq!(of_code("ERR", too_many), (ErrorKind::Throttled, ErrorStatus::Temporary));
        let unauthenticated = "Protocol error: unauthenticated bulk length";
        assert_eq!(of_code("ERR", unauthenticated), (ErrorKind::AccessDenied, ErrorStatus::Temporary));
        assert_eq!(of_code("UNSUPPORTED", ""), (ErrorKind::Config, ErrorStatus::Temporary));
    }

    /// The second text is that of Redis 7.0.
    #[test]
    fn a_script_that_may_not_call_a_command_may_have_written_before() {
        for denied in [
            "ACL failure in script: User once has no permissions to run the 'pexpireat' command",
            "The user executing the script can't run this command or subcommand",
        ] {
            assert_eq!(of_code("ERR", denied), (ErrorKind::AccessDenied, ErrorStatus::Ambiguous), "{denied}");
        }
    }

    #[test]
    fn a_host_without_an_address_is_unavailable() {
        let error = of_call((redis::ErrorKind::InvalidClientConfig, "No address found for host").into(), "claim");
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    }

    #[test]
    fn an_unknown_error_is_ambiguous() {
        for (code, detail) in [("ERR", "Error running script"), ("OF_TOMORROW", "")] {
            assert_eq!(of_code(code, detail), (ErrorKind::Unavailable, ErrorStatus::Ambiguous), "{code}");
        }
    }
}
