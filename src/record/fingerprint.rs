//! Fingerprints of payloads, and the parts in which two of them differ.

use std::fmt;

use super::{digits, from_digits};

/// The version of a payload if none is set.
pub(crate) const DEFAULT_PAYLOAD_VERSION: u32 = 1;

/// The length in bytes of the hashes, and of the hashes with a version.
const LEN: usize = 32;
const VERSIONED_LEN: usize = LEN + 4;

/// Replaces the hash of the only part of a payload: if two such payloads differ, that part does.
const ONLY_PART: [u8; 4] = [0, 0, 0, 1];

/// A payload in its compared form, as hashes and a [version](Self::payload_version).
///
/// | bytes | content | decides |
/// |---|---|---|
/// | 0–15 | first half of a SHA-256 of the whole payload; for records of AWS Powertools an MD5 | whether two payloads are the same |
/// | 16–19 | for an HTTP request: the method and the path | nothing |
/// | 20–23 | for an HTTP request: the query | nothing |
/// | 24–27 | for an HTTP request: the compared headers | nothing |
/// | 28–31 | the body; for messages, invocations and operations the whole payload, with the constant 1 instead of a hash | nothing |
///
/// Four zero bytes mean that there is no such part. Fingerprints of AWS Powertools have no parts.
///
/// The hash of a part is the beginning of a SHA-256 of the *plain* key and the part. So a mismatch can
/// [name](Self::difference) the differing parts of two payloads of one key, while equal parts in records of different
/// keys have different hashes. With the plain key, a guess of a part can be verified, except for one wrong guess in
/// four billion. With read access to the store alone, the key must be guessed as well. The first 16 bytes are not
/// keyed, so equal payloads of one kind have equal bytes there, and a guess of the whole payload can be verified.
///
/// `Display` and `Debug` show the [text](Self::to_text).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// The hashes, and the version in network byte order.
    bytes: [u8; VERSIONED_LEN],
}

impl Fingerprint {
    /// Creates the fingerprint of a payload of version 1 from its 32 bytes.
    pub const fn from_bytes(hashes: [u8; LEN]) -> Self {
        let mut bytes = [0; VERSIONED_LEN];
        let (first, last) = bytes.split_at_mut(LEN);
        first.copy_from_slice(&hashes);
        last.copy_from_slice(&DEFAULT_PAYLOAD_VERSION.to_be_bytes());
        Self { bytes }
    }

    /// Returns the same fingerprint, for a payload of this version.
    #[must_use]
    pub const fn with_payload_version(mut self, version: u32) -> Self {
        let (_, last) = self.bytes.split_at_mut(LEN);
        last.copy_from_slice(&version.to_be_bytes());
        self
    }

    /// Returns the [version](crate::OperationSettings::payload_version) of the payload. Fingerprints of different versions are
    /// not compared.
    pub const fn payload_version(&self) -> u32 {
        let [.., a, b, c, d] = self.bytes;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the bytes for a store of bytes: 32, followed by the version as four bytes in network byte order unless
    /// it is 1. All of them make up the fingerprint.
    pub const fn as_bytes(&self) -> &[u8] {
        let (hashes, _) = self.bytes.split_at(LEN);
        if self.payload_version() == DEFAULT_PAYLOAD_VERSION { hashes } else { &self.bytes }
    }

    /// Reads the bytes of [`as_bytes`](Self::as_bytes). Returns `None` for anything else.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (hashes, version) = bytes.split_first_chunk()?;
        let fingerprint = Self::from_bytes(*hashes);
        if version.is_empty() {
            return Some(fingerprint);
        }
        let version = u32::from_be_bytes(version.try_into().ok()?);
        Some(fingerprint.with_payload_version(version)).filter(|_| version != DEFAULT_PAYLOAD_VERSION)
    }

    /// Returns the text for a store of text: 64 lower-case hexadecimal digits, after `v2:` if the version is 2, and so
    /// on.
    pub fn to_text(&self) -> String {
        // Not `format!`, which takes ten times as many instructions.
        let (version, mut buffer) = (self.payload_version(), [0; 2 * LEN]);
        let hashes = digits(&self.bytes[..LEN], &mut buffer);
        if version == DEFAULT_PAYLOAD_VERSION { hashes.to_owned() } else { format!("v{version}:{hashes}") }
    }

