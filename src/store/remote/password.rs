//! Passwords that are fetched for each new connection.

use std::{fmt, sync::Arc};

use crate::{error::BoxError, future::BoxFuture};

/// Fetches the password of a new connection, for example an IAM token.
#[derive(Clone)]
pub(in crate::store) struct Password(Arc<dyn Fn() -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync>);

impl Password {
    pub(in crate::store) fn new<F, E>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self(Arc::new(move || {
            let fetched = fetch();
            Box::pin(async move { fetched.await.map_err(Into::into) })
        }))
    }

    pub(in crate::store) async fn fetch(&self) -> Result<String, BoxError> {
        (self.0)().await
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}
