//! Claims, settles and reads with one command per key.

use futures_util::{StreamExt, stream};
use redis::{Cmd, Value};

use super::{
    MAX_BATCH, RedisStore, answers,
    arguments::{self, Repeated},
    failure::Failure,
    record,
    scripts::{self, AMEND, By, CLAIM, SETTLE, Variant},
};
use crate::{
    order::Order,
    record::{KeyHash, Record},
    store::{
        Answers, ClaimRequest, Claimed, ResultData, SettleRequest, Settled,
        amend::{AmendRequest, Amended},
        remote::chunks::chunks,
        rules,
    },
};

/// The maximum size of the results in one pipeline, in bytes. A larger result is sent alone.
const MAX_BYTES: usize = 1024 * 1024;

/// The maximum number of simultaneous pipelines of one call.
const CONCURRENCY: usize = 4;

impl RedisStore {
    pub(super) async fn claim_all(&self, requests: &[ClaimRequest]) -> Answers<Claimed> {
        let (now, mut terms) = (self.now(), Repeated::new());
        let call = |request: &ClaimRequest, by| {
            let mut command = CLAIM.call(by, self.name(&request.key), self.variant(request.order()));
            arguments::of_claim(request, &mut terms, &now, &mut command);
            command
        };
        let answers = self.evaluate(requests, &vec![0; requests.len()], call).await;
        requests.iter().zip(answers).map(|(request, answer)| answers::claimed(request, answer)).collect()
    }

    pub(super) async fn settle_all(&self, requests: &[SettleRequest]) -> Answers<Settled> {
        let (now, mut terms) = (self.now(), Repeated::new());
        let call = |request: &SettleRequest, by| {
            let mut command = SETTLE.call(by, self.name(&request.key), self.variant(request.order()));
            arguments::of_settle(request, &mut terms, &now, &mut command);
            command
        };
        let size = |request: &SettleRequest| arguments::result(&request.settlement).map_or(0, |(_, value)| value.len());
        let sizes: Vec<usize> = requests.iter().map(size).collect();
        let answers = self.evaluate(requests, &sizes, call).await;
        requests.iter().zip(answers).map(|(request, answer)| answers::settled(request, answer)).collect()
    }

    pub(super) async fn amend_all(&self, requests: &[AmendRequest]) -> Answers<Amended> {
        let now = self.now();
        let call = |request: &&AmendRequest, by| {
            let mut command = AMEND.call(by, self.name(&request.key), self.variant(request.order().as_ref()));
            arguments::of_amend(request, &now, &mut command);
            command
        };
        let valid: Vec<&AmendRequest> =
            requests.iter().filter(|request| rules::check_amendment(request).is_ok()).collect();
        let sizes: Vec<usize> = valid.iter().map(|request| arguments::amended(request).1.len()).collect();
        let mut answers = self.evaluate(&valid, &sizes, call).await.into_iter();
        let answer = |request: &AmendRequest| {
            rules::check_amendment(request)?;
            answers::amended(request, answers.next())
        };
        requests.iter().map(answer).collect()
    }

    pub(super) async fn read_all(&self, keys: &[KeyHash], data: ResultData) -> Answers<Option<Record>> {
        let answers = self.read_fields(keys, data).await;
        let read = |answer: Result<Value, Failure>| {
            record::record(answer.map_err(|failure| failure.into_error("read"))?, "read")
        };
        answers.into_iter().map(read).collect()
    }

    pub(super) async fn read_fields(&self, keys: &[KeyHash], data: ResultData) -> Vec<Result<Value, Failure>> {
        let commands = keys.iter().map(|key| {
            let mut command = redis::cmd("HMGET");
            command.arg(self.name(key)).arg(record::fields(data));
            command
        });
        self.send(&vec![0; keys.len()], commands.collect()).await
    }

    /// Calls a script for each request with a result of this size. If the server does not have the script, the call is
    /// sent again with the script's text.
    pub(super) async fn evaluate<R: Sync>(
        &self,
        requests: &[R],
        sizes: &[usize],
        mut call: impl FnMut(&R, By) -> Cmd + Send,
    ) -> Vec<Result<Value, Failure>> {
        let mut answers = self.send(sizes, requests.iter().map(|request| call(request, By::Hash)).collect()).await;
        let is_unknown =
            |answer: &Result<Value, Failure>| matches!(answer, Err(failure) if scripts::is_unknown(&failure.error));
        let unknown: Vec<usize> = (0..answers.len()).filter(|place| is_unknown(&answers[*place])).collect();
        if !unknown.is_empty() {
            let sizes: Vec<usize> = unknown.iter().map(|place| sizes[*place]).collect();
            let commands = unknown.iter().map(|place| call(&requests[*place], By::Text));
            let again = self.send(&sizes, commands.collect()).await;
            for (place, answer) in unknown.into_iter().zip(again) {
                answers[place] = answer;
            }
        }
        answers
    }

    /// Sends commands with values of these sizes in as few pipelines as possible. Returns the replies in order.
    pub(super) async fn send(&self, sizes: &[usize], mut commands: Vec<Cmd>) -> Vec<Result<Value, Failure>> {
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

    /// Returns the time argument of the scripts, which is empty for the server's own clock.
    pub(super) fn now(&self) -> String {
        self.clock.as_ref().map(|clock| clock.now().as_millis().to_string()).unwrap_or_default()
    }

    fn variant(&self, order: Option<&Order>) -> Variant {
        Variant { is_ordered: order.is_some(), is_indexed: self.has_listing_index }
    }

    /// Returns the name of the key's hash.
    fn name<'a>(&'a self, key: &'a KeyHash) -> arguments::Name<'a> {
        arguments::Name { prefix: &self.key_prefix, key }
    }
}
