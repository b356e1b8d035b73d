//! Classifies errors of PostgreSQL and of its client: whether the statement may have been applied, and whether a retry can
//! help.

use std::{error::Error as StdError, fmt, io};

use deadpool::managed::{PoolError, TimeoutType};
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::{
    error::{Error, ErrorKind, ErrorStatus, root_cause},
    store::{Answers, remote::untrusted::connection_cause},
};

/// The failure of a statement.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// Another transaction held a row for longer than `lock_timeout`.
    pub(super) is_lock_timeout: bool,
    pub(super) connection: Health,
}

impl From<Error> for Failure {
    /// Returns the failure of a statement that succeeded with an unreadable result.
    fn from(error: Error) -> Self {
        Self { error, is_lock_timeout: false, connection: Health::Usable }
    }
}

/// A constraint, or an exception raised by a trigger, that rejected a statement. The source of an error of
/// [`ErrorKind::Transaction`]. It contains no data of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    code: String,
    constraint: Option<String>,
}

impl Violation {
    /// Returns the [SQLSTATE](https://www.postgresql.org/docs/current/errcodes-appendix.html), such as `23505`.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns the name of the constraint, if it is one.
    pub fn constraint(&self) -> Option<&str> {
        self.constraint.as_deref()
    }

    /// Returns whether it rejects the written data, and not the way of writing it.
    pub(super) fn is_refusal(&self) -> bool {
        self.code.starts_with("23") || self.code == SqlState::RAISE_EXCEPTION.code()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.constraint {
            Some(constraint) => write!(f, "{}: constraint {constraint}", self.code),
            None => f.write_str(&self.code),
        }
    }
}

impl StdError for Violation {}

/// The state of a connection after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// The statement failed, and the connection can be used for the next.
    Usable,
    /// Nothing more can be sent on it.
    Broken,
    /// The server no longer accepts writes. The idle connections of the pool lead to the same server.
    Demoted,
}

/// Returns the failure of a statement that may have been sent.
pub(super) fn of_statement(error: tokio_postgres::Error, operation: &'static str) -> Failure {
    let Some(database) = error.as_db_error() else {
        let message = format!("the connection to PostgreSQL failed: {}", root_cause(&error));
        return Failure {
            error: Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, message).with_source(error),
            is_lock_timeout: false,
            connection: Health::Broken,
        };
    };
    let (code, ends_session) = (database.code().code(), ends_session(database));
    let (kind, status) = of_code(code, ends_session);
    let connection = match code {
        "25006" => Health::Demoted,
        _ if ends_session => Health::Broken,
        _ => Health::Usable,
    };
    let is_lock_timeout = *database.code() == SqlState::LOCK_NOT_AVAILABLE;
    let hint = match code {
        "42P01" => "; `PostgresStore::migrate` creates the table",
        "42703" => "; compare the table with `PostgresStore::schema`",
        "3F000" => "; create the schema, or correct `Config::schema`",
        _ => "",
    };
    Failure { error: answered(kind, status, operation, error, hint), is_lock_timeout, connection }
}

/// Returns the failure of an attempt to connect, before any statement was sent. PgBouncer rejects start-up options with
/// 08P01, RDS Proxy with 0A000.
pub(super) fn of_connect(error: tokio_postgres::Error, has_options: bool, addresses: &str) -> Error {
    const OPERATION: &str = "connect";
    if let Some(database) = error.as_db_error() {
        let code = database.code().code();
        let (kind, _) = of_code(code, false);
        let hint = match code {
            "3D000" => "; create the database, or name an existing one in the URL",
            "08P01" | "0A000" if has_options => {
                "; behind a pooler that refuses start-up options set `lock_timeout` on the role, not on `Config`"
            }
            _ => "",
        };
        return answered(kind, ErrorStatus::Temporary, OPERATION, error, hint);
    }
    // Not a network failure, but for example a missing password, or a server without TLS.
    let is_refused = !error.is_closed() && !causes(&error).any(|cause| cause.is::<io::Error>());
    let kind = if is_refused { ErrorKind::AccessDenied } else { ErrorKind::Unavailable };
    let message = format!("no connection to PostgreSQL at {addresses}: {}", connection_cause(&error));
    Error::new(kind, ErrorStatus::Temporary, OPERATION, message).with_source(error)
}

/// Returns the error of a settle whose record is locked by another transaction.
pub(super) fn locked(operation: &'static str) -> Error {
    let message = "another transaction holds the record for longer than `lock_timeout`";
    Error::new(ErrorKind::Timeout, ErrorStatus::Temporary, operation, message)
}

/// Returns the error of a pool that provided no connection.
pub(super) fn of_pool(error: PoolError<Error>) -> Error {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(TimeoutType::Wait) => Error::new(
            ErrorKind::Throttled,
            ErrorStatus::Temporary,
            "connect",
            "all connections of the pool were in use for too long; enlarge it (`pool_size`), or lower the concurrency",
        ),
        other => {
            let message = "the pool returned no connection";
            Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, "connect", message)
                .with_source(other.to_string())
        }
    }
}

/// Returns the error of a row with unexpected columns. The statement itself succeeded.
pub(super) fn of_shape(error: tokio_postgres::Error, operation: &'static str) -> Error {
    let message = "the table's columns do not have the expected types";
    Error::new(ErrorKind::Table, ErrorStatus::Ambiguous, operation, message).with_source(error)
}

