//! One server, with a multiplexed connection that is opened on demand and replaced when it fails.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

use super::{
    error::{is_of_connection, no_password},
    failure::{Failure, Sent},
    shared::{Shared, noticing_drop, within},
};
use crate::{
    clock::{Clock, SystemClock, Timestamp},
    store::remote::password::Password,
};

/// The idle time after which a connection is suspect, because a frozen execution environment does not notice when a
/// server, a proxy or a NAT gateway closes it.
const IDLE: Duration = Duration::from_secs(5);
/// The maximum time to the first response on a suspect connection.
const FIRST_ANSWER: Duration = Duration::from_millis(250);

pub(super) struct Node {
    info: ConnectionInfo,
    /// Host and port, for errors.
    address: Arc<str>,
    password: Option<Password>,
    connect_timeout: Duration,
    response_timeout: Duration,
    connection: Shared<MultiplexedConnection>,
    /// The time of the last response, in milliseconds since 1970, or 0 if a call was dropped without a response since.
    last_answer: AtomicU64,
}

/// The result of an attempt to send a pipeline.
struct Attempt {
    answers: Result<Vec<Value>, Failure>,
    /// Whether the connection was opened for this attempt.
    is_new: bool,
    /// Whether the connection was suspect when the pipeline was sent, which left less time for the response.
    was_suspect: bool,
}

impl Node {
    pub(super) fn new(
        info: ConnectionInfo,
        password: Option<Password>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        let (connection, last_answer) = (Shared::new(), AtomicU64::new(0));
        let address = info.addr().to_string().into();
        Self { info, address, password, connect_timeout, response_timeout, connection, last_answer }
    }

    /// Sends the commands as one pipeline. If an existing connection turns out to be dead, they are sent again on a new
    /// one, so claims and settles may arrive twice.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let first = self.attempt(&pipeline).await;
        let (answers, is_second) = match &first.answers {
            Err(failure) if !first.is_new && failure.sent == Sent::Once && first.may_retry(&failure.error) => {
                (self.attempt(&pipeline).await.answers, true)
            }
            _ => (first.answers, false),
        };
        let failed = |failure: Failure| if is_second { failure.of_retry() } else { failure };
        match answers {
            Ok(values) => {
                values.into_iter().map(|value| value.extract_error().map_err(Failure::sent).map_err(failed)).collect()
            }
            Err(failure) => vec![Err(failed(failure)); count],
        }
    }

    async fn attempt(&self, pipeline: &Pipeline) -> Attempt {
        let lease = match self.connection.get(self.open()).await {
            Ok(lease) => lease,
            Err(error) => {
                let answers = Err(Failure::unsent(error, &self.address));
                return Attempt { answers, is_new: true, was_suspect: false };
            }
        };
        if lease.is_new {
            self.note_response();
        }
        // Asked once, because a concurrent call may be answered in the meantime.
        let was_suspect = self.is_suspect();
        let limit = if was_suspect { FIRST_ANSWER.min(self.response_timeout) } else { self.response_timeout };
        let mut connection = lease.connection.clone();
        connection.set_response_timeout(limit);
        // The caller may have given up before the response timeout because the connection is dead.
        let on_drop = || self.last_answer.store(0, Ordering::Relaxed);
        let answers = noticing_drop(connection.req_packed_commands(pipeline, 0, pipeline.len()), on_drop).await;
        let has_failed = match &answers {
            Ok(values) => values.iter().any(|value| match value {
                Value::ServerError(error) => is_of_connection(&error.clone().into()),
                _ => false,
            }),
            Err(error) => is_of_connection(error),
        };
        if has_failed {
            self.connection.discard(lease.number);
        } else {
            self.note_response();
        }
        Attempt { answers: answers.map_err(Failure::sent), is_new: lease.is_new, was_suspect }
    }

    /// Returns whether the connection may be dead.
    fn is_suspect(&self) -> bool {
        let last = Timestamp::from_millis(self.last_answer.load(Ordering::Relaxed));
        SystemClock.now().since(last) > IDLE
    }

    fn note_response(&self) {
        self.last_answer.store(SystemClock.now().as_millis(), Ordering::Relaxed);
    }

    async fn open(&self) -> Result<MultiplexedConnection, RedisError> {
        // Fetching the password may hang as well.
        within(self.connect_timeout, self.connect()).await
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut info = self.info.clone();
        if let Some(password) = &self.password {
            let password = password.fetch().await.map_err(no_password)?;
            let settings = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(settings);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
    }
}

impl Attempt {
    /// Returns whether the failed call may be sent again. A call that timed out is not, unless its connection was
    /// suspect, because the server may be slow.
    fn may_retry(&self, error: &RedisError) -> bool {
        is_of_connection(error) && (self.was_suspect || !error.is_timeout())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &self.address).finish_non_exhaustive()
    }
}
