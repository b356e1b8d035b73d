//! `client [URL] [ACCOUNT] [AMOUNT_CENTS] [KEY]` — makes one charge, with retries.
//!
//! `URL` is the base URL of the service (default: http://127.0.0.1:3000), and `TOKEN` the bearer token. The client generates
//! one key for the operation and sends it with every attempt; pass `KEY` to resume an operation that an earlier run gave up.
//! `TRY_MS` limits each attempt, `DEADLINE_MS` all of them. At the end it reports whether the charge was made, was not made, or may
//! have been made.

use std::{
    env,
    fmt::Display,
    future::Future,
    process::ExitCode,
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// The longest pause before the second attempt. It doubles with each further attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The operation.
struct Operation {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    token: String,
    key: String,
    /// Whether an earlier run may have made the charge.
    is_resumed: bool,
    body: Bytes,
    try_time: Duration,
    time: Duration,
}

/// The known state of the charge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Made,
    None,
    Unknown,
}

/// The service's response.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn problem(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns whether a retry can change the response. The service reports this in `retryable`. Other responses, such as
    /// those of gateways and proxies, are classified by status.
    fn is_worth_a_retry(&self) -> bool {
        // The key is free for this charge only if the other request releases it.
        if self.is_of_another_request() {
            return false;
        }
        let by_status = || {
            let temporary = [
                StatusCode::REQUEST_TIMEOUT,
                StatusCode::CONFLICT,
                StatusCode::TOO_EARLY,
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::GATEWAY_TIMEOUT,
            ];
            temporary.contains(&self.status)
        };
        self.problem()["retryable"].as_bool().unwrap_or_else(by_status)
    }

    /// Returns the state of the charge according to the response. The codes are listed in `lambda_once::http`.
    fn effect(&self) -> Effect {
        let problem = self.problem();
        match problem["code"].as_str() {
            Some(
                "body_broken" | "body_timed_out" | "misconfigured" | "not_committed" | "overloaded" | "unavailable",
            ) => Effect::None,
            Some("not_recorded") => Effect::Made,
            // The operation is done, but it may have declined the charge.
            Some("replay_unchecked" | "response_not_stored" | "response_too_large" | "response_unreadable") => {
                match problem["response_status"].as_u64() {
                    Some(200..=299) => Effect::Made,
                    Some(400..=499) => Effect::None,
                    _ => Effect::Unknown,
                }
            }
            _ => match self.status {
                status if status.is_success() => Effect::Made,
                // These are sent while a charge is being processed, too.
                StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::FAILED_DEPENDENCY => Effect::Unknown,
                status if status.is_client_error() => Effect::None,
                _ => Effect::Unknown,
            },
        }
    }

    /// Returns the pause that the service requests with `Retry-After`. `retry_after_ms` may be longer, because it is the
    /// latest time at which the key becomes free if the other run has died.
    fn asked_pause(&self) -> Option<Duration> {
        let seconds = self.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let pause = seconds.map(Duration::from_secs);
        pause.or_else(|| self.problem()["retry_after_ms"].as_u64().map(Duration::from_millis))
    }

    /// Returns whether the key belongs to another request, which has taken effect or may still do so.
    fn is_of_another_request(&self) -> bool {
        self.problem()["code"] == "key_reused"
    }

    fn is_replay(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
    }

    fn text(&self) -> String {
        format!("{} {}", self.status.as_u16(), String::from_utf8_lossy(&self.body))
    }
}

