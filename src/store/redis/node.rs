//! One server: a multiplexed connection that is opened when it is needed and replaced when it is of no more use.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Mutex;

use super::{config::Password, error::is_of_connection, link::Failure};
use crate::{
    clock::{Clock, SystemClock, Timestamp},
    error::BoxError,
};

/// A connection that has been idle for longer may be dead without either end knowing: a frozen sandbox misses what a
/// server, a proxy or a NAT gateway says when it closes it.
const IDLE: Duration = Duration::from_secs(5);
/// How long such a connection has for its first answer.
const FIRST_ANSWER: Duration = Duration::from_millis(250);

pub(super) struct Node {
    info: ConnectionInfo,
    password: Option<Password>,
    connect_timeout: Duration,
    response_timeout: Duration,
    state: Mutex<State>,
    /// How often a connection was opened, or could not be.
    attempts: AtomicU64,
    /// When a server last answered, in milliseconds.
    last_answer: AtomicU64,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// Why the last attempt to connect failed, if it did.
    failure: Option<RedisError>,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    /// The attempt that opened it.
    number: u64,
}

impl Node {
    pub(super) fn new(
        info: ConnectionInfo,
        password: Option<Password>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        let (state, attempts, last_answer) = <_>::default();
        Self { info, password, connect_timeout, response_timeout, state, attempts, last_answer }
    }

    /// Sends the commands as one pipeline. If an earlier connection turns out to be dead they are sent again on a new one:
    /// claims and settles may arrive twice.
    pub(super) async fn send(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let before = self.attempts.load(Ordering::Acquire);
        let mut answers = self.attempt(&pipeline).await;
        let is_old = self.attempts.load(Ordering::Acquire) == before;
        if is_old && matches!(&answers, Err(failure) if !failure.is_unsent && self.may_repeat(&failure.error)) {
            answers = self.attempt(&pipeline).await;
        }
        match answers {
            Ok(values) => values.into_iter().map(|value| value.extract_error().map_err(Failure::sent)).collect(),
            Err(failure) => vec![Err(failure); count],
        }
    }

    /// A server that takes longer than a call may is not asked twice, unless its connection may be dead.
    fn may_repeat(&self, error: &RedisError) -> bool {
        is_of_connection(error) && (self.was_idle() || !error.is_timeout())
    }

    async fn attempt(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        let Live { mut connection, number } = self.live().await.map_err(Failure::unsent)?;
        connection.set_response_timeout(if self.was_idle() {
            FIRST_ANSWER.min(self.response_timeout)
        } else {
            self.response_timeout
        });
        let answers = connection.req_packed_commands(pipeline, 0, pipeline.len()).await;
        let is_of_no_use = match &answers {
            Ok(values) => values
                .iter()
                .any(|value| matches!(value, Value::ServerError(error) if is_of_connection(&error.clone().into()))),
            Err(error) => is_of_connection(error),
        };
        if is_of_no_use {
            self.discard(number).await;
        } else {
            self.last_answer.store(SystemClock.now().as_millis(), Ordering::Relaxed);
        }
        answers.map_err(Failure::sent)
    }

    fn was_idle(&self) -> bool {
        let last = Timestamp::from_millis(self.last_answer.load(Ordering::Relaxed));
        SystemClock.now().since(last) > IDLE
    }

    /// The connection, opened if there is none. Calls that wait for an attempt share its failure.
    async fn live(&self) -> Result<Live, RedisError> {
        let before = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some(live) = &state.live {
            return Ok(live.clone());
        }
        if let (Some(failure), true) = (&state.failure, self.attempts.load(Ordering::Acquire) > before) {
            return Err(failure.clone());
        }
        let opened = self.open().await;
        let number = self.attempts.fetch_add(1, Ordering::AcqRel) + 1;
        match opened {
            Ok(connection) => {
                self.last_answer.store(SystemClock.now().as_millis(), Ordering::Relaxed);
                let live = Live { connection, number };
                *state = State { live: Some(live.clone()), failure: None };
                Ok(live)
            }
            Err(error) => {
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn open(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut info = self.info.clone();
        if let Some(password) = &self.password {
            let password = password().await.map_err(password_error)?;
            let settings = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(settings);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn discard(&self, number: u64) {
        let mut state = self.state.lock().await;
        if state.live.as_ref().is_some_and(|live| live.number == number) {
            state.live = None;
        }
    }
}

pub(super) fn password_error(error: BoxError) -> RedisError {
    (redis::ErrorKind::AuthenticationFailed, "the password could not be fetched", error.to_string()).into()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &self.info.addr().to_string()).finish_non_exhaustive()
    }
}
