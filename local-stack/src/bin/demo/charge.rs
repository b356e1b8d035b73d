//! A request to `charges`, and its expected response, determined from the event alone.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::body::Simulation;

/// One event of API Gateway.
#[derive(Debug)]
pub(crate) struct Request {
    /// The file's name.
    pub(crate) file: String,
    /// The event in the file.
    pub(crate) event: Value,
    /// The fields that were read from it.
    pub(crate) charge: Charge,
    /// The expected response.
    pub(crate) expected: Expected,
}

/// The parts of the event that decide the response.
#[derive(Debug)]
pub(crate) struct Charge {
    /// The payload format: `REST v1` or `HTTP v2`.
    pub(crate) format: &'static str,
    method: String,
    /// The `Idempotency-Key`, without quotes.
    pub(crate) key: Option<String>,
    /// The customer to charge. Each charge has a separate customer, because the ledger has no plain key.
    pub(crate) customer: Option<String>,
    body: String,
}

/// The kind of a request, which determines the expected response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A charge: 201 once, and the same 201 replayed for every repetition.
    Charged,
    /// No `Idempotency-Key`: refused every time.
    NoKey,
    /// A body that is no charge: refused every time, and not remembered.
    BadBody,
    /// A key that was used with another body: refused every time.
    OtherBody,
    /// Nothing but a read: 200 or 404.
    Read,
}

impl Expected {
    /// Whether the request has an effect.
    pub(crate) fn has_effect(self) -> bool {
        self == Self::Charged
    }

    /// The allowed statuses of the response.
    pub(crate) fn statuses(self) -> &'static [u16] {
        match self {
            Self::Charged => &[201],
            Self::NoKey | Self::BadBody => &[400],
            Self::OtherBody => &[422],
            Self::Read => &[200, 404],
        }
    }

    /// Describes the request in a few words.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Charged => "new charge",
            Self::NoKey => "charge without a key",
            Self::BadBody => "not a charge",
            Self::OtherBody => "same key, other body",
            Self::Read => "read",
        }
    }
}

/// The body that `charges` accepts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(rename = "customer_id")]
    _customer: String,
    #[serde(rename = "amount_cents")]
    _amount: u64,
    #[serde(rename = "currency")]
    _currency: String,
    simulate: Option<Simulation>,
}

impl Charge {
    /// Reads an event of a REST API (format 1.0) or an HTTP API (format 2.0).
    pub(crate) fn parse(event: &Value) -> Result<Self> {
        let is_v2 = event.get("version").and_then(Value::as_str) == Some("2.0");
        let (format, method) =
            if is_v2 { ("HTTP v2", "/requestContext/http/method") } else { ("REST v1", "/httpMethod") };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        ensure!(
            event.get("isBase64Encoded").and_then(Value::as_bool) != Some(true),
            "the demo does not read base64 bodies"
        );
        let body = text("/body").unwrap_or_default();
        let customer = serde_json::from_str::<Value>(body).ok();
        Ok(Self {
            format,
            method: text(method).with_context(|| format!("the event has no {method}"))?.to_owned(),
            key: header(event, "idempotency-key").map(|key| key.trim_matches('"').to_owned()),
            customer: customer.and_then(|body| Some(body.get("customer_id")?.as_str()?.to_owned())),
            body: body.to_owned(),
        })
    }

    /// Returns the expected response. `charged` holds the first valid body of each key.
    pub(crate) fn expect(&self, charged: &mut HashMap<String, Value>) -> Expected {
        if self.method != "POST" {
            return Expected::Read;
        }
        let Some(key) = &self.key else {
            return Expected::NoKey;
        };
        let body = serde_json::from_str::<Value>(&self.body);
        if let (Some(first), Ok(body)) = (charged.get(key), &body)
            && first != body
        {
            return Expected::OtherBody;
        }
        match (serde_json::from_str::<Body>(&self.body), body) {
            (Ok(Body { simulate: None | Some(Simulation { outcome: None, .. }), .. }), Ok(body)) => {
                charged.entry(key.clone()).or_insert(body);
                Expected::Charged
            }
            _ => Expected::BadBody,
        }
    }
}

/// A header of a request event or of a response payload, whose names differ in case, and which may
/// be among the headers with one value or with several.
pub(crate) fn header<'a>(message: &'a Value, name: &str) -> Option<&'a str> {
    let find = |headers: &str| {
        let headers = message.get(headers)?.as_object()?;
        let header = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value)
    };
    find("headers").and_then(Value::as_str).or_else(|| find("multiValueHeaders")?.get(0)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BODY: &str = r#"{"customer_id":"c","amount_cents":1,"currency":"EUR"}"#;

    fn post(key: &str, body: &str) -> Value {
        json!({ "httpMethod": "POST", "path": "/charges", "multiValueHeaders": { "Idempotency-Key": [key] }, "body": body })
    }

    #[test]
    fn the_expected_response_follows_from_method_key_and_body() {
        let http = json!({ "version": "2.0", "rawPath": "/charges", "headers": { "idempotency-key": "\"k-2\"" },
                           "requestContext": { "http": { "method": "POST" } }, "body": BODY });
        let no_key = json!({ "httpMethod": "POST", "path": "/charges", "headers": null, "body": BODY });
        let get = json!({ "httpMethod": "GET", "path": "/charges/1", "headers": {}, "body": null });
        let cases = [
            (post("k-1", BODY), Expected::Charged),
            (post("k-1", r#"{"customer_id":"d"}"#), Expected::OtherBody),
            (post("k-3", "{}"), Expected::BadBody),
            (post("k-3", BODY), Expected::Charged),
            (http, Expected::Charged),
            (no_key, Expected::NoKey),
            (get, Expected::Read),
        ];
        let mut charged = HashMap::new();
        for (event, expected) in cases {
            let charge = Charge::parse(&event).unwrap();
            assert_eq!(charge.expect(&mut charged), expected, "{event}");
        }
        assert!(charged.contains_key("k-2"));
        assert!(Charge::parse(&json!({ "Records": [] })).is_err());
    }
}
