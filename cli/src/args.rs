//! The command line.

mod dlq;
mod doctor;
mod order;

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

pub(crate) use dlq::{Dlq, DlqCommand, DlqFilter, DlqList, DlqRedrive, DlqState};
pub(crate) use doctor::Doctor;
pub(crate) use order::{OneEntity, OrderClear, OrderCommand, OrderShow};

use crate::time;

/// Shows, lists and repairs the records of lambda-once.
///
/// Exit codes: 0 all done; 1 an error, such as a store that could not be reached; 2 wrong usage or settings; 3 nothing found; 4 not all
/// done; 5 findings of a check.
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
    /// The store: dynamodb://TABLE[?region=…&endpoint=…&index=true], redis://…, rediss://… [?cluster=true or ?index=true] or
    /// postgres://…[?schema=…&table=…&index=true]. Default: lambda-once.toml, else IDEMPOTENCY_TABLE, REDIS_URL or POSTGRES_URL
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The prefix of ids, if the function sets one; in PostgreSQL the value of the column `scope`
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// The scope of keys: the one given to `Idempotency::builder(…).scope(…)`, else the function's name
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) scope: Option<String>,
    /// The name of the `Idempotency` value, if it is named
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The tenant that the key belongs to, of a multi-tenant function
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) tenant: Option<String>,
    /// The skew margin of the function, if it is not 1 s, such as 500ms
    #[arg(long, global = true, value_name = "TIME", value_parser = time::parse_precise)]
    pub(crate) margin: Option<Duration>,
    /// The file of settings, instead of lambda-once.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Refuses every change; so does LAMBDA_ONCE_READ_ONLY=1
    #[arg(long, global = true)]
    pub(crate) read_only: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explains one record: its history, the result of a retry, and the possible actions
    Show(Show),
    /// Lists operations without a success on record
    List(List),
    /// Lets abandoned operations run once more, under every policy
    Release(Change),
    /// Deletes records: the next delivery runs
    Forget(Forget),
    /// Records the outcome of an abandoned operation
    Settle(Settle),
    /// Removes the results and labels of operations that are done or have failed
    Redact(Change),
    /// The order of the operations of an entity
    #[command(subcommand)]
    Order(OrderCommand),
    /// Finds misconfigurations of functions, queues and stores, and changes nothing
    Doctor(Doctor),
    /// The messages of a dead-letter queue
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// The table in DynamoDB
    #[command(subcommand)]
    Table(Table),
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

/// One record, by its key.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ByKey {
    /// The name of the operation, or the kind of a service, such as sqs
    #[arg(long, value_name = "NAME", requires = "key")]
    pub(crate) operation: Option<String>,
    /// The key: text, or JSON for one that is not text
    #[arg(long, value_name = "VALUE", requires = "operation")]
    pub(crate) key: Option<String>,
    /// The entity of an ordered operation, as --key
    #[arg(long, value_name = "VALUE", requires = "key")]
    pub(crate) entity: Option<String>,
}

/// One record, by its id or its key.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct One {
    #[command(flatten)]
    pub(crate) by_key: ByKey,
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

/// The records to change: ids, one key, or a filter.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).multiple(true)
    .args(["ids", "operation", "key", "label", "older_than", "all"])))]
pub(crate) struct Change {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Which {
    /// Ids, as lists, logs and the store show them
    #[arg(value_name = "ID", conflicts_with_all = ["operation", "key", "label", "older_than", "limit", "all"])]
    pub(crate) ids: Vec<String>,
    /// With --operation: the record of this key
    #[arg(long, value_name = "VALUE", requires = "operation", conflicts_with_all = ["label", "older_than", "limit", "all"])]
    pub(crate) key: Option<String>,
    /// The entity of an ordered operation, as --key
    #[arg(long, value_name = "VALUE", requires = "key")]
    pub(crate) entity: Option<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// All that the command applies to
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).multiple(true)
    .args(["ids", "operation", "key", "label", "older_than", "all"])))]
pub(crate) struct Forget {
    #[command(flatten)]
    pub(crate) which: Which,
    /// With a filter: the state of the records to delete
    #[arg(long, value_enum, conflicts_with_all = ["ids", "key"])]
    pub(crate) state: Option<State>,
    /// Also a record of an operation that is done, by its id or key: it can take effect again
    #[arg(long)]
    pub(crate) done: bool,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["id", "key"])))]
