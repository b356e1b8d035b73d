//! Marks for operators: reads one with `GetItem`, and ends doubt with one `UpdateItem`, conditional on the mark that
//! was read.

use aws_sdk_dynamodb::{operation::update_item::UpdateItemError, types::Update};

use super::ordered::{MAX_TRIES, changed_each_time};
use crate::{
    error::Error,
    order::{Entity, Mark},
    store::{
        Store,
        amend::{Amended, ResolveRequest},
        dynamodb::{DynamoDbStore, item::Item},
        ordering,
    },
};

const RESOLVE: &str = "resolve";

impl DynamoDbStore {
    pub(in crate::store::dynamodb) async fn read_mark_of(&self, entity: &Entity) -> Result<Option<Mark>, Error> {
        self.check_orders()?;
        let item = self.read_mark(entity, "read").await?;
        self.schema.mark(entity, item.as_ref(), self.clock.now(), "read")
    }

    pub(in crate::store::dynamodb) async fn resolve_mark(
        &self,
        request: &ResolveRequest,
    ) -> Result<Amended<Mark>, Error> {
        ordering::check_resolution(request)?;
        self.check_orders()?;
        self.home.check()?;
        for _ in 0..MAX_TRIES {
            let item = self.read_mark(&request.entity, RESOLVE).await?;
            let now = self.clock.now();
            let mark = self.schema.mark(&request.entity, item.as_ref(), now, RESOLVE)?;
            let (resolved, answer) = ordering::resolve(mark.as_ref(), request, now)?;
            let Some(resolved) = resolved else { return Ok(answer) };
            if self.replace_mark(&request.entity, &resolved, item.as_ref()).await? {
                return Ok(answer);
            }
        }
        Err(changed_each_time(RESOLVE))
    }

    /// Replaces a mark. Returns `false` if it has changed since it was read.
    async fn replace_mark(&self, entity: &Entity, mark: &Mark, read: Option<&Item>) -> Result<bool, Error> {
        let update: Update = self.schema.replaced_mark(entity, mark, read)?;
        let call = self
            .client
            .update_item()
            .table_name(update.table_name)
            .set_key(Some(update.key))
            .update_expression(update.update_expression)
            .set_condition_expression(update.condition_expression)
            .set_expression_attribute_names(update.expression_attribute_names)
            .set_expression_attribute_values(update.expression_attribute_values);
        match call.send().await {
            Ok(_) => Ok(true),
            Err(failure)
                if failure.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) =>
            {
                Ok(false)
            }
            Err(failure) => Err(self.failed(failure, RESOLVE)),
        }
    }

    fn check_orders(&self) -> Result<(), Error> {
        if self.limits().orders { Ok(()) } else { Err(Error::config("records of AWS Powertools have no order")) }
    }
}
