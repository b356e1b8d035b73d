//! What a handler can know about its record.

use std::{collections::HashMap, fmt, sync::Arc};

use lambda_runtime::Context;

use crate::{Claim, clock::Timestamp, key::Envelope};

/// What a handler can know about its record besides the payload. Cheap to clone; it may be sent to other tasks.
#[derive(Clone)]
pub struct RecordContext {
    pub(super) record: Arc<RecordInfo>,
    pub(super) lambda: Arc<Context>,
    pub(super) claim: Option<Claim>,
    pub(super) stop: Timestamp,
}

/// What the source says of a record.
pub(super) struct RecordInfo {
    pub(super) message_id: String,
    pub(super) receive_count: u32,
    pub(super) attributes: HashMap<String, String>,
    pub(super) message_attributes: HashMap<String, String>,
    pub(super) source_arn: Option<String>,
}

impl Envelope for RecordInfo {
    fn message_id(&self) -> Option<&str> {
        Some(&self.message_id)
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    fn message_attribute(&self, name: &str) -> Option<&str> {
        self.message_attributes.get(name).map(String::as_str)
    }
}

impl RecordContext {
    /// The id that the queue gave the message. The same in every delivery of it.
    pub fn message_id(&self) -> &str {
        &self.record.message_id
    }

    /// How often the queue has delivered the message, this delivery included (`ApproximateReceiveCount`); 1 if the queue
    /// does not say.
    pub fn receive_count(&self) -> u32 {
        self.record.receive_count
    }

    /// A system attribute of the message, such as `SentTimestamp`.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.record.attributes.get(name).map(String::as_str)
    }

    /// The text of an attribute that the sender has put on the message, of the type String or Number.
    pub fn message_attribute(&self, name: &str) -> Option<&str> {
        self.record.message_attributes.get(name).map(String::as_str)
    }

    /// The ARN of the queue.
    pub fn source_arn(&self) -> Option<&str> {
        self.record.source_arn.as_deref()
    }

    /// The claim under which the handler runs; `None` where it runs unprotected. Its key is the same in every run of the
    /// operation, and can serve as the idempotency key of the calls that the handler makes.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Whether an earlier run ended without an outcome, so that the operation may already have taken effect.
    pub fn took_over(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::took_over)
    }

    /// When the handler is cut off if it is still running.
    pub fn stop_point(&self) -> Timestamp {
        self.stop
    }

    /// The invocation's context.
    pub fn lambda(&self) -> &Context {
        &self.lambda
    }
}

impl fmt::Debug for RecordContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordContext")
            .field("message_id", &self.record.message_id)
            .field("receive_count", &self.record.receive_count)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}
