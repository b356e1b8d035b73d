//! `dlq redrive`: sends each message to another queue, and deletes it only after SQS has accepted it.

use std::{
    collections::HashSet,
    fmt,
    io::{self, Write},
};

use anyhow::{Context, Result, bail};
use lambda_once::clock::{Clock, SystemClock};
use serde::Serialize;

use super::{
    FIFO_NOTE, Target,
    examine::{Examined, Examiner},
    message::Message,
    plan::{BEHIND, Plan, Rules, Verdict},
    queue::{BATCH, Cause, Queue, Unsent},
    reader::Reader,
    refusal::Refusal,
    table,
};
use crate::{
    args::DlqRedrive,
    audit::{Audit, Entry, Outcome},
    confirm::{check_terminal, is_confirmed},
    output::{self, Ending, Usage},
    pace::Pace,
    sqs, store,
};

const ACTION: &str = "redrive";
const INTERRUPTED: &str = "interrupted";
const FAILING: &str = "stopped, because none of the last ones was moved";
/// The total size of a batch that every Region accepts. A larger message goes alone.
const MAX_BATCH_BYTES: usize = 256 * 1024;
/// The number of failed batches in a row after which a redrive stops.
const MAX_FAILURES: usize = 3;

/// The number of messages for each outcome.
#[derive(Debug, Default)]
struct Made {
    moved: usize,
    copied: usize,
    failed: usize,
    refused: usize,
    /// Refused, because another queue than the destination has dead-lettered it.
    foreign: usize,
    /// Selected, and behind a message of a FIFO queue that stays.
    behind: usize,
    /// Moved, and dead-lettered again.
    returned: usize,
    /// Why it ended before the queue did.
    stopped: Option<&'static str>,
}

impl Made {
    fn ending(&self) -> Ending {
        let left = self.refused + self.foreign + self.behind + self.returned;
        match (self.moved, self.copied + self.failed + left) {
            (_, 1..) => Ending::Partly,
            _ if self.stopped.is_some() => Ending::Partly,
            (0, 0) => Ending::Nothing,
            _ => Ending::Done,
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ACTION}: {} moved", self.moved)?;
        for (count, what) in [
            (self.copied, "sent, but not deleted"),
            (self.failed, "failed"),
            (self.refused, "refused"),
            (self.foreign, "skipped, because of another source"),
            (self.returned, "dead-lettered again, and left"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.behind > 0 {
            write!(f, ", {} left {BEHIND}", self.behind)?;
        }
        self.stopped.map_or(Ok(()), |why| write!(f, ", {why}"))
    }
}

/// The message of an audit line.
#[derive(Debug, Serialize)]
struct Move<'a> {
    from: &'a str,
    to: &'a str,
    /// The id of the sent message.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    state: &'static str,
}

pub(super) async fn run(redrive: DlqRedrive, target: &Target) -> Result<Ending> {
    if !redrive.how.dry_run {
        target.settings.check_changes()?;
        // A plan reads the queue, which counts as a receive.
        if !redrive.how.yes {
            check_terminal()?;
        }
    }
    let to = destination(&redrive, target).await?;
    if to.is_same(&target.queue) {
        return Err(Usage("the destination is the dead-letter queue itself".to_owned()).into());
    }
    if to.is_fifo() != target.queue.is_fifo() {
        let why = format!("one of {} and {} is a FIFO queue, and the other is not", target.queue.url, to.url);
        return Err(Usage(why).into());
    }
    let mut rules = Rules { redrive: &redrive, to: &to, confirmed: None };
    if redrive.how.dry_run || !redrive.how.yes {
        let plan = Plan::make(&rules, target).await?;
        if let Some(ending) = confirm(&plan, &rules, target).await? {
            return Ok(ending);
        }
        // Messages that have arrived or become visible since then were not confirmed.
        rules.confirmed = Some(plan.moved);
    }
    let store = target.settings.store().ok().map(ToString::to_string);
    let audit = Audit::open(redrive.how.audit.as_deref(), store)?;
    let mut mover =
        Mover { rules: &rules, from: &target.queue, to: &to, audit, made: Made::default(), sent: HashSet::new() };
    let mut reader = Reader::new(&target.queue, redrive.dlq.hold);
    let moved = mover.move_all(target, &mut reader).await;
    // Also after an error, or nobody sees them for minutes.
    let finished = reader.finish().await;
    let printed = output::line(&mover.made.to_string());
    if let (Err(_), Err(error)) = (&moved, &finished) {
        eprintln!("{error:#}");
    }
    moved.and(finished)?;
    printed?;
    Ok(mover.made.ending())
}

/// Shows the plan, and asks for confirmation. Returns the end of the command unless the answer is yes.
async fn confirm(plan: &Plan, rules: &Rules<'_>, target: &Target) -> Result<Option<Ending>> {
    let (how, is_fifo) = (&rules.redrive.how, target.queue.is_fifo());
    if plan.is_interrupted {
        eprintln!("{INTERRUPTED}: nothing was moved");
        return Ok(Some(Ending::Partly));
    }
    if plan.selected.is_empty() {
        eprintln!("nothing to {ACTION}");
        return Ok(Some(Ending::Nothing));
    }
    let table = table(plan.selected.iter(), false, SystemClock.now());
    let count = plan.moved.len();
    let messages = if count == 1 { "message" } else { "messages" };
    let what = format!("{count} {messages} from {} to {}{plan}", target.queue.url, rules.to.url);
    if is_fifo {
        eprintln!("{FIFO_NOTE}");
    }
    if how.dry_run {
        let least = if is_fifo { "at least " } else { "" };
        output::text(&format!("{table}would {ACTION} {least}{what}\n"))?;
        return Ok(Some(Ending::Done));
    }
    if is_confirmed(&table, &format!("{ACTION} {what}")).await? {
        return Ok(None);
    }
    eprintln!("nothing was moved");
    Ok(Some(Ending::Partly))
}

async fn destination(redrive: &DlqRedrive, target: &Target) -> Result<Queue> {
    let client = target.queue.client.clone();
    if let Some(to) = &redrive.to {
        let url = sqs::url(&client, to).await?.with_context(|| format!("there is no queue {to}"))?;
        return Ok(Queue { client, url });
    }
    let mut sources = target.sources.clone();
    if sources.is_empty() {
        sources = target.queue.sources().await.context("the source of the dead-letter queue: give --to")?;
    }
    match sources.len() {
        1 => Ok(Queue { client, url: sources.remove(0) }),
        0 => Err(Usage("no redrive policy names this queue: give --to".to_owned()).into()),
        _ => {
            let why =
                "the queue has several sources; choose by --function, or by --to, which takes the messages of all";
            Err(Usage(format!("{why}: {}", sources.join(", "))).into())
        }
    }
}

struct Mover<'a> {
    rules: &'a Rules<'a>,
    from: &'a Queue,
    to: &'a Queue,
    audit: Audit,
    made: Made,
    /// The ids of the messages that were sent. One that fails again must not be moved for ever.
    sent: HashSet<String>,
}

