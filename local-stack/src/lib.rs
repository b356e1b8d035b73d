//! A DynamoDB that runs inside the calling process, for tests and for the demo.
//!
//! [`EmbeddedDynamoDb`] serves the DynamoDB API over HTTP on 127.0.0.1, keeps everything in memory
//! and stops when it is dropped. It needs no Docker, no JVM and no account:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dynamodb = local_stack::EmbeddedDynamoDb::start()?;
//! let client = local_stack::client(dynamodb.endpoint());
//! local_stack::create_table(&client, "orders", "id").await?;
//! assert_eq!(client.list_tables().send().await?.table_names(), ["orders"]);
//! # Ok(())
//! # }
//! ```
//!
//! It is an emulator: it never throttles and checks no permissions. DynamoDB Local is the reference
//! in the tests of `lambda-once`; this one is there to be started in milliseconds.

mod dynamodb;
mod error;
mod tables;

pub use dynamodb::EmbeddedDynamoDb;
pub use error::Error;
pub use tables::{ACCESS_KEY, REGION, SECRET_KEY, client, create_table};
