//! Whole invocations.

use lambda_once::{
    BoxError, Key, OutcomeKind, Verdict,
    invocation::{self, InvocationError, InvocationLayer},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tower::{Layer as _, Service, ServiceExt};

use super::{Handler, Layer, World};
use crate::support::stores::{Backend, on_each_store};

struct Function<S> {
    service: S,
    handler: Handler,
}

/// The number of the run, and whether it took over.
type Answer = (u32, bool);

impl<S> Layer for Function<S>
where
    S: Service<LambdaEvent<Box<RawValue>>, Response = Answer, Error = InvocationError<BoxError>> + Clone,
{
    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind {
        let payload = to_raw_value(&json!({ "id": id, "cents": cents })).unwrap();
        let before = self.handler.runs();
        match self.service.clone().oneshot(LambdaEvent::new(payload, Context::default())).await {
            Ok((run, _)) if run <= before => OutcomeKind::Replayed,
            Ok((_, true)) => OutcomeKind::TookOver,
            Ok((_, false)) => OutcomeKind::Executed,
            Err(InvocationError::Handler(_)) => OutcomeKind::Failed(Verdict::Transient),
            Err(InvocationError::NoResult { outcome, .. }) => outcome,
            Err(other) => panic!("no error of these tests: {other:?}"),
        }
    }
}

async fn invocations(backend: Backend) {
    let world = World::new(backend).await;
    let handler = world.handler.clone();
    let charge = tower::service_fn(move |_: LambdaEvent<Value>| {
        let handler = handler.clone();
        async move {
            let took_over = invocation::claim().unwrap().took_over();
            let run = handler.run().await.map_err(|_| BoxError::from("closed"))?;
            Ok::<Answer, BoxError>((run, took_over))
        }
    });
    let service = InvocationLayer::new(world.engine(), Key::pointer("/id")).layer(charge);
    world.assert_promises(&Function { service, handler: world.handler.clone() }).await;
}

on_each_store!(invocations);
