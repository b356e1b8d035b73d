//! The server's sessions: transactions that hold rows, and statements that wait for them.

use lambda_once::store::postgres::tokio_postgres::{self, Client};

use super::*;

/// A direct connection with an open transaction that can hold rows.
pub(super) struct Transaction(Client);

impl Transaction {
    pub(super) async fn begin() -> Self {
        let client = support::postgres::client(&support::postgres::connection().await).await;
        client.batch_execute("BEGIN").await.unwrap();
        Self(client)
    }

    /// Begins a transaction that holds the records of these claims.
    pub(super) async fn holding(claims: &[&ClaimRequest]) -> Self {
        let transaction = Self::begin().await;
        let keys: Vec<&[u8]> = claims.iter().map(|claim| claim.key.as_bytes().as_slice()).collect();
        let select = "SELECT FROM once_records WHERE key_hash = ANY ($1) FOR UPDATE";
        assert_eq!(transaction.0.execute(select, &[&keys]).await.unwrap(), u64::try_from(claims.len()).unwrap());
        transaction
    }

    pub(super) async fn execute(&self, sql: &str) {
        self.0.batch_execute(sql).await.unwrap();
    }

    pub(super) async fn commit(self) {
        self.execute("COMMIT").await;
    }

    pub(super) async fn roll_back(self) {
        self.execute("ROLLBACK").await;
    }
}

/// The sessions of a role.
pub(super) struct Sessions {
    admin: Client,
    role: String,
}

impl Sessions {
    pub(super) async fn of(connection: &tokio_postgres::Config) -> Self {
        let admin = support::postgres::client(&support::postgres::connection().await).await;
        Self { admin, role: connection.get_user().unwrap().to_owned() }
    }

    /// Waits until that many sessions wait for a lock.
    pub(super) async fn until_waiting(&self, count: i64) {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'";
        let reached = async {
            while self.admin.query_one(sql, &[&self.role]).await.unwrap().get::<_, i64>(0) != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reached).await.expect("in time");
    }

    /// Ends the sessions that wait for a lock, as an operator does.
    pub(super) async fn terminate_waiting(&self) {
        let sql =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'";
        assert!(self.admin.execute(sql, &[&self.role]).await.unwrap() > 0);
    }

    /// Refuses the role's logins and ends its sessions, as during a password rotation, or admits it again.
    pub(super) async fn admit_role(&self, is_admitted: bool) {
        let (role, login) = (&self.role, if is_admitted { "LOGIN" } else { "NOLOGIN" });
        self.admin.batch_execute(&format!("ALTER ROLE \"{role}\" {login}")).await.unwrap();
        if !is_admitted {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
            self.admin.execute(sql, &[role]).await.unwrap();
        }
    }

    pub(super) async fn change_role(&self, setting: &str) {
        self.admin.batch_execute(&format!("ALTER ROLE \"{}\" SET {setting}", self.role)).await.unwrap();
    }
}

/// Returns the hash of a key as an SQL literal.
pub(super) fn literal(claim: &ClaimRequest) -> String {
    format!("'\\x{}'::bytea", claim.key)
}
