//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::time;

/// Shows and lists the records of lambda-once.
///
/// Exit codes: 0 all done; 1 something was not as asked: no such record; 2 wrong usage or
/// settings, or the store could not be reached.
#[derive(Debug, Parser)]
#[command(name = "lambda-once", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Store and settings")]
pub(crate) struct Options {
    /// The store: dynamodb://TABLE[?region=…&endpoint=…&index=true], redis://…, rediss://… [?cluster=true] or
    /// postgres://…[?schema=…&table=…]. Default: lambda-once.toml, else IDEMPOTENCY_TABLE, REDIS_URL or POSTGRES_URL
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The prefix of ids, if the function sets one; in PostgreSQL the value of the column `scope`
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// The scope of keys: that of `Idempotency::builder(…).scope(…)`, else the function's name
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) scope: Option<String>,
    /// The name of the `Idempotency` value, if it is named
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The skew margin of the function, if it is not 1 s
    #[arg(long, global = true, value_name = "TIME", value_parser = time::parse)]
    pub(crate) margin: Option<Duration>,
    /// The file of settings, instead of lambda-once.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explains one record: what happened, what a retry gets, and what may be done
    Show(Show),
    /// Lists operations without a success on record
    List(List),
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["id", "hash", "key"])))]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) one: One,
    /// The hash of the key, which logs have as `key`
    #[arg(long, value_name = "HASH")]
    pub(crate) hash: Option<String>,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the stored result, or the text of the failure
    #[arg(long)]
    pub(crate) show_result: bool,
}

/// One record, by its id or its key.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct One {
    /// The name of the operation, or the kind of a service, such as sqs
    #[arg(long, value_name = "NAME", requires = "key")]
    pub(crate) operation: Option<String>,
    /// The key: text, or JSON for one that is not text
    #[arg(long, value_name = "VALUE", requires = "operation")]
    pub(crate) key: Option<String>,
    /// The entity of an ordered operation, as --key
    #[arg(long, value_name = "VALUE", requires = "key")]
    pub(crate) entity: Option<String>,
    /// The id, as lists, logs and the store show it
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// The state of the operations
    #[arg(long, value_enum, default_value_t = State::Abandoned)]
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Prints one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// Claimed, but the lease has ended without an outcome
    Abandoned,
    /// Claimed, and the lease has not ended
    Running,
    /// Failed permanently
    Failed,
    /// Not listed by any store
    #[value(hide = true)]
    Done,
}

/// Narrows a list down.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only operations of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,
    /// Only operations with exactly this label
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Only operations that were claimed at least this long ago: 90s, 10m, 2h, 3d
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) older_than: Option<Duration>,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn is_accepted(line: &str) -> bool {
        Cli::try_parse_from(std::iter::once("lambda-once").chain(line.split(' '))).is_ok()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_record_is_named_in_one_way() {
        for accepted in ["show --operation charge --key 7", "show --hash aa --store dynamodb://t"] {
            assert!(is_accepted(accepted), "{accepted}");
        }
        for refused in ["show", "show --operation charge", "show --hash aa --id bb", "list --limit 0"] {
            assert!(!is_accepted(refused), "{refused}");
        }
    }
}
