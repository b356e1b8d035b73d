//! Records without anything to decode, so that only the scheduling remains.

use std::{borrow::Cow, sync::Arc};

use anyhow::{Result, ensure};
use lambda_once::{
    Error, Failure, Idempotency, Key, Payload,
    batch::{BatchService, Handler, RecordInfo, Source},
};
use lambda_runtime::LambdaEvent;

use crate::library;

/// Ids without bodies, without an order.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Source for Plain {
    type Event = Vec<String>;
    type Record = String;
    type Rest = ();
    type Body = [u8; 0];
    type Response = usize;

    const OPERATION: &'static str = "plain";

    fn split(&self, ids: Vec<String>) -> Result<(Vec<String>, ()), Error> {
        Ok((ids, ()))
    }

    fn lane<'a>(&self, _: &'a String) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, id: String) -> (RecordInfo, [u8; 0]) {
        (RecordInfo::new(id), [])
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<usize, Error> {
        Ok(failed.len())
    }
}

/// Returns its service: ids as keys, no fingerprints, and a handler that does nothing.
pub fn service(engine: &Idempotency) -> BatchService<Plain, impl Handler<(), ((),)> + use<>, (), ((),)> {
    let nothing = |()| async { Ok::<_, Failure>(()) };
    engine.batch(Plain, Key::message_id(), |_, _| Ok(()), nothing).payload(Payload::Ignored)
}

/// Runs one invocation with these ids.
///
/// # Errors
///
/// If a record fails, which does not happen.
pub async fn deliver(engine: &Idempotency, ids: Vec<String>) -> Result<()> {
    let event = LambdaEvent::new(ids, library::context());
    let processed = tower_service::Service::call(&mut service(engine), event).await?;
    ensure!(processed == 0, "a record failed");
    Ok(())
}