impl Mover<'_> {
    async fn move_all(&mut self, target: &Target, reader: &mut Reader<'_>) -> Result<()> {
        let store = store::open_if_known(&target.settings).await?;
        let examiner = Examiner::new(&self.rules.redrive.dlq, &target.settings, store.as_deref());
        let mut pace = Pace::new(self.rules.redrive.how.rate);
        let mut left = self.rules.limit();
        // Batches in a row.
        let mut failures = 0;
        // A batch to a FIFO queue could fail in its middle, and later messages would overtake.
        let batch = if self.to.is_fifo() { 1 } else { pace.batch(BATCH) };
        while left > 0 {
            if !pace.wait().await {
                self.made.stopped = Some(INTERRUPTED);
                break;
            }
            let received = reader.next().await?;
            if received.is_empty() {
                break;
            }
            let now = SystemClock.now();
            let mut chosen = Vec::new();
            for examined in examiner.examine(received).await? {
                if self.has_returned(&examined.message) {
                    reader.keep(&examined.message);
                    self.made.returned += 1;
                    continue;
                }
                match self.rules.decide(&examined, chosen.len() < left, reader, now) {
                    Verdict::Move => chosen.push(examined),
                    Verdict::Unselected => {}
                    Verdict::Behind => self.made.behind += 1,
                    Verdict::Refused(why) => {
                        match why {
                            Refusal::OtherSource => self.made.foreign += 1,
                            Refusal::Encoded | Refusal::Unprotected => self.made.refused += 1,
                        }
                        warn(&examined, &why.to_string());
                    }
                }
            }
            // The later messages of such a group stay behind it.
            let mut failed_groups = HashSet::new();
            for batch in batches(chosen, batch) {
                if !pace.wait().await {
                    self.made.stopped = Some(INTERRUPTED);
                    return Ok(());
                }
                let group = batch.first().and_then(|examined| examined.message.group()).filter(|_| self.to.is_fifo());
                if group.is_some_and(|group| failed_groups.contains(group)) {
                    self.made.behind += batch.len();
                    continue;
                }
                pace.spend(batch.len());
                left = left.saturating_sub(batch.len());
                let effect = self.move_batch(&batch, reader).await?;
                match effect {
                    Effect::Moved => failures = 0,
                    Effect::Refused => {}
                    Effect::Failed => failures += 1,
                    Effect::Fatal => failures = MAX_FAILURES,
                }
                if failures >= MAX_FAILURES {
                    self.made.stopped = Some(FAILING);
                    return Ok(());
                }
                failed_groups.extend(group.filter(|_| effect != Effect::Moved).map(str::to_owned));
            }
        }
        Ok(())
    }

    fn has_returned(&self, message: &Message) -> bool {
        self.sent.contains(&message.id) || self.sent.contains(message.original_id())
    }

    /// Sends the messages, and then deletes those that SQS has accepted.
    async fn move_batch(&mut self, batch: &[Examined], reader: &mut Reader<'_>) -> Result<Effect> {
        let messages: Vec<&Message> = batch.iter().map(|examined| &examined.message).collect();
        let sent = self.to.send(&messages).await;
        let accepted: Vec<&Message> =
            messages.iter().zip(&sent).filter(|(_, sent)| sent.is_ok()).map(|(message, _)| *message).collect();
        let deleted = if accepted.is_empty() { Vec::new() } else { self.from.delete(&accepted).await };
        let effect = Effect::of(&sent, &deleted);
        let mut deleted = deleted.into_iter();
        let mut unwritten = None;
        self.sent.extend(sent.iter().flatten().cloned());
        for (examined, sent) in batch.iter().zip(sent) {
            let (outcome, error, sent) = match sent {
                Ok(id) => match deleted.next().unwrap_or_else(|| Err("it was not deleted".to_owned())) {
                    Ok(()) => (Outcome::Changed, None, Some(id)),
                    Err(why) => (Outcome::Copied, Some(why), Some(id)),
                },
                Err(unsent) if unsent.cause == Cause::Unknown => (Outcome::Unknown, Some(unsent.why), None),
                Err(unsent) => (Outcome::Failed, Some(unsent.why), None),
            };
            match outcome {
                Outcome::Changed => self.made.moved += 1,
                Outcome::Copied => self.made.copied += 1,
                _ => self.made.failed += 1,
            }
            if outcome == Outcome::Changed {
                reader.forget(&examined.message);
            } else {
                reader.keep(&examined.message);
                warn(examined, error.as_deref().unwrap_or_default());
            }
            let details = Move {
                from: &self.from.url,
                to: &self.to.url,
                sent,
                record: examined.operation.as_ref().ok().map(|found| found.hash.to_hex()),
                state: examined.state(),
            };
            let id = examined.message.id.clone();
            let entry = Entry { at: SystemClock.now(), action: ACTION, id, outcome, error, details };
            let line = self.audit.write(entry);
            unwritten = unwritten.or_else(|| line.err().map(|error| (error, examined.message.id.clone(), outcome)));
        }
        match unwritten {
            Some((error, id, outcome)) => bail!("{error:#}; the first without an audit line: {id} {outcome:?}"),
            None => Ok(effect),
        }
    }
}

