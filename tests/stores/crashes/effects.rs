//! The effects of handlers, which outlive their process: lines of a file, or rows that a transaction enters.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use lambda_once::{DynamoDbStore, PostgresStore};

use super::{Backend, Work};
use crate::{
    support::unique_name,
    transactions::databases::{Database, Ledger},
};

/// The effects of a test.
pub(super) enum Effects {
    File(File),
    DynamoDb(Ledger<DynamoDbStore>),
    Postgres(Ledger<PostgresStore>),
}

impl Effects {
    pub(super) async fn create(backend: Backend, work: Work) -> Self {
        match backend {
            _ if !work.is_transaction() => Self::File(File::create()),
            Backend::DynamoDb(_) => Self::DynamoDb(Ledger::create().await),
            Backend::Postgres => Self::Postgres(Ledger::create().await),
            other => panic!("{other:?} has no transactions"),
        }
    }

    /// Returns the path of the file, or the name of the table.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::File(file) => file.0.to_str().unwrap(),
            Self::DynamoDb(ledger) => ledger.name(),
            Self::Postgres(ledger) => ledger.name(),
        }
    }

    pub(super) async fn count(&self, key: &str) -> usize {
        match self {
            Self::File(file) => count(&file.0, key),
            Self::DynamoDb(ledger) => ledger.rows(key).await.len(),
            Self::Postgres(ledger) => ledger.rows(key).await.len(),
        }
    }

    pub(super) async fn count_each(&self, work: Work) -> Vec<usize> {
        let mut counts = Vec::new();
        for key in work.keys() {
            counts.push(self.count(key).await);
        }
        counts
    }
}

/// A file that is deleted with the test.
pub(super) struct File(PathBuf);

impl File {
    fn create() -> Self {
        let path = std::env::temp_dir().join(unique_name("effects"));
        std::fs::write(&path, "").unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Appends an effect. The operating system keeps it when the process is killed.
pub(super) fn append(file: &Path, key: &str) {
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    file.write_all(format!("{key}\n").as_bytes()).unwrap();
}

pub(super) fn count(file: &Path, key: &str) -> usize {
    std::fs::read_to_string(file).unwrap().lines().filter(|line| *line == key).count()
}

/// Enters a row within a transaction.
pub(super) async fn enter<D: Database>(
    transaction: D::Transaction,
    table: &str,
    key: &str,
) -> Result<(), lambda_once::Failure> {
    D::enter(&transaction, table, &unique_name("row"), key).await
}
