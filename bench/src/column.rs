//! The columns of the tables: the library and its hand-written rivals, each of which processes a batch.

use std::sync::Arc;

use anyhow::Result;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_dynamodb::Client;
use futures_util::future::BoxFuture;
use lambda_once::{
    CachedStore, Store,
    store::dynamodb::{Calls, Config},
};

use crate::{
    cell::Column,
    library,
    raw::{self, Table},
};

/// Processes a batch.
pub type Deliver = Box<dyn Fn(SqsEvent) -> BoxFuture<'static, Result<SqsBatchResponse>> + Send + Sync>;

impl Column {
    fn store(self, client: Client, table: &str) -> Result<Arc<dyn Store>> {
        let calls = if self == Self::Single { Calls::Single } else { Calls::Batched };
        let store = Config::new(table).calls(calls).build(client)?;
        Ok(if self == Self::Cached { Arc::new(CachedStore::new(store)) } else { Arc::new(store) })
    }

    /// Returns its code, on this table.
    ///
    /// # Errors
    ///
    /// None in practice, because the table has a name.
    pub fn open(self, client: Client, table: &str) -> Result<Deliver> {
        macro_rules! by_hand {
            ($deliver:path) => {{
                let table = Table::new(client, table.to_owned());
                Box::new(move |event| {
                    let table = table.clone();
                    Box::pin(async move { Ok($deliver(&table, event).await) })
                })
            }};
        }
        Ok(match self {
            Self::Single | Self::Batched | Self::Cached => {
                let service = library::service(&library::engine(self.store(client, table)?)?);
                Box::new(move |event| {
                    let service = service.clone();
                    Box::pin(async move { Ok(library::deliver(&service, event).await?) })
                })
            }
            Self::RawSequential => by_hand!(raw::sequential),
            Self::RawConcurrent => by_hand!(raw::concurrent),
            Self::RawPartiql => by_hand!(raw::batched),
        })
    }
}
