//! Describes the faults of two deliveries of the same event.

use std::fmt::Write;

use crate::{
    batch::{Processed, RecordReport},
    error::ErrorKind,
    idempotency::outcome::OutcomeKind,
};

/// Returns a description of the faults, or `None` if there are none.
pub(super) fn diagnose<R>(first: &Processed<R>, second: &Processed<R>) -> Option<String> {
    for (delivery, ordinal) in [(first, "first"), (second, "second")] {
        match &delivery.response {
            // An error of kind `Batch` only means that records were reported, which is listed for each of them.
            Err(error) if error.kind() != ErrorKind::Batch => {
                return Some(format!("the {ordinal} delivery failed: {error}"));
            }
            _ if delivery.records.is_empty() => return Some(format!("the {ordinal} delivery has no records")),
            _ => {}
        }
    }
    let ids = |delivery: &Processed<R>| -> Vec<String> {
        delivery.records.iter().map(|report| report.record.id().to_owned()).collect()
    };
    if ids(first) != ids(second) {
        return Some(format!("the deliveries do not have the same records: {:?} and {:?}", ids(first), ids(second)));
    }
    let pairs: Vec<_> = first.records.iter().zip(&second.records).collect();
    let faults: Vec<String> = pairs.iter().map(|(first, second)| faults(first, second)).collect();
    if faults.iter().all(String::is_empty) {
        return None;
    }
    let mut rows = vec![["record", "first delivery", "second delivery", ""].map(str::to_owned)];
    rows.extend(pairs.iter().zip(&faults).map(|((first, second), faults)| {
        let name = format!("{} {}", first.index, first.record.id());
        [name.trim_end().to_owned(), outcome(first), outcome(second), faults.clone()]
    }));
    let mut text = "not every record was handled once, by one of the deliveries\n\n".to_owned();
    write_table(&mut text, &rows);
    let mut errors = String::new();
    for (delivery, ordinal) in [(first, "first"), (second, "second")] {
        for report in delivery.records.iter().filter(|report| report.reported) {
            if let Some(error) = &report.error {
                let _ = writeln!(errors, "record {} in the {ordinal} delivery: {error}", report.index);
            }
        }
    }
    if !errors.is_empty() {
        text.push('\n');
        text.push_str(&errors);
    }
    Some(text)
}

/// Returns the faults of a record.
fn faults(first: &RecordReport, second: &RecordReport) -> String {
    let mut faults = Vec::new();
    if has_run(first) && has_run(second) {
        faults.push(match (first.key, second.key) {
            (None, _) | (_, None) => "ran again, unprotected",
            (Some(first), Some(second)) if first != second => "ran again, under another key",
            _ => "ran again",
        });
    }
    if [first, second].iter().any(|report| report.reported && !is_held_back(report)) {
        faults.push("reported");
    } else if first.reported && second.reported {
        faults.push("reported by both");
    }
    if [first, second].iter().any(|report| report.outcome == Ok(OutcomeKind::Unrecorded)) {
        faults.push("not recorded");
    }
    let is_tested = |report: &&RecordReport| has_run(report) || report.outcome.is_ok_and(is_settled);
    if faults.is_empty() && ![first, second].iter().any(is_tested) {
        faults.push("did not run");
    }
    faults.join("; ")
}

/// Returns whether the record's handler started.
fn has_run(report: &RecordReport) -> bool {
    use OutcomeKind::{Executed, Failed, Interrupted, LeaseLost, TookOver, Unrecorded};
    matches!(report.outcome, Ok(Executed | TookOver | Unrecorded | Failed(_) | Interrupted(_) | LeaseLost))
}

/// Returns whether the record needs no further processing.
fn is_settled(outcome: OutcomeKind) -> bool {
    outcome.can_acknowledge()
}

/// Returns whether the record only waits for another delivery.
fn is_held_back(report: &RecordReport) -> bool {
    matches!(report.outcome, Ok(OutcomeKind::InProgress | OutcomeKind::Skipped))
}

fn outcome(report: &RecordReport) -> String {
    let mut text = match report.outcome {
        Ok(OutcomeKind::Failed(verdict)) => format!("failed ({verdict:?})").to_lowercase(),
        Ok(outcome) => outcome.as_str().to_owned(),
        Err(kind) => kind.as_str().to_owned(),
    };
    if report.reported {
        text.push_str(", reported");
    }
    if report.dead_lettered {
        text.push_str(", dead-lettered");
    }
    text
}

fn write_table<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