impl Operation {
    async fn send(&self) -> Result<Answer> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.uri)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", format!("\"{}\"", self.key))
            .body(Full::new(self.body.clone()))?;
        let (head, body) = self.client.request(request).await?.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body: body.collect().await?.to_bytes() })
    }

    /// Retries until there is a response that no retry would change, or no time is left. Also returns the known state of
    /// the charge after all attempts.
    async fn answer(&self) -> (Result<Answer>, Effect) {
        let deadline = Instant::now() + self.time;
        let mut longest_pause = FIRST_PAUSE;
        let mut effect = if self.is_resumed { Effect::Unknown } else { Effect::None };
        for number in 1.. {
            let (what, asked) = match within(self.try_time.min(left(deadline)), self.send()).await {
                Ok(answer) => {
                    // A refusal of this attempt does not reveal the result of an earlier one. A replay does.
                    effect = match answer.effect() {
                        known if effect == Effect::None || answer.is_replay() => known,
                        Effect::Made => Effect::Made,
                        Effect::None | Effect::Unknown => effect,
                    };
                    if !answer.is_worth_a_retry() {
                        return (Ok(answer), effect);
                    }
                    (answer.text(), answer.asked_pause())
                }
                // The service may have received the request. The key makes it safe to send it again.
                Err(error) => {
                    let is_sent = !error.downcast_ref().is_some_and(hyper_util::client::legacy::Error::is_connect);
                    if is_sent && effect == Effect::None {
                        effect = Effect::Unknown;
                    }
                    (format!("{error:#}"), None)
                }
            };
            // Jitter, so that clients that failed together do not retry together.
            let pause = asked.unwrap_or_default() + longest_pause.mul_f64(fastrand::f64());
            longest_pause = (longest_pause * 2).min(LONGEST_PAUSE);
            if pause >= left(deadline) {
                return (Err(anyhow!("out of time after try {number}: {what}")), effect);
            }
            println!("try {number}: {what}; again in {} ms", pause.as_millis());
            sleep(pause).await;
        }
        unreachable!("tries end with the time")
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(time, work).await.unwrap_or_else(|_| Err(anyhow!("no answer within {} ms", time.as_millis())))
}

/// Parses an optional value from the environment or the command line.
fn parsed<T: FromStr<Err: Display>>(name: &str, text: Option<String>, otherwise: T) -> Result<T> {
    text.map_or(Ok(otherwise), |text| text.parse().map_err(|error| anyhow!("{name} is {text:?}: {error}")))
}

fn operation() -> Result<Operation> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let account = arguments.next().unwrap_or_else(|| "1".to_owned());
    let amount_cents: u64 = parsed("AMOUNT_CENTS", arguments.next(), 1_999)?;
    let key = arguments.next();
    let milliseconds = |name, otherwise| parsed(name, env::var(name).ok(), otherwise).map(Duration::from_millis);
    Ok(Operation {
        client: Client::builder(TokioExecutor::new()).build_http(),
        uri: format!("{}/accounts/{account}/charges", url.trim_end_matches('/')).parse().context("URL")?,
        token: env::var("TOKEN").unwrap_or_else(|_| "token-of-alice".to_owned()),
        is_resumed: key.is_some(),
        key: key.unwrap_or_else(|| Uuid::new_v4().to_string()),
        body: json!({ "amount_cents": amount_cents, "currency": "EUR" }).to_string().into(),
        try_time: milliseconds("TRY_MS", 10_000)?,
        time: milliseconds("DEADLINE_MS", 60_000)?,
    })
}

/// Makes the charge and reports the result. Returns whether the service has responded with success.
async fn charge() -> Result<bool> {
    let operation = operation()?;
    println!("key {}", operation.key);
    let (answer, effect) = operation.answer().await;
    let mut is_success = false;
    match answer {
        Ok(answer) => {
            is_success = answer.status.is_success();
            println!("{}: {}", if answer.is_replay() { "replay" } else { "response" }, answer.text());
            if answer.is_of_another_request() {
                eprintln!(
                    "client: the key was used for another charge, which was made or may still be; do not repeat that charge with a new key"
                );
            }
        }
        Err(error) => eprintln!("client: {error:#}"),
    }
    match effect {
        Effect::Made => println!("the charge was made"),
        Effect::None => println!("the charge was not made"),
        Effect::Unknown => println!("the charge may have been made: run again with the same key, {}", operation.key),
    }
    Ok(is_success)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match charge().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("client: {error:#}");
            ExitCode::FAILURE
        }
    }
}
