//! Claims, settles and reads: one command for each key.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use redis::{Cmd, Value};

use super::{
    MAX_BATCH, RedisStore, error,
    failure::Failure,
    record,
    scripts::{self, By, CLAIM, SETTLE, Script},
};
use crate::{
    clock::Timestamp,
    error::Error,
    record::{Fingerprint, KeyHash, NEWEST_KNOWN_VERSION, RECORD_VERSION, Record, Status, StoredData, StoredResult},
    store::{
        Answers, ClaimRequest, Claimed, Grant, ResultData, SettleRequest, Settled, Settlement, Takeover,
        chunks::chunks,
        rules::{self, Judgement},
    },
};

/// What the results of one pipeline may add up to, in bytes. What is larger by itself goes alone.
const MAX_BYTES: usize = 1024 * 1024;

/// How many pipelines of one call are under way at once.
const CONCURRENCY: usize = 4;

/// The longest duration in milliseconds: with it, Lua's numbers are exact until the year 144,000.
const MAX_MILLIS: u64 = 1 << 52;

impl RedisStore {
    pub(super) async fn claim_all(&self, requests: &[ClaimRequest]) -> Answers<Claimed> {
        let (owners, now) = (requests.iter().map(|request| request.owner.to_hex()), self.now());
        let calls = owners.zip(requests).map(|(owner, request)| {
            let lease_and_margin = request.lease.saturating_add(request.skew_margin);
            let time_to_live = request.retention.max(lease_and_margin.saturating_add(Duration::from_millis(1)));
            let fingerprint = request.fingerprint.as_ref().map(Fingerprint::to_hex).unwrap_or_default();
            let arguments = [
                owner,
                fingerprint,
                millis(request.lease).to_string(),
                millis(request.skew_margin).to_string(),
                millis(time_to_live).to_string(),
                u8::from(request.takeover == Takeover::Allowed).to_string(),
                RECORD_VERSION.to_string(),
                NEWEST_KNOWN_VERSION.to_string(),
                now.clone(),
                u8::from(request.result_data == ResultData::Include).to_string(),
            ];
            Call { key: self.key(&request.key), arguments: arguments.map(String::into_bytes).into(), size: 0 }
        });
        let answers = self.evaluate(&CLAIM, calls.collect()).await;
        requests.iter().zip(answers).map(|(request, answer)| claimed(request, answer)).collect()
    }

    pub(super) async fn settle_all(&self, requests: &[SettleRequest]) -> Answers<Settled> {
        let now = self.now();
        let calls = requests.iter().map(|request| {
            let owner = request.owner.to_hex();
            let none = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            let (what, (retention, lease, margin), result) = match &request.settlement {
                Settlement::Complete { result, retention } => {
                    (Status::Completed.as_str(), (*retention, Duration::ZERO, Duration::ZERO), Some(result))
                }
                Settlement::Fail { result, retention } => {
                    (Status::Failed.as_str(), (*retention, Duration::ZERO, Duration::ZERO), Some(result))
                }
                Settlement::Release { took_over: false } => ("release", none, None),
                Settlement::Release { took_over: true } => ("hand_back", none, None),
                Settlement::Renew { lease, skew_margin, retention } => {
                    ("renew", (*retention, *lease, *skew_margin), None)
                }
            };
            let (field, value) = result.map_or(("", Vec::new()), stored);
            let size = value.len();
            let times = [retention, lease, margin].map(|time| millis(time).to_string().into_bytes());
            let mut arguments = vec![owner.into_bytes(), what.into()];
            arguments.extend(times);
            arguments.extend([field.into(), value, now.clone().into_bytes()]);
            Call { key: self.key(&request.key), arguments, size }
        });
        let answers = self.evaluate(&SETTLE, calls.collect()).await;
        requests.iter().zip(answers).map(|(request, answer)| settled(request, answer)).collect()
    }

    pub(super) async fn read_all(&self, keys: &[KeyHash], data: ResultData) -> Answers<Option<Record>> {
        let commands = keys.iter().map(|key| {
            let mut command = redis::cmd("HMGET");
            command.arg(self.key(key)).arg(record::fields(data));
            command
        });
        let answers = self.send(&vec![0; keys.len()], commands.collect()).await;
        let read = |answer: Result<Value, Failure>| {
            record::record(answer.map_err(|failure| failure.into_error("read"))?, "read")
        };
        answers.into_iter().map(read).collect()
    }

    /// Calls a script for each key. What the server does not know by its hash is sent once more by its text.
    async fn evaluate(&self, script: &Script, calls: Vec<Call>) -> Vec<Result<Value, Failure>> {
        let sizes: Vec<usize> = calls.iter().map(|call| call.size).collect();
        let mut answers = self.send(&sizes, calls.iter().map(|call| call.command(script, By::Hash)).collect()).await;
        let is_unknown =
            |answer: &Result<Value, Failure>| matches!(answer, Err(failure) if scripts::is_unknown(&failure.error));
        let unknown: Vec<usize> = (0..answers.len()).filter(|place| is_unknown(&answers[*place])).collect();
        if !unknown.is_empty() {
            let sizes: Vec<usize> = unknown.iter().map(|place| sizes[*place]).collect();
            let commands = unknown.iter().map(|place| calls[*place].command(script, By::Text));
            let again = self.send(&sizes, commands.collect()).await;
            for (place, answer) in unknown.into_iter().zip(again) {
                answers[place] = answer;
            }
        }
        answers
    }

