//! Marks for operators: read with `HMGET`, and replaced by a script if they have not changed since.

use redis::Value;

use super::{RedisStore, arguments::MarkName, error, failure::Failure, mark, scripts::RESOLVE as SCRIPT};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::{Entity, Mark},
    store::{
        Answers,
        amend::{Amended, ResolveRequest},
        ordering,
    },
};

const READ: &str = "read";
const RESOLVE: &str = "resolve";

/// The maximum number of tries while others change the mark.
const MAX_TRIES: usize = 5;

impl RedisStore {
    pub(super) async fn read_marks(&self, entities: &[Entity]) -> Answers<Option<Mark>> {
        let commands = entities.iter().map(|entity| {
            let mut command = redis::cmd("HMGET");
            command.arg(self.mark_name(*entity)).arg(&mark::FIELDS);
            command
        });
        let answers = self.send(&vec![0; entities.len()], commands.collect()).await;
        let read = |(entity, answer): (&Entity, Result<Value, Failure>)| {
            mark::mark(answer.map_err(|failure| failure.into_error(READ))?, *entity, READ)
        };
        entities.iter().zip(answers).map(read).collect()
    }

    pub(super) async fn resolve_mark(&self, request: &ResolveRequest) -> Result<Amended<Mark>, Error> {
        ordering::check_resolution(request)?;
        for _ in 0..MAX_TRIES {
            let (fields, now) = self.read_fields_and_time(request.entity).await?;
            let mark = mark::mark(Value::Array(fields.clone()), request.entity, RESOLVE)?;
            // A holder that has lapsed now has still lapsed when the script finds the mark unchanged.
            let (resolved, answer) = ordering::resolve(mark.as_ref(), request, now)?;
            let Some(resolved) = resolved else { return Ok(answer) };
            let before = fields.into_iter().map(|field| match field {
                Value::BulkString(bytes) => bytes,
                _ => Vec::new(),
            });
            let after = mark::stored(&resolved).map(String::into_bytes);
            match self.call_on_mark(request.entity, &before.chain(after).collect::<Vec<_>>()).await? {
                Value::Int(1) => return Ok(answer),
                Value::Int(_) => {}
                _ => return Err(error::unexpected(RESOLVE)),
            }
        }
        let message = "the mark of the entity was changed each time that this was tried";
        Err(Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, RESOLVE, message))
    }

    /// Returns the stored fields of a mark, and the time that decides leases.
    async fn read_fields_and_time(&self, entity: Entity) -> Result<(Vec<Value>, Timestamp), Error> {
        let unexpected = || error::unexpected(RESOLVE);
        let Value::Array(found) = self.call_on_mark(entity, &[]).await? else { return Err(unexpected()) };
        let Ok([Value::BulkString(now), Value::Array(fields)]) = <[Value; 2]>::try_from(found) else {
            return Err(unexpected());
        };
        let now = std::str::from_utf8(&now).ok().and_then(|digits| digits.parse().ok()).ok_or_else(unexpected)?;
        Ok((fields, Timestamp::from_millis(now)))
    }

    async fn call_on_mark(&self, entity: Entity, arguments: &[Vec<u8>]) -> Result<Value, Error> {
        let now = self.now();
        let call = |entity: &Entity, by| {
            let mut command = SCRIPT.call_on_mark(by, self.mark_name(*entity));
            command.arg(&now).arg(arguments);
            command
        };
        let answer = self.evaluate(&[entity], &[0], call).await.pop();
        answer.ok_or_else(|| error::unexpected(RESOLVE))?.map_err(|failure| failure.into_error(RESOLVE))
    }

    fn mark_name(&self, entity: Entity) -> MarkName<'_> {
        MarkName { prefix: &self.key_prefix, entity }
    }
}
