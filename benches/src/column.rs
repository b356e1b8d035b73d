//! The columns of the tables: the library and its rivals by hand, each of which takes a batch.

use anyhow::Result;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_dynamodb::Client;
use futures_util::future::BoxFuture;

use crate::{
    cell::Column,
    library,
    raw::{self, Table},
};

/// Takes a batch.
pub type Deliver = Box<dyn Fn(SqsEvent) -> BoxFuture<'static, Result<SqsBatchResponse>> + Send + Sync>;

impl Column {
    /// Its code, on this table.
    ///
    /// # Errors
    ///
    /// None that can happen: the table has a name.
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
                let service = library::service(&library::engine(library::store(client, table, self)?)?);
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