/// The effect of a batch, by which the next one is sent or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// At least one message was moved.
    Moved,
    /// SQS refused each message for its own sake.
    Refused,
    Failed,
    /// The next batch would have the same effect, or messages stay after they were sent.
    Fatal,
}

impl Effect {
    fn of(sent: &[Result<String, Unsent>], deleted: &[Result<(), String>]) -> Self {
        let mut causes = sent.iter().filter_map(|sent| sent.as_ref().err()).map(|unsent| unsent.cause);
        if deleted.iter().any(Result::is_ok) {
            Self::Moved
        } else if !deleted.is_empty() || causes.clone().any(|cause| matches!(cause, Cause::Call | Cause::Unknown)) {
            Self::Fatal
        } else if causes.all(|cause| cause == Cause::Message) {
            Self::Refused
        } else {
            Self::Failed
        }
    }
}

fn warn(examined: &Examined, why: &str) {
    // The audit line contains it as well, and a closed terminal must not end the tool before the other lines are
    // written.
    let _ = writeln!(io::stderr(), "{}: {why}", examined.message.id);
}

/// Divides messages into batches, each of at most so many messages and bytes.
fn batches(messages: Vec<Examined>, limit: usize) -> Vec<Vec<Examined>> {
    let mut batches: Vec<Vec<Examined>> = Vec::new();
    let mut bytes = 0;
    for examined in messages {
        let size = examined.message.bytes();
        match batches.last_mut() {
            Some(batch) if batch.len() < limit && bytes + size <= MAX_BATCH_BYTES => {
                bytes += size;
                batch.push(examined);
            }
            _ => {
                bytes = size;
                batches.push(vec![examined]);
            }
        }
    }
    batches
}
