//! Fingerprints requests by method, path, query, media type and body.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header, request::Parts};
use percent_encoding::percent_decode;

use super::{lambda, multipart};
use crate::{
    error::BoxError,
    key::{
        canonical::Form,
        delivery::Body,
        hash::{digest, part_hash},
    },
    record::{Fingerprint, PayloadPart},
};

/// A form with more fields is compared byte by byte, because decoding multiplies its size.
const MAX_FIELDS: usize = 10_000;

/// The names and values of a query or a form, decoded.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the value that the application compares in place of the body.
pub(super) type FingerprintHook = Arc<dyn Fn(&Parts, &[u8]) -> Result<Vec<u8>, BoxError> + Send + Sync>;

/// Returns the fingerprint of a request under its plain key. `hook` replaces its body; `headers` are compared as well.
///
/// # Errors
///
/// Returns the hook's errors.
pub(super) fn of_request(
    key: &[u8],
    parts: &Parts,
    body: &Body<'_>,
    hook: Option<&FingerprintHook>,
    headers: &[HeaderName],
) -> Result<Fingerprint, BoxError> {
    let media_type = media_type(&parts.headers);
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let (form, view) = match hook {
        Some(hook) => (Form::Bytes, vec![Cow::Owned(hook(parts, body.bytes())?)]),
        None if is_json(&media_type) => match body.canonical() {
            Ok(json) => (Form::CanonicalJson, vec![json.into()]),
            Err(_) => (Form::Bytes, vec![body.bytes().into()]),
        },
        None => (Form::Bytes, view(&media_type, content_type, body.bytes())),
    };
    let (api, stage) = lambda::api(parts).unwrap_or_default();
    let (sent, routed) = targets(parts);
    let headers = encoded(&parts.headers, headers);
    // The body is hashed once, and its hash is part of both other hashes.
    let mut pieces = vec![media_type.as_bytes()];
    pieces.extend(view.iter().map(|piece| &piece[..]));
    let body = digest(form, &pieces);
    let target = [parts.method.as_str(), api, stage, &*sent.path, &*routed.path].map(str::as_bytes);
    let query = [&*sent.query, &*routed.query];
    let headers = headers.as_deref();
    let whole: Vec<&[u8]> = target.into_iter().chain(query).chain(headers).chain([&body[..]]).collect();
    let of_part = |part, pieces: &[&[u8]]| (part, part_hash(key, part, pieces));
    let parts = [
        Some(of_part(PayloadPart::MethodAndPath, &target)),
        Some(of_part(PayloadPart::Query, &query)),
        headers.map(|headers| of_part(PayloadPart::Headers, &[headers])),
        Some(of_part(PayloadPart::Body, &[&body])),
    ];
    Ok(Fingerprint::of_parts(digest(Form::Bytes, &whole), parts.into_iter().flatten()))
}

/// Encodes these headers, with repeated values in order and no values for an absent header. Returns `None` if there are no
/// names.
fn encoded(headers: &HeaderMap, names: &[HeaderName]) -> Option<Vec<u8>> {
    let values = |name: &HeaderName| -> Pairs {
        let values = headers.get_all(name).iter();
        values.map(|value| (name.as_str().into(), value.as_bytes().into())).collect()
    };
    (!names.is_empty()).then(|| joined(names.iter().flat_map(values).collect()))
}

/// The part of a body that is compared if it is not JSON.
fn view<'a>(media_type: &str, content_type: Option<&'a HeaderValue>, body: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
    if media_type == "application/x-www-form-urlencoded" {
        return match body.split(|&byte| byte == b'&').nth(MAX_FIELDS) {
            None => vec![form(pairs(body)).into()],
            Some(_) => vec![content_type.map_or(&b""[..], HeaderValue::as_bytes).into(), body.into()],
        };
    }
    let Some(content_type) = content_type.filter(|_| media_type.starts_with("multipart/")) else {
        return vec![body.into()];
    };
    match multipart::pieces(content_type, body) {
        // A content type is never the constant in place of the boundary.
        Some(pieces) => [&b"--"[..]].into_iter().chain(pieces).map(Cow::Borrowed).collect(),
        None => vec![content_type.as_bytes().into(), body.into()],
    }
}

