//! The store that the environment names.

use std::{env, sync::Arc};

use aws_sdk_dynamodb::Client;
use lambda_once::{BoxError, Store, store::dynamodb::Config};

const VARIABLE: &str = "STORE";

/// The stores that were compiled in.
const KNOWN: &[&str] = &[
    "dynamodb",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "redis")]
    "redis",
];

/// The store that `STORE` names; DynamoDB, on this client, if it is not set.
pub(crate) fn from_env(client: Client) -> Result<Arc<dyn Store>, BoxError> {
    match env::var(VARIABLE).as_deref() {
        Err(_) | Ok("dynamodb") => Ok(Arc::new(Config::from_env()?.build(client)?)),
        #[cfg(feature = "postgres")]
        Ok("postgres") => Ok(Arc::new(lambda_once::PostgresStore::from_env()?)),
        #[cfg(feature = "redis")]
        Ok("redis") => Ok(Arc::new(lambda_once::RedisStore::from_env()?)),
        Ok(other) => {
            Err(format!("{VARIABLE} is {other:?}, and the stores compiled in are {}", KNOWN.join(", ")).into())
        }
    }
}