    /// Reads the text of [`to_text`](Self::to_text). Returns `None` for anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        let Some((version, hashes)) = text.split_once(':') else { return from_digits(text).map(Self::from_bytes) };
        let version: u32 = version.strip_prefix('v')?.parse().ok()?;
        let fingerprint = Self::from_bytes(from_digits(hashes)?).with_payload_version(version);
        // One fingerprint has one text: no sign, no leading zero, no `v1`.
        (version != DEFAULT_PAYLOAD_VERSION && fingerprint.to_text() == text).then_some(fingerprint)
    }

    /// Returns whether the two belong to different payloads, that is, whether they have the same version, and their
    /// first 16 bytes differ.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        self.payload_version() == other.payload_version() && self.bytes[..16] != other.bytes[..16]
    }

    /// Returns the parts in which the payloads differ. None are known if the payloads do not
    /// [differ](Self::differs_from), if one of the fingerprints has no parts, or if they do not have the same parts (except for
    /// the headers, which a deployment may begin to compare).
    ///
    /// ```
    /// use lambda_once::record::{Fingerprint, PayloadPart};
    ///
    /// let mut bytes = [7; 32];
    /// let first = Fingerprint::from_bytes(bytes);
    /// bytes[15] = 8; // of the whole
    /// bytes[31] = 8; // of the body
    /// let other = Fingerprint::from_bytes(bytes);
    /// let difference = other.difference(&first);
    /// assert_eq!(difference.parts().collect::<Vec<_>>(), [PayloadPart::Body]);
    /// assert_eq!(difference.to_string(), "the body");
    /// ```
    #[must_use]
    pub fn difference(&self, other: &Self) -> Difference {
        let has_same_parts = PayloadPart::ALL
            .into_iter()
            .filter(|part| *part != PayloadPart::Headers)
            .all(|part| self.part(part).is_some() == other.part(part).is_some());
        if !has_same_parts || !self.differs_from(other) {
            return Difference::UNKNOWN;
        }
        let is_only_part = self.parts().eq([PayloadPart::Body]) && other.parts().eq([PayloadPart::Body]);
        let differs = |part: &PayloadPart| self.part(*part) != other.part(*part);
        if is_only_part {
            Difference::of([PayloadPart::Body])
        } else {
            PayloadPart::ALL.into_iter().filter(differs).collect()
        }
    }

    /// Returns the hash of a part, or `None` if there is no such part.
    fn part(&self, part: PayloadPart) -> Option<&[u8]> {
        Some(&self.bytes[part.range()]).filter(|hash| hash.iter().any(|byte| *byte != 0))
    }

    fn parts(&self) -> impl Iterator<Item = PayloadPart> {
        PayloadPart::ALL.into_iter().filter(|part| self.part(*part).is_some())
    }

    /// Creates the fingerprint of a payload without parts. `digest` is its SHA-256.
    pub(crate) fn of_whole(digest: [u8; LEN]) -> Self {
        Self::of_parts(digest, [(PayloadPart::Body, ONLY_PART)])
    }

    /// Creates the fingerprint of a payload with these hashes of its parts. `digest` is the SHA-256 of the whole.
    pub(crate) fn of_parts(digest: [u8; LEN], parts: impl IntoIterator<Item = (PayloadPart, [u8; 4])>) -> Self {
        let mut bytes = digest;
        bytes[16..].fill(0);
        for (part, hash) in parts {
            // Zeros mean that there is no such part.
            let hash = if hash == [0; 4] { [0, 0, 0, 1] } else { hash };
            bytes[part.range()].copy_from_slice(&hash);
        }
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.payload_version();
        if version != DEFAULT_PAYLOAD_VERSION {
            write!(f, "v{version}:")?;
        }
        f.write_str(digits(&self.bytes[..LEN], &mut [0; 2 * LEN]))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// A compared part of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PayloadPart {
    /// The method and the path of an HTTP request, and in Lambda the API and the stage that it was sent to.
    MethodAndPath,
    /// The query of an HTTP request.
    Query,
    /// The compared headers of an HTTP request (`IdempotencyKeyLayer::compare_headers`).
    Headers,
    /// The body of an HTTP request with its media type, or the output of `IdempotencyKeyLayer::fingerprint` instead.
    /// For a message, an invocation and an operation: the payload.
    Body,
}