/// A path and its query.
#[derive(Default)]
struct Target<'a> {
    path: Cow<'a, str>,
    query: Vec<u8>,
}

/// Returns the target that the client sent and, if a router or middleware has changed it, the current one. Nesting removes
/// a prefix, and a rewrite may move a header into the path.
fn targets(parts: &Parts) -> (Target<'_>, Target<'_>) {
    let original = original_uri(parts);
    let is_routed = *original != parts.uri || lambda::is_rewritten(parts);
    let routed = if is_routed { Target::of(&parts.uri) } else { Target::default() };
    let original = Target::of(original);
    (Target { path: lambda::path(parts).map_or(original.path, normalized), ..original }, routed)
}

/// The URI before any axum router has changed it.
pub(super) fn original_uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

impl<'a> Target<'a> {
    fn of(uri: &'a Uri) -> Self {
        Self { path: normalized(uri.path()), query: joined(pairs(uri.query().unwrap_or_default().as_bytes())) }
    }
}

/// Normalizes the percent-encoding of a path (RFC 3986, sections 6.2.2.1 and 6.2.2.2). Unreserved characters are decoded,
/// and the digits of others are in upper case. `%2F` and `/` remain different. A path with a malformed escape is unchanged,
/// because a character that is decoded beside a stray `%` could become an escape.
fn normalized(path: &str) -> Cow<'_, str> {
    let mut escapes = path.split('%');
    let mut text = Cow::Borrowed(escapes.next().unwrap_or_default());
    for escape in escapes {
        let digits = escape.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else { return path.into() };
        let text = text.to_mut();
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text.push_str(&escape[2..]);
    }
    text
}

/// Encodes the fields of a form. If their names have no index, as in `items[][id]`, the order shows which fields belong
/// together.
fn form(pairs: Pairs) -> Vec<u8> {
    // More than a list of values, because a name continues after the brackets.
    let is_nested = pairs.iter().any(|(name, _)| name.windows(3).any(|three| three.starts_with(b"[]")));
    if is_nested { encode(pairs) } else { joined(pairs) }
}

/// Encodes pairs sorted by name. `lambda_http` builds the queries of REST APIs and load balancers from a map, in an order
/// that differs between deliveries, and clients build forms from maps. Repeated values keep their order, which may be
/// significant. Each name and value is preceded by its length, so that no two sets of pairs have the same encoding.
fn joined(mut pairs: Pairs) -> Vec<u8> {
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    encode(pairs)
}

fn encode(pairs: Pairs) -> Vec<u8> {
    let parts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
    parts.flat_map(|part| (part.len() as u64).to_be_bytes().into_iter().chain(part)).collect()
}

/// Decodes `application/x-www-form-urlencoded` into bytes, because two values that are not UTF-8 would be equal as text.
fn pairs(form: &[u8]) -> Pairs {
    let spaced = |text: &[u8]| text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect::<Vec<_>>();
    let decode = |text: &[u8]| percent_decode(&spaced(text)).collect();
    let pairs = form.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_at(pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len())))
        .map(|(name, value)| (decode(name), decode(value.get(1..).unwrap_or_default())))
        .collect()
}

/// Returns the media type without its parameters.
fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    let name = value.split(|&byte| byte == b';').next().unwrap_or_default();
    String::from_utf8_lossy(name).trim().to_ascii_lowercase()
}

fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(uri: &str, content_type: &str, body: &str) -> Fingerprint {
        let request = Request::post(uri).header("content-type", content_type).body(()).unwrap();
        of_request(b"key", &request.into_parts().0, &Body::new(body.as_bytes()), None, &[]).unwrap()
    }

    const JSON: &str = "application/json";

    /// Computed with Python's `hashlib`, by the table of [`Fingerprint`].
    #[test]
    fn the_parts_are_hashed_under_the_key_and_the_whole_is_not() {
        let request =
            Request::post("/a?x=1").header("content-type", JSON).header("if-match", "\"7\"").body(()).unwrap();
        let parts = request.into_parts().0;
        let of = |key: &[u8]| {
            of_request(key, &parts, &Body::new(b"{\"n\": 1}"), None, &[header::IF_MATCH]).unwrap().to_text()
        };
        assert_eq!(of(b"key"), "5a2f1d57bc7914cf1bb91ff7c38153bd3ab410407ff73220dc00eae0d08e3ed3");
        assert_eq!(of(b"other key"), "5a2f1d57bc7914cf1bb91ff7c38153bdad701800010c3eea44ade77f4607f982");
    }

    #[test]
    fn two_requests_with_one_key_differ_in_the_parts_that_were_changed() {
        let first = of("/a?x=1", JSON, "{}");
        for (other, names) in [
            (of("/a?x=1", JSON, "[]"), "body"),
            (of("/a?x=1", "text/plain", "{}"), "body"),
            (of("/a?x=2", JSON, "{}"), "query"),
            (of("/a", JSON, "[]"), "query,body"),
            (of("/b?x=1", JSON, "{}"), "method_and_path"),
        ] {
            assert_eq!(other.difference(&first).names(), names);
        }
    }

    #[test]
    fn parameter_order_and_encoding_are_ignored_but_not_value_order() {
        let one = of("/a?x=1&y=%C3%A9+b", JSON, "{}");
        assert_eq!(one, of("/a?y=%c3%a9%20b&x=1", JSON, "{}"));
        assert_eq!(one, of("/a?&y=%c3%a9%20b&&x=1&", JSON, "{}"));
        for other in ["/a", "/a?x=1", "/a?x=1&y=", "/a?x=1&y=%C3%A9%2Bb", "/a?x=1&y=%C3%A9+b&z", "/b?x=1&y=%C3%A9+b"] {
            assert_ne!(one, of(other, JSON, "{}"), "{other}");
        }
        assert_ne!(of("/a?x=1&x=2", JSON, "{}"), of("/a?x=2&x=1", JSON, "{}"));
        assert_ne!(of("/a?x=%FE", JSON, "{}"), of("/a?x=%FF", JSON, "{}"), "neither is UTF-8");
        assert_ne!(of("/a?x=1%26y=2", JSON, "{}"), of("/a?x=1&y=2", JSON, "{}"));
    }

    const FORM: &str = "application/x-www-form-urlencoded";

    #[test]
    fn form_field_order_is_ignored_but_not_value_order() {
        let one = of("/", FORM, "amount=1&to=%C3%A9+b&item=1&item=2");
        for same in ["to=%c3%a9%20b&item=1&amount=1&item=2", "item=1&item=2&&%61mount=1&to=\u{e9}+b&"] {
            assert_eq!(one, of("/", &format!("{FORM};charset=utf-8"), same), "{same}");
        }
        for other in ["amount=1&to=%C3%A9+b&item=2&item=1", "amount=1&to=%C3%A9%2Bb&item=1&item=2", "amount=1", ""] {
            assert_ne!(one, of("/", FORM, other), "{other}");
        }
        let items = |form: &str| of("/", FORM, form);
        let two = "items[][id]=1&items[][qty]=2&items[][id]=3";
        assert_ne!(items(two), items("items[][id]=1&items[][id]=3&items[][qty]=2"), "the quantity is of another item");
        assert_eq!(items(two), items(&two.replace("[]", "%5B%5D")));
        assert_ne!(of("/", FORM, "a=1%26b=2"), of("/", FORM, "a=1&b=2"));
        assert_ne!(of("/", FORM, "a=%FE"), of("/", FORM, "a=%FF"), "neither is UTF-8");
        assert_ne!(of("/", "text/plain", "a=1&b=2"), of("/", "text/plain", "b=2&a=1"));
    }

    #[test]
    fn a_form_of_very_many_fields_is_compared_byte_by_byte() {
        let form = |fields: usize, last: &str| format!("{}{last}", "a=1&".repeat(fields - 1));
        let (most, more) = (MAX_FIELDS, MAX_FIELDS + 1);
        assert_eq!(of("/", FORM, &form(most, "b=%7E")), of("/", FORM, &form(most, "b=~")));
        assert_ne!(of("/", FORM, &form(more, "b=%7E")), of("/", FORM, &form(more, "b=~")));
        assert_eq!(of("/", FORM, &form(more, "b=~")), of("/", FORM, &form(more, "b=~")));
    }

    #[test]
    fn the_percent_encoding_of_a_path_is_normalized_except_slashes() {
        for (path, same) in [
            ("/~a/b-c", "/%7Ea/b%2dc"),
            ("/caf%C3%A9", "/c%61f%c3%a9"),
            ("/a%2Fb", "/a%2fb"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("/%25", "/%25"),
            ("/%3F", "/%3f?"),
        ] {
            assert_eq!(of(path, JSON, "{}"), of(same, JSON, "{}"), "{path} and {same}");
        }
        for (path, other) in [
            ("/a%2Fb", "/a/b"),
            ("/a%20b", "/a+b"),
            ("/%257E", "/%7E"),
            ("/a", "/A"),
            ("/a", "/a/"),
            ("/%zz", "/%ZZ"),
            ("/f/%%32F", "/f/%2F"),
            ("/f/%2%46", "/f/%2F"),
        ] {
            assert_ne!(of(path, JSON, "{}"), of(other, JSON, "{}"), "{path} and {other}");
        }
    }

    #[test]
    fn a_multipart_boundary_does_not_count_and_everything_within_does() {
        let form = |boundary: &str, note: &str| {
            let part = |name: &str, value: &str| {
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
            };
            format!("{}{}--{boundary}--\r\n", part("amount", "1"), part("note", note))
        };
        let with = |boundary: &str, body: &str| {
            of("/", &format!("multipart/form-data; charset=utf-8; boundary={boundary}"), body)
        };
        let one = with("x", &form("x", "hello"));
        assert_eq!(one, with("\"a b\"", &form("a b", "hello")));
        assert_ne!(one, with("x", &form("x", "hello ")));
        assert_ne!(one, with("x", &form("x", "hello").replace("note", "memo")));
        assert_ne!(one, of("/", "multipart/mixed; boundary=x", &form("x", "hello")));
        assert_ne!(one, of("/", "text/plain; boundary=x", &form("x", "hello")));
        // A boundary that the value contains is part of the value.
        assert_ne!(with("x", &form("x", "y")), with("y", &form("y", "x")));
        assert_ne!(with("x", &form("x", "--y--")), with("y", &form("y", "--x--")));
        // A malformed body is compared byte by byte, including its content type.
        let torn = |boundary: &str| form(boundary, "hello").replace("--\r\n", "");
        assert_eq!(with("x", &torn("x")), with("x", &torn("x")));
        assert_ne!(with("x", &torn("x")), with("y", &torn("y")));
        assert_ne!(with("x", &form("z", "hello")), with("y", &form("z", "hello")));
    }

    #[test]
    fn the_media_type_decides_whether_a_body_is_json() {
        for json in [JSON, "Application/JSON; charset=utf-8", "application/vnd.api+json"] {
            assert_eq!(of("/", json, r#"{"a":1,"b":2}"#), of("/", json, r#"{ "b": 2, "a": 1 }"#), "{json}");
        }
        assert_eq!(of("/", JSON, "1"), of("/", "application/json;charset=UTF-8", "1"));
        for text in ["text/plain", "application/jsonl", ""] {
            assert_ne!(of("/", text, "{}"), of("/", text, "{ }"), "{text}");
        }
        assert_ne!(of("/", "text/plain", "{}"), of("/", JSON, "{}"));
        assert_ne!(of("/", JSON, "{"), of("/", JSON, "{ "), "not JSON, whatever its media type");
    }
}