#[command(group(ArgGroup::new("outcome").required(true).args(["result", "no_result", "failed"])))]
pub(crate) struct Settle {
    /// The id, as lists, logs and the store show it
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) by_key: ByKey,
    /// It took effect, with the result in this file of JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// It took effect; duplicates get no result
    #[arg(long)]
    pub(crate) no_result: bool,
    /// It failed permanently, for this reason, which duplicates get
    #[arg(long, value_name = "TEXT")]
    pub(crate) failed: Option<String>,
    /// The retention of the outcome. Default: the retention that the claim set, or 15 days if that is longer
    #[arg(long, value_name = "TIME", value_parser = retention)]
    pub(crate) retention: Option<Duration>,
    #[command(flatten)]
    pub(crate) how: How,
}

fn retention(text: &str) -> Result<Duration, String> {
    let retention = time::parse(text)?;
    if retention.is_zero() { Err("an outcome is kept for 1s or longer".to_owned()) } else { Ok(retention) }
}

/// Options of the commands that change records.
#[derive(Args, Clone, Debug)]
pub(crate) struct How {
    /// Does not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only prints what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// At most so many changes a second
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Appends the audit lines to this file, instead of writing them to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
}

/// The form of the output.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Format {
    /// The form of the output
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Output::Human)]
    output: Output,
    /// As --output jsonl
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl Format {
    pub(crate) fn output(self) -> Output {
        if self.json { Output::Jsonl } else { self.output }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text with reasons and fixes
    Human,
    /// One row each
    Table,
    /// One JSON object
    Json,
    /// One JSON object a line
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Table {
    /// Checks the key, TTL and the index for lists
    Check,
    /// Prints an IAM policy; needs no access to AWS
    Policy {
        /// For whom
        #[arg(value_enum)]
        role: Role,
        /// The number of the AWS account
        #[arg(long, value_name = "NUMBER", default_value = "*")]
        account: String,
        /// Also for ordered operations
        #[arg(long)]
        ordered: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// The function
    Function,
    /// An operator who uses this tool
    Operator,
    /// An operator who only looks
    Reader,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn is_accepted(line: &str) -> bool {
        Cli::try_parse_from(line.split(' ')).is_ok()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn missing_or_conflicting_arguments_are_refused() {
        for accepted in [
            "lambda-once release aa",
            "lambda-once release aa bb --yes",
            "lambda-once release --all --margin 500ms",
            "lambda-once release --operation charge",
            "lambda-once release --operation charge --key 7",
            "lambda-once forget --all --state failed",
            "lambda-once settle aa --no-result",
            "lambda-once settle --operation charge --key 7 --failed declined",
            "lambda-once settle aa --no-result --retention 1s",
            "lambda-once show --operation charge --key 7",
            "lambda-once show --hash aa --store dynamodb://t",
            "lambda-once order show --operation apply --entity a --output jsonl",
            "lambda-once order clear --id aa --no-effect --sequence 7 --yes",
            "lambda-once order clear --id aa --took-effect --all",
            "lambda-once dlq list --queue q --selector /id --state failed --state done",
            "lambda-once dlq redrive --function f --to q --yes --limit 10",
            "lambda-once doctor --stack s --function f --function g --p99 800ms --output json",
        ] {
            assert!(is_accepted(accepted), "{accepted}");
        }
        for refused in [
            "lambda-once release",
            "lambda-once release aa --all",
            "lambda-once release --key 7",
            "lambda-once release --operation charge --key 7 --older-than 1h",
            "lambda-once forget aa --state failed",
            "lambda-once settle aa",
            "lambda-once settle aa --no-result --failed declined",
            "lambda-once settle --no-result",
            "lambda-once settle aa --no-result --retention 0s",
            "lambda-once show",
            "lambda-once show --operation charge",
            "lambda-once show --hash aa --id bb",
            "lambda-once list --limit 0",
            "lambda-once release aa --rate 0",
            "lambda-once order show --entity a",
            "lambda-once order clear --id aa",
            "lambda-once order clear --id aa --no-effect --took-effect",
            "lambda-once order clear --id aa --no-effect --sequence 7 --all",
            "lambda-once order clear --id aa --no-effect --sequence seven",
            "lambda-once doctor --concurrency 0",
            "lambda-once dlq list",
            "lambda-once dlq list --queue q --function f",
            "lambda-once dlq redrive --queue q --selector order_id",
            "lambda-once doctor --json --output table",
        ] {
            assert!(!is_accepted(refused), "{refused}");
        }
    }
}
