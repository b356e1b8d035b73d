//! Events and responses as Lambda's bytes.

use std::{fmt::Display, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_once::{Error, ErrorKind};
use lambda_runtime::LambdaEvent;
use serde::{Serialize, de::DeserializeOwned};
use tower_service::Service;

use super::{World, seconds};

/// The response without failures.
pub(crate) const ALL_DONE: &str = r#"{"batchItemFailures":[]}"#;

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// A Lambda function for this event.
pub(crate) trait Function<E>: Service<LambdaEvent<E>, Error = Error, Response: Serialize> + Clone {}

impl<E, S: Service<LambdaEvent<E>, Error = Error, Response: Serialize> + Clone> Function<E> for S {}

impl World {
    /// Invokes a function with this much time left, from Lambda's bytes to the bytes of the response.
    pub(crate) async fn invoke<E: DeserializeOwned>(
        &self,
        service: &impl Function<E>,
        event: &impl Display,
        left: Duration,
    ) -> Result<String, Error> {
        let event = parse(&event.to_string()).unwrap();
        let answer = service.clone().call(LambdaEvent::new(event, self.left(left))).await?;
        Ok(serde_json::to_string(&answer).unwrap())
    }

    /// Returns the response of one invocation with a minute left.
    pub(crate) async fn answer<E: DeserializeOwned>(&self, service: &impl Function<E>, event: &impl Display) -> String {
        self.invoke(service, event, seconds(60)).await.unwrap()
    }

    /// Returns the error of one invocation with a minute left.
    pub(crate) async fn fail<E: DeserializeOwned>(&self, service: &impl Function<E>, event: &impl Display) -> Error {
        self.invoke(service, event, seconds(60)).await.unwrap_err()
    }

    /// Invokes a function twice. The first invocation is cancelled and leaves a claim, which the second one waits for.
    pub(crate) async fn response_after_cancellation<E: DeserializeOwned>(
        &self,
        service: &impl Function<E>,
        event: &impl Display,
    ) {
        let began = tokio::time::Instant::now();
        assert!(self.invoke(service, event, seconds(10)).await.is_err());
        assert_eq!(self.answer(service, event).await, "null");
        // The lease ends a second after the deadline, and the margin is a second.
        assert!(began.elapsed() >= seconds(12) && began.elapsed() < seconds(13), "{:?}", began.elapsed());
    }

    /// Returns the error message for a refused event, of which nothing was claimed and nothing ran.
    pub(crate) async fn refuse<E: DeserializeOwned>(&self, service: &impl Function<E>, event: &impl Display) -> String {
        let error = self.fail(service, event).await;
        assert_eq!(error.kind(), ErrorKind::Event, "{error}");
        assert!(error.is_retryable());
        assert!(self.store.calls().is_empty() && self.journal.keys().is_empty());
        error.to_string()
    }
}

/// Reads an event as `lambda_runtime` does, or returns the reason why it cannot be read.
pub(crate) fn parse<E: DeserializeOwned>(event: &str) -> Result<E, String> {
    let reader = &mut serde_json::Deserializer::from_slice(event.as_bytes());
    serde_path_to_error::deserialize(reader).map_err(|error| error.to_string())
}

/// Returns the error for an event that cannot be read.
pub(crate) fn unreadable<E: DeserializeOwned>(event: &impl Display) -> String {
    match parse::<E>(&event.to_string()) {
        Ok(_) => panic!("it can be read: {event}"),
        Err(error) => error,
    }
}
