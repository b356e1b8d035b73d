//! Errors of the embedded DynamoDB.

/// Why the embedded DynamoDB could not start, or why a table could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address could not be listened on, most often because the port is taken.
    #[error("cannot listen on 127.0.0.1:{port}")]
    Listen {
        /// The port asked for; 0 means any free port.
        port: u16,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The threads that serve requests could not be started.
    #[error("cannot start the threads of the embedded DynamoDB")]
    Runtime(#[source] std::io::Error),
    /// The in-memory database could not be opened.
    #[error("cannot open the in-memory database")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// `CreateTable` was refused.
    #[error("cannot create the table {table}")]
    CreateTable {
        /// The table's name.
        table: String,
        /// The response of the service.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
