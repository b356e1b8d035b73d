//! The results of the measurements of the HTTP layer, which are passed between processes as JSON.

use serde::{Deserialize, Serialize};

/// CPU times of a request, in microseconds, through an axum router in the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Layer {
    /// The body of the request and of the response, in bytes.
    pub body_bytes: usize,
    /// The route without the layer.
    pub bare: f64,
    /// With a new key, in the request's own future, as in Lambda.
    pub new_in_place: f64,
    /// With a new key, in a separate task, as outside Lambda.
    pub new_in_task: f64,
    /// With a key whose response is stored.
    pub replay: f64,
}
