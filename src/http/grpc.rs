//! The status of gRPC, which is not the status of HTTP.

use http::{HeaderMap, HeaderName, header};

use super::ResponseBody;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Returns whether a response reports an error of gRPC, or may report one. The status of gRPC is in the trailers or, of a response
/// without a body, in the headers. The trailers of a body that exceeds the limit are not known yet.
pub(super) fn may_be_error<B>(headers: &HeaderMap, body: &ResponseBody<B>) -> bool {
    let status = body.trailers().and_then(|trailers| trailers.get(GRPC_STATUS)).or_else(|| headers.get(GRPC_STATUS));
    if status.is_some_and(|status| status != "0") {
        return true;
    }
    let is_unknown = body.whole().is_none() && is_grpc(headers);
    if is_unknown {
        tracing::warn!(
            target: "lambda_once",
            "a gRPC response exceeds `max_body`, so its status is not known and its key is kept: raise `max_body`, or add a \
             `Decision` to the extensions of the response"
        );
    }
    is_unknown
}

/// Whether the media type is `application/grpc`, or that with a suffix such as `+proto`. The status of gRPC-Web is in the body.
fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let Some(value) = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes()) else { return false };
    let Some((start, rest)) = value.split_at_checked(GRPC.len()) else { return false };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}
