//! A table in DynamoDB.

use anyhow::Result;
use aws_sdk_dynamodb::types::{
    KeySchemaElement, MultiRegionConsistency, PointInTimeRecoveryStatus, TableStatus, TimeToLiveStatus,
};

use super::super::{
    facts::{Table, TableDescription, Ttl},
    rules::LISTING_INDEX,
};
use crate::{aws, spec, store};

/// Describes a table.
///
/// # Errors
///
/// Returns the errors of DynamoDB, except that there is no such table.
pub(crate) async fn table(spec: &spec::Table, home_region: Option<String>) -> Result<Table> {
    let client = store::client(spec).await;
    let name = &spec.name;
    let mut table = Table { name: name.clone(), description: None, wants_index: spec.has_index, home_region };
    let found = match client.describe_table().table_name(name).send().await {
        Ok(found) => found.table,
        Err(error) if error.as_service_error().is_some_and(|error| error.is_resource_not_found_exception()) => None,
        Err(error) => return Err(aws::error(error)),
    };
    let Some(found) = found else { return Ok(table) };
    let ttl = client.describe_time_to_live().table_name(name).send().await.ok();
    let ttl = ttl.map(|found| {
        let found = found.time_to_live_description;
        let is_on = |status| matches!(status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling);
        match found.map(|ttl| (ttl.time_to_live_status, ttl.attribute_name)) {
            Some((Some(status), Some(attribute))) if is_on(status.clone()) => Ttl::On(attribute),
            _ => Ttl::Off,
        }
    });
    let backups = client.describe_continuous_backups().table_name(name).send().await.ok();
    let recovery = backups.and_then(|found| found.continuous_backups_description).map(|backups| {
        backups
            .point_in_time_recovery_description
            .and_then(|recovery| recovery.point_in_time_recovery_status)
            .is_some_and(|status| status == PointInTimeRecoveryStatus::Enabled)
    });
    let definitions = found.attribute_definitions();
    let key = |elements: &[KeySchemaElement]| {
        let of = |element: &KeySchemaElement| {
            let definition = definitions.iter().find(|definition| definition.attribute_name == element.attribute_name);
            let kind = definition.map_or("?", |definition| definition.attribute_type.as_str());
            (element.attribute_name.clone(), kind.to_owned())
        };
        elements.iter().map(of).collect::<Vec<_>>()
    };
    let index = found.global_secondary_indexes().iter().find(|index| index.index_name() == Some(LISTING_INDEX));
    table.description = Some(TableDescription {
        is_active: found.table_status.as_ref().is_some_and(|status| {
            // An update, for example of TTL, does not refuse requests.
            matches!(status, TableStatus::Active | TableStatus::Updating)
        }),
        key: key(found.key_schema()),
        index: index.map(|index| key(index.key_schema())),
        ttl,
        replicas: found.replicas().iter().filter_map(|replica| replica.region_name.clone()).collect(),
        is_strong: found.multi_region_consistency() == Some(&MultiRegionConsistency::Strong),
        is_protected: found.deletion_protection_enabled == Some(true),
        has_recovery: recovery,
    });
    Ok(table)
}
