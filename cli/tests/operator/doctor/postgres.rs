//! A schema and a role of this test, in PostgreSQL.

use lambda_once::store::postgres::{
    Config,
    tokio_postgres::{self, Client, NoTls},
};

use super::{Report, doctor};
use crate::support::{server, unique_name};

struct Database {
    client: Client,
    name: String,
    store: String,
}

impl Database {
    /// The tables of the library, and the role of docs/postgresql.md.
    async fn new() -> Self {
        let url = server("POSTGRES_URL");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let name = unique_name().replace('-', "_");
        client
            .batch_execute(&format!(
                "CREATE SCHEMA {name};
                 CREATE ROLE {name} LOGIN PASSWORD 'secret';
                 ALTER ROLE {name} SET lock_timeout = '200ms';
                 ALTER ROLE {name} SET client_connection_check_interval = '1s';
                 GRANT USAGE ON SCHEMA {name} TO {name}"
            ))
            .await
            .unwrap();
        Config::from_url(&url).unwrap().schema(name.clone()).build().unwrap().migrate().await.unwrap();
        let (_, host) = url.rsplit_once('@').expect("the URL has a user");
        let store =
            format!("postgres://{name}:secret@{host}{}schema={name}", if host.contains('?') { '&' } else { '?' });
        let database = Self { client, name, store };
        database
            .execute("GRANT SELECT, INSERT, UPDATE, DELETE ON SCHEMA.once_records, SCHEMA.once_marks TO MINE")
            .await;
        database
    }

    /// Runs statements, in which `SCHEMA` and `MINE` are placeholders for this test's names.
    async fn execute(&self, sql: &str) {
        self.client.batch_execute(&sql.replace("SCHEMA", &self.name).replace("MINE", &self.name)).await.unwrap();
    }

    async fn check(&self) -> Report {
        doctor(&["--store", &self.store]).await
    }

    /// Checks the store as one whose lists read an index.
    async fn check_with_index(&self) -> Report {
        doctor(&["--store", &format!("{}&index=true", self.store)]).await
    }

    async fn drop(self) {
        self.execute("DROP OWNED BY MINE").await;
        self.client.batch_execute(&format!("DROP SCHEMA {0} CASCADE; DROP ROLE {0}", self.name)).await.unwrap();
    }
}

