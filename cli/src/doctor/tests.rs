//! One planted misconfiguration in each test: its finding is the only one.

mod deployments;
mod servers;

use super::finding::{Report, Severity};

/// The codes and severities of all findings.
fn found(report: &Report) -> Vec<(&'static str, Severity)> {
    report.findings.iter().map(|finding| (finding.code, finding.severity)).collect()
}

/// Asserts that this finding is the only one, and that it explains how to fix it.
#[track_caller]
fn assert_only(report: &Report, code: &'static str, severity: Severity, fix: &str) {
    assert_eq!(found(report), [(code, severity)], "{report:#?}");
    let finding = &report.findings[0];
    assert!(finding.fix.contains(fix), "{finding:#?}");
    assert!(!finding.reason.is_empty() && !finding.resource.is_empty(), "{finding:#?}");
}
