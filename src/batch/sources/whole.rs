//! Sources of which Lambda takes no partial answer.

use std::sync::Arc;

use crate::{
    batch::record::RecordInfo,
    error::{Error, ErrorKind, ErrorStatus},
};

/// Success if nothing failed. Else an error, so that everything is delivered again, and what was done is replayed.
pub(super) fn all_or_error(failed: &[Arc<RecordInfo>]) -> Result<(), Error> {
    if failed.is_empty() {
        return Ok(());
    }
    let message = format!("{} of the event's records failed, and its source takes no partial answer", failed.len());
    Err(Error::new(ErrorKind::Batch, ErrorStatus::Temporary, "answer", message))
}
