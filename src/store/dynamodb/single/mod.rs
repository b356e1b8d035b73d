//! Claims, settles and reads with one request per key.
//!
//! Ordered ones are held as boxed futures. Without the feature `order` none is ever created, so that the linker removes
//! their code, and with it the SDK's code for transactions.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::{
    operation::update_item::UpdateItemError,
    types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure},
};
use futures_util::{StreamExt, stream};

use super::{DynamoDbStore, item::Item};
use crate::{
    error::Error,
    future::BoxFuture,
    order::Entity,
    record::{KeyHash, Record},
    store::{Answers, ResultData},
};

mod amend;
mod claim;
mod commit;
mod expressions;
mod ordered;
mod resolve;
mod settle;
mod transaction;

pub(super) use commit::COMMIT;
pub(super) use expressions::{Expression, Expressions, aliased};
pub use transaction::Writes;

/// The maximum number of simultaneous requests of one call.
pub(super) const CONCURRENCY: usize = 10;

/// The values of a request's placeholders.
type Values = HashMap<String, AttributeValue>;

/// The result of a conditional write.
enum Write {
    /// It was applied. An update returns the requested attributes.
    Applied(Option<Item>),
    /// The condition failed, on this item if there was one (and the emulator returns it).
    Refused(Option<Item>),
}

impl DynamoDbStore {
    pub(super) async fn read_one(
        &self,
        key: &KeyHash,
        data: ResultData,
        operation: &'static str,
    ) -> Result<Option<Record>, Error> {
        let item = self.read_item(key, data, operation).await?;
        item.map(|item| self.schema.record(&item, data, operation)).transpose()
    }

    async fn read_item(&self, key: &KeyHash, data: ResultData, operation: &'static str) -> Result<Option<Item>, Error> {
        let mut get = self
            .client
            .get_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(key)))
            .consistent_read(true);
        if data == ResultData::Omit {
            let Expression { update: attributes, names, .. } = &self.expressions.without_data;
            get = get.projection_expression(attributes).set_expression_attribute_names(names.clone());
        }
        let answer = get.send().await.map_err(|failure| self.failed(failure, operation))?;
        Ok(answer.item)
    }

    async fn update(
        &self,
        operation: &'static str,
        key: &KeyHash,
        expression: &Expression,
        values: Values,
        wanted: Option<ReturnValue>,
    ) -> Result<Write, Error> {
        let answer = self
            .client
            .update_item()
            .table_name(&self.schema.table)
            .set_key(Some(self.schema.key(key)))
            .update_expression(&expression.update)
            .condition_expression(&expression.condition)
            .set_expression_attribute_names(expression.names.clone())
            .set_expression_attribute_values(Some(values))
            .set_return_values(wanted)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let failure = match answer {
            Ok(applied) => return Ok(Write::Applied(applied.attributes)),
            Err(failure) => failure,
        };
        if !failure.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) {
            return Err(self.failed(failure, operation));
        }
        let item = match failure.into_service_error() {
            UpdateItemError::ConditionalCheckFailedException(refused) => refused.item,
            _ => None,
        };
        Ok(Write::Refused(item.filter(|item| !item.is_empty())))
    }
}

/// Sends one request per item, with a limited number at a time, and returns the results in order.
///
/// Calls are boxed, so that the code that runs them is compiled once per type of result. A request costs far more than
/// a box.
pub(super) fn side_by_side<'a, Q, A: Send + 'a>(
    requests: &'a [Q],
    call: impl Fn(&'a Q) -> BoxFuture<'a, Result<A, Error>>,
) -> BoxFuture<'a, Answers<A>> {
    let calls: Vec<_> = requests.iter().map(call).collect();
    Box::pin(stream::iter(calls).buffered(CONCURRENCY).collect())
}

/// Sends one request per item. Requests of one entity are sent one after another, because their transactions would
/// conflict. Returns the results in order.
pub(super) fn by_entity<'a, Q, A>(
    requests: &'a [Q],
    key: impl Fn(&'a Q) -> &'a KeyHash,
    call: impl Fn(&'a Q) -> BoxFuture<'a, Result<A, Error>> + Send + Sync + 'a,
) -> BoxFuture<'a, Answers<A>>
where
    Q: Sync,
    A: Send + 'a,
{
    let mut groups: BTreeMap<Entity, Vec<(usize, &'a Q)>> = BTreeMap::new();
    for (i, request) in requests.iter().enumerate() {
        groups.entry(Entity::of(key(request))).or_default().push((i, request));
    }
    let count = requests.len();
    Box::pin(async move {
        let call = &call;
        let groups = groups.into_values().map(|group| async move {
            let mut answers = Vec::with_capacity(group.len());
            for (i, request) in group {
                answers.push((i, call(request).await));
            }
            answers
        });
        let groups: Vec<BoxFuture<'_, _>> = groups.map(|group| -> BoxFuture<'_, _> { Box::pin(group) }).collect();
        let mut in_order: Vec<_> = std::iter::repeat_with(|| None).take(count).collect();
        for (i, answer) in stream::iter(groups).buffered(CONCURRENCY).concat().await {
            in_order[i] = Some(answer);
        }
        in_order.into_iter().flatten().collect()
    })
}

/// Returns values under their placeholders.
fn values<const N: usize>(values: [(&str, AttributeValue); N]) -> Values {
    // Space for the additional values of a claim.
    let mut map = HashMap::with_capacity(N + 3);
    map.extend(values.map(|(placeholder, value)| (placeholder.to_owned(), value)));
    map
}
