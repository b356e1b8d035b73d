//! `lambda-once dlq`, which lists the messages of a dead-letter queue, and redrives them.

mod examine;
pub(crate) mod message;
mod plan;
mod queue;
mod reader;
mod redrive;
mod refusal;
pub(crate) mod selector;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use lambda_once::clock::{Clock, SystemClock, Timestamp};

pub(crate) use selector::Selector;

use self::{
    examine::{Examined, Examiner},
    queue::Queue,
    reader::Reader,
};
use crate::{
    args::{self, Dlq, DlqFilter, Output},
    aws,
    doctor::{Account, DeadLetters, Function, Source},
    output::{self, Ending, Usage},
    pace::Pace,
    settings::Settings,
    sqs, store,
    text::{columns, json, plain},
};

/// The rate of receives, which change nothing.
const READS_PER_SECOND: u32 = 1_000;
/// A number of messages that fits on a few screens. JSON is not limited by default.
const DEFAULT_LIMIT: u64 = 100;

/// A limit of lists and dry runs. A message that is moved makes room for the next of its group.
const FIFO_NOTE: &str = "a FIFO queue shows at most the first ten messages of each group";

/// Runs a command.
///
/// # Errors
///
/// Returns the errors of AWS and of the store.
pub(crate) async fn run(command: args::DlqCommand, settings: Settings, is_store_given: bool) -> Result<Ending> {
    match command {
        args::DlqCommand::List(list) => {
            let target = Target::open(&list.dlq, settings, is_store_given).await?;
            self::list(list, &target).await
        }
        args::DlqCommand::Redrive(redrive) => {
            let target = Target::open(&redrive.dlq, settings, is_store_given).await?;
            redrive::run(redrive, &target).await
        }
    }
}

/// A dead-letter queue, and the settings of the function behind its source.
struct Target {
    queue: Queue,
    /// The URLs of the sources that a function has named.
    sources: Vec<String>,
    settings: Settings,
}

impl Target {
    async fn open(dlq: &Dlq, settings: Settings, is_store_given: bool) -> Result<Self> {
        let target = Self::find(dlq, settings, is_store_given).await?;
        if !dlq.allow_redrive_policy && target.queue.has_redrive_policy().await? {
            let why = "has a redrive policy itself, and may be the source: each reading counts as a receive, and can move its messages \
                       onward. Choose the dead-letter queue, or give --allow-redrive-policy";
            return Err(Usage(format!("{} {why}", target.queue.url)).into());
        }
        Ok(target)
    }

    async fn find(dlq: &Dlq, settings: Settings, is_store_given: bool) -> Result<Self> {
        let client = sqs::client(&aws::config().await);
        if let Some(queue) = &dlq.queue {
            let url = sqs::url(&client, queue).await?.with_context(|| format!("there is no queue {queue}"))?;
            return Ok(Self { queue: Queue { client, url }, sources: Vec::new(), settings });
        }
        let account = Account::open().await;
        let names = match (&dlq.function, &dlq.stack) {
            (Some(function), _) => vec![function.clone()],
            (None, Some(stack)) => account.functions_of(stack).await?,
            (None, None) => unreachable!("the command line has one of them"),
        };
        // Each dead-letter queue, with its function and the sources of the function.
        let mut found: Vec<(String, Function, Vec<String>)> = Vec::new();
        let mut functions = Vec::new();
        for name in names {
            functions.extend(account.functions(&name).await?);
        }
        // Any of these may be the queue, or lead to it.
        let mut unreadable: Vec<_> = functions.iter().flat_map(Function::unreadable).collect();
        // A function and its alias can share a queue.
        unreadable.sort();
        unreadable.dedup();
        ensure!(
            unreadable.is_empty(),
            "the dead-letter queue cannot be determined: {}; give --queue",
            unreadable.join("; ")
        );
        for function in &functions {
            for mapping in &function.mappings {
                if let Source::Queue(queue) = &mapping.source
                    && let Some(DeadLetters::Found { url, .. }) = queue.redrive.as_ref().map(|redrive| &redrive.target)
                {
                    // If a function and its alias share the queue, the function's settings apply.
                    let is_same =
                        |of: &Function| of.arn == function.arn || of.qualifier.is_none() && of.name == function.name;
                    match found.iter_mut().find(|(known, of, _)| known == url && is_same(of)) {
                        Some((.., sources)) => sources.push(queue.url.clone()),
                        None => found.push((url.clone(), function.clone(), vec![queue.url.clone()])),
                    }
                }
            }
        }
        match &found[..] {
            [(url, function, sources)] => Ok(Self {
                queue: Queue { client, url: url.clone() },
                sources: sources.clone(),
                settings: settings.of_function(&function.name, &function.variables, is_store_given)?,
            }),
            [] => Err(Usage("no dead-letter queue was found: give --queue".to_owned()).into()),
            [(url, ..), others @ ..] if others.iter().all(|(other, ..)| other == url) => {
                let functions: Vec<_> = found.iter().map(|(_, of, _)| of.resource()).collect();
                let why = "belongs to several functions; choose one by --function";
                Err(Usage(format!("{url} {why}: {}", functions.join(", "))).into())
            }
            _ => {
                let places: Vec<_> = found.iter().map(|(url, of, _)| format!("{url} of {}", of.resource())).collect();
                let why = "there are several dead-letter queues; choose by --function or --queue";
                Err(Usage(format!("{why}: {}", places.join(", "))).into())
            }
        }
    }
}

