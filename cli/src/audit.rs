//! Audit lines: one JSON object for each attempted change.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result};
use lambda_once::clock::Timestamp;
use serde::Serialize;

use crate::{time::instant, view::View};

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Changed,
    /// A message was sent, and could not be deleted: it is in both queues.
    Copied,
    /// The record no longer exists.
    Gone,
    /// The record was changed by another writer.
    Unchanged,
    /// The store refused it.
    Failed,
    /// The store did not respond, so the change may have been made.
    Unknown,
}

/// An audit line, which contains no keys, labels or results.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a, D> {
    at: String,
    who: &'a str,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'a str>,
    id: String,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    details: D,
}

/// A record before and after its change, without its label.
#[derive(Debug, Serialize)]
pub(crate) struct States<'a> {
    before: View<'a>,
    /// `null` if there is no record. Left out after an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Option<View<'a>>>,
}

impl<'a> States<'a> {
    /// Takes the record after the change, or `None` if it is unknown.
    pub(crate) fn new(before: View<'a>, after: Option<Option<View<'a>>>) -> Self {
        Self { before: before.for_audit(), after: after.map(|after| after.map(View::for_audit)) }
    }
}

/// A change, in the format of its audit line.
#[derive(Debug)]
pub(crate) struct Entry<D> {
    pub(crate) at: Timestamp,
    pub(crate) action: &'static str,
    pub(crate) id: String,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
    pub(crate) details: D,
}

/// Writes audit lines.
#[derive(Debug)]
pub(crate) struct Audit {
    /// `None` for standard error.
    file: Option<File>,
    who: String,
    /// `None` if no store is known.
    store: Option<String>,
}

impl Audit {
    /// Opens the file for appending.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    pub(crate) fn open(file: Option<&Path>, store: Option<String>) -> Result<Self> {
        let open = |path: &Path| {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.with_context(|| format!("the audit file {} cannot be opened", path.display()))
        };
        let file = file.map(open).transpose()?;
        Ok(Self { file, who: user(|name| std::env::var(name).ok()), store })
    }

    /// Writes a line.
    ///
    /// # Errors
    ///
    /// Returns the errors of the file, or of standard error.
    pub(crate) fn write(&mut self, entry: Entry<impl Serialize>) -> Result<()> {
        let line = Line {
            at: instant(entry.at),
            who: &self.who,
            action: entry.action,
            store: self.store.as_deref(),
            id: entry.id,
            outcome: entry.outcome,
            error: entry.error,
            details: entry.details,
        };
        // One write, so that the lines of two processes do not mix.
        let text = serde_json::to_string(&line)? + "\n";
        let written = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None => io::stderr().write_all(text.as_bytes()),
        };
        written.context("an audit line cannot be written: nothing else is changed")
    }
}

/// Returns the user who runs the tool, from the environment.
fn user(variable: impl Fn(&str) -> Option<String>) -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME", "USERNAME"];
    names.into_iter().filter_map(variable).find(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lambda_once::record::{KeyHash, Record, Status, StoredData, StoredResult};

    use super::*;

    #[test]
    fn a_line_has_neither_label_nor_result() {
        let record = Record {
            label: Some("secret".into()),
            result: StoredResult::of(StoredData::Json("\"secret\"".into())),
            ..Record::new(Status::Completed)
        };
        let view = || View::of(KeyHash::from_bytes([1; 32]), &record, Duration::ZERO, Timestamp::EPOCH);
        let path = std::env::temp_dir().join(format!("lambda-once-audit-{}", std::process::id()));
        let mut audit = Audit::open(Some(&path), Some("dynamodb://t".into())).unwrap();
        let entry = Entry {
            at: Timestamp::EPOCH,
            action: "redact",
            id: "01".into(),
            outcome: Outcome::Changed,
            error: None,
            details: States::new(view(), Some(Some(view()))),
        };
        audit.write(entry).unwrap();
        let line = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!line.contains("secret"), "{line}");
        assert!(line.starts_with(r#"{"at":"1970-01-01T00:00:00Z","who":""#), "{line}");
    }

    #[test]
    fn the_user_is_the_one_behind_sudo() {
        let of = |set: &[(&str, &str)]| {
            user(|wanted| set.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[("USER", "root"), ("SUDO_USER", "ana")]), "ana");
        assert_eq!(of(&[("USER", ""), ("LOGNAME", "ana")]), "ana");
        assert_eq!(of(&[]), "unknown");
    }
}