impl PayloadPart {
    const ALL: [Self; 4] = [Self::MethodAndPath, Self::Query, Self::Headers, Self::Body];

    /// Returns a stable name in snake case, as in logs and in HTTP problems.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MethodAndPath => "method_and_path",
            Self::Query => "query",
            Self::Headers => "headers",
            Self::Body => "body",
        }
    }

    /// Returns its position in a fingerprint.
    const fn range(self) -> std::ops::Range<usize> {
        let begin = 16 + 4 * self as usize;
        begin..begin + 4
    }
}

/// The parts in which two payloads differ.
///
/// `Display` gives a phrase, as in "the query and the body", or "the payload" if none are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Difference {
    /// One bit per part.
    parts: u8,
}

impl Difference {
    /// No part is known to differ.
    pub const UNKNOWN: Self = Self { parts: 0 };

    /// Creates the difference of these parts.
    pub fn of(parts: impl IntoIterator<Item = PayloadPart>) -> Self {
        Self { parts: parts.into_iter().fold(0, |parts, part| parts | 1 << part as u8) }
    }

    const fn contains(self, part: PayloadPart) -> bool {
        self.parts & 1 << part as u8 != 0
    }

    /// Returns whether any part is known to differ.
    pub const fn is_known(self) -> bool {
        self.parts != 0
    }

    /// Returns the parts that differ, in the order of a [`Fingerprint`].
    pub fn parts(self) -> impl Iterator<Item = PayloadPart> {
        PayloadPart::ALL.into_iter().filter(move |part| self.contains(*part))
    }

    /// Returns a sentence: "the query and the body differ".
    pub(crate) fn sentence(self) -> String {
        let verb = if self.parts().count() > 1 { "differ" } else { "differs" };
        format!("{self} {verb}")
    }

    /// Returns the [names](PayloadPart::as_str) of the parts for logs, as in `query,body`. Empty if none are known.
    pub(crate) fn names(self) -> String {
        self.parts().map(PayloadPart::as_str).collect::<Vec<_>>().join(",")
    }
}

