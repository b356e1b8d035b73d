//! Creates the table, for tests and local use. For an AWS account, use a template.

use aws_sdk_dynamodb::{
    client::Waiters,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
        ScalarAttributeType, TimeToLiveSpecification,
    },
};

use super::{DynamoDbStore, schema::LISTING_INDEX};
use crate::error::{Error, ErrorKind, ErrorStatus};

impl DynamoDbStore {
    /// Creates the table with on-demand billing, and the index for lists if it is enabled, waits until the table is
    /// active, and enables TTL.
    ///
    /// For tests and local use. Create a real table with a template that includes backups, alarms and permissions.
    ///
    /// # Errors
    ///
    /// The errors of DynamoDB, for example if the table exists. [`ErrorKind::Table`] if it is not active within a
    /// minute.
    pub async fn create_table(&self) -> Result<(), Error> {
        let invalid = |error| {
            Error::new(ErrorKind::Request, ErrorStatus::Permanent, "create_table", "the request could not be built")
                .with_source(error)
        };
        let schema = &self.schema;
        let mut create = self.client.create_table().table_name(&schema.table).billing_mode(BillingMode::PayPerRequest);
        let partition_key = Some((schema.names.id.as_str(), KeyType::Hash));
        let sort_key = schema.sort_key_name().map(|name| (name, KeyType::Range));
        for (name, key_type) in partition_key.into_iter().chain(sort_key) {
            let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
            let element = KeySchemaElement::builder().attribute_name(name).key_type(key_type);
            create = create
                .attribute_definitions(attribute.build().map_err(invalid)?)
                .key_schema(element.build().map_err(invalid)?);
        }
        if schema.has_listing_index {
            let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
            let mut index = GlobalSecondaryIndex::builder().index_name(LISTING_INDEX).projection(projection);
            for (name, key_type, scalar) in [
                (&schema.names.open, KeyType::Hash, ScalarAttributeType::S),
                (&schema.names.claimed_at, KeyType::Range, ScalarAttributeType::N),
            ] {
                let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(scalar);
                let element = KeySchemaElement::builder().attribute_name(name).key_type(key_type);
                create = create.attribute_definitions(attribute.build().map_err(invalid)?);
                index = index.key_schema(element.build().map_err(invalid)?);
            }
            create = create.global_secondary_indexes(index.build().map_err(invalid)?);
        }
        create.send().await.map_err(|failure| self.failed(failure, "create_table"))?;
        self.client
            .wait_until_table_exists()
            .table_name(&schema.table)
            .wait(std::time::Duration::from_secs(60))
            .await
            .map_err(|failure| {
                Error::new(ErrorKind::Table, ErrorStatus::Temporary, "create_table", "the table did not become active")
                    .with_source(failure.to_string())
            })?;
        let ttl = TimeToLiveSpecification::builder().attribute_name(&schema.names.expiration).enabled(true);
        self.client
            .update_time_to_live()
            .table_name(&schema.table)
            .time_to_live_specification(ttl.build().map_err(invalid)?)
            .send()
            .await
            .map_err(|failure| self.failed(failure, "create_table"))?;
        Ok(())
    }
}
