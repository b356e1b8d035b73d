//! Results encoded by a codec.

use std::fmt;

use crate::error::Error;

/// Separates the id of the codec from the bytes, in one value with both.
const SEPARATOR: u8 = b' ';

/// A serialized result encoded by a [`ResultCodec`](crate::ResultCodec), and an id for the codec, such as the id of a
/// cipher key. `Debug` shows the id and the size.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedData {
    /// The id, a space, and the bytes.
    packed: Vec<u8>,
    id_bytes: usize,
}

impl EncodedData {
    /// The maximum length of a codec's id, in bytes.
    pub const MAX_CODEC_BYTES: usize = 64;

    /// Creates encoded data from the id of its codec and the bytes. The id is stored as plain text, beside the bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) unless the id is 1 to 64 visible ASCII characters, without spaces.
    pub fn new(codec: &str, bytes: Vec<u8>) -> Result<Self, Error> {
        if codec.is_empty() || codec.len() > Self::MAX_CODEC_BYTES || !codec.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Error::config(
                "the id of a result codec has 1 to 64 visible ASCII characters and no spaces: use a shorter name or number of the key",
            ));
        }
        let packed = [codec.as_bytes(), &[SEPARATOR], &bytes].concat();
        Ok(Self { packed, id_bytes: codec.len() })
    }

    /// Returns the id of the codec.
    pub fn codec(&self) -> &str {
        std::str::from_utf8(&self.packed[..self.id_bytes]).unwrap_or_default()
    }

    /// Returns the bytes, without the id of the codec.
    pub fn bytes(&self) -> &[u8] {
        &self.packed[self.id_bytes + 1..]
    }

    /// Returns the id of the codec, a space and the bytes, for stores that keep a result in one value.
    pub fn as_packed(&self) -> &[u8] {
        &self.packed
    }

    /// Reads the output of [`as_packed`](Self::as_packed). Returns `None` for anything else.
    pub fn from_packed(packed: Vec<u8>) -> Option<Self> {
        let id_bytes = packed.iter().position(|byte| *byte == SEPARATOR)?;
        let id = &packed[..id_bytes];
        let is_id = (1..=Self::MAX_CODEC_BYTES).contains(&id_bytes) && id.iter().all(u8::is_ascii_graphic);
        is_id.then_some(Self { packed, id_bytes })
    }
}

impl fmt::Debug for EncodedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.codec(), self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_data_comes_back_from_one_value() {
        for bytes in [&b""[..], b" ", b"\0\xff 1"] {
            let data = EncodedData::new("key-2026", bytes.to_vec()).unwrap();
            assert_eq!((data.codec(), data.bytes()), ("key-2026", bytes));
            assert_eq!(EncodedData::from_packed(data.as_packed().to_vec()), Some(data));
        }
        for packed in [&b""[..], b" x", b"key", b"\xc3\xa9 x"] {
            assert_eq!(EncodedData::from_packed(packed.to_vec()), None);
        }
    }

    #[test]
    fn the_id_of_a_codec_is_short_visible_text() {
        let longest = "k".repeat(EncodedData::MAX_CODEC_BYTES);
        assert!(EncodedData::new(&longest, Vec::new()).is_ok());
        for bad in ["", "a b", "é", "a\n", &(longest + "k")] {
            assert!(EncodedData::new(bad, Vec::new()).is_err(), "{bad}");
            let packed = EncodedData::from_packed(format!("{bad} x").into_bytes());
            assert!(packed.is_none_or(|data| data.codec() != bad), "{bad}");
        }
    }
}
