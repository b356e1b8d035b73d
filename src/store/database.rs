//! The database of a store, as it appears in traces.

/// The database of a store, as it appears in traces.
///
/// The names come from OpenTelemetry's [conventions for
/// databases](https://opentelemetry.io/docs/specs/semconv/db/database-spans/).
///
/// ```
/// use lambda_once::store::Database;
///
/// let database = Database::new("mongodb").with_collection("idempotency");
/// assert_eq!(database.collection, Some("idempotency"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Database<'a> {
    /// `db.system.name`: the product.
    pub system: &'static str,
    /// `db.collection.name`: the table or collection with the records, if any.
    pub collection: Option<&'a str>,
}

impl<'a> Database<'a> {
    /// Creates a database without collections.
    pub const fn new(system: &'static str) -> Self {
        Self { system, collection: None }
    }

    /// Sets the table or collection with the records.
    #[must_use]
    pub const fn with_collection(mut self, name: &'a str) -> Self {
        self.collection = Some(name);
        self
    }
}
