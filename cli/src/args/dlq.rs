//! The command line of `dlq`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::{Format, How};
use crate::{dlq::Selector, time};

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// Lists messages, with the states of their operations and the effect of a redrive
    List(DlqList),
    /// Moves messages to their source queue
    Redrive(DlqRedrive),
}

#[derive(Args, Debug)]
pub(crate) struct DlqList {
    #[command(flatten)]
    pub(crate) dlq: Dlq,
    #[command(flatten)]
    pub(crate) filter: DlqFilter,
    /// Prints the texts of recorded failures
    #[arg(long)]
    pub(crate) show_result: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
pub(crate) struct DlqRedrive {
    #[command(flatten)]
    pub(crate) dlq: Dlq,
    #[command(flatten)]
    pub(crate) filter: DlqFilter,
    /// The queue to move messages to, by its URL, ARN or name. Default: the source of the dead-letter queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) to: Option<String>,
    /// Also messages whose key is the message id, or whose key or store is not known: a new message has a new id, so that the effect
    /// can repeat
    #[arg(long)]
    pub(crate) unprotected: bool,
    #[command(flatten)]
    pub(crate) how: How,
}

/// A dead-letter queue, and the keys of its messages.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("where").required(true).args(["queue", "function", "stack"])))]
pub(crate) struct Dlq {
    /// The dead-letter queue, by its URL, ARN or name
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// The dead-letter queue of this function or its aliases, by name or ARN, with :ALIAS for one alias; its variables name the store,
    /// and its name is the scope
    #[arg(long, value_name = "NAME")]
    pub(crate) function: Option<String>,
    /// The only dead-letter queue of this CloudFormation stack, likewise
    #[arg(long, value_name = "NAME")]
    pub(crate) stack: Option<String>,
    /// The key in a message: a JSON Pointer such as /order_id, attribute:NAME or message-id. Several are one composite key
    #[arg(long = "selector", value_name = "SELECTOR")]
    pub(crate) selectors: Vec<Selector>,
    /// The kind of the service
    #[arg(long, value_name = "NAME", default_value = "sqs")]
    pub(crate) operation: String,
    /// Reads a queue that has a redrive policy itself. Reading counts as a receive, and can move messages onward
    #[arg(long)]
    pub(crate) allow_redrive_policy: bool,
    /// The time for which received messages are invisible to others, should the tool be killed. Otherwise they become visible at its
    /// end. At most 12h
    #[arg(long, value_name = "TIME", value_parser = hold, default_value = "5m")]
    pub(crate) hold: Duration,
}

/// The longest visibility timeout of SQS.
const MAX_HOLD: Duration = Duration::from_secs(12 * 60 * 60);

fn hold(text: &str) -> Result<Duration, String> {
    let hold = time::parse(text)?;
    if hold.is_zero() || hold > MAX_HOLD { Err("SQS hides messages for 1s to 12h".to_owned()) } else { Ok(hold) }
}

/// Narrows the messages down.
#[derive(Args, Debug, Default)]
pub(crate) struct DlqFilter {
    /// Only messages whose operation is in this state
    #[arg(long = "state", value_enum)]
    pub(crate) states: Vec<DlqState>,
    /// Only messages with this reason, which `SqsDeadLetters` adds: failed, panicked, cancelled, abandoned, mismatch, …
    #[arg(long = "reason", value_name = "REASON")]
    pub(crate) reasons: Vec<String>,
    /// Only messages that were sent at least this long ago: 90s, 10m, 2h, 3d
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) older_than: Option<Duration>,
    /// Only messages whose record has this operation
    #[arg(long, value_name = "NAME")]
    pub(crate) only_operation: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

/// The states of an operation, as lists print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DlqState {
    /// There is no record
    Absent,
    Running,
    /// Claimed by another library
    Foreign,
    Abandoned,
    Released,
    Failed,
    Done,
    Superseded,
    /// The key or the store is not known
    Unknown,
}
