//! The Lua scripts, called by their hash.

use std::sync::OnceLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use super::arguments::Name;
use crate::record::{NEWEST_KNOWN_VERSION, RECORD_VERSION};

/// The capacity of a call without an order or a large result.
const ARGUMENTS: usize = 10;
const ARGUMENT_BYTES: usize = 448;

/// Declares that the script writes, so that a replica rejects it as a whole, and that it runs without free memory. A
/// script without such a line is always started, and the server then rejects a write that needs memory, unless another
/// write came before it.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";

const COMMON: &str = include_str!("common.lua");
const MARK: &str = include_str!("mark.lua");

/// A script that changes one record, and its variant for ordered operations, which also changes the entity's mark.
pub(super) struct Script {
    first_line: &'static str,
    body: &'static str,
    plain: OnceLock<Text>,
    ordered: OnceLock<Text>,
}

pub(super) static CLAIM: Script = Script::new("", include_str!("claim.lua"));
pub(super) static SETTLE: Script = Script::new(ALLOW_OOM, include_str!("settle.lua"));
pub(super) static AMEND: Script = Script::new(ALLOW_OOM, include_str!("amend.lua"));

struct Text {
    text: String,
    hash: String,
}

/// The identification of a script in a call.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// By its hash, which the server accepts if it has received the text since its start and since the last
    /// `SCRIPT FLUSH`.
    Hash,
    /// By its text, which the server caches.
    Text,
}

impl Script {
    const fn new(first_line: &'static str, body: &'static str) -> Self {
        Self { first_line, body, plain: OnceLock::new(), ordered: OnceLock::new() }
    }

    /// Returns the text, which is built and hashed at the first call.
    fn text(&self, is_ordered: bool) -> &Text {
        let Self { first_line, body, .. } = self;
        if is_ordered {
            let versions =
                format!("local VERSION, NEWEST_KNOWN_VERSION = '{RECORD_VERSION}', {NEWEST_KNOWN_VERSION}\n");
            self.ordered.get_or_init(|| Text::new(&[first_line, COMMON, &versions, MARK, body]))
        } else {
            self.plain.get_or_init(|| Text::new(&[first_line, COMMON, body]))
        }
    }

    /// Starts a call on the record of this name. The caller adds the arguments.
    pub(super) fn call(&self, by: By, name: Name<'_>, is_ordered: bool) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, ARGUMENT_BYTES);
        let script = self.text(is_ordered);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&script.hash),
            By::Text => command.arg("EVAL").arg(&script.text),
        };
        if is_ordered {
            let mark = name.mark();
            command.arg(2).arg(name).arg(mark);
        } else {
            command.arg(1).arg(name);
        }
        command
    }
}

impl Text {
    fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// Returns whether the error means that the server does not have the script.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