async fn list(list: args::DlqList, target: &Target) -> Result<Ending> {
    let output = list.format.output();
    let default_limit = matches!(output, Output::Human | Output::Table).then_some(DEFAULT_LIMIT);
    let limit = list.filter.limit.or(default_limit);
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut messages = Vec::new();
    let is_interrupted = survey(&list.dlq, target, |_, received| {
        let now = SystemClock.now();
        messages.extend(received.into_iter().filter(|message| is_selected(message, &list.filter, now)));
        messages.len() < limit
    });
    let is_interrupted = is_interrupted.await?;
    let is_cut = messages.len() >= limit;
    messages.truncate(limit);
    let now = SystemClock.now();
    match output {
        Output::Human | Output::Table => {
            if messages.is_empty() {
                eprintln!("no such message");
            } else {
                output::text(&table(messages.iter(), list.show_result, now))?;
            }
        }
        Output::Json => {
            let views: Vec<_> = messages.iter().map(|message| message.view(list.show_result)).collect();
            output::line(&json(&views)?)?;
        }
        Output::Jsonl => {
            for message in &messages {
                output::line(&json(&message.view(list.show_result))?)?;
            }
        }
    }
    if is_cut {
        eprintln!("there may be more: raise --limit, or use --json");
    }
    if target.queue.is_fifo() {
        eprintln!("{FIFO_NOTE}");
    }
    Ok(match messages.len() {
        _ if is_interrupted => Ending::Partly,
        0 => Ending::Nothing,
        _ => Ending::Done,
    })
}

/// Returns a table of messages, with a heading.
fn table<'a>(messages: impl Iterator<Item = &'a Examined>, with_failure: bool, now: Timestamp) -> String {
    let heading = ["STATE", "OPERATION", "KEY", "AGE", "RECEIVES", "MESSAGE", "A REDRIVE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heading)
        .chain(messages.map(|message| message.row(with_failure, now).map(|cell| plain(&cell))))
        .collect();
    columns(&rows)
}

/// Reads the queue until `visit` returns `false`, and leaves all messages in it, visible again. Returns whether it was interrupted.
async fn survey(dlq: &Dlq, target: &Target, visit: impl FnMut(&mut Reader<'_>, Vec<Examined>) -> bool) -> Result<bool> {
    let mut reader = Reader::new(&target.queue, dlq.hold);
    let read = read(dlq, target, visit, &mut reader).await;
    // Also after an error, or nobody sees them for minutes.
    let finished = reader.finish().await;
    let is_interrupted = read?;
    finished?;
    Ok(is_interrupted)
}

async fn read(
    dlq: &Dlq,
    target: &Target,
    mut visit: impl FnMut(&mut Reader<'_>, Vec<Examined>) -> bool,
    reader: &mut Reader<'_>,
) -> Result<bool> {
    let store = store::open_if_known(&target.settings).await?;
    let examiner = Examiner::new(dlq, &target.settings, store.as_deref());
    let mut pace = Pace::new(READS_PER_SECOND);
    loop {
        if !pace.wait().await {
            return Ok(true);
        }
        let received = reader.next().await?;
        if received.is_empty() || !visit(reader, examiner.examine(received).await?) {
            return Ok(false);
        }
    }
}

fn is_selected(examined: &Examined, filter: &DlqFilter, now: Timestamp) -> bool {
    (filter.states.is_empty() || filter.states.iter().any(|state| is_named(*state, examined.state())))
        && (filter.reasons.is_empty()
            || examined.message.reason().is_some_and(|reason| filter.reasons.iter().any(|wanted| wanted == reason)))
        && filter.older_than.is_none_or(|age| examined.age(now) >= age)
        && filter.only_operation.as_deref().is_none_or(|operation| examined.operation_name() == Some(operation))
}

/// Returns whether the command line has this name for a state.
fn is_named(state: args::DlqState, name: &str) -> bool {
    state.to_possible_value().is_some_and(|value| value.get_name() == name)
}
