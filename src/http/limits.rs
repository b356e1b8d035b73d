//! The layer's limits on bodies and handlers.

use std::time::Duration;

use super::{IdempotencyKeyLayer, admission::Permits, request_body::Room};

/// # Limits
impl IdempotencyKeyLayer {
    /// Sets the largest request body, in bytes, 6 MiB by default. A larger request is refused with 413.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.settings.max_body = bytes;
        self
    }

    /// Sets the largest response body that is stored, in bytes, 6 MiB by default. A larger response is passed through and
    /// stored without its body, so a retry gets 410. In Lambda the same applies to a response above Lambda's limit of
    /// 6,291,556 bytes, as `lambda_http` encodes it, because the function could not replay it either. A
    /// [stream](super#streams) has no limit.
    ///
    /// The limit of the [store](crate::store::Limits) applies as well, to the compressed response. A response over 1 MiB, as
    /// stored in JSON, is not compressed.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.settings.max_response = bytes;
        self
    }

    /// Sets how many bytes of request bodies the layer holds at most, 128 MiB by default. It must be at least
    /// [`max_body`](Self::max_body). A body counts from its first byte until its handler has ended. A request whose
    /// body does not fit is refused with 503 `overloaded`. Bodies that `lambda_http` already holds in memory do not
    /// count, nor do bodies of requests that pass through, unless they are read to look for the [`key`](Self::key).
    ///
    /// Clones of this layer and the services that it wraps share one limit.
    pub fn max_buffered(mut self, bytes: usize) -> Self {
        self.settings.room = Room::of(bytes);
        self
    }

    /// Sets how long a request body may pause, 30 seconds by default. After that the request is refused with 408 `body_timed_out`.
    /// The whole upload has no time limit. To set one, use an outer layer such as `tower_http::timeout::TimeoutLayer`.
    pub fn body_idle_timeout(mut self, time: Duration) -> Self {
        self.settings.body_idle_timeout = time;
        self
    }

    /// Sets how many handlers may run simultaneously. A further request is refused with 503 `overloaded` and `Retry-After`,
    /// before its operation is claimed. By default there is no limit.
    ///
    /// A request counts from the moment its body has been read and it is about to claim its operation until its handler has ended,
    /// even if its client has disconnected ([`run_to_completion`](Self::run_to_completion)). A concurrency limit outside this layer
    /// is released when the client disconnects, so it does not limit handlers. To have further requests wait in a queue instead, see
    /// [`GiveUpLayer`](super::GiveUpLayer).
    ///
    /// Requests that [wait](Self::wait_up_to) for another request and requests that pass through do not count. A replay
    /// counts during its claim, if a permit is free. If no permit is free, the layer reads the record instead, so that a
    /// replay is not refused. At most as many records are read simultaneously as handlers may run, and further requests are
    /// refused without a read. A request that has waited for its key also waits for a permit, within the time it may wait.
    ///
    /// Clones of this layer and the services that it wraps share one limit.
    ///
    /// ```
    /// use lambda_once::http::IdempotencyKeyLayer;
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// layer.max_in_flight(100)
    /// # }
    /// ```
    pub fn max_in_flight(mut self, handlers: usize) -> Self {
        self.settings.max_in_flight = Some(handlers);
        self.settings.permits = Some(Permits::of(handlers));
        self
    }

    /// Refuses a response that is too large ([`max_response`](Self::max_response)) with 500, instead of passing it through to the
    /// first client. A response that exceeds only the limit of the store is still passed through.
    pub fn reject_large_responses(mut self) -> Self {
        self.settings.refuses_large_answers = true;
        self
    }
}
