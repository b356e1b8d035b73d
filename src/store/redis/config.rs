//! Settings of the store.

use std::{fmt, time::Duration};

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::{RedisStore, link::Link, node::Node};
#[cfg(any(feature = "redis-cluster", feature = "redis-tls"))]
use crate::error::root_cause;
use crate::{
    error::{BoxError, Error},
    store::remote::password::Password,
};

const URL_VARIABLE: &str = "REDIS_URL";
const KEY_PREFIX: &str = "once:";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of times that a cluster's client retries a redirected or lost command. The engine retries calls as well.
#[cfg(feature = "redis-cluster")]
const CLUSTER_RETRIES: u32 = 2;
/// The number of connections to nodes that may time out before one succeeds.
#[cfg(feature = "redis-cluster")]
const CLUSTER_OPEN: u32 = 3;

/// Builds a [`RedisStore`].
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`key_prefix`](Self::key_prefix) | `once:` |
/// | [`password`](Self::password) | the URL's |
/// | [`listing_index`](Self::listing_index) | none |
/// | `root_certificates` (feature `redis-tls`) | Mozilla's, which are compiled in |
/// | [`connect_timeout`](Self::connect_timeout) | 1 s |
/// | [`response_timeout`](Self::response_timeout) | 1 s |
///
/// # Examples
///
/// ```
/// use lambda_once::store::redis::Config;
///
/// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
/// let store = Config::new("redis://payments@127.0.0.1:6379")
///     .key_prefix("payments:")
///     // Called for each new connection: IAM tokens are valid for 15 minutes.
///     .password(|| async { token().await })
///     .build()?;
/// # Ok::<(), lambda_once::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Config {
    urls: Vec<String>,
    #[cfg(feature = "redis-cluster")]
    is_cluster: bool,
    key_prefix: String,
    listing_index: bool,
    password: Option<Password>,
    #[cfg(feature = "redis-tls")]
    root_certificates: Option<Vec<u8>>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Config {
    /// Creates the settings for the primary at this URL: `redis://[user[:password]@]host[:port][/database]`, or
    /// `rediss://…` for TLS (feature `redis-tls`).
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            #[cfg(feature = "redis-cluster")]
            is_cluster: false,
            key_prefix: KEY_PREFIX.to_owned(),
            listing_index: false,
            password: None,
            #[cfg(feature = "redis-tls")]
            root_certificates: None,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
        }
    }

    /// Creates the settings for the cluster of these nodes, or of this configuration endpoint. Users and passwords are
    /// the same on all nodes.
    #[cfg(feature = "redis-cluster")]
    pub fn cluster(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { urls, is_cluster: true, ..Self::new("") }
    }

    /// Creates the settings for the primary at the URL in the environment variable `REDIS_URL`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the variable is missing or empty.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Ok(Self::new(url)),
            _ => Err(Error::config(format!("set the environment variable {URL_VARIABLE}, such as redis://host:6379"))),
        }
    }

    /// Sets the prefix of the keys' names, before the hash.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Sets whether [lists](crate::store::listing) read a sorted set of the records without a success, instead of scanning all keys.
    /// A claim adds an entry, and a completion or a release removes it, within the same script: there is no further call. A claim also
    /// removes up to ten entries whose records have expired. It is off by default.
    ///
    /// A list then has the operations that were claimed since the setting is on. Each entry is checked against its record, so that a
    /// list has no operation that is done.
    ///
    /// The set is one key, named `open` after the prefix. It needs a server without cluster mode, since the key and the records are in
    /// different slots. The user needs `+zadd +zrem +zrange`, and `+zscan` for lists.
    pub fn listing_index(mut self, enabled: bool) -> Self {
        self.listing_index = enabled;
        self
    }

    /// Fetches the password for each new connection, instead of the one in the URL. The user comes from the URL.
    pub fn password<F, E>(mut self, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.password = Some(Password::new(fetch));
        self
    }

    /// Trusts these root certificates, in PEM, instead of those that are compiled in.
    #[cfg(feature = "redis-tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Sets the maximum time to open a connection, including fetching the password. A cluster has three times as long.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the maximum time to wait for a response. The engine retries calls without one.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Builds the store. Connections are opened on demand, or by [`warm_up`](crate::Store::warm_up).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a URL cannot be read, or needs a feature that is not enabled, if a
    /// certificate cannot be read, if TLS has no cryptography provider, or if a cluster is to have a
    /// [`listing_index`](Self::listing_index).
    pub fn build(self) -> Result<RedisStore, Error> {
        if self.key_prefix.contains(['{', '}']) {
            return Err(Error::config(
                "the prefix of keys must not contain braces, which mark the part that decides the slot",
            ));
        }
        #[cfg(feature = "redis-cluster")]
        if self.is_cluster && self.listing_index {
            return Err(Error::config("a Redis cluster has no index for lists: they scan its keys"));
        }
        let infos = self.urls.iter().map(|url| read(url)).collect::<Result<Vec<_>, _>>()?;
        #[cfg(feature = "redis-tls")]
        if infos.iter().any(|info| matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })) {
            crate::store::remote::tls::install_provider()?;
        }
        let (prefix, has_listing_index) = (self.key_prefix.clone(), self.listing_index);
        Ok(RedisStore::from_parts(self.link(infos)?, prefix, has_listing_index))
    }

    fn link(self, mut infos: Vec<ConnectionInfo>) -> Result<Link, Error> {
        #[cfg(feature = "redis-cluster")]
        if self.is_cluster {
            let open_timeout = self.connect_timeout.saturating_mul(CLUSTER_OPEN);
            let addresses: Vec<String> = infos.iter().map(|info| info.addr().to_string()).collect();
            let client = self.cluster_client(infos)?;
            return Ok(Link::Cluster(super::cluster::Cluster::new(client, addresses.join(", "), open_timeout)));
        }
        let info = infos.remove(0);
        #[cfg(feature = "redis-tls")]
        let info = match self.root_certificates {
            None => info,
            Some(root_cert) => {
                let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(root_cert) };
                let client = redis::Client::build_with_tls(info, certificates).map_err(not_certified)?;
                client.get_connection_info().clone()
            }
        };
        Ok(Link::Node(Node::new(info, self.password, self.connect_timeout, self.response_timeout)))
    }

    #[cfg(feature = "redis-cluster")]
    fn cluster_client(self, infos: Vec<ConnectionInfo>) -> Result<redis::cluster::ClusterClient, Error> {
        let user = infos.first().and_then(|info| info.redis_settings().username()).unwrap_or("default").to_owned();
        let mut builder = redis::cluster::ClusterClient::builder(infos)
            .retries(CLUSTER_RETRIES)
            .connection_timeout(self.connect_timeout)
            .response_timeout(self.response_timeout);
        if let Some(password) = self.password {
            builder = builder.set_credentials_provider(super::cluster::PasswordPerConnection { user, password });
        }
        #[cfg(feature = "redis-tls")]
        if let Some(root_cert) = self.root_certificates {
            builder = builder.certs(redis::TlsCertificates { client_tls: None, root_cert: Some(root_cert) });
        }
        builder.build().map_err(|error| {
            Error::config(format!("the client of the cluster cannot be built: {}", root_cause(&error)))
                .with_source(error)
        })
    }
}

