//! Fingerprints requests by method, path, query, media type and body.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, Uri, header, request::Parts};
use percent_encoding::percent_decode;

use super::lambda;
use crate::{
    error::BoxError,
    key::{canonical::Form, delivery::Body, hash::fingerprint},
    record::Fingerprint,
};

/// The names and values of a query, decoded.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns what the application compares in place of the body.
pub(super) type FingerprintHook = Arc<dyn Fn(&Parts, &[u8]) -> Result<Vec<u8>, BoxError> + Send + Sync>;

/// Returns the fingerprint of a request. `hook` replaces its body.
///
/// # Errors
///
/// Those of the hook.
pub(super) fn of_request(
    parts: &Parts,
    body: &Body<'_>,
    hook: Option<&FingerprintHook>,
) -> Result<Fingerprint, BoxError> {
    let media_type = media_type(&parts.headers);
    let (form, view) = match hook {
        Some(hook) => (Form::Bytes, Cow::Owned(hook(parts, body.bytes())?)),
        None if is_json(&media_type) => match body.canonical() {
            Ok(json) => (Form::CanonicalJson, Cow::Borrowed(json)),
            Err(_) => (Form::Bytes, Cow::Borrowed(body.bytes())),
        },
        None => (Form::Bytes, Cow::Borrowed(body.bytes())),
    };
    let (api, stage) = lambda::api(parts).unwrap_or_default();
    let (sent, routed) = targets(parts);
    let pieces = [
        parts.method.as_str().as_bytes(),
        api.as_bytes(),
        stage.as_bytes(),
        sent.path.as_bytes(),
        &sent.query,
        routed.path.as_bytes(),
        &routed.query,
        media_type.as_bytes(),
        &view,
    ];
    Ok(fingerprint(form, &pieces))
}

/// A path and its query.
#[derive(Default)]
struct Target<'a> {
    path: &'a str,
    query: Vec<u8>,
}

/// Returns the target that the client sent and, if a router or middleware has changed it, the current one. Nesting removes a
/// prefix; a rewrite may move a header into the path.
fn targets(parts: &Parts) -> (Target<'_>, Target<'_>) {
    let original = original_uri(parts);
    let is_routed = *original != parts.uri || lambda::is_rewritten(parts);
    let routed = if is_routed { Target::of(&parts.uri) } else { Target::default() };
    let original = Target::of(original);
    (Target { path: lambda::path(parts).unwrap_or(original.path), ..original }, routed)
}

/// The URI before any axum router has changed it.
fn original_uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

impl<'a> Target<'a> {
    fn of(uri: &'a Uri) -> Self {
        Self { path: uri.path(), query: joined(pairs(uri.query().unwrap_or_default())) }
    }
}

/// Encodes a query sorted by name: `lambda_http` makes those of REST APIs and load balancers from a map, in an order that
/// differs from one delivery to the next. Repeated values keep their order, which may be significant. Each name and value
/// is preceded by its length, so that no two queries have the same encoding.
fn joined(mut pairs: Pairs) -> Vec<u8> {
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let parts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
    parts.flat_map(|part| (part.len() as u64).to_be_bytes().into_iter().chain(part)).collect()
}

/// Decodes `application/x-www-form-urlencoded` into bytes: decoded into text, two values that are not UTF-8 would be equal.
fn pairs(query: &str) -> Pairs {
    let decode = |text: &str| percent_decode(text.replace('+', " ").as_bytes()).collect();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// Returns the media type without its parameters: a retry may choose another boundary for a multipart form.
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
        of_request(&request.into_parts().0, &Body::new(body.as_bytes()), None).unwrap()
    }

    const JSON: &str = "application/json";

    #[test]
    fn the_order_of_parameters_and_their_encoding_do_not_count_but_that_of_values_does() {
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

    #[test]
    fn the_media_type_says_whether_a_body_is_json() {
        for json in [JSON, "Application/JSON; charset=utf-8", "application/vnd.api+json"] {
            assert_eq!(of("/", json, r#"{"a":1,"b":2}"#), of("/", json, r#"{ "b": 2, "a": 1 }"#), "{json}");
        }
        assert_eq!(of("/", JSON, "1"), of("/", "application/json;charset=UTF-8", "1"));
        for text in ["text/plain", "application/jsonl", ""] {
            assert_ne!(of("/", text, "{}"), of("/", text, "{ }"), "{text}");
        }
        assert_ne!(of("/", "text/plain", "{}"), of("/", JSON, "{}"));
        assert_ne!(of("/", JSON, "{"), of("/", JSON, "{ "), "not JSON, whatever it says");
    }
}
