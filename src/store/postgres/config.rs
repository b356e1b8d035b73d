//! Settings of the store.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use super::{
    PostgresStore,
    connection::{Connections, Manager},
    statements::{Statements, TableName},
    tls,
    url::{self, Url},
};
use crate::{
    error::{BoxError, Error},
    store::{StoreId, remote::password::Password},
};

const URL_VARIABLE: &str = "POSTGRES_URL";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const POOL_SIZE: usize = 16;

/// Builds a [`PostgresStore`].
///
/// ```
/// use lambda_once::store::postgres::Config;
///
/// # fn init() -> Result<(), lambda_once::Error> {
/// let store = Config::from_url("postgresql://once@db.example.com/orders?sslmode=require")?
///     .scope("orders")
///     .pool_size(4)
///     .password(|| async { std::env::var("DB_PASSWORD") })
///     .build();
/// # drop(store); Ok(()) }
/// # init().unwrap();
/// ```
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`scope`](Self::scope) | empty |
/// | [`table`](Self::table) | `once_records` |
/// | [`schema`](Self::schema) | none: found by the role's `search_path` |
/// | [`pool_size`](Self::pool_size) | 16 |
/// | [`connect_timeout`](Self::connect_timeout) | the URL's `connect_timeout`, or 1 s |
/// | [`lock_timeout`](Self::lock_timeout) | none: the role's setting |
/// | [`password`](Self::password) | the URL's |
/// | [`listing_index`](Self::listing_index) | none |
/// | `root_certificates` (feature `postgres-tls`) | the public ones that Mozilla trusts |
#[derive(Clone)]
#[must_use]
pub struct Config {
    connection: tokio_postgres::Config,
    scope: String,
    table: TableName,
    pool_size: usize,
    connect_timeout: Duration,
    lock_timeout: Option<Duration>,
    password: Option<Password>,
    root_certificates: Option<Vec<u8>>,
    listing_index: bool,
}

impl Config {
    /// Creates the settings for this client configuration.
    pub fn new(connection: tokio_postgres::Config) -> Self {
        let connect_timeout = connection.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        Self {
            connection,
            scope: String::new(),
            table: TableName::default(),
            pool_size: POOL_SIZE,
            connect_timeout,
            lock_timeout: None,
            password: None,
            root_certificates: None,
            listing_index: false,
        }
    }

