//! The store, chosen by the environment.

use std::{
    env::{self, VarError},
    sync::Arc,
};

use aws_sdk_dynamodb::Client;
use lambda_once::{BoxError, DynamoDbStore, Store, store::dynamodb::Config};

const VARIABLE: &str = "STORE";

/// The compiled stores.
const KNOWN: &[&str] = &[
    "dynamodb",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "redis")]
    "redis",
];

/// A store, by its use in the functions.
#[derive(Debug)]
pub(crate) enum Selected {
    DynamoDb(DynamoDbStore),
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "DynamoDB is the only store")
    )]
    Other(Arc<dyn Store>),
}

impl Selected {
    pub(crate) fn dynamodb(&self) -> Option<DynamoDbStore> {
        match self {
            Self::DynamoDb(store) => Some(store.clone()),
            Self::Other(_) => None,
        }
    }

    pub(crate) fn any(self) -> Arc<dyn Store> {
        match self {
            Self::DynamoDb(store) => Arc::new(store),
            Self::Other(store) => store,
        }
    }
}

/// Returns the store that `STORE` names, or DynamoDB, on this client, if it is not set.
pub(crate) fn from_env(client: Client) -> Result<Selected, BoxError> {
    named(env::var(VARIABLE), client)
}

fn named(name: Result<String, VarError>, client: Client) -> Result<Selected, BoxError> {
    match name.as_deref() {
        Err(VarError::NotPresent) | Ok("dynamodb") => Ok(Selected::DynamoDb(Config::from_env()?.build(client)?)),
        #[cfg(feature = "postgres")]
        Ok("postgres") => Ok(Selected::Other(Arc::new(lambda_once::PostgresStore::from_env()?))),
        #[cfg(feature = "redis")]
        Ok("redis") => Ok(Selected::Other(Arc::new(lambda_once::RedisStore::from_env()?))),
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