#[tokio::test]
async fn each_fault_of_postgres_is_found() {
    let database = Database::new().await;
    database.check().await.assert(&[], &[]);
    for (plant, repair, code) in [
        (
            "ALTER ROLE MINE SET synchronous_commit = off",
            "ALTER ROLE MINE RESET synchronous_commit",
            "postgres-synchronous-commit",
        ),
        (
            "ALTER ROLE MINE SET default_transaction_isolation = 'serializable'",
            "ALTER ROLE MINE RESET default_transaction_isolation",
            "postgres-isolation",
        ),
        ("ALTER ROLE MINE SET lock_timeout = 0", "ALTER ROLE MINE SET lock_timeout = '200ms'", "postgres-lock-timeout"),
        (
            "ALTER TABLE SCHEMA.once_records SET (autovacuum_enabled = off)",
            "ALTER TABLE SCHEMA.once_records RESET (autovacuum_enabled)",
            "postgres-autovacuum-off",
        ),
        (
            "REVOKE UPDATE ON SCHEMA.once_marks FROM MINE",
            "GRANT UPDATE ON SCHEMA.once_marks TO MINE",
            "postgres-privileges",
        ),
        (
            "DROP INDEX SCHEMA.once_records_purge",
            "CREATE INDEX once_records_purge ON SCHEMA.once_records (purge_day)",
            "postgres-purge-index-missing",
        ),
        (
            "INSERT INTO SCHEMA.once_records (key_hash, status, attempt, expiration, v) VALUES \
             (decode(repeat('00', 32), 'hex'), 1, 1, extract(epoch FROM now()) - 3 * 86400, 1)",
            "DELETE FROM SCHEMA.once_records",
            "postgres-purge-late",
        ),
        (
            "ALTER TABLE SCHEMA.once_records DROP COLUMN released",
            "ALTER TABLE SCHEMA.once_records ADD COLUMN released bigint",
            "postgres-columns-missing",
        ),
        (
            "ALTER TABLE SCHEMA.once_records DROP CONSTRAINT once_records_pkey",
            "ALTER TABLE SCHEMA.once_records ADD PRIMARY KEY (key_hash, scope)",
            "postgres-key-missing",
        ),
        (
            "ALTER TABLE SCHEMA.once_records DROP CONSTRAINT once_records_pkey, ADD PRIMARY KEY (scope, key_hash)",
            "ALTER TABLE SCHEMA.once_records DROP CONSTRAINT once_records_pkey, ADD PRIMARY KEY (key_hash, scope)",
            "postgres-key-missing",
        ),
        (
            "ALTER TABLE SCHEMA.once_marks SET (autovacuum_enabled = No)",
            "ALTER TABLE SCHEMA.once_marks RESET (autovacuum_enabled)",
            "postgres-autovacuum-off",
        ),
        (
            "ALTER TABLE SCHEMA.once_records SET (autovacuum_enabled = 0)",
            "ALTER TABLE SCHEMA.once_records RESET (autovacuum_enabled)",
            "postgres-autovacuum-off",
        ),
    ] {
        database.execute(plant).await;
        database.check().await.assert(&[code], &[]);
        database.execute(repair).await;
    }
    database.check().await.assert(&[], &[]);
    database.check_with_index().await.assert(&["postgres-listing-index-missing"], &[]);
    let config = Config::from_url(&server("POSTGRES_URL")).unwrap().schema(database.name.clone());
    config.listing_index(true).build().unwrap().migrate().await.unwrap();
    database.check_with_index().await.assert(&[], &[]);
    database.execute("DROP TABLE SCHEMA.once_marks").await;
    database.check().await.assert(&["postgres-marks-missing"], &[]);
    database.execute("DROP TABLE SCHEMA.once_records").await;
    assert_eq!(database.check().await.codes(), ["postgres-table-missing", "postgres-marks-missing"]);
    database.drop().await;
}

#[tokio::test]
async fn a_mark_that_a_lock_has_left_is_not_a_late_purge() {
    let database = Database::new().await;
    database
        .execute("INSERT INTO SCHEMA.once_marks (entity, expiration) VALUES (decode(repeat('00', 16), 'hex'), 0)")
        .await;
    database.check().await.assert(&[], &[]);
    database
        .execute(
            "INSERT INTO SCHEMA.once_marks (entity, expiration) VALUES \
             (decode(repeat('01', 16), 'hex'), extract(epoch FROM now()) - 3 * 86400)",
        )
        .await;
    database.check().await.assert(&["postgres-purge-late"], &[]);
    database.drop().await;
}

#[tokio::test]
async fn a_role_without_its_schema_leaves_the_other_findings() {
    let database = Database::new().await;
    database.execute("REVOKE USAGE ON schema SCHEMA FROM MINE; ALTER ROLE MINE SET synchronous_commit = off").await;
    let codes = ["postgres-synchronous-commit", "postgres-schema-usage", "postgres-schema-usage"];
    database.check().await.assert(&codes, &[]);
    database.execute("DROP TABLE SCHEMA.once_records, SCHEMA.once_marks").await;
    let codes = ["postgres-synchronous-commit", "postgres-table-missing", "postgres-marks-missing"];
    database.check().await.assert(&codes, &[]);
    database.drop().await;
}

#[tokio::test]
async fn options_that_the_library_accepts_are_accepted() {
    let database = Database::new().await;
    for options in ["sslmode=allow", "sslmode=prefer&gssencmode=disable&sslsni=1&pgbouncer=true&sslrootcert=system"] {
        doctor(&["--store", &format!("{}&{options}", database.store)]).await.assert(&[], &[]);
    }
    database.drop().await;
}
