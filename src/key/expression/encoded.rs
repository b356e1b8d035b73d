//! Decodes text in Base64, optionally compressed by gzip.

use std::{borrow::Cow, io::Read};

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use flate2::{Crc, bufread::DeflateDecoder};

/// The maximum size of a decompressed text. Lambda accepts events of up to 6 MB, and a kilobyte of gzip may expand to a
/// megabyte.
const MAX_INFLATED_BYTES: usize = 16 * 1024 * 1024;

/// Base64 that ignores trailing bits of the last digit.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// The reason why a text cannot be decoded. It contains nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Base64,
    Gzip,
    TooLarge,
    Utf8,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Base64 => "not Base64",
            Self::Gzip => "not gzip, or only a part of it",
            Self::TooLarge => "decompressed it has more than 16 MiB",
            Self::Utf8 => "not UTF-8",
        })
    }
}

/// Decodes text in Base64.
pub(super) fn base64(encoded: &str) -> Result<String, Problem> {
    String::from_utf8(bytes(encoded)?).map_err(|_| Problem::Utf8)
}

/// Decodes text compressed by gzip and encoded in Base64.
pub(super) fn base64_gzip(encoded: &str) -> Result<String, Problem> {
    String::from_utf8(gunzip(&bytes(encoded)?, MAX_INFLATED_BYTES)?).map_err(|_| Problem::Utf8)
}

/// Decodes Base64, ignoring white space as in MIME. Python ignores all characters outside the alphabet, so that texts
/// that differ in them would be the same key.
fn bytes(encoded: &str) -> Result<Vec<u8>, Problem> {
    let mut encoded = Cow::Borrowed(encoded);
    if encoded.contains(|c: char| c.is_ascii_whitespace()) {
        encoded = encoded.chars().filter(|c| !c.is_ascii_whitespace()).collect::<String>().into();
    }
    BASE64.decode(encoded.as_bytes()).map_err(|_| Problem::Base64)
}

/// Decompresses the members of a gzip file ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)) into at most `limit`
/// bytes. Trailing zeros, as on a tape, are allowed.
fn gunzip(mut file: &[u8], limit: usize) -> Result<Vec<u8>, Problem> {
    let mut text = Vec::new();
    while let Some(&first) = file.first() {
        if first == 0 && !text.is_empty() && file.iter().all(|&byte| byte == 0) {
            break;
        }
        let start = text.len();
        let body = header_end(file).ok_or(Problem::Gzip)?;
        // The limit is exceeded by one byte, so that a member that just fits is read to its end.
        let most = (limit - start).saturating_add(1);
        let mut member = DeflateDecoder::new(&file[body..]).take(most as u64);
        member.read_to_end(&mut text).map_err(|_| Problem::Gzip)?;
        if text.len() > limit {
            return Err(Problem::TooLarge);
        }
        let (trailer, rest) = member.into_inner().into_inner().split_first_chunk::<8>().ok_or(Problem::Gzip)?;
        let mut crc = Crc::new();
        crc.update(&text[start..]);
        if *trailer != [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].concat()[..] {
            return Err(Problem::Gzip);
        }
        file = rest;
    }
    Ok(text)
}

