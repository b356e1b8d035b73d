//! Findings, and what could not be checked.

use serde::Serialize;

/// The severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Operations can be lost, repeated or refused
    Error,
    /// Failures or load can lead to such an error
    Warning,
    /// Deliberate in some deployments
    Note,
}

impl Severity {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A misconfiguration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// A name that does not change between versions.
    pub(crate) code: &'static str,
    pub(crate) resource: String,
    pub(crate) reason: String,
    /// The command or the property of a template.
    pub(crate) fix: String,
}

/// Something that was not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Unchecked {
    pub(crate) resource: String,
    pub(crate) what: String,
    pub(crate) why: String,
}

/// The result of all rules.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) not_checked: Vec<Unchecked>,
}

impl Report {
    pub(crate) fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        resource: &str,
        reason: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.findings.push(Finding {
            severity,
            code,
            resource: resource.to_owned(),
            reason: reason.into(),
            fix: fix.into(),
        });
    }

    pub(crate) fn skip(&mut self, resource: &str, what: impl Into<String>, why: impl Into<String>) {
        self.not_checked.push(Unchecked { resource: resource.to_owned(), what: what.into(), why: why.into() });
    }

    /// Puts the worst first. Two functions on one queue or store report its findings once.
    pub(crate) fn finish(mut self, least: Severity) -> Self {
        let mut findings = Vec::new();
        for finding in self.findings {
            if finding.severity <= least && !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        findings.sort_by_key(|finding| finding.severity);
        let mut not_checked = Vec::new();
        for unchecked in self.not_checked {
            if !not_checked.contains(&unchecked) {
                not_checked.push(unchecked);
            }
        }
        self.findings = findings;
        self.not_checked = not_checked;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_first_and_nothing_is_listed_twice() {
        let mut report = Report::default();
        for (severity, code) in
            [(Severity::Note, "a"), (Severity::Error, "b"), (Severity::Note, "a"), (Severity::Warning, "c")]
        {
            report.find(severity, code, "table t", "reason", "fix");
            report.skip("table t", "what", "why");
        }
        let report = report.finish(Severity::Warning);
        assert_eq!(report.findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(report.not_checked.len(), 1);
    }
}
