//! The Lua scripts, called by their hash.

use std::sync::OnceLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use super::arguments::{MarkName, Name};
use crate::record::{NEWEST_KNOWN_VERSION, RECORD_VERSION};

/// The capacity of a call without an order or a large result.
const ARGUMENTS: usize = 10;
const ARGUMENT_BYTES: usize = 448;

/// Declares that the script writes, so that a replica rejects it as a whole, and that it runs without free memory. A
/// script without such a line is always started, and the server then rejects a write that needs memory, unless another
/// write came before it.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";

const COMMON: &str = include_str!("common.lua");
const INDEX: &str = include_str!("index.lua");
const MARK: &str = include_str!("mark.lua");

/// A script that changes one record, and its variants.
pub(super) struct Script {
    first_line: &'static str,
    body: &'static str,
    /// By [`Variant::number`].
    texts: [OnceLock<Text>; 4],
}

/// The keys that a script changes in addition to the record.
#[derive(Clone, Copy)]
pub(super) struct Variant {
    /// The mark of the operation's entity.
    pub(super) is_ordered: bool,
    /// The index for lists.
    pub(super) is_indexed: bool,
}

impl Variant {
    fn number(self) -> usize {
        usize::from(self.is_ordered) + 2 * usize::from(self.is_indexed)
    }
}

pub(super) static CLAIM: Script = Script::new("", include_str!("claim.lua"));
pub(super) static SETTLE: Script = Script::new(ALLOW_OOM, include_str!("settle.lua"));
pub(super) static AMEND: Script = Script::new(ALLOW_OOM, include_str!("amend.lua"));
/// Has no variants, because it changes only a mark.
pub(super) static RESOLVE: Script = Script::new(ALLOW_OOM, include_str!("resolve.lua"));

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
        Self { first_line, body, texts: [const { OnceLock::new() }; 4] }
    }

    /// Returns the text, which is built and hashed at the first call.
    fn text(&self, variant: Variant) -> &Text {
        self.texts[variant.number()].get_or_init(|| {
            let versions =
                format!("local VERSION, NEWEST_KNOWN_VERSION = '{RECORD_VERSION}', {NEWEST_KNOWN_VERSION}\n");
            let index = if variant.is_indexed { INDEX } else { "" };
            let mark = if variant.is_ordered { [&versions, MARK] } else { [""; 2] };
            Text::new(&[self.first_line, COMMON, index, mark[0], mark[1], self.body])
        })
    }

    /// Starts a call on the record of this name. The caller adds the arguments.
    pub(super) fn call(&self, by: By, name: Name<'_>, variant: Variant) -> Cmd {
        let mut command = self.command(by, variant);
        let (mark, index) = (name.mark(), name.index());
        command.arg(1 + usize::from(variant.is_ordered) + usize::from(variant.is_indexed)).arg(name);
        if variant.is_ordered {
            command.arg(mark);
        }
        if variant.is_indexed {
            command.arg(index);
        }
        command
    }

    /// Starts a call on the mark of this name alone. The caller adds the arguments.
    pub(super) fn call_on_mark(&self, by: By, name: MarkName<'_>) -> Cmd {
        let mut command = self.command(by, Variant { is_ordered: false, is_indexed: false });
        command.arg(1).arg(name);
        command
    }

    fn command(&self, by: By, variant: Variant) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, ARGUMENT_BYTES);
        let script = self.text(variant);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&script.hash),
            By::Text => command.arg("EVAL").arg(&script.text),
        };
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
