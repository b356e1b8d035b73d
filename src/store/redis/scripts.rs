//! The Lua scripts, called by their hash.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use super::arguments::Name;

/// The capacity of a call without a large result.
const ARGUMENTS: usize = 16;
const ARGUMENT_BYTES: usize = 384;

/// A script that changes one record.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

pub(super) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));
pub(super) static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("settle.lua")));

/// How a call identifies its script.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// By its hash. A server knows the hash if it has seen the text since its start and since the last `SCRIPT FLUSH`.
    Hash,
    /// By its text, which the server caches.
    Text,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// Begins a call on the record of this name. The caller adds the arguments.
    pub(super) fn call(&self, by: By, name: Name<'_>) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, ARGUMENT_BYTES);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&self.hash),
            By::Text => command.arg("EVAL").arg(self.text),
        };
        command.arg(1).arg(name);
        command
    }
}

/// Whether the server does not know the script.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
