//! Responses of sources for which Lambda supports no partial response.

use std::sync::Arc;

use crate::{
    batch::record::RecordInfo,
    error::{Error, ErrorKind, ErrorStatus},
};

/// Returns an error if any record failed (B9), so that all records are delivered again, and finished ones are replayed.
pub(super) fn success_or_error(failed: &[Arc<RecordInfo>]) -> Result<(), Error> {
    if failed.is_empty() {
        return Ok(());
    }
    let message =
        format!("{} of the event's records failed, and its source supports no partial response", failed.len());
    Err(Error::new(ErrorKind::Batch, ErrorStatus::Temporary, "answer", message))
}
