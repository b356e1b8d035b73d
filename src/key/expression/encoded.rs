//! Text in Base64, and in gzip within it.

use std::borrow::Cow;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use miniz_oxide::inflate::{
    TINFLStatus,
    core::{
        DecompressorOxide, decompress,
        inflate_flags::{TINFL_FLAG_IGNORE_ADLER32, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF},
    },
};

/// The most that a text may grow to. Lambda takes events of up to 6 MB; a kilobyte of gzip may stand for a megabyte.
const MAX_INFLATED_BYTES: usize = 16 * 1024 * 1024;

/// What the last digit has beyond the last byte does not count.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Why a text cannot be had. None of these holds anything of it.
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

/// The text that is encoded in Base64.
pub(super) fn base64(encoded: &str) -> Result<String, Problem> {
    String::from_utf8(bytes(encoded)?).map_err(|_| Problem::Utf8)
}

/// The text that is compressed by gzip and encoded in Base64.
pub(super) fn base64_gzip(encoded: &str) -> Result<String, Problem> {
    String::from_utf8(gunzip(&bytes(encoded)?, MAX_INFLATED_BYTES)?).map_err(|_| Problem::Utf8)
}

/// White space is ignored, as in MIME. Python ignores all that is not in the alphabet; two texts that differ in that would be
/// one key.
fn bytes(encoded: &str) -> Result<Vec<u8>, Problem> {
    let mut encoded = Cow::Borrowed(encoded);
    if encoded.contains(|c: char| c.is_ascii_whitespace()) {
        encoded = encoded.chars().filter(|c| !c.is_ascii_whitespace()).collect::<String>().into();
    }
    BASE64.decode(encoded.as_bytes()).map_err(|_| Problem::Base64)
}

/// Decompresses the members of a gzip file ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)), into `limit` bytes at most.
/// Zeros may follow them, as on a tape.
fn gunzip(mut file: &[u8], limit: usize) -> Result<Vec<u8>, Problem> {
    let mut text = Vec::new();
    while let Some(&first) = file.first() {
        if first == 0 && !text.is_empty() && file.iter().all(|&byte| byte == 0) {
            break;
        }
        let start = text.len();
        let body = header_end(file).ok_or(Problem::Gzip)?;
        file = &file[body..];
        let read = inflate(file, &mut text, limit)?;
        let (trailer, rest) = file[read..].split_first_chunk::<8>().ok_or(Problem::Gzip)?;
        let [crc, length] =
            [[trailer[0], trailer[1], trailer[2], trailer[3]], [trailer[4], trailer[5], trailer[6], trailer[7]]]
                .map(u32::from_le_bytes);
        let member = &text[start..];
        if crc != crc32(member) || u32::try_from(member.len()) != Ok(length) {
            return Err(Problem::Gzip);
        }
        file = rest;
    }
    Ok(text)
}

/// Where the header of a member ends.
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

/// Appends what is compressed, and returns how many bytes that took.
fn inflate(compressed: &[u8], text: &mut Vec<u8>, limit: usize) -> Result<usize, Problem> {
    let mut state = Box::<DecompressorOxide>::default();
    let (mut read, mut written) = (0, text.len());
    loop {
        if written == text.len() {
            if text.len() == limit {
                // It may have ended with the last byte that fits: one more shows.
                text.push(0);
            } else {
                let more = text.len().max(4 * compressed.len()).max(64);
                text.resize(text.len().saturating_add(more).min(limit), 0);
            }
        }
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_IGNORE_ADLER32;
        let (status, consumed, produced) = decompress(&mut state, &compressed[read..], text, written, flags);
        read += consumed;
        written += produced;
        if written > limit {
            return Err(Problem::TooLarge);
        }
        match status {
            TINFLStatus::Done => {
                text.truncate(written);
                return Ok(read);
            }
            TINFLStatus::HasMoreOutput => {}
            _ => return Err(Problem::Gzip),
        }
    }
}

/// The checksum of RFC 1952, section 8.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };

    !bytes.iter().fold(!0, |crc, &byte| TABLE[(crc as u8 ^ byte) as usize] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use super::*;

    /// A member of a gzip file, with the checksum and the length of this text.
    fn member(text: &[u8]) -> Vec<u8> {
        let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        let body = miniz_oxide::deflate::compress_to_vec(text, 9);
        [&header[..], &body, &crc32(text).to_le_bytes(), &length].concat()
    }

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
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
        // Each member fits, and all together do not.
        let members = member(&vec![b'0'; MAX_INFLATED_BYTES / 2 + 1]).repeat(2);
        assert_eq!(base64_gzip(&STANDARD_ENGINE.encode(members)), Err(Problem::TooLarge));
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
    fn what_is_not_in_the_alphabet_is_refused() {
        assert_eq!(base64("YW\nJj").as_deref(), Ok("abc"));
        for other in ["Y-Jj", "YW_j", "YW*Jj", "YWJj=", "YQ==YQ=="] {
            assert_eq!(base64(other), Err(Problem::Base64), "{other}");
        }
    }
}
