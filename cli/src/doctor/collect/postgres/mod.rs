//! A server of PostgreSQL, and the tables of a store.

mod client;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use lambda_once::store::postgres::tokio_postgres::{Client, Config, Row, types::Type};
use tokio::time::timeout;

use self::client::client;
use super::super::facts::{Pooler, Postgres, PostgresTable};

const TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 5432;
const SETTINGS: [&str; 4] =
    ["lock_timeout", "client_connection_check_interval", "synchronous_commit", "default_transaction_isolation"];

/// The columns of a table's key.
const RECORDS_KEY: [&str; 2] = ["key_hash", "scope"];
const MARKS_KEY: [&str; 2] = ["entity", "scope"];

/// Describes the server at a URL, and the two tables that these statements of the library create.
///
/// # Errors
///
/// Returns an error if the server cannot be reached, or refuses a query of its catalog.
pub(crate) async fn postgres(url: &str, place: String, schema: &str, wants_index: bool) -> Result<Postgres> {
    let (config, tls) = client(url)?;
    let (client, connection) = timeout(TIMEOUT, config.connect(tls))
        .await
        .context("PostgreSQL did not respond in time")?
        .with_context(|| format!("no connection to {place}"))?;
    let driver = tokio::spawn(connection);
    let found = timeout(TIMEOUT, describe(&client, &config, place, schema, wants_index)).await;
    driver.abort();
    found.context("PostgreSQL did not respond in time")?
}

async fn describe(
    client: &Client,
    config: &Config,
    place: String,
    schema: &str,
    wants_index: bool,
) -> Result<Postgres> {
    let rows = client.query_typed(include_str!("server.sql"), &[]).await?;
    let server = rows.first().context("PostgreSQL returned no settings")?;
    let mut settings = BTreeMap::new();
    for name in SETTINGS {
        let value: Option<String> = server.try_get(name)?;
        settings.extend(value.map(|value| (name.to_owned(), value)));
    }
    let is_vacuumed = server.try_get::<_, String>("autovacuum")? == "on";
    let tables = statements(schema);
    let [records, marks] = &tables[..] else { anyhow::bail!("the schema of the library has two tables") };
    let describe_table = async |statement: &Statement, key: [&str; 2]| -> Result<PostgresTable> {
        let mut found = table(client, statement, key).await?;
        found.has_autovacuum &= is_vacuumed;
        Ok(found)
    };
    Ok(Postgres {
        place,
        role: server.try_get("role")?,
        version: server.try_get("version")?,
        is_standby: server.try_get("is_standby")?,
        settings,
        records: describe_table(records, RECORDS_KEY).await?,
        marks: describe_table(marks, MARKS_KEY).await?,
        wants_index,
        pooler: pooler(client, config, server).await?,
    })
}

/// A statement that creates a table: its name and columns.
#[derive(Debug)]
struct Statement {
    name: String,
    columns: Vec<String>,
}

/// Reads the library's statements, which have one column a line.
fn statements(schema: &str) -> Vec<Statement> {
    let mut found: Vec<Statement> = Vec::new();
    let mut is_open = false;
    for line in schema.lines() {
        if let Some(rest) = line.strip_prefix("CREATE TABLE IF NOT EXISTS ") {
            let name = rest.trim_end_matches(" (").to_owned();
            found.push(Statement { name, columns: Vec::new() });
            is_open = true;
        } else if line.starts_with(')') {
            is_open = false;
        } else if let Some(table) = found.last_mut().filter(|_| is_open) {
            let name = line.split_whitespace().next().unwrap_or_default();
            if !name.is_empty() && !["--", "PRIMARY"].contains(&name) {
                table.columns.push(name.to_owned());
            }
        }
    }
    found
}

async fn table(client: &Client, statement: &Statement, key: [&str; 2]) -> Result<PostgresTable> {
    let mut table =
        PostgresTable { name: statement.name.clone(), wanted: statement.columns.clone(), ..PostgresTable::default() };
    let key = key.map(str::to_owned).to_vec();
    let rows = client
        .query_typed(include_str!("table.sql"), &[(&statement.name, Type::TEXT), (&key, Type::TEXT_ARRAY)])
        .await?;
    let Some(row) = rows.first() else { return Ok(table) };
    table.denied_schema = row.try_get("denied_schema")?;
    table.columns = row.try_get("columns")?;
    table.has_primary_key = row.try_get("has_primary_key")?;
    table.has_purge_index = row.try_get("has_purge_index")?;
    table.has_listing_index = row.try_get("has_listing_index")?;
    table.has_autovacuum = row.try_get("has_autovacuum")?;
    table.denied = row.try_get("denied")?;
    // By the index, or it would read the whole table. A FILTER would prevent that. A lock on a mark can leave a row of day 0.
    if table.denied_schema.is_none()
        && table.has_purge_index
        && !table.denied.iter().any(|privilege| privilege == "SELECT")
    {
        let sql = format!(
            "SELECT floor(extract(epoch FROM now()) / 86400)::integer - min(purge_day) AS days FROM {} WHERE purge_day > 0",
            statement.name
        );
        let rows = client.query_typed(&sql, &[]).await?;
        table.oldest_days = rows.first().map(|row| row.try_get("days")).transpose()?.flatten();
    }
    Ok(table)
}

/// Finds out whether something else than the server responds, and whether it allows transactions.
async fn pooler(client: &Client, config: &Config, server: &Row) -> Result<Pooler> {
    let port: Option<i32> = server.try_get("port")?;
    let asked = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
    if client.batch_execute("BEGIN READ ONLY").await.is_err() {
        return Ok(Pooler::Statement);
    }
    client.batch_execute("ROLLBACK").await?;
    // There is no port over a Unix socket.
    Ok(if port.is_some_and(|port| port != i32::from(asked)) { Pooler::Likely } else { Pooler::None })
}

#[cfg(test)]
mod tests {
    use lambda_once::store::postgres;

    use super::*;

    #[test]
    fn the_columns_are_those_of_the_library() {
        let store = postgres::Config::from_url("postgres://h/d").unwrap().schema("s").table("t").build().unwrap();
        let tables = statements(store.schema());
        let [records, marks] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!(records.name, r#""s"."t""#);
        assert_eq!(records.columns.len(), 19, "{records:?}");
        for column in ["scope", "key_hash", "status", "validation", "sequence", "released", "purge_day"] {
            assert!(records.columns.iter().any(|found| found == column), "{records:?}");
        }
        assert_eq!((marks.columns.len(), marks.columns[1].as_str()), (12, "entity"), "{marks:?}");
    }
}
