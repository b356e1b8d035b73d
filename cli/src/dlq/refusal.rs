//! Reasons for which a redrive leaves a message in the dead-letter queue.

use std::fmt;

use super::{examine::Examined, queue::Queue};
use crate::args::DlqRedrive;

/// The reason that a selected message is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// SQS does not accept its original body.
    Encoded,
    /// Another queue than the destination has dead-lettered it.
    OtherSource,
    /// The function would not recognize its copy.
    Unprotected,
}

impl Refusal {
    /// Returns the reason that a message is not moved to this queue, if there is one.
    pub(crate) fn of(examined: &Examined, redrive: &DlqRedrive, to: &Queue) -> Option<Self> {
        let message = &examined.message;
        if message.is_encoded() {
            Some(Self::Encoded)
        } else if redrive.to.is_none() && message.source().is_some_and(|arn| !to.has_arn(arn)) {
            Some(Self::OtherSource)
        } else if examined.is_protected || redrive.unprotected {
            None
        } else {
            Some(Self::Unprotected)
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encoded => "its body is in base64, because SQS does not accept the original one",
            Self::OtherSource => "it comes from another queue than the destination: choose its function or queue",
            Self::Unprotected => {
                "its key is the message id, or its key or the store is not known, and a redriven message has a new id, so that \
                 the effect could repeat: give --selector and --store, or --unprotected"
            }
        })
    }
}
