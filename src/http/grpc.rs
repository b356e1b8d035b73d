//! The status of gRPC, which is separate from the HTTP status.

use http::{HeaderMap, HeaderName, header};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Returns whether a response is a gRPC response, whose status follows its body.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns whether a response reports a gRPC error. The status is in the trailers or, if there is no body, in the headers.
/// The trailers of a body that exceeds the limit are not known yet, and report none.
pub(super) fn is_error(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> bool {
    let status = trailers.and_then(|trailers| trailers.get(GRPC_STATUS)).or_else(|| headers.get(GRPC_STATUS));
    status.is_some_and(|status| status != "0")
}