fn read(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(unreadable)?;
    if !info.addr().is_supported() {
        return Err(Error::config("a URL with `rediss://` needs the feature `redis-tls`"));
    }
    Ok(info)
}

/// Returns the error of an unreadable URL. The client's error does not quote the URL, which may contain a password.
fn unreadable(error: redis::RedisError) -> Error {
    Error::config(
        "the URL of Redis cannot be read: write redis://[user[:password]@]host[:port][/database], or rediss:// for TLS, and \
         percent-encode special characters of the password",
    )
    .with_source(error)
}

#[cfg(feature = "redis-tls")]
fn not_certified(error: redis::RedisError) -> Error {
    let cause = root_cause(&error);
    Error::config(format!("`root_certificates` need certificates in PEM and a URL with rediss://: {cause}"))
        .with_source(error)
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URLs may contain passwords.
        f.debug_struct("Config").field("key_prefix", &self.key_prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::assert_states;

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let (connect, response) = (CONNECT_TIMEOUT.as_secs(), RESPONSE_TIMEOUT.as_secs());
        assert_states(
            "src/store/redis/config.rs",
            [
                format!("| [`key_prefix`](Self::key_prefix) | `{KEY_PREFIX}` |"),
                format!("| [`connect_timeout`](Self::connect_timeout) | {connect} s |"),
                format!("| [`response_timeout`](Self::response_timeout) | {response} s |"),
            ],
        );
        assert_states("docs/redis.md", [format!(" ~{KEY_PREFIX}* ")]);
    }

    #[cfg(feature = "redis-cluster")]
    #[test]
    fn a_cluster_accepts_the_longest_connect_timeout() {
        let config = Config::cluster(["redis://127.0.0.1:6379"]).connect_timeout(Duration::MAX);
        assert!(config.build().is_ok());
    }
}
