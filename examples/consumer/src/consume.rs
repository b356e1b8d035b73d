//! Handles the entries of a stream, a limited number at a time.

use std::sync::Arc;

use redis::RedisResult;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{Duration, timeout},
};
use tracing::{error, info, warn};

use crate::{
    config::Config,
    debit::{Debits, Decision},
    stream::{Entry, Group, Reader},
};

/// The pause after an error from Redis.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads until it is stopped, and then waits up to `config.drain` for the entries that it has read.
pub(crate) async fn consume(
    config: &Config,
    mut reader: Reader,
    group: Group,
    debits: Arc<Debits>,
    mut stop: watch::Receiver<bool>,
) {
    let mut running = JoinSet::new();
    while !*stop.borrow() {
        while let Some(ended) = running.try_join_next() {
            report(ended);
        }
        if running.len() >= config.concurrency {
            tokio::select! {
                Some(ended) = running.join_next() => report(ended),
                _ = stop.wait_for(|stop| *stop) => {}
            }
            continue;
        }
        // Not cancelled by `stop`, because entries that Redis has delivered would stay pending until they are claimed.
        match reader.next(config.concurrency - running.len()).await {
            Ok(entries) => {
                for entry in entries {
                    running.spawn(handle(entry, group.clone(), Arc::clone(&debits)));
                }
            }
            Err(error) => {
                warn!(%error, "cannot read the stream");
                let _ = timeout(PAUSE, stop.wait_for(|stop| *stop)).await;
                // A Redis that has lost its data has lost the group.
                if let Err(error) = group.create().await {
                    warn!(%error, "cannot create the group");
                }
            }
        }
    }
    drain(running, config.drain).await;
}

/// Entries that do not finish in time stay pending. They have not taken effect, because their transactions are rolled back.
async fn drain(mut running: JoinSet<()>, limit: Duration) {
    info!(entries = running.len(), "draining");
    let ends = async {
        while let Some(ended) = running.join_next().await {
            report(ended);
        }
    };
    if timeout(limit, ends).await.is_err() {
        warn!(entries = running.len(), "left pending");
        running.shutdown().await;
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "an entry is left pending");
    }
}

/// Acknowledges an entry only once its outcome is known. Until then it stays pending, and is claimed again.
async fn handle(entry: Entry, group: Group, debits: Arc<Debits>) {
    let decision = match entry.order() {
        Some(order) => debits.handle(&entry.id, order).await,
        None => Decision::Refused("without an order".to_owned()),
    };
    if let Err(error) = settle(&entry, &group, decision).await {
        // The order is then replayed.
        warn!(entry = entry.id, %error, "not acknowledged; left pending");
    }
}

async fn settle(entry: &Entry, group: &Group, decision: Decision) -> RedisResult<()> {
    match decision {
        Decision::Done => group.acknowledge(entry).await,
        Decision::Refused(reason) => {
            warn!(entry = entry.id, "dead-lettered");
            group.dead_letter(entry, &reason).await
        }
        Decision::Undecided => Ok(()),
    }
}