impl FromIterator<PayloadPart> for Difference {
    fn from_iter<I: IntoIterator<Item = PayloadPart>>(parts: I) -> Self {
        Self::of(parts)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.parts().count();
        if count == 0 {
            return f.write_str("the payload");
        }
        for (index, part) in self.parts().enumerate() {
            f.write_str(match index {
                0 => "",
                _ if index + 1 == count => " and ",
                _ => ", ",
            })?;
            f.write_str(match part {
                PayloadPart::MethodAndPath => "the method or path",
                PayloadPart::Query => "the query",
                PayloadPart::Headers => "the compared headers",
                PayloadPart::Body => "the body",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use PayloadPart::{Body, Headers, MethodAndPath, Query};

    use super::*;

    fn of(whole: u8, parts: &[(PayloadPart, u8)]) -> Fingerprint {
        Fingerprint::of_parts([whole; 32], parts.iter().map(|(part, byte)| (*part, [*byte; 4])))
    }

    #[test]
    fn a_version_is_part_of_the_text_and_of_the_bytes_unless_it_is_1() {
        let first = Fingerprint::from_bytes([0xab; 32]);
        assert_eq!((first.payload_version(), first.to_text()), (1, "ab".repeat(32)));
        assert_eq!(first.as_bytes(), [0xab; 32]);
        assert_eq!(first.with_payload_version(1), first);
        for (version, last) in [(0, [0; 4]), (2, [0, 0, 0, 2]), (20, [0, 0, 0, 20]), (u32::MAX, [255; 4])] {
            let other = first.with_payload_version(version);
            assert_eq!((other.payload_version(), other.to_text()), (version, format!("v{version}:{first}")));
            assert_eq!(other.as_bytes(), [&[0xab; 32][..], &last].concat());
            assert_eq!(Fingerprint::from_slice(other.as_bytes()), Some(other));
            assert_eq!(Fingerprint::from_text(&other.to_text()), Some(other));
        }
        assert_eq!(Fingerprint::from_slice(first.as_bytes()), Some(first));
        assert_eq!(Fingerprint::from_text(&first.to_text()), Some(first));
    }

    #[test]
    fn a_fingerprint_has_one_text_and_one_sequence_of_bytes() {
        let hashes = "ab".repeat(32);
        for prefix in ["v1:", "v02:", "v+2:", "v:", ":", "2:", "V2:", "v2", "v-1:", "v4294967296:", "v2:v2:", "v2: "] {
            assert_eq!(Fingerprint::from_text(&format!("{prefix}{hashes}")), None, "{prefix}");
        }
        for text in [&hashes[1..], &hashes.to_uppercase(), "", "v2:"] {
            assert_eq!(Fingerprint::from_text(text), None, "{text}");
        }
        let versioned = [[0xab; 32].as_slice(), &[0, 0, 0, 1]].concat();
        for bytes in [&versioned, &versioned[..31], &versioned[..33], &[&versioned[..], &[0]].concat(), &[]] {
            assert_eq!(Fingerprint::from_slice(bytes), None, "{}", bytes.len());
        }
    }

    #[test]
    fn payloads_of_different_versions_are_not_compared() {
        let (one, other) = (of(1, &[(Body, 1)]), of(2, &[(Body, 2)]));
        assert!(one.differs_from(&other) && !one.differs_from(&one));
        let (one, raised) = (one.with_payload_version(2), other.with_payload_version(3));
        assert!(!one.differs_from(&other) && !other.differs_from(&one) && !one.differs_from(&raised));
        assert_eq!(one.difference(&other), Difference::UNKNOWN);
        assert!(one.differs_from(&other.with_payload_version(2)));
    }

    #[test]
    fn the_parts_with_other_hashes_differ() {
        let request = |[path, query, body]: [u8; 3]| vec![(MethodAndPath, path), (Query, query), (Body, body)];
        let first = of(1, &request([1, 2, 3]));
        let differs = |other: &Fingerprint| other.difference(&first).names();
        assert_eq!(differs(&of(2, &request([1, 2, 4]))), "body");
        assert_eq!(differs(&of(2, &request([1, 3, 4]))), "query,body");
        assert_eq!(differs(&of(2, &request([5, 3, 4]))), "method_and_path,query,body");
        assert_eq!(differs(&of(1, &request([1, 2, 4]))), "", "the whole is the same");
        assert_eq!(differs(&of(2, &request([1, 2, 3]))), "", "hashes of different parts may be equal");
        let headers = [request([1, 2, 3]), vec![(Headers, 9)]].concat();
        assert_eq!(differs(&of(2, &headers)), "headers", "a deployment has begun to compare them");
        assert_eq!(first.difference(&of(2, &headers)).names(), "headers");
    }

    #[test]
    fn nothing_is_named_where_the_parts_are_not_the_same() {
        let request = of(1, &[(MethodAndPath, 1), (Query, 2), (Body, 3)]);
        for other in [of(2, &[]), Fingerprint::of_whole([2; 32]), of(2, &[(MethodAndPath, 4), (Body, 3)])] {
            assert_eq!(request.difference(&other), Difference::UNKNOWN, "{other}");
            assert_eq!(other.difference(&request), Difference::UNKNOWN, "{other}");
        }
        assert_eq!(of(1, &[]).difference(&of(2, &[])), Difference::UNKNOWN, "as those of AWS Powertools");
    }

    #[test]
    fn a_payload_of_one_part_differs_in_that_and_shows_no_hash_of_it() {
        let [one, other] = [1, 2].map(|byte| Fingerprint::of_whole([byte; 32]));
        assert_eq!(one.difference(&other), Difference::of([Body]));
        assert_eq!(one.to_text(), format!("{}{}00000001", "01".repeat(16), "00".repeat(12)));
    }

    #[test]
    fn a_hash_of_zeros_is_not_an_absent_part() {
        assert_eq!(of(1, &[(Body, 0)]).as_bytes()[28..], [0, 0, 0, 1]);
    }

    #[test]
    fn a_difference_lists_its_parts_for_people() {
        let text = |parts: &[PayloadPart]| Difference::of(parts.iter().copied()).to_string();
        assert_eq!(text(&[]), "the payload");
        assert_eq!(text(&[Query]), "the query");
        assert_eq!(text(&[Body, Query]), "the query and the body");
        assert_eq!(
            text(&[Body, Query, Headers, MethodAndPath]),
            "the method or path, the query, the compared headers and the body"
        );
    }
}
