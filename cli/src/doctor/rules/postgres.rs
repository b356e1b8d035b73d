//! Rules for a server of PostgreSQL.

use super::{
    super::facts::{Pooler, Postgres, PostgresTable},
    Report,
    Severity::{Error, Note, Warning},
};

const OLDEST_VERSION: i32 = 140_000;
/// Rows of past days are deleted, so that today's oldest row expired yesterday.
const MAX_DAYS: i32 = 1;
const PILING_UP_DAYS: i32 = 7;

/// Returns a name as SQL has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Checks a server, and the tables of one store.
pub(crate) fn postgres(postgres: &Postgres, report: &mut Report) {
    let resource = &postgres.place;
    if postgres.version < OLDEST_VERSION {
        report.find(
            Error,
            "postgres-version",
            resource,
            format!("PostgreSQL {} is not supported.", postgres.version / 10_000),
            "PostgreSQL 14 or newer",
        );
    }
    if postgres.is_standby {
        report.find(
            Error,
            "postgres-standby",
            resource,
            "The server is a read-only standby: claims are refused.",
            "the URL of the primary, on Aurora the writer endpoint, or target_session_attrs=read-write",
        );
    }
    check_settings(postgres, report);
    check_pooler(postgres, report);
    check_table(postgres, &postgres.records, report);
    if postgres.wants_index && !postgres.records.columns.is_empty() && !postgres.records.has_listing_index {
        report.find(
            Warning,
            "postgres-listing-index-missing",
            resource,
            format!("{} has no index on claimed_at: each page of a list reads the whole table.", postgres.records.name),
            "`PostgresStore::migrate()` with `Config::listing_index`, or leave out index=true",
        );
    }
    if postgres.marks.columns.is_empty() {
        report.find(
            Note,
            "postgres-marks-missing",
            resource,
            format!("There is no table {}: ordered operations are refused.", postgres.marks.name),
            "`PostgresStore::migrate()`, if the function has ordered operations",
        );
    } else {
        check_table(postgres, &postgres.marks, report);
    }
}

fn check_settings(postgres: &Postgres, report: &mut Report) {
    let role = quoted(&postgres.role);
    let value = |name: &str| postgres.settings.get(name).map(String::as_str);
    let set = |setting: &str| format!("ALTER ROLE {role} SET {setting}");
    if let Some(level) = value("default_transaction_isolation").filter(|level| *level != "read committed") {
        report.find(
            Warning,
            "postgres-isolation",
            &postgres.place,
            format!("default_transaction_isolation is `{level}`: conflicts between claims are errors."),
            set("default_transaction_isolation = 'read committed'"),
        );
    }
    if value("lock_timeout") == Some("0") {
        report.find(
            Warning,
            "postgres-lock-timeout",
            &postgres.place,
            "The role has no lock_timeout: an open transaction on one record blocks whole batches until it ends.",
            set("lock_timeout = '200ms'"),
        );
        if value("client_connection_check_interval") == Some("0") {
            report.find(
                Warning,
                "postgres-connection-check",
                &postgres.place,
                "The role has no client_connection_check_interval: statements of dropped calls keep waiting.",
                set("client_connection_check_interval = '1s'"),
            );
        }
    }
    if value("synchronous_commit") == Some("off") {
        report.find(
            Error,
            "postgres-synchronous-commit",
            &postgres.place,
            "synchronous_commit is off: a crash of the server loses acknowledged claims and outcomes, and operations run again.",
            set("synchronous_commit = on"),
        );
    }
}

fn check_pooler(postgres: &Postgres, report: &mut Report) {
    match postgres.pooler {
        Pooler::None => {}
        Pooler::Likely => report.skip(
            &postgres.place,
            "the mode of the pooler",
            "another port than the server's responds, so there may be a pooler. Transaction and session mode work",
        ),
        Pooler::Statement => report.find(
            Error,
            "postgres-statement-pooling",
            &postgres.place,
            "The pooler is in statement mode, which refuses transactions: ordered operations and transactions of handlers fail.",
            "pool_mode = transaction",
        ),
    }
}

fn check_table(postgres: &Postgres, table: &PostgresTable, report: &mut Report) {
    let resource = &format!("{}, table {}", postgres.place, table.name);
    if table.columns.is_empty() {
        report.find(
            Error,
            "postgres-table-missing",
            resource,
            "There is no such table, or the role may not use its schema: every operation is refused.",
            "`PostgresStore::migrate()` with a role that may create it, or the statements in docs/postgresql.md",
        );
        return;
    }
    if let Some(schema) = &table.denied_schema {
        report.find(
            Error,
            "postgres-schema-usage",
            resource,
            format!("The role {} may not use the schema of the table: every operation is refused.", postgres.role),
            format!("GRANT USAGE ON SCHEMA {schema} TO {}", quoted(&postgres.role)),
        );
    }
    let missing: Vec<_> = table.wanted.iter().filter(|column| !table.columns.contains(column)).cloned().collect();
    if !missing.is_empty() {
        report.find(
            Error,
            "postgres-columns-missing",
            resource,
            format!("The table is of another version, and lacks {}.", missing.join(", ")),
            "ALTER TABLE … ADD COLUMN with the columns of docs/postgresql.md",
        );
    }
    if !table.has_primary_key {
        report.find(
            Error,
            "postgres-key-missing",
            resource,
            "There is no primary key with the columns of docs/postgresql.md in their order: claims are refused, or read a whole scope.",
            "the primary key of docs/postgresql.md, with its columns in order: ALTER TABLE … ADD PRIMARY KEY",
        );
    }
    if !table.has_purge_index {
        report.find(
            Warning,
            "postgres-purge-index-missing",
            resource,
            "There is no index on purge_day: each purge reads the whole table.",
            format!("CREATE INDEX CONCURRENTLY ON {} (purge_day)", table.name),
        );
    }
    if !table.has_autovacuum {
        report.find(
            Warning,
            "postgres-autovacuum-off",
            resource,
            "autovacuum is off for the table: dead rows of claims and outcomes accumulate, and claims become slow.",
            format!("ALTER TABLE {} RESET (autovacuum_enabled), and autovacuum = on for the server", table.name),
        );
    }
    if !table.denied.is_empty() {
        report.find(
            Error,
            "postgres-privileges",
            resource,
            format!("The role {} lacks {}.", postgres.role, table.denied.join(", ")),
            format!("GRANT {} ON {} TO {}", table.denied.join(", "), table.name, quoted(&postgres.role)),
        );
    }
    if let Some(days) = table.oldest_days.filter(|days| *days > MAX_DAYS) {
        report.find(
            if days > PILING_UP_DAYS { Error } else { Warning },
            "postgres-purge-late",
            resource,
            format!("The oldest row expired {days} days ago: the purge does not run, or does not keep up, and the table grows."),
            "schedule `purge_expired` or the job of pg_cron in docs/postgresql.md, and raise its frequency",
        );
    }
}
