//! The Lua scripts, called by their hash.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use super::arguments::Name;

/// Room for a call without a large result.
const ARGUMENTS: usize = 16;
const ARGUMENT_BYTES: usize = 384;

/// A script that works on one key.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

pub(super) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));
pub(super) static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("settle.lua")));

/// How a call names its script.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// Its hash: short, and unknown to a server that has not seen the text since its start or its last `SCRIPT FLUSH`.
    Hash,
    /// Its text, which the server remembers.
    Text,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// A call on the record of this name, to which the arguments are added.
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