/// Returns the end of a member's header. `flate2` reads headers too, but rejects those with a wrong checksum, which
/// Python, and therefore Powertools, ignores.
fn header_end(file: &[u8]) -> Option<usize> {
    const CHECKSUM: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;

    let [0x1f, 0x8b, 8, flags, ..] = *file else { return None };
    let mut at = 10;
    if flags & EXTRA != 0 {
        let length = file.get(at..at + 2)?;
        at += 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            at += file.get(at..)?.iter().position(|&byte| byte == 0)? + 1;
        }
    }
    if flags & CHECKSUM != 0 {
        at += 2;
    }
    (at <= file.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use flate2::{Compression, bufread::GzEncoder};

    use super::*;

    /// Creates a member of a gzip file.
    fn member(text: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        GzEncoder::new(text, Compression::best()).read_to_end(&mut file).unwrap();
        file
    }

    /// The text of the example, as compressed by `printf 123456789 | gzip -n`, with the checksum of the RFC.
    const DIGITS: [u8; 29] = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x33, 0x34, 0x32, 0x36, 0x31, 0x35, 0x33, 0xb7, 0xb0, 4, 0, 0x26, 0x39,
        0xf4, 0xcb, 9, 0, 0, 0,
    ];

    #[test]
    fn the_checksum_and_the_length_are_those_of_the_rfc() {
        assert_eq!(gunzip(&DIGITS, 9).unwrap(), b"123456789");
        for byte in DIGITS.len() - 8..DIGITS.len() {
            let mut file = DIGITS;
            file[byte] ^= 1;
            assert_eq!(gunzip(&file, 9), Err(Problem::Gzip), "{byte}");
        }
    }

    #[test]
    fn zeros_may_follow_the_members_and_nothing_else() {
        let two = DIGITS.repeat(2);
        assert_eq!(gunzip(&two, 18).unwrap(), b"123456789123456789");
        assert_eq!(gunzip(&two, 17), Err(Problem::TooLarge));
        assert_eq!(gunzip(&[&two[..], &[0; 512]].concat(), 18).unwrap(), b"123456789123456789");
        assert_eq!(gunzip(&[0; 512], 18), Err(Problem::Gzip));
        for garbage in [&b"\x00\x00more"[..], b"more", b"\x1f", b"\x1f\x8b"] {
            assert_eq!(gunzip(&[&DIGITS, garbage].concat(), 100), Err(Problem::Gzip), "{garbage:?}");
        }
    }

    #[test]
    fn a_text_is_decompressed_up_to_a_limit() {
        for length in [0, 1, 63, 64, 65, 1000, 100_000] {
            let text = vec![b'a'; length];
            let file = member(&text);
            assert_eq!(gunzip(&file, length).unwrap(), text, "{length}");
            assert_eq!(gunzip(&file, usize::MAX >> 1).unwrap(), text, "{length}");
            if length > 0 {
                assert_eq!(gunzip(&file, length - 1), Err(Problem::TooLarge), "{length}");
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_takes_the_memory() {
        let bomb = STANDARD_ENGINE.encode(member(&vec![b'0'; MAX_INFLATED_BYTES + 1]));
        assert!(bomb.len() < 30_000);
        assert_eq!(base64_gzip(&bomb), Err(Problem::TooLarge));
        // Each member fits, but not all together.
        let members = member(&vec![b'0'; MAX_INFLATED_BYTES / 2 + 1]).repeat(2);
        assert_eq!(base64_gzip(&STANDARD_ENGINE.encode(members)), Err(Problem::TooLarge));
        // Decompression ends at the limit, and does not reach an error far behind it. The second member has two stored
        // blocks of 50 000 bytes, and a block of the invalid type 3 (RFC 1951, 3.2.3).
        let stored = [&[0_u8, 0x50, 0xc3, 0xaf, 0x3c][..], &b"a".repeat(50_000)].concat();
        let broken = [&DIGITS[..10], &stored, &stored, &[7]].concat();
        let two = [member(&b"a".repeat(100_000)), broken].concat();
        assert_eq!(gunzip(&two, 100_010), Err(Problem::TooLarge));
        assert_eq!(gunzip(&two, 300_000), Err(Problem::Gzip));
    }

    const STANDARD_ENGINE: GeneralPurpose = base64::engine::general_purpose::STANDARD;

    #[test]
    fn a_file_that_is_cut_anywhere_is_refused() {
        let file = member("some text, some text".as_bytes());
        for end in 1..file.len() {
            assert_eq!(gunzip(&file[..end], 1000), Err(Problem::Gzip), "{end}");
        }
        assert_eq!(gunzip(&[], 1000).unwrap(), b"");
    }

    #[test]
    fn invalid_base64_is_refused() {
        assert_eq!(base64("YW\nJj").as_deref(), Ok("abc"));
        for other in ["Y-Jj", "YW_j", "YW*Jj", "YWJj=", "YQ==YQ=="] {
            assert_eq!(base64(other), Err(Problem::Base64), "{other}");
        }
    }
}
