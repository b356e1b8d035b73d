//! Reports as text and as JSON.

use anyhow::Result;
use serde::Serialize;

use super::finding::{Finding, Report, Severity, Unchecked};
use crate::{
    args::Output,
    text::{columns, json, plain, wrapped},
};

const INDENT: usize = 9;

/// A line of the JSON output.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Finding(&'a Finding),
    NotChecked(&'a Unchecked),
}

/// Returns the report in a form of output.
pub(crate) fn print(report: &Report, output: Output) -> Result<String> {
    Ok(match output {
        Output::Human => human(report),
        Output::Table => table(report),
        Output::Json => json(report)? + "\n",
        Output::Jsonl => {
            let findings = report.findings.iter().map(Line::Finding);
            let lines = findings.chain(report.not_checked.iter().map(Line::NotChecked)).map(|line| json(&line));
            lines.collect::<serde_json::Result<Vec<_>>>()?.iter().map(|line| format!("{line}\n")).collect()
        }
    })
}

fn human(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let severity = finding.severity.as_str();
        text.push_str(&format!("{severity:INDENT$}{}: {}\n", plain(&finding.resource), finding.code));
        text.push_str(&format!("{:INDENT$}{}\n", "", wrapped(&plain(&finding.reason), INDENT)));
        // In one line, so that it can be copied.
        text.push_str(&format!("{:INDENT$}fix: {}\n\n", "", plain(&finding.fix)));
    }
    for unchecked in &report.not_checked {
        let line = format!("not checked: {}: {}: {}", unchecked.resource, unchecked.what, unchecked.why);
        text.push_str(&format!("{}\n", plain(&line)));
    }
    if !report.not_checked.is_empty() {
        text.push('\n');
    }
    text.push_str(&format!("{}, {} not checked\n", counted(report), report.not_checked.len()));
    text
}

fn counted(report: &Report) -> String {
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let counts = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let counts = counts.into_iter().filter_map(|(severity, name)| match count(severity) {
        0 => None,
        1 => Some(format!("1 {name}")),
        many => Some(format!("{many} {name}s")),
    });
    let counts: Vec<_> = counts.collect();
    if counts.is_empty() { "no findings".to_owned() } else { counts.join(", ") }
}

fn table(report: &Report) -> String {
    let mut rows = vec![["SEVERITY", "CODE", "RESOURCE", "REASON"].map(str::to_owned)];
    rows.extend(report.findings.iter().map(|finding| {
        [
            finding.severity.as_str().to_owned(),
            finding.code.to_owned(),
            plain(&finding.resource),
            plain(&finding.reason),
        ]
    }));
    rows.extend(report.not_checked.iter().map(|unchecked| {
        let reason = format!("{}: {}", unchecked.what, unchecked.why);
        ["-".to_owned(), "not-checked".to_owned(), plain(&unchecked.resource), plain(&reason)]
    }));
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.find(Severity::Warning, "ttl-off", "table t", "TTL is off.", "aws dynamodb …");
        report.skip("table \u{1b}t", "recovery", "no access");
        report
    }

    #[test]
    fn each_format_includes_findings_and_skipped_checks() {
        let human = print(&report(), Output::Human).unwrap();
        assert_eq!(
            human,
            "warning  table t: ttl-off\n         TTL is off.\n         fix: aws dynamodb …\n\n\
             not checked: table \\u{1b}t: recovery: no access\n\n1 warning, 1 not checked\n"
        );
        let table = print(&report(), Output::Table).unwrap();
        assert!(table.contains("\nwarning   ttl-off      table t  "), "{table}");
        let lines = print(&report(), Output::Jsonl).unwrap();
        let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["kind"], &lines[0]["code"]), (&"finding".into(), &"ttl-off".into()));
        assert_eq!((&lines[1]["kind"], &lines[1]["why"]), (&"not_checked".into(), &"no access".into()));
        let whole: serde_json::Value = serde_json::from_str(&print(&report(), Output::Json).unwrap()).unwrap();
        assert_eq!(whole["findings"][0]["severity"], "warning");
        assert_eq!(whole["not_checked"][0]["what"], "recovery");
    }

    #[test]
    fn a_report_without_findings_prints_no_findings() {
        assert_eq!(print(&Report::default(), Output::Human).unwrap(), "no findings, 0 not checked\n");
        assert_eq!(print(&Report::default(), Output::Jsonl).unwrap(), "");
    }
}
