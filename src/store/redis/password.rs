//! Passwords that are fetched for each new connection.

use std::{io, sync::Arc};

use redis::{ConnectionInfo, RedisError};

use crate::{error::BoxError, future::BoxFuture};

/// Fetches the password of a new connection.
#[derive(Clone)]
pub(super) struct Password(Arc<dyn Fn() -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync>);

impl Password {
    pub(super) fn new<F, E>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self(Arc::new(move || {
            let fetched = fetch();
            Box::pin(async move { fetched.await.map_err(Into::into) })
        }))
    }

    pub(super) async fn fetch(&self) -> Result<String, RedisError> {
        let fetched = (self.0)().await;
        fetched.map_err(|error| io::Error::other(format!("the password could not be fetched: {error}")).into())
    }

    /// The same settings with a new password.
    pub(super) async fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, RedisError> {
        let settings = info.redis_settings().clone().set_password(self.fetch().await?);
        Ok(info.set_redis_settings(settings))
    }
}
