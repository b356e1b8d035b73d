//! The S3 sequencer, which orders the events of an object.

use serde::Deserialize;

use crate::{key::selector::Key, order::Sequence};

/// The maximum number of digits of a sequencer. S3's have 16 or 18.
const MAX_DIGITS: usize = 32;

/// Returns the number that a sequencer represents, or `None` if it is not hexadecimal.
///
/// "The sequencers can be of different lengths. So, to compare these values, first right pad the shorter value with zeros, and
/// Padded to one length, they compare as numbers do.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
pub(super) fn sequence(sequencer: &str) -> Option<Sequence> {
    let is_hex = !sequencer.is_empty() && sequencer.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || sequencer.len() > MAX_DIGITS {
        return None;
    }
    let padded = format!("{sequencer:0<MAX_DIGITS$}");
    u128::from_str_radix(&padded, 16).ok().map(Sequence::from)
}

/// An S3 event in either form: a record of a notification or the detail of an EventBridge event.
#[derive(Deserialize)]
struct Event {
    s3: Option<Entity>,
    object: Option<Object>,
}

#[derive(Deserialize)]
struct Entity {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    sequencer: Option<String>,
}

impl Key {
    /// Selects the sequence of an S3 event among the events of its object, by its `sequencer`, for
    /// [`BatchService::ordered_by`](crate::batch::BatchService::ordered_by). The body is a record of an event
    /// notification ([`S3`](crate::batch::envelope::S3)) or the detail of an EventBridge event
    /// ([`S3Detail`](crate::batch::envelope::S3Detail)).
    ///
    /// A sequencer is hexadecimal, so a [pointer](Self::pointer) to it selects no sequence. Only events that create and
    /// delete objects have one. Others fail permanently ([`ErrorKind::Order`](crate::ErrorKind::Order)), so exclude
    /// them in the rule or the notification.
    ///
    /// ```
    /// # #[cfg(feature = "order")] {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::envelope::S3Detail};
    ///
    /// async fn index(object: S3Detail) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// let object = Key::composite([Key::pointer("/bucket/name"), Key::pointer("/object/key")]);
    /// let service = once.eventbridge(Key::message_id(), index).ordered_by(object, Key::s3_sequencer());
    /// # assert!(service.validate().is_ok());
    /// # }
    /// ```
    pub fn s3_sequencer() -> Self {
        Self::from_fn(|delivery| {
            let Event { s3, object } = serde_json::from_slice(delivery.body())
                .map_err(|_| "the body is neither a record of an S3 notification nor the detail of an S3 event")?;
            let Some(sequencer) = s3.map(|s3| s3.object).or(object).and_then(|object| object.sequencer) else {
                return Ok(None);
            };
            let sequence = sequence(&sequencer).ok_or("the sequencer is not a hexadecimal number of 1 to 32 digits")?;
            Ok(Some(sequence.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order that AWS documents: the shorter sequencer is padded with zeros on the right.
    #[test]
    fn sequencers_compare_as_documented_by_aws() {
        let ascending =
            ["0055AED6DCD90281E5", "0055aed6dcd90281e6", "006408CAD69598B05E", "617f08299329d189", "617f0837b476e463"];
        for pair in ascending.windows(2) {
            assert!(sequence(pair[0]) < sequence(pair[1]), "{pair:?}");
        }
        assert!(sequence("617f08") < sequence("617f08299329d189"), "a shorter one is padded on the right");
        assert!(sequence("7") > sequence("617f08299329d189"));
        assert_eq!(sequence("617f08"), sequence("617f08000"));
        assert_eq!(sequence("aB"), sequence("Ab"));
        assert!(sequence(&"f".repeat(MAX_DIGITS)).is_some());
    }

    #[test]
    fn an_invalid_sequencer_has_no_sequence() {
        for text in ["", "Happy Sequencer", "+1", "0x1", "1 ", &"1".repeat(MAX_DIGITS + 1)] {
            assert_eq!(sequence(text), None, "{text:?}");
        }
    }
}
