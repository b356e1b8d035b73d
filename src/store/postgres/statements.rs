//! The statements, for a table of any name.

use crate::error::Error;

/// The table's name in the `.sql` files, and what its index is called there in addition.
const TABLE: &str = "once_records";
const INDEX_SUFFIX: &str = "_purge";

/// PostgreSQL cuts longer names off without an error.
const MAX_NAME_BYTES: usize = 63 - INDEX_SUFFIX.len();

/// The name of the table.
#[derive(Clone, Debug)]
pub(super) struct TableName {
    /// `None` for the first schema of the role's `search_path` that has the table.
    pub(super) schema: Option<String>,
    pub(super) table: String,
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, table: TABLE.to_owned() }
    }
}

impl TableName {
    pub(super) fn check(&self) -> Result<(), Error> {
        let names = [Some(&self.table), self.schema.as_ref()];
        if names.into_iter().flatten().any(|name| name.is_empty() || name.contains('\0')) {
            return Err(Error::config("the names of the table and of its schema must not be empty or hold a NUL"));
        }
        if names.into_iter().flatten().any(|name| name.len() > MAX_NAME_BYTES) {
            return Err(Error::config(format!(
                "the names of the table and of its schema must not be longer than {MAX_NAME_BYTES} bytes"
            )));
        }
        Ok(())
    }

    fn quoted(&self) -> String {
        let schema = self.schema.as_ref().map_or(String::new(), |schema| format!("{}.", quoted(schema)));
        schema + &quoted(&self.table)
    }

    fn index(&self) -> String {
        format!("{}{INDEX_SUFFIX}", self.table)
    }

    /// A statement for this table.
    fn fill(&self, sql: &str) -> String {
        let (table, index) = (self.quoted(), quoted(&self.index()));
        let mut parts = sql.split(TABLE);
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.strip_prefix(INDEX_SUFFIX) {
                Some(rest) => filled.extend([&index, rest]),
                None => filled.extend([&table, part]),
            }
        }
        filled
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[derive(Debug)]
pub(super) struct Statements {
    /// The table's name, quoted.
    pub(super) table: String,
    pub(super) index: String,
    pub(super) claim: String,
    pub(super) select: String,
    pub(super) locked: String,
    pub(super) settle: String,
    pub(super) release: String,
    pub(super) purge: String,
    pub(super) abandoned: String,
    pub(super) schema: String,
}

impl Statements {
    pub(super) fn new(table: &TableName) -> Self {
        Self {
            table: table.quoted(),
            index: table.index(),
            claim: table.fill(include_str!("claim.sql")),
            select: table.fill(include_str!("select.sql")),
            locked: table.fill(include_str!("locked.sql")),
            settle: table.fill(include_str!("settle.sql")),
            release: table.fill(include_str!("release.sql")),
            purge: table.fill(include_str!("purge.sql")),
            abandoned: table.fill(include_str!("abandoned.sql")),
            schema: table.fill(include_str!("schema.sql")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_wherever_they_stand() {
        let name = TableName { schema: Some("a.b".into()), table: "say \"once\"".into() };
        let statements = Statements::new(&name);
        assert!(
            statements.schema.ends_with(
                "CREATE INDEX IF NOT EXISTS \"say \"\"once\"\"_purge\" ON \"a.b\".\"say \"\"once\"\"\" (purge_day);\n"
            ),
            "{}",
            statements.schema
        );
        assert!(statements.claim.contains("INSERT INTO \"a.b\".\"say \"\"once\"\"\" AS r"));
        let of_the_default = Statements::new(&TableName::default()).schema.replace('"', "");
        assert_eq!(of_the_default, include_str!("schema.sql"));
    }

    #[test]
    fn names_that_postgresql_would_change_are_refused() {
        for table in ["", "a\0b", &"x".repeat(58)] {
            assert!(TableName { schema: None, table: table.to_owned() }.check().is_err(), "{table:?}");
        }
        assert!(TableName { schema: Some(String::new()), ..TableName::default() }.check().is_err());
        assert!(TableName { schema: None, table: "x".repeat(57) }.check().is_ok());
    }
}
