//! The settings that the claims of a call usually share. Their keys, owners, fingerprints and orders differ.

use std::time::Duration;

use crate::store::{ClaimRequest, ResultData, Takeover};

/// The settings of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Terms {
    pub(in crate::store) lease: Duration,
    pub(in crate::store) skew_margin: Duration,
    retention: Duration,
    pub(in crate::store) takeover: Takeover,
    pub(in crate::store) result_data: ResultData,
}

impl Terms {
    pub(in crate::store) const fn of(request: &ClaimRequest) -> Self {
        let ClaimRequest { lease, skew_margin, retention, takeover, result_data, .. } = *request;
        Self { lease, skew_margin, retention, takeover, result_data }
    }

    /// Returns the time until the record expires if nothing else happens to it. It covers the retention, and the time
    /// until others can take the claim over.
    pub(in crate::store) fn time_to_live(&self) -> Duration {
        let lease_and_margin = self.lease.saturating_add(self.skew_margin);
        self.retention.max(lease_and_margin.saturating_add(Duration::from_millis(1)))
    }
}
