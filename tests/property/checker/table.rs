//! The possible outcomes of a record and their effect on the response. This repeats the table of the documentation, to
//! be independent of the implementation's.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Executed,
    TookOver,
    Recovered,
    Unrecorded,
    Replayed,
    ReplayedFailure,
    FailedForGood,
    FailedForNow,
    FailedUnknown,
    Panicked,
    Cancelled,
    LeaseLost,
    InProgress,
    Abandoned,
    /// Another payload has an outcome.
    Mismatch,
    /// Another payload has a claim.
    MismatchForNow,
    KeyMissing,
    /// The service ignores it.
    Ignored,
    Undecodable,
    /// The decoder reported that the body may be decoded later, or panicked.
    NotDecoded,
    StoreTrouble,
    NotStarted,
}

/// The effect of an outcome on the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Acknowledged,
    Reported,
    /// By the policy for records whose retry cannot succeed.
    ByPolicy,
}

/// Returns the rule for an outcome by its name, as in the documentation of batches.
pub(super) fn rule_of(name: &str) -> Option<Rule> {
    Some(match name {
        "Ok(Executed)"
        | "Ok(TookOver)"
        | "Ok(Recovered)"
        | "Ok(Unrecorded)"
        | "Ok(Replayed)"
        | "Ok(ReplayedWithoutResult)"
        | "Ok(Ignored)" => Rule::Acknowledged,
        "Ok(Failed(Permanent))" | "Ok(ReplayedFailure)" | "Ok(Mismatch)" | "Err(KeyMissing)" | "Err(Payload)" => {
            Rule::ByPolicy
        }
        "Ok(Failed(Transient))"
        | "Ok(Failed(Unknown))"
        | "Ok(Interrupted(Panicked))"
        | "Ok(Interrupted(Cancelled))"
        | "Ok(LeaseLost)"
        | "Ok(InProgress)"
        | "Ok(Abandoned)"
        | "Ok(NotStarted)"
        | "Ok(Skipped)"
        | "Err(Decode)"
        | "Err(Throttled)"
        | "Err(Timeout)"
        | "Err(Unavailable)"
        | "Err(AccessDenied)" => Rule::Reported,
        _ => return None,
    })
}

impl Outcome {
    /// Returns its names in a report.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Executed => &["Ok(Executed)"],
            Self::TookOver => &["Ok(TookOver)"],
            Self::Recovered => &["Ok(Recovered)"],
            Self::Unrecorded => &["Ok(Unrecorded)"],
            Self::Replayed => &["Ok(Replayed)"],
            Self::ReplayedFailure => &["Ok(ReplayedFailure)"],
            Self::FailedForGood => &["Ok(Failed(Permanent))"],
            Self::FailedForNow => &["Ok(Failed(Transient))"],
            Self::FailedUnknown => &["Ok(Failed(Unknown))"],
            Self::Panicked => &["Ok(Interrupted(Panicked))"],
            Self::Cancelled => &["Ok(Interrupted(Cancelled))"],
            Self::LeaseLost => &["Ok(LeaseLost)"],
            Self::InProgress => &["Ok(InProgress)"],
            Self::Abandoned => &["Ok(Abandoned)"],
            Self::Mismatch | Self::MismatchForNow => &["Ok(Mismatch)"],
            Self::KeyMissing => &["Err(KeyMissing)"],
            Self::Ignored => &["Ok(Ignored)"],
            Self::Undecodable => &["Err(Payload)"],
            Self::NotDecoded => &["Err(Decode)"],
            Self::StoreTrouble => &["Err(Throttled)", "Err(Timeout)", "Err(Unavailable)", "Err(AccessDenied)"],
            Self::NotStarted => &["Ok(NotStarted)"],
        }
    }

    pub(super) fn rule(self) -> Rule {
        match self {
            Self::MismatchForNow => Rule::Reported,
            _ => rule_of(self.names()[0]).unwrap_or(Rule::Reported),
        }
    }

    /// Whether the operation has an outcome, so that another payload is a mismatch.
    pub(super) fn stands(self) -> bool {
        self.rule() == Rule::Acknowledged || matches!(self, Self::FailedForGood | Self::ReplayedFailure)
    }

    /// Whether a claim, of any payload, was in its way at the end.
    pub(super) fn is_in_progress(self) -> bool {
        matches!(self, Self::InProgress | Self::MismatchForNow)
    }

    /// Whether its handler completed with a failure, or it could not be decoded, and a retry may succeed.
    pub(super) fn has_failed(self) -> bool {
        matches!(self, Self::FailedForNow | Self::FailedUnknown | Self::Panicked | Self::NotDecoded)
    }
}
