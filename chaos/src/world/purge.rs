//! A job that deletes expired rows during the run, on PostgreSQL.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use lambda_once::store::postgres::Config;
use tokio::time::sleep;

use super::{Result, World};
use crate::report::Fault;

const PAUSE: Duration = Duration::from_millis(200);
/// The most rows of a purge.
const ROWS: u32 = 50;

/// Purges until the run is over.
pub(super) fn purge_at_times(world: Arc<World>, url: &str) -> Result<()> {
    let store = Config::from_url(url)?.build()?;
    tokio::spawn(async move {
        while !world.is_over.load(Ordering::SeqCst) {
            sleep(PAUSE).await;
            // It fails while the server is down.
            if store.purge_expired(ROWS).await.is_ok_and(|rows| rows > 0) {
                world.lock().faults.add(Fault::Purged);
            }
        }
    });
    Ok(())
}