    /// Sends commands whose values have these sizes in as few pipelines as they fit into; answers in their order.
    async fn send(&self, sizes: &[usize], mut commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
        let chunks = chunks(sizes, MAX_BATCH, MAX_BYTES);
        if chunks.len() <= 1 {
            return if commands.is_empty() { Vec::new() } else { self.link.send(commands).await };
        }
        let mut pipelines: Vec<Vec<Cmd>> = Vec::with_capacity(chunks.len());
        for chunk in chunks.into_iter().rev() {
            pipelines.push(commands.split_off(chunk.start));
        }
        let sent = pipelines.into_iter().rev().map(|commands| self.link.send(commands));
        stream::iter(sent).buffered(CONCURRENCY).collect::<Vec<_>>().await.into_iter().flatten().collect()
    }

    /// The time as the scripts take it: empty for the server's own.
    fn now(&self) -> String {
        self.clock.as_ref().map(|clock| clock.now().as_millis().to_string()).unwrap_or_default()
    }

    /// The name of the key's hash. What is in braces decides the slot.
    fn key(&self, key: &KeyHash) -> String {
        let hex = key.to_hex();
        let (slot, rest) = hex.split_at(hex.len() / 2);
        [&*self.key_prefix, "{", slot, "}", rest].concat()
    }
}

/// A call of a script.
struct Call {
    key: String,
    arguments: Vec<Vec<u8>>,
    /// Of what is large in it, in bytes.
    size: usize,
}

impl Call {
    fn command(&self, script: &Script, by: By) -> Cmd {
        let mut command = script.call(by, &self.key);
        for argument in &self.arguments {
            command.arg(&argument[..]);
        }
        command
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(MAX_MILLIS)
}

/// The field that holds a result, and its value.
fn stored(result: &StoredResult) -> (&'static str, Vec<u8>) {
    match &result.data {
        Some(StoredData::Json(text)) => ("data", text.clone().into_bytes()),
        Some(StoredData::Deflated(bytes)) => ("deflated", bytes.clone()),
        None if result.dropped => ("result_dropped", b"1".to_vec()),
        None => ("", Vec::new()),
    }
}

/// The answer of the script, without the number that says whether it was applied.
fn split(answer: Result<Value, Failure>, operation: &'static str) -> Result<(bool, std::vec::IntoIter<Value>), Error> {
    let Value::Array(values) = answer.map_err(|failure| failure.into_error(operation))? else {
        return Err(error::unexpected(operation));
    };
    let mut values = values.into_iter();
    match values.next() {
        Some(Value::Int(applied)) => Ok((applied == 1, values)),
        _ => Err(error::unexpected(operation)),
    }
}

fn claimed(request: &ClaimRequest, answer: Result<Value, Failure>) -> Result<Claimed, Error> {
    const CLAIM: &str = "claim";
    let (is_granted, mut values) = split(answer, CLAIM)?;
    let mut next = || values.next().ok_or_else(|| error::unexpected(CLAIM));
    if is_granted {
        let (lease_until, attempt, prior) = (number(next()?)?, number(next()?)?, text(next()?)?);
        let lease_until = Timestamp::from_millis(lease_until);
        return Ok(Claimed::Granted(Grant { lease_until, attempt, prior_status: Status::from_word(&prior) }));
    }
    let now = Timestamp::from_millis(number(next()?)?);
    let record = record::record(next()?, CLAIM)?.ok_or_else(|| error::unexpected(CLAIM))?;
    match rules::judge(&record, request, now)? {
        Judgement::Mine(grant) => Ok(Claimed::Granted(grant)),
        Judgement::Refused(refusal) => Ok(Claimed::Refused(refusal)),
        // The script would have replaced it.
        Judgement::Free => Err(error::unexpected(CLAIM)),
    }
}

fn settled(request: &SettleRequest, answer: Result<Value, Failure>) -> Result<Settled, Error> {
    let operation = request.settlement.as_str();
    let (is_applied, mut values) = split(answer, operation)?;
    let mut next = || values.next().ok_or_else(|| error::unexpected(operation));
    if is_applied {
        return Ok(match request.settlement {
            Settlement::Renew { .. } => Settled::Renewed { lease_until: Timestamp::from_millis(number(next()?)?) },
            _ => Settled::Done { found: None },
        });
    }
    rules::explain_settle(request, record::record(next()?, operation))
}

fn number(value: Value) -> Result<u64, Error> {
    text(value)?.parse().map_err(|_| error::unexpected("claim"))
}

fn text(value: Value) -> Result<String, Error> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|_| error::unexpected("claim")),
        _ => Err(error::unexpected("claim")),
    }
}
