//! The command line of `doctor`.

use std::time::Duration;

use clap::Args;

use super::Format;
use crate::{doctor::Severity, time};

/// Without --stack and --function it checks the store alone. Options state what only the code of the functions contains.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The functions of this CloudFormation stack, with their queues, and the stores that their variables name
    #[arg(long = "stack", value_name = "NAME")]
    pub(crate) stacks: Vec<String>,
    /// This function, by its name or ARN, likewise
    #[arg(long = "function", value_name = "NAME")]
    pub(crate) functions: Vec<String>,
    /// The retention of outcomes
    #[arg(long, value_name = "TIME", value_parser = time::parse, default_value = "15d")]
    pub(crate) retention: Duration,
    /// The longest time between the first send of a message and its redrive from the dead-letter queue
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) redrive_within: Option<Duration>,
    /// The 99th percentile of a handler's duration: 800ms, 2s
    #[arg(long, value_name = "TIME", value_parser = time::parse_precise)]
    pub(crate) p99: Option<Duration>,
    /// The handlers that run concurrently in a batch
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrency: u32,
    /// The reserve, if the functions set it: 500ms, 2s
    #[arg(long, value_name = "TIME", value_parser = time::parse_precise)]
    pub(crate) reserve: Option<Duration>,
    /// The lease of operations without a deadline, if the functions have such
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) lease: Option<Duration>,
    /// The home Region of a global table, if it is not in the function's variable HOME_REGION
    #[arg(long, value_name = "REGION")]
    pub(crate) home_region: Option<String>,
    /// Only findings that are at least this severe
    #[arg(long, value_enum, default_value_t = Severity::Note)]
    pub(crate) severity: Severity,
    #[command(flatten)]
    pub(crate) format: Format,
}