/// Returns the error of a statement that returned no row although it always returns one.
pub(super) fn no_row(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, "PostgreSQL returned no row")
}

/// Returns the same error for each of `count` requests.
pub(super) fn for_each<T>(error: Error, count: usize) -> Answers<T> {
    error.for_each(count).map(Err).collect()
}

fn answered(
    kind: ErrorKind,
    status: ErrorStatus,
    operation: &'static str,
    error: tokio_postgres::Error,
    hint: &'static str,
) -> Error {
    let Some(database) = error.as_db_error() else {
        return Error::new(kind, status, operation, "PostgreSQL returned an error").with_source(error);
    };
    let code = database.code().code().to_owned();
    // A data exception or a violated constraint may quote the row, and with it a result.
    if matches!(code.get(..2), Some("22" | "23" | "P0")) {
        let message = format!("PostgreSQL returned {code}");
        let violation = Violation { code, constraint: database.constraint().map(str::to_owned) };
        return Error::new(kind, status, operation, message).with_source(violation);
    }
    let message = format!("PostgreSQL returned {code}: {}{hint}", database.message());
    let answered = Error::new(kind, status, operation, message);
    // The server's own error. The client's error around it adds nothing.
    match error.into_source() {
        Some(source) => answered.with_source(source),
        None => answered,
    }
}

/// Returns whether the session ends with the error.
fn ends_session(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Classifies by the code of an error. A failed statement is rolled back as a whole. Its outcome is in doubt only if
/// the session ended as well, unless the code means that the session ended first.
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn of_code(code: &str, ends_session: bool) -> (ErrorKind, ErrorStatus) {
    let temporary = |kind| (kind, ErrorStatus::Temporary);
    let class = code.get(..2).unwrap_or_default();
    match (class, code) {
        // Lock and statement timeouts, including those of the whole transaction, or a statement cancelled by an
        // operator.
        (_, "55P03" | "57014" | "25P04") => temporary(ErrorKind::Timeout),
        // The outcome of the statement is unknown.
        (_, "40003") | ("08", _) => (ErrorKind::Unavailable, ErrorStatus::Ambiguous),
        // Conflicts between transactions, or a server that became read-only, shuts down, crashed or starts.
        ("40", _) | (_, "25006" | "57P01" | "57P02" | "57P03" | "57P05") => temporary(ErrorKind::Unavailable),
        // Too many connections, no memory, a full disk.
        ("53", _) => temporary(ErrorKind::Throttled),
        ("28", _) | (_, "42501") => temporary(ErrorKind::AccessDenied),
        // The statements are fixed, so the cause is the table or its constraints, or a missing database.
        ("21" | "22" | "23" | "3D" | "3F" | "42" | "54", _) => temporary(ErrorKind::Table),
        _ if ends_session => (ErrorKind::Unavailable, ErrorStatus::Ambiguous),
        _ => temporary(ErrorKind::Unavailable),
    }
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_was_rolled_back_is_temporary() {
        let kinds = [
            ("40001", ErrorKind::Unavailable),
            ("40P01", ErrorKind::Unavailable),
            ("25006", ErrorKind::Unavailable),
            ("55P03", ErrorKind::Timeout),
            ("57014", ErrorKind::Timeout),
            ("53300", ErrorKind::Throttled),
            ("53100", ErrorKind::Throttled),
            ("28P01", ErrorKind::AccessDenied),
            ("42501", ErrorKind::AccessDenied),
            ("42P01", ErrorKind::Table),
            ("42703", ErrorKind::Table),
            ("3D000", ErrorKind::Table),
            ("3F000", ErrorKind::Table),
            ("23514", ErrorKind::Table),
            ("22003", ErrorKind::Table),
            ("54000", ErrorKind::Table),
            ("XX000", ErrorKind::Unavailable),
            ("58030", ErrorKind::Unavailable),
        ];
        for (code, kind) in kinds {
            assert_eq!(of_code(code, false), (kind, ErrorStatus::Temporary), "{code}");
        }
        for code in ["57P01", "57P02", "57P03", "57P05"] {
            assert_eq!(of_code(code, true), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{code}");
        }
    }

    #[test]
    fn a_violated_constraint_or_a_raised_exception_refuses_the_data() {
        for (code, constraint, is_refusal) in [
            ("23505", Some("orders_pkey"), true),
            ("23514", None, true),
            ("P0001", None, true),
            ("P0002", None, false),
            ("22003", None, false),
        ] {
            let violation = Violation { code: code.to_owned(), constraint: constraint.map(str::to_owned) };
            assert_eq!((violation.code(), violation.constraint()), (code, constraint));
            assert_eq!(violation.is_refusal(), is_refusal, "{code}");
        }
    }

    #[test]
    fn a_session_that_ended_for_another_reason_leaves_doubt() {
        for (code, ends_session) in
            [("XX000", true), ("58030", true), ("08006", false), ("08P01", true), ("40003", false)]
        {
            assert_eq!(of_code(code, ends_session), (ErrorKind::Unavailable, ErrorStatus::Ambiguous), "{code}");
        }
    }
}
