//! Extractors whose rejections leave the key free.

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use http::request::Parts;

use super::ResponseAction;

/// An axum extractor whose rejection releases the key.
///
/// An extractor runs before the handler, so if it rejects the request, nothing has happened. A rejection with 400 or 422, such as
/// that of `Json`, would be stored, because a handler may return the same status after its effect. This type adds
/// [`ResponseAction::Release`] to the rejection, so that a client may correct the request under the same key. A rejection that already
/// has a decision keeps it.
///
/// ```
/// use axum::{Json, http::StatusCode};
/// use lambda_once::http::ReleaseRejection;
///
/// async fn charge(ReleaseRejection(Json(amount)): ReleaseRejection<Json<u64>>) -> StatusCode {
///     // …
///     # let _ = amount;
///     StatusCode::CREATED
/// }
/// # let _: axum::Router = axum::Router::new().route("/charges", axum::routing::post(charge));
/// ```
///
/// Needs the feature `axum`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseRejection<E>(pub E);

impl<S: Send + Sync, E: FromRequest<S>> FromRequest<S> for ReleaseRejection<E> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        E::from_request(request, state).await.map(Self).map_err(released)
    }
}

impl<S: Send + Sync, E: FromRequestParts<S>> FromRequestParts<S> for ReleaseRejection<E> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        E::from_request_parts(parts, state).await.map(Self).map_err(released)
    }
}

fn released(rejection: impl IntoResponse) -> Response {
    let mut response = rejection.into_response();
    response.extensions_mut().get_or_insert(ResponseAction::Release);
    response
}
