//! The HTTP interface of each worker to the queues: the Lambda Runtime API for a function, single messages for a consumer.

use std::{sync::Arc, time::Duration};

use tokio::{net::TcpListener, time::timeout};

use super::{
    Result, World, consumer_api, runtime_api,
    slots::{Kind, Slot},
};

/// The longest pause between two polls of a queue, because messages become visible silently.
const PAUSE: Duration = Duration::from_millis(20);

/// The interface of the worker in a slot.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) world: Arc<World>,
    slot: usize,
}

impl Api {
    pub(super) fn slot(&self) -> &Slot {
        &self.world.slots[self.slot]
    }

    /// Waits until there may be new messages.
    pub(super) async fn pause(&self) {
        let _ = timeout(PAUSE, self.world.sent.notified()).await; // in either case it looks again
    }
}

/// Serves the interface of the worker in a slot.
pub(super) async fn serve(world: &Arc<World>, slot: &Slot) -> Result<()> {
    let routes = match slot.kind {
        Kind::Function(_) => runtime_api::routes(),
        Kind::Consumer => consumer_api::routes(),
        Kind::Service => return Ok(()),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    slot.set_api(&listener.local_addr()?.to_string());
    let place = world.slots.iter().position(|other| std::ptr::eq(other, slot)).unwrap_or_default();
    let router = routes.with_state(Api { world: Arc::clone(world), slot: place });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}
