//! The command line of `order`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use lambda_once::order::Sequence;

use super::{Format, How};
use crate::time;

#[derive(Debug, Subcommand)]
pub(crate) enum OrderCommand {
    /// Explains the order of an entity: the newest operation, its holder, the operations in doubt, and the possible
    /// actions
    Show(OrderShow),
    /// Ends doubt, after you have looked up the effect, so that older operations continue
    Clear(OrderClear),
}

/// An entity, by its key or its id.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["entity", "id"])))]
pub(crate) struct OneEntity {
    /// The name of the operations, or the kind of a service, such as sqs
    #[arg(long, value_name = "NAME", requires = "entity")]
    pub(crate) operation: Option<String>,
    /// The entity: text, or JSON for one that is not text
    #[arg(long, value_name = "VALUE", requires = "operation")]
    pub(crate) entity: Option<String>,
    /// The hash of the entity, which logs have as `entity`, or the id of one of its operations
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct OrderShow {
    #[command(flatten)]
    pub(crate) one: OneEntity,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("statement").required(true).args(["no_effect", "took_effect"])))]
pub(crate) struct OrderClear {
    #[command(flatten)]
    pub(crate) one: OneEntity,
    /// No run of the operation took effect, and none can any more: older operations run, and so can the operation
    #[arg(long)]
    pub(crate) no_effect: bool,
    /// The operation took effect: operations up to its sequence are superseded
    #[arg(long)]
    pub(crate) took_effect: bool,
    /// The sequence of the operation, if several are in doubt
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub(crate) sequence: Option<Sequence>,
    /// All operations in doubt; with --took-effect, all up to the newest of them
    #[arg(long)]
    pub(crate) all: bool,
    /// The time for which the mark is kept at least, from now on
    #[arg(long, value_name = "TIME", value_parser = time::parse, default_value = "15d")]
    pub(crate) retention: Duration,
    #[command(flatten)]
    pub(crate) how: How,
}
