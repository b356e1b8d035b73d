//! What the processor has to know of an event source.

use super::context::RecordInfo;

/// A kind of event: how it is taken apart.
pub(super) trait Source: 'static {
    /// A record as the event has it.
    type Record: Send;

    /// How the record is named in the list of failures.
    fn identifier(record: &Self::Record) -> &str;

    /// What the record's order is kept within; `None` if the source has no order.
    fn lane(record: &Self::Record) -> Option<&str>;

    /// What is known of the record, and its body. Called once, shortly before the record is claimed, so that a large
    /// batch is not copied as a whole.
    fn open(record: Self::Record) -> (RecordInfo, String);
}
