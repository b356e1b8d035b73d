//! A service with a separate layer, on DynamoDB Local.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Json, Router, routing::post};
use lambda_once::{DynamoDbStore, Idempotency, http::IdempotencyKeyLayer};
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::support::{dynamodb, dynamodb_at, network::Cable, unique};

/// A running service. It takes effect once for each run of its handler.
pub struct Service {
    pub address: String,
    effects: Arc<AtomicUsize>,
    held: Arc<watch::Sender<bool>>,
    store: Cable,
    _tasks: JoinSet<()>,
}

impl Service {
    /// Starts a service with this layer around a handler on this path. The handler responds with the number of the effect,
    /// from 1.
    pub async fn start(
        path: &str,
        layer: impl FnOnce(Idempotency) -> IdempotencyKeyLayer,
        response: impl Fn(usize) -> Value + Clone + Send + Sync + 'static,
    ) -> Self {
        let (endpoint, client) = dynamodb();
        let table = unique("service");
        DynamoDbStore::new(client, &table).create_table().await.unwrap();
        let cable = Cable::to(&endpoint).await;
        let store = DynamoDbStore::new(dynamodb_at(&cable.url), &table);
        let layer = layer(Idempotency::builder(store).scope("service").build().unwrap()).validate().unwrap();
        let (effects, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(watch::Sender::new(false)));
        let (counted, is_held) = (Arc::clone(&effects), Arc::clone(&held));
        let handler = async move || {
            is_held.subscribe().wait_for(|held| !held).await.unwrap();
            Json(response(counted.fetch_add(1, Ordering::Relaxed) + 1))
        };
        let app = Router::new().route(path, post(handler).route_layer(layer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, effects, held, store: cable, _tasks: tasks }
    }

    pub fn effects(&self) -> usize {
        self.effects.load(Ordering::Relaxed)
    }

    /// Makes handlers wait until the returned function is called, which returns true.
    pub fn hold(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        self.held.send_replace(true);
        let held = Arc::clone(&self.held);
        move || {
            held.send_replace(false);
            true
        }
    }

    /// Cuts the connection to the store until the returned function is called, which returns true.
    pub fn cut_store(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        self.store.cut()
    }
}
