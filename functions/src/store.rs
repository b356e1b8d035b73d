//! The store that the environment names.

use std::{
    env::{self, VarError},
    sync::Arc,
};

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
    named(env::var(VARIABLE), client)
}

fn named(name: Result<String, VarError>, client: Client) -> Result<Arc<dyn Store>, BoxError> {
    match name.as_deref() {
        Err(VarError::NotPresent) | Ok("dynamodb") => Ok(Arc::new(Config::from_env()?.build(client)?)),
        #[cfg(feature = "postgres")]
        Ok("postgres") => Ok(Arc::new(lambda_once::PostgresStore::from_env()?)),
        #[cfg(feature = "redis")]
        Ok("redis") => Ok(Arc::new(lambda_once::RedisStore::from_env()?)),
        Err(error) => Err(format!("environment variable {VARIABLE}: {error}").into()),
        Ok(other) => {
            Err(format!("{VARIABLE} is {other:?}, and the stores compiled in are {}", KNOWN.join(", ")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_known_is_refused() {
        for name in [Ok("mysql".to_owned()), Ok(String::new()), Err(VarError::NotUnicode("redis".into()))] {
            let client = Client::from_conf(aws_sdk_dynamodb::Config::builder().behavior_version_latest().build());
            let error = named(name, client).expect_err("not a store").to_string();
            assert!(error.contains(VARIABLE), "{error}");
        }
    }
}
