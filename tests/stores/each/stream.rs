//! Records of a Kinesis stream.

use std::time::Duration;

use lambda_once::{
    Key, OutcomeKind,
    batch::{BatchService, Handler, kinesis::Kinesis},
    testing::{self, Redeliver, kinesis},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};

use super::{Layer, World};
use crate::support::stores::{Backend, on_each_store};

struct Stream<H, Args>(BatchService<Kinesis, H, Value, Args>);

impl<H: Handler<Value, Args>, Args: 'static> Layer for Stream<H, Args> {
    const LAPSED: OutcomeKind = OutcomeKind::Abandoned;

    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind {
        let batch = kinesis::batch([testing::record(&json!({ "id": id, "cents": cents }))]);
        let processed = self.0.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
        let outcome = processed.outcomes()[0].unwrap();
        assert_eq!(processed.reported().is_empty(), outcome.is_done(), "what is not done is the checkpoint");
        outcome
    }
}

async fn records(backend: Backend) {
    let world = World::new(backend).await;
    let handler = world.handler.clone();
    let handle = move |_: Value| {
        let handler = handler.clone();
        async move { handler.run().await }
    };
    // The batch does not wait for claims that are held elsewhere.
    let service = world.engine().kinesis(Key::pointer("/id"), handle).wait_up_to(Duration::ZERO);
    world.assert_promises(&Stream(service)).await;
}

on_each_store!(records);