    /// Creates the settings for a URL, `postgresql://user:password@host:port/database?sslmode=require`, or for a string
    /// of keywords and values. [`tokio_postgres::Config`] documents both.
    ///
    /// Some options of libpq are translated: `sslmode=verify-full` and `verify-ca` are read as `require`, because the
    /// certificate and the server's name are always verified. `sslrootcert` names a file of [root
    /// certificates](Self::root_certificates), or `system` for the public ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if it is neither, if an option is not supported, or if the file of root
    /// certificates cannot be read.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let Url { text, root_certificates } = url::translated(url)?;
        let config = Self::new(text.parse().map_err(|_| url::unreadable(&text))?);
        match root_certificates {
            Some(file) => config.root_certificates_of(&file),
            None => Ok(config),
        }
    }

    #[cfg(feature = "postgres-tls")]
    fn root_certificates_of(self, file: &str) -> Result<Self, Error> {
        let pem = std::fs::read(file).map_err(|error| {
            Error::config(format!("the file `{file}` that `sslrootcert` names cannot be read")).with_source(error)
        })?;
        Ok(self.root_certificates(pem))
    }

    #[cfg(not(feature = "postgres-tls"))]
    fn root_certificates_of(self, _file: &str) -> Result<Self, Error> {
        Err(Error::config("`sslrootcert` asks for TLS: build with the feature `postgres-tls`"))
    }

    /// Creates the settings for the URL in the environment variable `POSTGRES_URL`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the variable is missing, empty or cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Self::from_url(&url),
            _ => Err(Error::config(format!("set the environment variable {URL_VARIABLE} to the URL of the database"))),
        }
    }

    /// Sets the value of the column `scope` in this store's records. Stores with different scopes share only the table,
    /// which may be partitioned by scope.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets the name of the table. It is quoted, so it is case-sensitive.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table.table = table.into();
        self
    }

    /// Sets the schema of the table.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.table.schema = Some(schema.into());
        self
    }

    /// Sets the maximum number of connections that the store opens. It opens one when a call finds none idle. A call
    /// that finds all in use waits for up to 2 s.
    ///
    /// A Lambda execution environment uses one connection for one request at a time, and up to three for a batch,
    /// because claims, settles and polls overlap. A small pool, such as 2, limits the share of the server's
    /// `max_connections` that a function's execution environments take, and at worst makes one call of a batch wait for
    /// another. A service with many concurrent requests needs more.
    ///
    /// A [transaction](super::Transaction) holds a connection from its first statement to its end, so the pool needs
    /// one for each concurrent handler, plus three.
    pub fn pool_size(mut self, size: usize) -> Self {
        self.pool_size = size;
        self
    }

    /// Sets the maximum time to open a connection, from the lookup of the host name to the end of the authentication.
    /// With several hosts it applies to each of them.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the maximum time that a statement waits for a lock, at least 1 ms. 50 to 200 ms is a good value. It also
    /// applies to the statements of [transactions](super::Transaction), and replaces the role's setting. Without either
    /// setting an open transaction on one record blocks whole batches until it ends.
    ///
    /// It is sent as a start-up option, which PgBouncer and RDS Proxy reject. Behind them set it on the role.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// Sets whether [lists](crate::store::listing) use a partial index over the records without a success:
    /// `once_records_open`, which [`migrate`](PostgresStore::migrate) creates if it is missing. A list then reads only
    /// these records, starting with the oldest claim. It is off by default, because each claim and each completion must
    /// change the index, and a completion is then not a HOT update.
    ///
    /// `migrate` blocks writes while it creates the index. For a large table, first run its statement from
    /// [`schema`](PostgresStore::schema) manually with `CONCURRENTLY`. Lists are also correct without the index. They
    /// then read the primary key's index in hash order, and skip the entries of other scopes.
    pub fn listing_index(mut self, enabled: bool) -> Self {
        self.listing_index = enabled;
        self
    }

    /// Fetches the password for each new connection, for passwords that expire. An IAM token for RDS is valid for 15 minutes,
    /// and is needed only while a connection is opened.
    ///
    /// An error of the function is the source of the store's error, which is [`Temporary`](crate::ErrorStatus::Temporary).
    pub fn password<F, R, E>(mut self, password: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.password = Some(Password::new(password));
        self
    }

    /// Trusts these root certificates, in PEM, instead of the public ones. Public trust stores do not contain the
    /// certificates of RDS: <https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem>. The setting implies
    /// `sslmode=require`. The server's name is always verified.
    #[cfg(feature = "postgres-tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self.connection.ssl_mode(tokio_postgres::config::SslMode::Require);
        self
    }

    /// Builds the store. It opens its first connection on demand, or by [`warm_up`](crate::Store::warm_up).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is no host, a name is empty or too long, the pool size is
    /// 0, the lock timeout is shorter than a millisecond or longer than 24 days, the root certificates cannot be read, `sslmode` requires TLS without the feature `postgres-tls`, or TLS has no
    /// cryptography provider.
    pub fn build(mut self) -> Result<PostgresStore, Error> {
        self.table.check()?;
        if self.scope.contains('\0') {
            return Err(Error::config("the scope must not contain a NUL"));
        }
        if self.pool_size == 0 {
            return Err(Error::config("the pool must have room for at least one connection"));
        }
        let hosts = self.connection.get_hosts().len().max(self.connection.get_hostaddrs().len());
        if hosts == 0 {
            return Err(Error::config("the host of the database is missing"));
        }
        if let Some(timeout) = self.lock_timeout {
            let millis = i32::try_from(timeout.as_millis()).ok().filter(|millis| *millis > 0);
            let millis =
                millis.ok_or_else(|| Error::config("the lock timeout must be 1 ms or longer, and at most 24 days"))?;
            let options = self.connection.get_options().map_or(String::new(), |options| format!("{options} "));
            self.connection.options(format!("{options}-c lock_timeout={millis}"));
        }
        // The client applies it to each host, but only until the socket is open.
        self.connection.connect_timeout(self.connect_timeout);
        let tls = tls::connector(&self.connection, self.root_certificates.as_deref())?;
        let manager = Manager {
            config: self.connection,
            tls,
            password: self.password,
            connect_timeout: self.connect_timeout.saturating_mul(u32::try_from(hosts).unwrap_or(u32::MAX)),
            generation: AtomicU64::new(0),
        };
        Ok(PostgresStore {
            connections: Connections::new(manager, self.pool_size)?,
            statements: Arc::new(Statements::new(&self.table, self.listing_index)),
            scope: self.scope.into(),
            clock: None,
            isolation_level: None,
            id: StoreId::unique(),
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("connection", &self.connection)
            .field("scope", &self.scope)
            .field("table", &self.table)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::assert_states;
    use crate::error::ErrorKind;

    fn local() -> Config {
        Config::from_url("postgresql://once@127.0.0.1/postgres").unwrap()
    }

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let connect = CONNECT_TIMEOUT.as_secs();
        assert_states(
            "src/store/postgres/config.rs",
            [
                format!("| [`pool_size`](Self::pool_size) | {POOL_SIZE} |"),
                format!("the URL's `connect_timeout`, or {connect} s |"),
            ],
        );
        assert_states("docs/postgresql.md", [format!("`pool_size` is {POOL_SIZE} by default")]);
    }

    #[test]
    fn an_unusable_configuration_is_refused() {
        let no_host = Config::new(tokio_postgres::Config::new());
        let no_wait = local().lock_timeout(Duration::from_micros(999));
        let no_end = local().lock_timeout(Duration::MAX);
        let names = [local().scope("a\0"), local().table(""), local().schema("")];
        for config in names.into_iter().chain([local().pool_size(0), no_wait, no_end, no_host]) {
            assert_eq!(config.clone().build().unwrap_err().kind(), ErrorKind::Config, "{config:?}");
        }
        assert!(local().build().is_ok());
    }

    #[test]
    fn an_unreadable_url_is_not_quoted() {
        // A password with an unquoted space.
        let error = Config::from_url("host=127.0.0.1 user=once password=pass hunter2=1").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[cfg(feature = "postgres-tls")]
    #[test]
    fn a_missing_file_of_root_certificates_is_named() {
        let error = Config::from_url("postgresql://127.0.0.1/x?sslrootcert=/nowhere/rds.pem").unwrap_err();
        let expected =
            "configure (config): the file `/nowhere/rds.pem` that `sslrootcert` names cannot be read: No such file";
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }

    #[cfg(not(feature = "postgres-tls"))]
    #[test]
    fn tls_needs_its_feature() {
        let config = Config::from_url("postgresql://once@127.0.0.1/postgres?sslmode=require").unwrap();
        assert_eq!(config.build().unwrap_err().kind(), ErrorKind::Config);
        let error = Config::from_url("postgresql://once@127.0.0.1/postgres?sslrootcert=rds.pem").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }

    #[cfg(feature = "postgres-tls")]
    #[test]
    fn root_certificates_are_pem_and_require_tls() {
        for pem in ["", "-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n"] {
            assert_eq!(local().root_certificates(pem).build().unwrap_err().kind(), ErrorKind::Config);
        }
        let mode = local().root_certificates("").connection.get_ssl_mode();
        assert_eq!(mode, tokio_postgres::config::SslMode::Require);
    }
}
