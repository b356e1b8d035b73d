//! Makes planned changes, in batches, and writes an audit line for each.

use std::{
    fmt,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use lambda_once::{
    Error, ErrorStatus,
    clock::{Clock, SystemClock},
    record::Record,
    store::amend::{AmendRequest, Amended},
};

use crate::{
    audit::{Audit, Entry, Outcome, States},
    change::{Action, Planned},
    pace::Pace,
    store::Records,
    view::View,
};

/// The number of changes for each outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    action: &'static str,
    changed: usize,
    gone: usize,
    unchanged: usize,
    failed: usize,
    /// Not attempted, because a whole batch had failed, or after an interrupt.
    left: usize,
}

impl Made {
    pub(crate) fn are_all_changed(&self) -> bool {
        self.gone + self.unchanged + self.failed + self.left == 0
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Changed => self.changed += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::Unchanged => self.unchanged += 1,
            Outcome::Failed | Outcome::Unknown | Outcome::Copied => self.failed += 1,
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} changed", self.action, self.changed)?;
        for (count, what) in [
            (self.unchanged, "changed by others meanwhile, and left as they are"),
            (self.gone, "gone meanwhile"),
            (self.failed, "failed"),
            (self.left, "not tried"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Makes the changes, at most `rate` per second. It stops between two batches if a whole batch failed, or at an interrupt
/// (Ctrl-C), so that every change has its audit line.
///
/// # Errors
///
/// Returns an error if an audit line cannot be written. Nothing is changed after that.
pub(crate) async fn apply(
    store: &dyn Records,
    action: &Action,
    planned: Vec<Planned>,
    rate: u32,
    margin: Duration,
    audit: &mut Audit,
) -> Result<Made> {
    let mut pace = Pace::new(rate);
    let mut made = Made { action: action.name, ..Made::default() };
    let mut batches = planned.chunks(pace.batch(store.limits().batch));
    while let Some(batch) = batches.next() {
        if !pace.wait().await {
            made.left = batch.len() + batches.map(<[Planned]>::len).sum::<usize>();
            break;
        }
        pace.spend(batch.len());
        let requests: Vec<AmendRequest> = batch.iter().map(|planned| planned.request.clone()).collect();
        let answers = store.amend(&requests).await;
        ensure!(answers.len() == batch.len(), "the store did not answer each change");
        let failed_before = made.failed;
        let mut unwritten = Vec::new();
        for (planned, answer) in batch.iter().zip(answers) {
            let (outcome, line) = write(planned, answer, action, margin, audit);
            made.count(outcome);
            unwritten.extend(line.err().map(|error| (error, format!("{} {outcome:?}", planned.request.key))));
        }
        if let Some((error, _)) = unwritten.first() {
            let lines: Vec<&str> = unwritten.iter().map(|(_, line)| &**line).collect();
            bail!("{error:#}; without an audit line: {}", lines.join(", "));
        }
        if made.failed - failed_before == batch.len() {
            made.left = batches.map(<[Planned]>::len).sum();
            break;
        }
    }
    Ok(made)
}

/// Writes the audit line of one change. Returns its outcome, and whether the line was written.
fn write(
    planned: &Planned,
    answer: Result<Amended, Error>,
    action: &Action,
    margin: Duration,
    audit: &mut Audit,
) -> (Outcome, Result<()>) {
    let (outcome, error, after) = match &answer {
        Ok(Amended::Changed) => (Outcome::Changed, None, Some(planned.after.as_ref())),
        Ok(Amended::Gone) => (Outcome::Gone, None, Some(None)),
        Ok(Amended::Unchanged { current }) => (Outcome::Unchanged, None, Some(Some(&**current))),
        Err(error) => {
            let outcome = if error.status() == ErrorStatus::Ambiguous { Outcome::Unknown } else { Outcome::Failed };
            (outcome, Some(error.to_string()), None)
        }
    };
    let hash = planned.request.key;
    let at = SystemClock.now();
    let view = |record| View::of(hash, record, margin, at);
    let after = after.map(|record: Option<&Record>| record.map(view));
    let line = audit.write(Entry {
        at,
        action: action.name,
        id: hash.to_hex(),
        outcome,
        error: error.clone(),
        details: States::new(view(&planned.record), after),
    });
    let message = match (outcome, error) {
        (Outcome::Unchanged, _) => Some("changed meanwhile, and left as it is".to_owned()),
        (Outcome::Gone, _) => Some("gone meanwhile".to_owned()),
        (_, error) => error,
    };
    if let Some(message) = message {
        // The line contains it as well, and a closed terminal must not end the tool before the other lines are written.
        let _ = writeln!(io::stderr(), "{hash}: {message}");
    }
    (outcome, line)
}
